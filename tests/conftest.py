"""What all tests share: pytest's own means of testing plugins, and Ctrl-C."""

import signal

pytest_plugins = ["pytester"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell has started this run in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
