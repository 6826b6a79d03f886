"""The way of a frame: pauses, faults, recordings."""
