"""What all tests share: pytest's own means of testing plugins."""

pytest_plugins = ["pytester"]
