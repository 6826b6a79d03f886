"""A function that runs in a forked child, and its result."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable


def call_in_child(report: Callable[[], str]) -> str:
    """Call a function in a forked child, and return the function's result. A child that hangs is killed."""
    hear, send = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns because this process has threads
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            os.write(send, report().encode())
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(hear) as lines:
        reported = lines.read()
    os.waitpid(child, 0)
    return reported
