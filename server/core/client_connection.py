"""The engine's view of a client: its connection, and the session that the connection serves.

The two have different lifetimes. Identities, watches and output belong to the connection. A new connection that resumes
the session starts without these. Ephemeral nodes and the deadline belong to the session, which outlives connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.acl import Id
from ...protocol.addresses import host_and_port
from .expiry import NEVER

if TYPE_CHECKING:
    from .sasl import DigestMd5


class Session:
    """A session of a client, with its timeout and its deadline.

    Args:
        id: Session id, above 0.
        timeout_ms: The timeout that was negotiated at the last connect, in milliseconds.
        heard: Time of the last data from the client, in the engine's monotonic milliseconds.

    Attributes:
        client: The connection that serves the session; None while it is disconnected.
        deadline: Time when the session expires unless the client sends data before, in the engine's monotonic
            milliseconds.
    """

    __slots__ = ("client", "deadline", "heard", "id", "timeout_ms")

    def __init__(self, id: int, timeout_ms: int, heard: int = 0) -> None:
        self.id = id
        self.timeout_ms = timeout_ms
        self.client: ClientConnection | None = None
        self.deadline = NEVER
        self.heard = heard


class ClientConnection:
    """The state of one connection: its identities, watches and output.

    Args:
        host: The peer's address, which is also its identity in scheme ``ip``.
        port: The peer's port, for reports.
    """

    __slots__ = (
        "closing",
        "deadline",
        "four_letter_only",
        "host",
        "ids",
        "is_secure",
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
        self.schemes = {"ip"}  # schemes of the identities
        self.is_super = False
        self.is_secure = False  # whether the connection uses TLS
        self.sasl: DigestMd5 | None = None  # the current or completed SASL exchange; None before the first
        self.outbox: list[bytes] = []  # frames to send, in order
        self.closing = False  # whether the connection is closed once the outbox has been sent
        self.four_letter_only = False  # whether only a four-letter command is answered, because descriptors are scarce
        self.modes: tuple[dict[str, int], dict[str, int]] = ({}, {})  # watch modes by path: data store, child store
        self.watched_data = False  # whether the connection has had a data watch; wchs counts only such connections
        self.watch_weight = 0  # sum of the weights of its watches (watches.weight)
        self.deadline = NEVER  # deadline of the handshake, in the engine's monotonic milliseconds
        self.received = self.sent = 0  # packets, as cons counts them
        self.since = 0  # session start, in milliseconds since the epoch
        self.last_op = self.last_xid = self.last_zxid = -1

    @property
    def session_id(self) -> int:
        """The id of the session; 0 if the connection serves no session."""
        return self.session.id if self.session is not None else 0

    @property
    def address(self) -> str:
        """The peer's address and port."""
        return host_and_port(self.host, self.port)

    def add_id(self, scheme: str, name: str) -> None:
        """Add an identity, unless the connection already has it."""
        self.ids[Id(scheme, name)] = None
        self.schemes.add(scheme)
        if scheme == "super":
            self.is_super = True
