"""Clients reduced to their connection: a test can send any bytes and sees every byte from the server.

:class:`Wire` uses a blocking socket, for a server in a thread or in a process; :class:`StreamWire` uses asyncio's
streams, for a server in the running event loop or in the simulated network.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import time
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from support.frames import request
from support.numbers import EPHEMERAL as EPHEMERAL
from support.numbers import SEQUENTIAL as SEQUENTIAL
from support.peer import Reply
from support.waiting import DEADLINE_S as DEADLINE_S

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import Record, int_at
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server

PING_XID: Final = -2
"""The xid of every ping and of its reply."""
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""The value of ``SO_LINGER`` that makes a close send RST."""


def split_reply(payload: bytes) -> Reply:
    """Parse the payload of a reply or an event."""
    header = r.ReplyHeader.decode(payload)
    return Reply(header.xid, header.zxid, header.err, payload[16:])


class Wire:
    """A session reduced to its socket.

    Args:
        server: The server to connect to, or its port.
        timeout: The requested session timeout in seconds; 0 sends no handshake.
        session: The id and password of the session to resume.
        wait: The longest wait for a frame, in seconds.
        source: The address to connect from.
        room: The size of the socket's receive buffer, in bytes; 0 for the default.

    Attributes:
        events: The types and paths of the events that arrived before a reply.
        body: The body of the last reply.
        id: The id of the session.
        password: The password of the session.
    """

    def __init__(
        self,
        server: Server | int,
        timeout: float = 30.0,
        session: tuple[int, bytes] = (0, bytes(16)),
        *,
        wait: float = DEADLINE_S,
        source: str = "127.0.0.1",
        room: int = 0,
    ) -> None:
        self.link = socket.socket()
        self.link.settimeout(wait)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wait = wait
        self.events: list[tuple[int, str]] = []
        self.xid = 0
        self.id = 0
        self.password = bytes(16)
        self.body = b""
        self._frames = Frames(limit=None)
        self._payloads: list[bytes] = []
        try:
            if room:
                self.link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            self.link.bind((source, 0))
            self.link.connect(("127.0.0.1", server if isinstance(server, int) else server.port))
        except BaseException:
            self.link.close()
            raise
        if timeout:
            self.write(ConnectRequest(0, round(timeout * 1000), *session).encode())

    def welcomed(self) -> Self:
        """Wait for the connect response."""
        try:
            welcome = ConnectResponse.decode(self.payload())
        except BaseException:
            self.close()
            raise
        self.id, self.password = welcome.session_id, welcome.password or b""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the session stays open."""
        self.link.close()

    def reset(self) -> None:
        """Close the socket as a machine that crashed does, with RST."""
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.link.close()

    # --- bytes ---

    def next_payload(self, wait: float | None = None) -> bytes | None:
        """Wait for one frame. Return its payload, or None if the connection is closed instead.

        Raises:
            TimeoutError: No frame arrived within *wait* seconds.
        """
        deadline = time.monotonic() + (self.wait if wait is None else wait)
        while not self._payloads:
            self.link.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self.link.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._payloads += self._frames.feed(data)
        return self._payloads.pop(0)

    def payload(self) -> bytes:
        """Wait for one frame, and return its payload. Raise EOFError if the connection is closed instead."""
        payload = self.next_payload()
        if payload is None:
            raise EOFError("the server closed the connection")
        return payload

    def payloads(self, count: int) -> list[bytes]:
        """Wait for *count* frames."""
        return [self.payload() for _ in range(count)]

    def write(self, payload: bytes) -> None:
        """Send one frame. A closed connection is not reported here, but by the next read."""
        with suppress(ConnectionError):
            self.link.sendall(frame(payload))

    def send(self, op: int, body: Record | bytes = b"", xid: int | None = None) -> int:
        """Send one request. Return its xid, which by default is the next number."""
        if xid is None:
            self.xid += 1
            xid = PING_XID if op == OpCode.PING else self.xid
        with suppress(ConnectionError):
            self.link.sendall(request(xid, op, body))
        return xid

    def has_something(self) -> bool:
        """Return whether data can be read."""
        return bool(self._payloads or select.select([self.link], [], [], 0)[0])

    def ended(self) -> bool:
        """Wait for the next byte or the end of the connection. Return whether the connection ends."""
        return not self._payloads and bool(select.select([self.link], [], [], self.wait)[0]) and not self.link.recv(1)

    # --- requests; each returns its error code ---

    def reply(self) -> int:
        """Wait for a reply, and return its error code; earlier events are kept."""
        return self._reply().err

    def _reply(self) -> Reply:
        while (reply := split_reply(self.payload())).xid == -1:
            event = r.WatcherEvent.decode(reply.body)
            self.events.append((event.type, event.path))
        self.body = reply.body
        return reply

    def event(self) -> tuple[int, str]:
        """Wait for an event."""
        event = r.WatcherEvent.decode(self.payload()[16:])
        return event.type, event.path

    def ask(self, op: int, body: Record | bytes = b"", xid: int | None = None) -> int:
        """Send one request and wait for its reply.

        Raises:
            ValueError: The reply is for another request.
        """
        sent = self.send(op, body, xid)
        reply = self._reply()
        if reply.xid != sent:
            raise ValueError(f"request {sent} was answered with {reply.xid}")
        return reply.err

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
        """Send an exists."""
        return self.ask(OpCode.EXISTS, r.ExistsRequest(path, False))

    def watch(self, path: str) -> int:
        """Set an exists watch."""
        return self.ask(OpCode.EXISTS, r.ExistsRequest(path, True))

    # --- requests; each returns its result ---

    def sequential(self, path: str) -> str:
        """Create a sequential node, and return its path."""
        assert self.create(path, SEQUENTIAL) == 0
        created: str = r.CreateResponse.decode(self.body).path
        return created

    def children(self, path: str) -> list[str]:
        """Return the sorted names of a node's children."""
        assert self.ask(OpCode.GET_CHILDREN, r.GetChildrenRequest(path, False)) == 0
        return sorted(r.GetChildrenResponse.decode(self.body).children)

    def answers(self, count: int) -> list[int]:
        """Send *count* exists requests for the root. Return the error codes of the replies."""
        return [self.exists() for _ in range(count)]


