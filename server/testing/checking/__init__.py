"""Checks of what servers have answered, from recordings."""
