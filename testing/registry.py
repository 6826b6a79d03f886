"""The running servers of this process, and the leaks found at servers that were stopped during a test.

The pytest plugin creates a :class:`Test` and calls its :meth:`~Test.end`. Each server reports its start and stop here.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from .endpoint import Endpoint

E = TypeVar("E", bound="Endpoint")


real_hosts = os.environ.get("ZOOLET_REAL_HOSTS")
"""Addresses of real servers for test cases, or None. The pytest plugin sets them from ``--zoolet-hosts``."""
_running: weakref.WeakSet[Endpoint] = weakref.WeakSet()


class Test:
    """The servers that one test uses, and their leaks.

    Attributes:
        failed: State of each server that a failed test used, or whose block raised an error, as text, by its name.
        leaks: Leaks of each server when it was stopped, by the server's name.
        before: Leaks of each server at the start of the test, and the number of requests read until then.
    """

    __test__ = False

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self.leaks: dict[str, list[str]] = {}
        self.before: weakref.WeakKeyDictionary[Endpoint, tuple[frozenset[str], int]] = weakref.WeakKeyDictionary()
        for endpoint in running_endpoints():
            self.before[endpoint] = frozenset(_find_leaks(endpoint)), _activity_count(endpoint)

    def new_leaks(self, endpoint: Endpoint) -> list[str]:
        """Return the leaks of a server, without the leaks that existed at the start of the test."""
        before, _ = self.before.get(endpoint, (frozenset[str](), 0))
        return [leak for leak in _find_leaks(endpoint) if leak not in before]

    def used(self) -> list[Endpoint]:
        """Return the servers that started or read a request during the test, or all servers if none did."""
        servers = running_endpoints()
        return [
            one for one in servers if one not in self.before or _activity_count(one) != self.before[one][1]
        ] or servers

    def end(self) -> dict[str, list[str]]:
        """End the test, and return its leaks by the name of the server."""
        for endpoint in running_endpoints():
            if leaks := self.new_leaks(endpoint):
                self.leaks[repr(endpoint)] = leaks
        return self.leaks


def _find_leaks(endpoint: Endpoint) -> list[str]:
    try:
        return endpoint.leaks()
    except UNREACHABLE_ERRORS:
        return []


def _activity_count(endpoint: Endpoint) -> int:
    try:
        return endpoint.op_count()
    except UNREACHABLE_ERRORS:
        return 0


def report_of(endpoint: Endpoint) -> str:
    """Return the state of a server as text, or the reason why it is not available."""
    try:
        return endpoint.report()
    except UNREACHABLE_ERRORS as error:
        return f"no report: {error}"


UNREACHABLE_ERRORS: Final = (RuntimeError, TimeoutError)
"""Errors of a server that may have stopped, or whose loop is blocked."""
test: Test | None = None
"""The running test. None outside of tests, and if neither the plugin nor a test case tracks tests."""


def running_endpoints() -> list[Endpoint]:
    """Return the servers and proxies that run in this process."""
    return [endpoint for endpoint in _running if endpoint.runs_here()]


def report_started(endpoint: Endpoint) -> None:
    """Add a server that has started to the registry."""
    _running.add(endpoint)


def report_ending(endpoint: Endpoint, error: BaseException | None, *, check: bool = True) -> None:
    """Remove a server that is about to stop, and record its state after an error, or its leaks.

    Args:
        endpoint: The server.
        error: The error that ended the server's block, or None.
        check: Whether to look for leaks.
    """
    _running.discard(endpoint)
    if test is None or not endpoint.runs_here():
        return
    if error is not None:
        test.failed[repr(endpoint)] = report_of(endpoint)
    elif check and (leaks := test.new_leaks(endpoint)):
        test.leaks[repr(endpoint)] = leaks


def heal_all(servers: Iterable[E]) -> list[E]:
    """End the faults of the servers that are running, and return these servers.

    Faults could make clients wait until their timeouts while they are being closed.
    """
    # A server that replays a recording has no attribute `running`, and no faults.
    running = [server for server in servers if getattr(server, "running", False)]
    for server in running:
        server.heal()
    return running
