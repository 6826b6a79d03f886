"""Editing a line at a terminal: with prompt_toolkit, or with readline."""
