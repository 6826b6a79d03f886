"""Turns: how one thread serves many connections without letting any of them have it for long.

A connection has five milliseconds a turn; what it requested beyond that waits in a queue, which gets five milliseconds
in each round of the event loop. Once the server has been busy for ten milliseconds without a pause, only connections
whose turns are short are served as they are read; the others go through the queue. So a client that requests little
is answered soon, however many request much.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

TURN: Final = 0.005
"""Seconds for which one connection is served before the others get their turn."""
BUSY: Final = 0.01
"""Seconds without a pause after which connections whose turns are long have to queue."""
PAUSE: Final = 0.0001
"""Seconds without work that count as a pause: more than a round of the loop takes by itself."""
SECONDS_A_BYTE: Final = 2e-9
"""What sending costs: 2 ms a MB, copied into the kernel and out of fresh memory."""


class Waiting(Protocol):
    """A connection that waits for its turn."""

    def take_turn(self) -> None:
        """Answer what was left; queue again if that is not all."""
        ...


class TurnQueue:
    """The connections that wait for their next turn, and how busy the server is.

    Args:
        loop: The event loop.
        seconds: The length of a turn.

    Attributes:
        queued: The connections that wait, in order.
        busy_since: When the server began to answer without a pause, in seconds of ``perf_counter``.
        busy_until: When it last answered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float = TURN) -> None:
        self._loop = loop
        self.seconds = seconds
        self.queued: dict[Waiting, None] = {}
        self.busy_since = self.busy_until = 0.0
        self._scheduled = False
        self._round_ends = 0.0  # when those that wait have had their time

    def enqueue(self, connection: Waiting) -> None:
        """Queue a connection for its next turn; those in the queue share one turn in each round of the loop."""
        self.queued[connection] = None
        self._schedule()

    def remove(self, connection: Waiting) -> None:
        """Take a connection out of the queue; harmless if it is not there."""
        self.queued.pop(connection, None)

    def charge(self, size: int) -> None:
        """Count the time that it will take to send so many bytes, which happens when no turn is under way."""
        seconds = size * SECONDS_A_BYTE
        self.busy_since -= seconds
        self._round_ends -= seconds

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        waiting, self.queued = self.queued, {}  # a connection that is not done yet queues behind them
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
