"""A client reduced to bytes: it encodes a request, feeds the connection, and decodes the output. It needs no socket, no
event loop and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import Record
from zoolet.protocol.errors import error_for
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import FourLetterCommand, ServerConnection


@dataclass
class Reply:
    """One frame from the server: the fields of its header, and the body."""

    xid: int
    zxid: int
    err: int
    body: bytes = field(repr=False)


class Peer:
    """One connection to an engine.

    Args:
        engine: The engine to connect to.
        host: The address of the peer.
        four_letter_commands: The four-letter commands that are answered.
    """

    def __init__(
        self,
        engine: Engine,
        host: str = "127.0.0.1",
        four_letter_commands: dict[bytes, FourLetterCommand] | None = None,
    ) -> None:
        self.engine = engine
        self.client = ClientConnection(host, 40000)
        self.connection = ServerConnection(engine, self.client, four_letter_commands or {})
        self.inbox: list[Reply] = []
        self.welcome: ConnectResponse | None = None
        self.xid = 0
        self._frames = Frames(limit=None)

    @property
    def closed(self) -> bool:
        """Whether the server has closed the connection."""
        return self.client.closing

    # --- bytes ---

    def feed(self, data: bytes) -> bytes:
        """Send bytes to the engine, and return all output."""
        while self.connection.receive_data(data):
            data = b""
        return self.pop_output()

    def pop_output(self) -> bytes:
        """Return the output since the last call, and clear it."""
        out = b"".join(self.client.outbox)
        self.client.outbox.clear()
        return out

    # --- frames ---

    def connect(
        self,
        timeout: int = 10_000,
        session: int = 0,
        password: bytes = bytes(16),
        zxid: int = 0,
        read_only: bool | None = False,
    ) -> ConnectResponse | None:
        """Send a connect request. Return the response, or None if the server closes the connection instead."""
        answer = self.feed(frame(ConnectRequest(zxid, timeout, session, password, read_only).encode()))
        payloads = self._frames.feed(answer) if answer else []
        self.welcome = ConnectResponse.decode(payloads[0]) if payloads else None
        return self.welcome

    def send(self, op: int, body: bytes = b"", xid: int | None = None) -> list[Reply]:
        """Send one request. Return all replies and events, and append the events to ``inbox``."""
        if xid is None:
            self.xid += 1
            xid = self.xid
        return self._sort(self.feed(frame(r.RequestHeader(xid, op).encode() + body)))

    def _sort(self, data: bytes) -> list[Reply]:
        replies = []
        for payload in self._frames.feed(data):
            header = r.ReplyHeader.decode(payload)
            replies.append(Reply(header.xid, header.zxid, header.err, payload[16:]))
        self.inbox += [reply for reply in replies if reply.xid == -1]
        return replies

    def receive(self) -> list[tuple[int, str]]:
        """Return the types and paths of the events since the last call, in order."""
        self._sort(self.pop_output())
        events = [r.WatcherEvent.decode(reply.body) for reply in self.inbox]
        self.inbox.clear()
        return [(event.type, event.path) for event in events]

    # --- operations ---

    def call(self, op: OpCode, request: Record | None = None) -> Record:
        """Send one request and return the record of its reply.

        Raises:
            ZooKeeperError: The server answered with an error.
        """
        replies = [reply for reply in self.send(op, request.encode() if request else b"") if reply.xid != -1]
        assert len(replies) == 1, replies
        if replies[0].err:
            raise error_for(replies[0].err)
        response = OPERATIONS[op].response
        assert response is not None
        return response.decode(replies[0].body)

    def create(self, path: str, data: bytes | None = b"", flags: int = 0, acl: AclList | None = OPEN_ACL_UNSAFE) -> str:
        """Create a node, and return its final path."""
        return self.call(OpCode.CREATE, r.CreateRequest(path, data, acl, flags)).path

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node."""
        self.call(OpCode.DELETE, r.DeleteRequest(path, version))

    def set(self, path: str, data: bytes | None, version: int = -1) -> r.Stat:
        """Replace a node's data."""
        return self.call(OpCode.SET_DATA, r.SetDataRequest(path, data, version)).stat

    def get(self, path: str, watch: bool = False) -> tuple[bytes | None, r.Stat]:
        """Read a node's data and Stat."""
        response = self.call(OpCode.GET_DATA, r.GetDataRequest(path, watch))
        return response.data, response.stat

    def exists(self, path: str, watch: bool = False) -> r.Stat:
        """Read a node's Stat."""
        return self.call(OpCode.EXISTS, r.ExistsRequest(path, watch)).stat

    def children(self, path: str, watch: bool = False) -> list[str]:
        """Read the names of a node's children, sorted."""
        return sorted(self.call(OpCode.GET_CHILDREN, r.GetChildrenRequest(path, watch)).children)

    def auth(self, scheme: str | None, data: bytes | None) -> Reply:
        """Log in with a scheme and credentials, and return the reply."""
        (reply,) = self.send(OpCode.AUTH, r.AuthPacket(0, scheme, data).encode(), xid=-4)
        return reply

    def multi(self, *operations: tuple[OpCode, Record]) -> list[tuple[int, Record]]:
        """Send a transaction. Return the types and records of its results."""
        replies = [
            reply for reply in self.send(OpCode.MULTI, wire.encode_operations(list(operations))) if reply.xid != -1
        ]
        if replies[0].err:
            raise error_for(replies[0].err)
        return wire.decode_results(replies[0].body)

    def close(self) -> list[Reply]:
        """Close the session."""
        return self.send(OpCode.CLOSE_SESSION)
