"""Two textbook locks that wake everybody when one is to go on (the herd effect): to show the cost, not for use."""