def creating(path: str) -> r.CreateRequest:
    """Return the body of a create."""
    return r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0)


def reset_before_accept(port: int, data: bytes = b"") -> int:
    """Connect, send *data* and reset before the server's event loop can accept. Return the number of bytes sent."""
    wire = Wire(port, 0)
    wire.link.sendall(data)
    wire.reset()
    return len(data)


class StreamWire:
    """A connection reduced to its streams.

    Args:
        reader: The stream of received bytes.
        writer: The stream of sent bytes.
        wait: The longest wait for bytes, in seconds of the event loop; None for no limit.

    Attributes:
        welcome: The connect response; None before the handshake.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, wait: float | None = DEADLINE_S
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.transport = writer.transport
        self.wait = wait
        self.welcome: ConnectResponse | None = None
        self._xid = 0

    @property
    def address(self) -> str:
        """The client's address in ZooKeeper's format."""
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"/{host}:{port}"

    @property
    def id(self) -> int:
        """The id of its session."""
        assert self.welcome is not None
        return self.welcome.session_id

    # --- bytes ---

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    def end(self) -> None:
        """Close the connection for sending, but keep it open for receiving."""
        self.writer.write_eof()

    async def read(self, size: int) -> bytes:
        """Wait for this many bytes."""
        async with asyncio.timeout(self.wait):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """Wait until the server closes the connection. Return the bytes that arrived before."""
        async with asyncio.timeout(self.wait):
            return await self.reader.read()

    async def closed(self) -> bytes:
        """Wait until the server closes or resets the connection. Return the bytes that arrived before."""
        with suppress(ConnectionError):
            return await self.rest()
        return b""

    async def close(self) -> None:
        """Close the socket."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def reset(self) -> None:
        """Close the socket as a machine that crashed does, with RST."""
        link: socket.socket = self.writer.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        await self.abort()

    async def abort(self) -> None:
        """Close the socket, and discard buffered output."""
        self.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()

    # --- frames ---

    async def payload(self) -> bytes:
        """Wait for one frame."""
        return await self.read(int_at(await self.read(4))[0])

    async def answer(self) -> Reply:
        """Wait for one reply."""
        return split_reply(await self.payload())

    async def answers(self, count: int) -> list[Reply]:
        """Wait for *count* replies."""
        return [await self.answer() for _ in range(count)]

    async def xids(self, count: int) -> list[int]:
        """Wait for *count* replies, and return their xids."""
        return [int_at(await self.payload())[0] for _ in range(count)]

    # --- operations ---

    async def shake_hands(
        self, session: int = 0, password: bytes = bytes(16), *, timeout_s: float = 30.0
    ) -> ConnectResponse:
        """Open or resume a session."""
        self.send(frame(ConnectRequest(0, round(timeout_s * 1000), session, password).encode()))
        self.welcome = ConnectResponse.decode(await self.payload())
        return self.welcome

    async def call(self, framed: bytes) -> int:
        """Send one framed request, and skip events until its reply. Return the error code of the reply."""
        self.send(framed)
        while (reply := await self.answer()).xid == -1:
            pass
        assert (reply.xid,) == int_at(framed, 4)
        return reply.err

    async def ask(self, op: OpCode, body: Record | bytes = b"") -> int:
        """Send a request and wait for its error code."""
        self._xid += 1
        return await self.call(request(PING_XID if op == OpCode.PING else self._xid, op, body))

    async def create(self, path: str, flags: int = 0, data: bytes = b"") -> int:
        """Create a node."""
        return await self.ask(OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, flags))

    async def watch(self, path: str) -> None:
        """Set a data watch on a node that need not exist."""
        await self.ask(OpCode.EXISTS, r.ExistsRequest(path, True))


class _UnclosedWriter(asyncio.StreamWriter):
    """A writer that may be left open, because the simulated network ends with its event loop."""

    def __del__(self) -> None:
        pass


async def dial(server: Server, timeout_s: float = 10.0) -> StreamWire:
    """Open a session in the simulated network. Return its connection once the server has answered."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    transport, protocol = await loop.create_connection(
        lambda: asyncio.StreamReaderProtocol(reader), "127.0.0.1", server.port
    )
    client = StreamWire(reader, _UnclosedWriter(transport, protocol, reader, loop), wait=None)
    await client.shake_hands(timeout_s=timeout_s)
    return client
