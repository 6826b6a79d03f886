"""Two textbook locks that wake all waiting clients when one can continue (the herd effect). Not for use."""
