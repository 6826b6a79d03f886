"""Record requests, and play back recordings."""
