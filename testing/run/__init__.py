"""The running of servers in threads and event loops, forks, and the arguments of the public calls."""
