"""Bytes that wait for peers that do not read.

Together they may not exceed ``max_write_buffer_total``, or the peers with most of them are disconnected. A single peer
may exceed it: its reply is as large as a node or a list of children, and no more is sent before it reads.
"""

from __future__ import annotations

from typing import Protocol

from zoolet.server.core.engine import Engine


class Unread(Protocol):
    """A connection whose peer does not read."""

    def write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        ...

    def abort(self) -> None:
        """Close at once; what has not been sent is lost."""
        ...

    @property
    def host(self) -> str:
        """The peer's address."""
        ...


class UnreadBytes:
    """The account of all peers that do not read.

    Args:
        engine: Has the limit, the counters and the warnings.

    Attributes:
        by_connection: What waits for each such peer, in bytes, as last counted.
        total: The sum; may be too high, never too low.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.by_connection: dict[Unread, int] = {}
        self.total = 0

    def count(self, connection: Unread, size: int) -> None:
        """Record that so many bytes wait for a peer; disconnect the worst if all together are too many."""
        self.total += size - self.by_connection.get(connection, 0)
        self.by_connection[connection] = size
        limit = self._engine.settings.max_write_buffer_total
        if self.total <= limit:
            return
        for each in self.by_connection:
            self.by_connection[each] = each.write_buffer_size()
        self.total = sum(self.by_connection.values())
        while self.total > limit and len(self.by_connection) > 1:
            worst = max(self.by_connection, key=self.by_connection.__getitem__)
            self._engine.metrics.refuse("unread_total")
            self._engine.warnings.warn(
                "unread_total",
                "disconnecting %s: it has not read %d bytes, all clients together %d (zoolet.maxUnreadBytesTotal)",
                worst.host,
                self.by_connection[worst],
                self.total,
            )
            self.forget(worst)
            worst.abort()

    def forget(self, connection: Unread) -> None:
        """Count no bytes for this peer any more: it has read them, or is gone."""
        self.total -= self.by_connection.pop(connection, 0)
