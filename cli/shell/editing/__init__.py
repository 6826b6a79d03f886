"""Line editors for a terminal: prompt_toolkit or readline."""
