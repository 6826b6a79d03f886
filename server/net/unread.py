"""The bytes that wait for peers that do not read.

If they exceed ``max_unread_bytes_total`` together, the peers with the most bytes are disconnected. A single peer may
exceed it: a reply is at most as large as a node or a list of children, and no other is sent before the peer reads.
"""

from __future__ import annotations

from typing import Protocol

from zoolet.server.core.engine import Engine


class Unread(Protocol):
    """A connection whose peer does not read."""

    def write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be sent."""
        ...

    def abort(self) -> None:
        """Close at once; output that has not been sent is lost."""
        ...

    @property
    def host(self) -> str:
        """The peer's address."""
        ...


class UnreadBytes:
    """Counts the bytes that wait for all peers that do not read.

    Args:
        engine: The engine, for its settings, metrics and warnings.

    Attributes:
        by_connection: The bytes that wait for each such peer, as last counted.
        total: Their sum. A peer may have read since, so it may be too high, but never too low.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.by_connection: dict[Unread, int] = {}
        self.total = 0

    def count(self, connection: Unread, size: int) -> None:
        """Record that *size* bytes wait for a peer; if the total is too high, disconnect the peers with the most."""
        self.total += size - self.by_connection.get(connection, 0)
        self.by_connection[connection] = size
        limit = self._engine.settings.max_unread_bytes_total
        if self.total <= limit:
            return
        for waiting in self.by_connection:
            self.by_connection[waiting] = waiting.write_buffer_size()
        self.total = sum(self.by_connection.values())
        while self.total > limit and len(self.by_connection) > 1:
            worst = max(self.by_connection, key=self.by_connection.__getitem__)
            self._engine.metrics.refuse("unread_total")
            self._engine.warnings.warn(
                "unread_total",
                "disconnecting %s: it has not read %d bytes of %d for all clients (zoolet.maxUnreadBytesTotal)",
                worst.host,
                self.by_connection[worst],
                self.total,
            )
            self.forget(worst)
            worst.abort()

    def forget(self, connection: Unread) -> None:
        """Remove a peer that has read its bytes, or is gone."""
        self.total -= self.by_connection.pop(connection, 0)
