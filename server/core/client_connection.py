"""Who is asking: one connection as the operations see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zoolet.protocol.acl import Id

if TYPE_CHECKING:
    from zoolet.server.core.sasl import DigestMd5
    from zoolet.server.core.sessions import Session


def _nobody() -> None:
    """Flush to nowhere: what a caller without a transport does."""


class ClientConnection:
    """A connection's identities, watches and output.

    Watches and identities belong to the connection, not to its session: another connection that takes the session over
    starts with neither.

    Args:
        host: The address of the peer, as scheme ``ip`` compares it.
        port: Its port, for reports.
        flush: Sends what is in ``outbox``, and closes the connection if ``closing`` is set.
    """

    __slots__ = (
        "closing",
        "deadline",
        "flush",
        "host",
        "ids",
        "is_super",
        "last_op",
        "last_xid",
        "last_zxid",
        "modes",
        "outbox",
        "port",
        "received",
        "sasl",
        "schemes",
        "sent",
        "session",
        "since",
        "watch_weight",
        "watched_data",
    )

    def __init__(self, host: str = "127.0.0.1", port: int = 0, flush: Callable[[], None] = _nobody) -> None:
        self.host = host
        self.port = port
        self.flush = flush
        self.session: Session | None = None
        self.ids: dict[Id, None] = {Id("ip", host): None}
        self.schemes = {"ip"}  # of the identities
        self.is_super = False
        self.sasl: DigestMd5 | None = None  # the exchange under way, or done
        self.outbox: list[bytes] = []
        self.closing = False
        self.modes: tuple[dict[str, int], dict[str, int]] = ({}, {})  # watch modes by path: data store, child store
        self.watched_data = False  # has had a data watch: what wchs counts
        self.watch_weight = 0  # how many watches those count as
        self.deadline = -1  # of the handshake, in milliseconds of the engine's uptime
        self.received = self.sent = 0  # packets
        self.since = 0  # session start, in milliseconds since the epoch
        self.last_op = self.last_xid = self.last_zxid = -1

    def add_id(self, scheme: str, name: str) -> None:
        """Add an identity; one that is there already is not added again."""
        self.ids[Id(scheme, name)] = None
        self.schemes.add(scheme)
        if scheme == "super":
            self.is_super = True
