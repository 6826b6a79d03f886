"""Runs servers in a thread or in a loop, handles forks, and checks the arguments of the public calls."""
