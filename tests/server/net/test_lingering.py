"""Connections that wait for their peers to close share one timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from zoolet.server.net.lingering import LINGER, LINGER_TRIES, Lingering


class Timers:
    """A loop whose time is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        """Return the time."""
        return self.now

    def call_at(self, when: float, function: Callable[[], None]) -> object:
        """Start a timer."""
        self.timers.append((when, function))
        return object()

    def advance(self, seconds: float) -> None:
        """Move the time, and run the timers that are due."""
        self.now += seconds
        due = [function for when, function in self.timers if when <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for function in due:
            function()


class Socket:
    """A connection with a fixed number of unsent bytes."""

    def __init__(self, unsent: int = 0) -> None:
        self.unsent = unsent
        self.ended: bool | None = None

    def write_buffer_size(self) -> int:
        """Return the number of unsent bytes."""
        return self.unsent

    def end_linger(self, *, is_sent: bool) -> None:
        """Record the end."""
        self.ended = is_sent


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def lingering(timers: Timers) -> Lingering:
    return Lingering(cast("Any", timers))


def add_lingering_socket(lingering: Lingering, unsent: int = 0) -> Any:
    """Return a connection that lingers."""
    socket: Any = Socket(unsent)
    lingering.add(socket, unsent)
    return socket


def test_lingering_connections_share_one_timer(lingering: Lingering, timers: Timers) -> None:
    for _ in range(3):
        add_lingering_socket(lingering)

    assert [when for when, _ in timers.timers] == [100.0 + LINGER]


def test_every_connection_lingers_for_the_same_time(lingering: Lingering, timers: Timers) -> None:
    first = add_lingering_socket(lingering)
    timers.advance(LINGER / 2)
    second = add_lingering_socket(lingering)

    timers.advance(LINGER / 2)
    ended = first.ended, second.ended
    timers.advance(LINGER / 2)

    assert (ended, second.ended, timers.timers) == ((True, None), True, [])


def test_connection_removed_from_lingering_is_not_closed(lingering: Lingering, timers: Timers) -> None:
    gone, stays = add_lingering_socket(lingering), add_lingering_socket(lingering)

    lingering.remove(gone)
    timers.advance(LINGER)

    assert (gone.ended, stays.ended) == (None, True)


def test_connection_lingers_while_its_peer_reads_output(lingering: Lingering, timers: Timers) -> None:
    socket = add_lingering_socket(lingering, 1_000)
    for _ in range(2 * LINGER_TRIES):
        socket.unsent -= 1
        timers.advance(LINGER)
    assert socket.ended is None

    socket.unsent = 0
    timers.advance(LINGER)

    assert socket.ended is True


def test_lingering_connection_of_non_reading_peer_is_closed(lingering: Lingering, timers: Timers) -> None:
    socket = add_lingering_socket(lingering, 1_000)

    for _ in range(LINGER_TRIES - 1):
        timers.advance(LINGER)
    before = socket.ended
    timers.advance(LINGER)

    assert (before, socket.ended) == (None, False)
