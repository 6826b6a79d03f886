"""The connections whose sending side is shut down, and whose peers have not closed their side yet.

Nearly all peers close in time. So all connections share one timer, instead of each starting and cancelling its own.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .protocol import ServerProtocol

LINGER: Final = 1.0
"""Seconds within which a peer has to close its side once all output is sent."""
LINGER_TRIES: Final = 30
"""Maximum number of checks without progress, one each :data:`LINGER` seconds."""


class Lingering:
    """The lingering connections. Each is closed when its output is sent, or when its peer has stopped reading.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The time of the next check of each connection, its unsent bytes at the last check, and its remaining checks.
        # An OrderedDict, because a dict gets slow if its first key is removed repeatedly.
        self._waiting: OrderedDict[ServerProtocol, tuple[float, int, int]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: ServerProtocol, unsent: int, tries: int = LINGER_TRIES) -> None:
        """Add a connection with *unsent* bytes of output. It is closed after *tries* checks without progress."""
        due = self._loop.time() + LINGER
        self._waiting[connection] = due, unsent, tries
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._check)

    def remove(self, connection: ServerProtocol) -> None:
        """Remove a connection that is closed, if it was added."""
        self._waiting.pop(connection, None)

    def _check(self) -> None:
        """Close the due connections that have sent all output, or whose peers have stopped reading."""
        self._timer = None
        now = self._loop.time()
        while self._waiting:
            connection, (due, unsent, tries) = next(iter(self._waiting.items()))
            if due > now:
                self._timer = self._loop.call_at(due, self._check)
                return
            del self._waiting[connection]
            remaining = connection.write_buffer_size()
            tries = LINGER_TRIES if remaining < unsent else tries - 1
            if remaining and tries:
                self.add(connection, remaining, tries)
            else:
                connection.end_linger(is_sent=not remaining)
