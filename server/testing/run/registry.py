"""The servers of this process that run now, and what those that have ended left behind during a test.

The pytest plugin begins and ends a :class:`Test`; a server reports its start and its end here.
"""

from __future__ import annotations

import weakref
from typing import Final, Protocol


class Endpoint(Protocol):
    """A server or proxy, as far as reports are concerned: an :class:`~zoolet.server.testing.endpoint.Endpoint`."""

    def is_ours(self) -> bool:
        """Return whether it runs in this process."""
        ...

    def op_count(self) -> int:
        """Return the number of requests that it has read."""
        ...

    def report(self) -> str:
        """Return its state as text."""
        ...

    def leaks(self) -> list[str]:
        """Return what clients have left."""
        ...


_running: weakref.WeakSet[Endpoint] = weakref.WeakSet()


class Test:
    """The servers of one test.

    Attributes:
        failed: The state of each server whose block was left with an error, as text, by its name.
        leaks: What each server that was stopped still had, by its name.
        before: What each server had when the test began, and how many requests it had read.
    """

    __test__ = False

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self.leaks: dict[str, list[str]] = {}
        self.before: weakref.WeakKeyDictionary[Endpoint, tuple[frozenset[str], int]] = weakref.WeakKeyDictionary()
        for endpoint in running():
            self.before[endpoint] = frozenset(_leaks_of(endpoint)), _count_of(endpoint)

    def new_leaks(self, endpoint: Endpoint) -> list[str]:
        """Return what a server has that it had not when the test began."""
        before, _ = self.before.get(endpoint, (frozenset[str](), 0))
        return [leak for leak in _leaks_of(endpoint) if leak not in before]

    def used(self) -> list[Endpoint]:
        """Return the servers that were started in the test or have read a request in it; if there are none, all."""
        servers = running()
        return [one for one in servers if one not in self.before or _count_of(one) != self.before[one][1]] or servers

    def end(self) -> dict[str, list[str]]:
        """Return what the test has left, by the name of the server."""
        for endpoint in running():
            if leaks := self.new_leaks(endpoint):
                self.leaks[repr(endpoint)] = leaks
        return self.leaks


def _leaks_of(endpoint: Endpoint) -> list[str]:
    try:
        return endpoint.leaks()
    except UNREACHABLE:
        return []


def _count_of(endpoint: Endpoint) -> int:
    try:
        return endpoint.op_count()
    except UNREACHABLE:
        return 0


def report_of(endpoint: Endpoint) -> str:
    """Return the state of a server as text, or why there is none."""
    try:
        return endpoint.report()
    except UNREACHABLE as error:
        return f"no report: {error}"


UNREACHABLE: Final = (RuntimeError, TimeoutError)
"""Errors of a server that was stopped just now, or whose loop is blocked."""
test: Test | None = None
"""The test that runs; None outside of tests, or without pytest."""


def running() -> list[Endpoint]:
    """Return the servers and proxies that run in this process."""
    return [endpoint for endpoint in _running if endpoint.is_ours()]


def started(endpoint: Endpoint) -> None:
    """Report that a server has started."""
    _running.add(endpoint)


def ending(endpoint: Endpoint, error: BaseException | None, *, check: bool = True) -> None:
    """Report that a server is about to stop, by an error if that is given; *check* what clients have left."""
    _running.discard(endpoint)
    if test is None or not endpoint.is_ours():
        return
    if error is not None:
        test.failed[repr(endpoint)] = report_of(endpoint)
    elif check and (leaks := test.new_leaks(endpoint)):
        test.leaks[repr(endpoint)] = leaks
