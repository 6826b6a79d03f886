"""Sessions reduced to their connection, to observe each byte that an embedded server sends.

:class:`Wire` uses a socket, for a server in a thread; :class:`StreamWire` uses asyncio's streams, for a server in the
simulated network.
"""

from __future__ import annotations

import asyncio
import select
import socket
from types import TracebackType
from typing import Any, Final, Self

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import Record, int_at
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server import Server

DEADLINE_S: Final = 10.0  # only ever reached on failure
SOON_S: Final = 0.3  # for what is sent at once, or not at all
EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2


class Wire:
    """A session reduced to its socket.

    Args:
        server: The server to connect to.
        timeout: The session timeout to ask for, in seconds.
        session: The id and password of the session to resume.

    Attributes:
        events: The types and paths of the events that arrived before a reply.
        body: The body of the last reply.
        id: The id of the session.
        password: The password of the session.
    """

    def __init__(self, server: Server, timeout: float = 30.0, session: tuple[int, bytes] = (0, bytes(16))) -> None:
        self.link = socket.create_connection(("127.0.0.1", server.port), DEADLINE_S)
        self.stream = self.link.makefile("rb")
        self.link.sendall(frame(ConnectRequest(0, round(timeout * 1000), *session).encode()))
        self.events: list[tuple[int, str]] = []
        self.xid = 0
        self.id = 0
        self.password = bytes(16)
        self.body = b""

    def welcomed(self) -> Self:
        """Wait for the connect response."""
        welcome = ConnectResponse.decode(self.payload())
        self.id, self.password = welcome.session_id, welcome.password or b""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.close()
        self.link.close()

    # --- bytes ---

    def payload(self) -> bytes:
        """Wait for one frame; the end of the connection is an EOFError."""
        head = self.stream.read(4)
        if len(head) < 4:
            raise EOFError
        return self.stream.read(int_at(head)[0])

    def payloads(self, count: int) -> list[bytes]:
        """Wait for so many frames."""
        return [self.payload() for _ in range(count)]

    def send(self, op: OpCode, body: Record | None = None) -> None:
        """Send one request."""
        self.send_raw(op, body.encode() if body else b"")

    def send_raw(self, op: OpCode, body: bytes) -> None:
        """Send one request whose body is bytes."""
        self.xid += 1
        self.link.sendall(frame(r.RequestHeader(self.xid, op).encode() + body))

    def has_something(self) -> bool:
        """Return whether there are bytes to read."""
        return bool(select.select([self.link], [], [], 0)[0])

    def ended(self) -> bool:
        """Return whether the server has closed the connection, or does so soon."""
        return bool(select.select([self.link], [], [], SOON_S)[0]) and not self.stream.read(1)

    # --- requests; each returns its error code ---

    def reply(self) -> int:
        """Wait for a reply, and return its error code; events that come before it are kept."""
        while True:
            payload = self.payload()
            header = r.ReplyHeader.decode(payload)
            if header.xid != -1:
                self.body = payload[16:]
                return header.err
            event = r.WatcherEvent.decode(payload[16:])
            self.events.append((event.type, event.path))

    def event(self) -> tuple[int, str]:
        """Wait for an event."""
        event = r.WatcherEvent.decode(self.payload()[16:])
        return event.type, event.path

    def ask(self, op: OpCode, body: Record | None = None) -> int:
        """Send one request and wait for its reply."""
        self.send(op, body)
        return self.reply()

    def create(self, path: str, flags: int = 0, value: bytes = b"", acl: AclList = OPEN_ACL_UNSAFE) -> int:
        """Create a node."""
        return self.ask(OpCode.CREATE, r.CreateRequest(path, value, acl, flags))

    def set_data(self, path: str, value: bytes) -> int:
        """Replace a node's data."""
        return self.ask(OpCode.SET_DATA, r.SetDataRequest(path, value, -1))

    def delete(self, path: str) -> int:
        """Delete a node."""
        return self.ask(OpCode.DELETE, r.DeleteRequest(path, -1))

    def exists(self, path: str = "/") -> int:
        """Ask whether a node exists."""
        return self.ask(OpCode.EXISTS, r.ExistsRequest(path, False))

    def watch(self, path: str) -> int:
        """Set an exists watch."""
        return self.ask(OpCode.EXISTS, r.ExistsRequest(path, True))

    # --- requests; each returns its result ---

    def sequential(self, path: str) -> str:
        """Create a sequential node; return its path."""
        assert self.create(path, SEQUENTIAL) == 0
        created: str = r.CreateResponse.decode(self.body).path
        return created

    def children(self, path: str) -> list[str]:
        """Return the sorted names of a node's children."""
        assert self.ask(OpCode.GET_CHILDREN, r.GetChildrenRequest(path, False)) == 0
        return sorted(r.GetChildrenResponse.decode(self.body).children)

    def answers(self, count: int) -> list[int]:
        """Ask so many times whether the root exists; return the error codes."""
        return [self.exists() for _ in range(count)]


def creating(path: str) -> r.CreateRequest:
    """Return the body of a create."""
    return r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0)


class StreamWire:
    """A session in the simulated network.

    Args:
        reader: The stream of received bytes.
        transport: The transport of the connection.
    """

    def __init__(self, reader: asyncio.StreamReader, transport: Any) -> None:
        self.reader = reader
        self.transport = transport
        self.id = 0
        self.xid = 0

    async def payload(self) -> bytes:
        """Wait for one frame."""
        (length,) = int_at(await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def ask(self, op: OpCode, body: Record | None = None) -> int:
        """Send a request and wait for its error code."""
        self.xid += 1
        self.transport.write(frame(r.RequestHeader(self.xid, op).encode() + (body.encode() if body else b"")))
        return r.ReplyHeader.decode(await self.payload()).err

    async def create(self, path: str, flags: int = 0, data: bytes = b"") -> int:
        """Create a node."""
        return await self.ask(OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, flags))


async def dial(server: Server, timeout_s: float = 10.0) -> StreamWire:
    """Open a session in the running loop; return it when the server has answered."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().create_connection(
        lambda: asyncio.StreamReaderProtocol(reader), "127.0.0.1", server.port
    )
    client = StreamWire(reader, transport)
    transport.write(frame(ConnectRequest(0, round(timeout_s * 1000)).encode()))
    client.id = ConnectResponse.decode(await client.payload()).session_id
    return client
