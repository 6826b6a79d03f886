"""The bytes that wait for peers that do not read.

If their total exceeds ``max_unread_bytes_total``, the peers with the most bytes are disconnected. A single peer may
exceed this limit: a reply is at most as large as a node or a list of children, and the peer must read it before the
next reply is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.engine import Engine

if TYPE_CHECKING:
    from .protocol import ServerProtocol


class UnreadBytes:
    """The counts of the bytes that wait for peers that do not read.

    Args:
        engine: The engine, for its settings, metrics and warnings.

    Attributes:
        by_connection: The number of bytes that waited for each such peer at its last count.
        total: The sum of these numbers. It may be too high, because peers read after their count, but never too low.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.by_connection: dict[ServerProtocol, int] = {}
        self.total = 0

    def count(self, connection: ServerProtocol, size: int) -> None:
        """Record that *size* bytes wait for a peer. If the total is too high, disconnect the peers with the most."""
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
            self._engine.metrics.count_refusal("unread_of_all")
            self._engine.warnings.warn(
                "unread_of_all",
                "disconnecting %s with the most unread bytes: %d of %d of all clients (zoolet.maxUnreadBytesTotal)",
                worst.host,
                self.by_connection[worst],
                self.total,
            )
            self.forget(worst)
            worst.abort()

    def forget(self, connection: ServerProtocol) -> None:
        """Remove a peer that has read its bytes or disconnected."""
        self.total -= self.by_connection.pop(connection, 0)
