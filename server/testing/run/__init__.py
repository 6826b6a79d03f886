"""How servers are run: in a thread, in a loop, beside forks; and the arguments of the public calls."""
