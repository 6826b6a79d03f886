"""The turns of connections: one thread serves many connections fairly.

A connection gets five milliseconds per turn. Its remaining requests wait in a queue, which gets five milliseconds in
each iteration of the event loop. Once the server has been busy for five milliseconds without a pause, only connections
with short turns are served as soon as they are read, and all others are queued. A client with few requests is therefore
answered quickly, regardless of the number of clients with many requests. Light queued requests are served first.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .protocol import ServerProtocol

TURN: Final = 0.005
"""Time in seconds for serving one connection before the others get their turn."""
BUSY: Final = 0.005
"""Seconds of work without a pause after which connections with long turns are queued."""
PAUSE: Final = 0.0001
"""Minimum number of seconds without work that count as a pause. An idle iteration of the event loop is shorter."""
SECONDS_PER_BYTE: Final = 2e-9
"""Time in seconds for sending a byte: 2 ms per MB, because fresh memory is copied into the kernel."""


class TurnQueue:
    """The queue of connections that wait for their next turn, and the load of the server.

    Args:
        loop: The event loop.
        seconds: Length of a turn in seconds.

    Attributes:
        queued: The waiting connections, in order.
        light: The connections that wait with a light request. They are served before the others.
        busy_since: Time since which the server has worked without a pause, in seconds of ``perf_counter``.
        busy_until: Time of the last answer, in seconds of ``perf_counter``.
        was_long: Whether a turn has exceeded its length since the sockets were last polled. The queue then waits until
            they are polled again, because two long turns without a poll in between would delay light requests.
        batches_left: Number of batches of requests until the next sampled batch; negative if no batches are sampled.
    """

    _now = staticmethod(time.perf_counter)  # an attribute, because freezegun replaces names of modules in tests

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float = TURN) -> None:
        self._loop = loop
        self.seconds = seconds
        self.queued: dict[ServerProtocol, None] = {}
        self.light: dict[ServerProtocol, None] = {}
        self.busy_since = self.busy_until = 0.0
        self.was_long = False
        self.batches_left = -1
        self._scheduled = False
        self._round_ends = 0.0  # time when the queue must stop in this iteration

    def enqueue(self, connection: ServerProtocol, *, is_light: bool = False) -> None:
        """Queue a connection for its next turn.

        All queued connections share the time of one turn in each iteration of the event loop. In each iteration, at
        least one connection with a light request is served, and one of the others unless a turn was long.
        """
        if is_light and connection not in self.queued:
            self.light[connection] = None
        else:
            self.light.pop(connection, None)
            self.queued[connection] = None
        self._schedule()

    def remove(self, connection: ServerProtocol) -> None:
        """Remove a connection from the queue, if it is queued."""
        self.queued.pop(connection, None)
        self.light.pop(connection, None)

    def charge(self, size: int) -> None:
        """Charge the time for sending *size* bytes, which the event loop spends between turns."""
        seconds = size * SECONDS_PER_BYTE
        self.busy_since -= seconds
        self._round_ends -= seconds

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        light, self.light = self.light, {}
        queued, self.queued = self.queued, {}  # an unfinished connection is queued after the waiting ones
        self._round_ends = self._now() + self.seconds
        try:
            self._take_turns(light)
            if not self.was_long:
                self._take_turns(queued)
        finally:
            self.was_long = False
            self.light = light | self.light
            self.queued = queued | self.queued
            if light or queued:
                self._schedule()

    def _take_turns(self, waiting: dict[ServerProtocol, None]) -> None:
        """Serve the first connection, and more connections until the queue's time is up."""
        while waiting:
            connection = next(iter(waiting))
            del waiting[connection]
            connection.take_turn()
            if self._now() > self._round_ends:
                break
