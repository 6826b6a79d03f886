"""The processing of a connection's frames: pauses, faults and recordings."""
