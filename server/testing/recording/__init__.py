"""Recordings of what passed, and what plays them back."""
