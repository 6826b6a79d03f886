"""The pytest plugin: its fixtures and hooks, the types of the fixtures, and recordings of tests."""
