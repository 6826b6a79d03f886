"""Process the frames of a connection: pauses, faults and recordings."""
