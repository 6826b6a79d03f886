"""The file descriptors of this process: the limit, and the number in use."""

from __future__ import annotations

import logging
import os
import resource
from typing import Final

_log = logging.getLogger("zoolet.server")
UNLIMITED: Final = 1 << 30
"""The result of :func:`limit` if the number of descriptors is not limited."""
_INITIAL_LIMITS: Final = resource.getrlimit(resource.RLIMIT_NOFILE)


def limit() -> int:
    """Return the maximum number of file descriptors of this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else UNLIMITED


def raise_limit() -> None:
    """Raise the soft limit to the hard limit, like the JVM at startup.

    A command calls this for its own process. A server that is embedded in a program does not change the limits.
    """
    before, hard = limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # on macOS, the real maximum is below the hard limit
        _log.warning("cannot raise the limit of open files from %d: %s", before, error)
    if limit() > before:
        _log.info("raised the limit of open files from %d to %d", before, limit())


def restore_limit() -> None:
    """Restore the limit that the process started with, for a child process that runs a different program."""
    resource.setrlimit(resource.RLIMIT_NOFILE, _INITIAL_LIMITS)


def in_use() -> int:
    """Return the number of open files.

    Returns:
        The number; -1 if the system has no ``/proc``; the limit if no descriptor is left for counting.
    """
    try:
        return len(os.listdir("/proc/self/fd"))
    except FileNotFoundError:
        return -1
    except OSError:
        return limit()
