"""The control API, which gives tests in other languages the calls of the test toolkit."""
