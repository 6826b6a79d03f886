"""The control API, for tests in other languages."""
