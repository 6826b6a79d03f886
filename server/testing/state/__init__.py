"""What a test sees of a server, and what it changes."""
