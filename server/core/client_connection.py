"""A client as the operations see it: its connection, and the session that the connection serves.

The two live apart. Identities, watches and output belong to the connection; another connection that takes the session
over starts with none of them. Ephemeral nodes and the deadline belong to the session, which outlives its connections.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zoolet.protocol.acl import Id
from zoolet.server.core.expiry import NEVER
from zoolet.server.core.sasl import DigestMd5


@dataclass(slots=True, eq=False)
class Session:
    """One client's session.

    Args:
        id: Above 0.
        timeout_ms: As negotiated at the last connect.
        client: The connection that serves it; None while there is none.
        deadline: When it ends unless its client sends something, in the engine's monotonic milliseconds.
    """

    id: int
    timeout_ms: int
    client: ClientConnection | None = None
    deadline: int = field(default=NEVER)


class ClientConnection:
    """One connection's identities, watches and output.

    Args:
        host: The address of the peer, as scheme ``ip`` compares it.
        port: Its port, for reports.
    """

    __slots__ = (
        "closing",
        "deadline",
        "four_letter_only",
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

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host = host
        self.port = port
        self.session: Session | None = None
        self.ids: dict[Id, None] = {Id("ip", host): None}
        self.schemes = {"ip"}  # of the identities
        self.is_super = False
        self.sasl: DigestMd5 | None = None  # the exchange that is under way or done
        self.outbox: list[bytes] = []  # frames that are to be sent, in order
        self.closing = False  # to be closed once the outbox has been sent
        self.four_letter_only = False  # answer a four-letter command, and nothing else
        self.modes: tuple[dict[str, int], dict[str, int]] = ({}, {})  # watch modes by path: data store, child store
        self.watched_data = False  # has had a data watch: what wchs counts
        self.watch_weight = 0  # how many watches those count as
        self.deadline = NEVER  # of the handshake, in the engine's monotonic milliseconds
        self.received = self.sent = 0  # packets
        self.since = 0  # session start, in milliseconds since the epoch
        self.last_op = self.last_xid = self.last_zxid = -1

    def add_id(self, scheme: str, name: str) -> None:
        """Add an identity; one that is there already is not added again."""
        self.ids[Id(scheme, name)] = None
        self.schemes.add(scheme)
        if scheme == "super":
            self.is_super = True
