"""What a frame meets on its way: pauses, faults, recordings."""
