"""Turns: one thread serves many connections fairly.

A connection has five milliseconds a turn; its remaining requests wait in a queue, which gets five milliseconds in each
iteration of the event loop. Once the server has been busy for ten milliseconds without a pause, only connections with
short turns are served as they are read; the others are queued. So a client that requests little is answered soon,
however many clients request much.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

TURN: Final = 0.005
"""Seconds for which one connection is served before the others get their turn."""
BUSY: Final = 0.01
"""Seconds without a pause after which connections with long turns are queued."""
PAUSE: Final = 0.0001
"""Seconds without work that count as a pause: more than an idle iteration of the event loop takes."""
SECONDS_A_BYTE: Final = 2e-9
"""The cost of sending: 2 ms a MB, for copying fresh memory into the kernel."""


class Waiting(Protocol):
    """A connection that waits for its turn."""

    def take_turn(self) -> None:
        """Answer the requests that remain; queue again if the time is not enough."""
        ...


class TurnQueue:
    """The queue of connections that wait for their next turn, and the load of the server.

    Args:
        loop: The event loop.
        seconds: The length of a turn.

    Attributes:
        queued: The connections that wait, in order.
        busy_since: Since when the server has answered without a pause, in seconds of ``perf_counter``.
        busy_until: When it last answered, likewise.
        batches_left: Batches of requests until the next one that is looked at; below 0 where nobody looks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float = TURN) -> None:
        self._loop = loop
        self.seconds = seconds
        self.queued: dict[Waiting, None] = {}
        self.busy_since = self.busy_until = 0.0
        self.batches_left = -1
        self._scheduled = False
        self._round_ends = 0.0  # when the queue's time in this iteration ends

    def enqueue(self, connection: Waiting) -> None:
        """Queue a connection for its next turn; the queue shares one turn in each iteration of the event loop."""
        self.queued[connection] = None
        self._schedule()

    def remove(self, connection: Waiting) -> None:
        """Remove a connection from the queue, if it is there."""
        self.queued.pop(connection, None)

    def charge(self, size: int) -> None:
        """Charge the time for sending so many bytes, which the event loop spends between turns."""
        seconds = size * SECONDS_A_BYTE
        self.busy_since -= seconds
        self._round_ends -= seconds

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        waiting, self.queued = self.queued, {}  # a connection that is not done queues behind them
        self._round_ends = time.perf_counter() + self.seconds
        try:
            while waiting:
                connection = next(iter(waiting))
                del waiting[connection]
                connection.take_turn()
                if time.perf_counter() > self._round_ends:
                    break
        finally:
            if waiting:
                self.queued = waiting | self.queued
                self._schedule()
