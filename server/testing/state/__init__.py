"""The state of a server, as a test sees and changes it."""
