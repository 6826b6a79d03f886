"""A client as the operations see it: its connection, and the session that the connection serves.

Their lifetimes differ. Identities, watches and output belong to the connection; another connection that resumes the
session starts with none of them. Ephemeral nodes and the deadline belong to the session, which outlives its
connections.
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
        id: Its id, above 0.
        timeout_ms: The timeout that was negotiated at the last connect.
        client: The connection that serves it; None while there is none.
        deadline: When it expires unless its client sends something, in the engine's monotonic milliseconds.
        heard: When its client has last sent something, likewise.
    """

    id: int
    timeout_ms: int
    client: ClientConnection | None = None
    deadline: int = field(default=NEVER)
    heard: int = 0


class ClientConnection:
    """One connection's identities, watches and output.

    Args:
        host: The peer's address, which is its identity in scheme ``ip``.
        port: The peer's port, for reports.
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
        self.sasl: DigestMd5 | None = None  # the exchange that is in progress or done
        self.outbox: list[bytes] = []  # frames to send, in order
        self.closing = False  # it is to be closed once the outbox has been sent
        self.four_letter_only = False  # answer nothing but a four-letter command
        self.modes: tuple[dict[str, int], dict[str, int]] = ({}, {})  # watch modes by path: data store, child store
        self.watched_data = False  # has had a data watch: it counts in wchs
        self.watch_weight = 0  # sum of the weights of its watches (watches.weight)
        self.deadline = NEVER  # of the handshake, in the engine's monotonic milliseconds
        self.received = self.sent = 0  # packets, as cons counts them
        self.since = 0  # session start, in milliseconds since the epoch
        self.last_op = self.last_xid = self.last_zxid = -1

    @property
    def session_id(self) -> int:
        """The id of its session; 0 for none."""
        return self.session.id if self.session is not None else 0

    def add_id(self, scheme: str, name: str) -> None:
        """Add an identity, unless the connection has it."""
        self.ids[Id(scheme, name)] = None
        self.schemes.add(scheme)
        if scheme == "super":
            self.is_super = True
