"""How many connections there may be, what an orderly stop sends, and that a closed connection leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import int_at, pack_int
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.opcodes import OpCode
from zoolet.server.app import assemble
from zoolet.server.config import Config
from zoolet.server.core.caller import Caller
from zoolet.server.core.connection import Connection
from zoolet.server.net.listener import Listener
from zoolet.server.net.transport import Transport

DEADLINE_S: Final = 10.0  # only ever reached on failure
HELLO: Final = frame(ConnectRequest(timeout_ms=30_000).encode())
CYCLES: Final = 200


# --- what the tests say it with ---


class Client:
    """A client reduced to its socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def payload(self) -> bytes:
        """Wait for one frame."""
        async with asyncio.timeout(DEADLINE_S):
            (length,) = int_at(await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def xid(self) -> int:
        """Wait for one reply; return its xid."""
        (xid,) = int_at(await self.payload())
        return int(xid)

    async def rest(self) -> bytes:
        """Wait for the server to close; return all that came before."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()

    async def shake_hands(self, session: int = 0, password: bytes = bytes(16)) -> ConnectResponse:
        """Open or resume a session."""
        self.send(frame(ConnectRequest(0, 30_000, session, password).encode()))
        return ConnectResponse.decode(await self.payload())

    async def close(self) -> None:
        """Close the socket."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def reset(self) -> None:
        """Close the socket as a machine that crashed does, with RST."""
        link: socket.socket = self.writer.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.close()


class Server:
    """A server in this loop, and clients that end with their test.

    Args:
        **config: Fields of the server's Config.
    """

    def __init__(self, **config: int) -> None:
        self.config = Config(host="127.0.0.1", max_client_cnxns=0)
        for name, value in config.items():
            setattr(self.config, name, value)
        self.listener: Listener
        self.port = 0
        self.clients: list[Client] = []

    async def start(self) -> None:
        """Listen."""
        self.listener = assemble(self.config)
        self.port = await self.listener.start("127.0.0.1", 0)

    async def dial(self, host: str = "127.0.0.1") -> Client:
        """Connect from an address of this machine."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0)))
        self.clients.append(client)
        return client

    async def settle(self) -> None:
        """Wait until the server has seen that all connections are gone."""
        await until(lambda: not self.listener.open)


Start = Callable[..., Awaitable[Server]]


@pytest.fixture
async def serve() -> AsyncIterator[Start]:
    """A function that starts a server; takes fields of its Config."""
    servers: list[Server] = []

    async def start(**config: int) -> Server:
        server = Server(**config)
        await server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        for client in server.clients:
            await client.close()
        await server.listener.stop()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """No garbage collection: what is freed is freed by its last reference."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


def request(xid: int, op: int, body: bytes = b"") -> bytes:
    """Write one request, frame and all."""
    return frame(r.RequestHeader(xid, op).encode() + body)


def exists(xid: int, path: str = "/", watch: bool = False) -> bytes:
    """Write an exists."""
    return request(xid, OpCode.EXISTS, r.ExistsRequest(path, watch).encode())


def alive() -> list[object]:
    """Find the objects in memory that belong to one connection."""
    return [one for one in gc.get_objects() if isinstance(one, Transport | Connection | Caller)]


async def admitted(client: Client) -> bool:
    """Say whether the server lets a client shake hands."""
    try:
        await client.shake_hands()
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    return True


# --- how many ---


async def test_a_host_with_its_full_number_of_connections_gets_no_more(serve: Start) -> None:
    server = await serve(max_client_cnxns=3)

    clients = [await server.dial() for _ in range(4)]

    assert [await admitted(client) for client in clients] == [True, True, True, False]


async def test_a_refused_connection_is_closed_without_a_word(serve: Start) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()

    refused = await server.dial()

    assert await refused.rest() == b""


async def test_a_full_host_takes_nothing_from_another_host(serve: Start) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial("127.0.0.1")
    await server.dial("127.0.0.1")

    other = await server.dial("127.0.0.2")

    assert await admitted(other)


async def test_a_connection_that_ends_makes_room_for_the_next(serve: Start) -> None:
    server = await serve(max_client_cnxns=1)
    first = await server.dial()
    assert await admitted(first)

    await first.close()
    await server.settle()

    assert await admitted(await server.dial())


async def test_a_refused_connection_makes_no_room(serve: Start) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()
    await (await server.dial()).rest()

    assert not await admitted(await server.dial())


async def test_a_four_letter_word_needs_room_too(serve: Start) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()

    refused = await server.dial()
    refused.send(b"srvr")

    with suppress(ConnectionError):  # it was closed with the word unread
        assert await refused.rest() == b""


async def test_no_limit_for_a_host_is_no_limit(serve: Start) -> None:
    server = await serve(max_client_cnxns=0)

    clients = [await server.dial() for _ in range(100)]

    assert all([await admitted(client) for client in clients])


async def test_the_total_counts_all_hosts(serve: Start) -> None:
    server = await serve(max_cnxns=2)

    clients = [await server.dial(f"127.0.0.{last}") for last in (1, 2, 3)]

    assert [await admitted(client) for client in clients] == [True, True, False]


async def test_the_total_has_room_again_when_one_ends(serve: Start) -> None:
    server = await serve(max_cnxns=1)
    first = await server.dial()
    assert await admitted(first)

    await first.close()
    await server.settle()

    assert await admitted(await server.dial("127.0.0.2"))


# --- an orderly stop ---


async def test_a_stop_sends_the_replies_that_are_due(serve: Start) -> None:
    server = await serve()
    client = await server.dial()
    await client.shake_hands()
    client.send(b"".join(exists(xid) for xid in range(1000)))
    await until(lambda: server.listener.engine.metrics.packets_received >= 1001)

    stopping = asyncio.create_task(server.listener.stop())
    xids = [await client.xid() for _ in range(1000)]
    rest = await client.rest()
    await client.close()
    await stopping

    assert (xids, rest) == (list(range(1000)), b"")


async def test_a_stop_sends_a_large_reply_whole(serve: Start) -> None:
    server = await serve()
    client = await server.dial()
    await client.shake_hands()
    body = r.CreateRequest("/big", b"x" * 1_000_000, OPEN_ACL_UNSAFE, 0).encode()
    client.send(request(1, OpCode.CREATE, body) + request(2, OpCode.GET_DATA, r.GetDataRequest("/big", False).encode()))
    await until(lambda: server.listener.engine.metrics.packets_received >= 3)

    stopping = asyncio.create_task(server.listener.stop())
    created, got = await client.payload(), await client.payload()
    await client.close()
    await stopping

    assert (int_at(created), int_at(got)) == ((1,), (2,))


async def test_a_stop_does_not_wait_for_a_client_that_keeps_its_side_open(
    serve: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoolet.server.net.transport.LINGER", 0.01)
    server = await serve()
    client = await server.dial()
    await client.shake_hands()

    async with asyncio.timeout(DEADLINE_S):
        await server.listener.stop()

    assert not server.listener.open


async def test_a_stop_leaves_sessions_as_they_are(serve: Start) -> None:
    server = await serve()
    client = await server.dial()
    welcome = await client.shake_hands()

    stopping = asyncio.create_task(server.listener.stop())
    await client.rest()
    await client.close()
    await stopping

    assert list(server.listener.engine.sessions.alive) == [welcome.session_id]


async def test_a_server_that_has_stopped_accepts_nobody(serve: Start) -> None:
    server = await serve()

    await server.listener.stop()

    with pytest.raises(ConnectionRefusedError):
        await server.dial()


async def test_a_stop_without_connections_ends_at_once(serve: Start) -> None:
    server = await serve()

    async with asyncio.timeout(DEADLINE_S):
        await server.listener.stop()

    assert not server.listener.open


# --- what is left ---


async def _say_nothing(client: Client) -> None:
    await client.close()


async def _leave(client: Client) -> None:
    await client.shake_hands()
    await client.close()


async def _crash(client: Client) -> None:
    await client.shake_hands()
    client.send(exists(1))
    await client.reset()


async def _end_the_session(client: Client) -> None:
    await client.shake_hands()
    client.send(request(1, OpCode.CLOSE_SESSION))
    await client.rest()
    await client.close()


async def _watch_and_leave(client: Client) -> None:
    await client.shake_hands()
    client.send(exists(1, watch=True) + request(2, OpCode.ADD_WATCH, r.AddWatchRequest("/", 1).encode()))
    assert [await client.xid(), await client.xid()] == [1, 2]
    await client.close()


async def _fail_and_leave(client: Client) -> None:
    await client.shake_hands()
    client.send(exists(1, "/nowhere") + request(2, OpCode.GET_DATA, pack_int(-2)))
    assert [await client.xid(), await client.xid()] == [1, 2]
    await client.close()


async def _send_nonsense(client: Client) -> None:
    await client.shake_hands()
    client.send(pack_int(-1))
    await client.rest()
    await client.close()


async def _send_half_a_frame(client: Client) -> None:
    await client.shake_hands()
    client.send(pack_int(100) + bytes(10))
    await client.close()


async def _ask_with_a_word(client: Client) -> None:
    client.send(b"srvr")
    await client.rest()
    await client.close()


async def _log_in_wrongly(client: Client) -> None:
    await client.shake_hands()
    client.send(request(-4, OpCode.AUTH, r.AuthPacket(0, "nonsense", b"").encode()))
    await client.rest()
    await client.close()


@pytest.mark.parametrize(
    "live",
    [
        _say_nothing,
        _leave,
        _crash,
        _end_the_session,
        _watch_and_leave,
        _fail_and_leave,
        _send_nonsense,
        _send_half_a_frame,
        _ask_with_a_word,
        _log_in_wrongly,
    ],
    ids=lambda live: live.__name__.strip("_").replace("_", " "),
)
@pytest.mark.usefixtures("no_collector")
async def test_nothing_is_left_of_connections_that_are_gone(
    serve: Start, live: Callable[[Client], Awaitable[None]]
) -> None:
    server = await serve()
    before = len(alive())

    for _ in range(CYCLES):
        await live(await server.dial())
    await _leave(await server.dial())  # connections are accepted in order: all others have been by now
    server.clients.clear()
    await server.settle()
    await asyncio.sleep(0)  # the loop lets go of its last callback

    assert len(alive()) == before


@pytest.mark.usefixtures("no_collector")
async def test_nothing_is_left_of_connections_that_were_refused(serve: Start) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()
    await until(lambda: server.listener.open)
    before = len(alive())

    for _ in range(CYCLES):
        refused = await server.dial()
        await refused.rest()
        await refused.close()
    await asyncio.sleep(0)

    assert len(alive()) == before


@pytest.mark.usefixtures("no_collector")
async def test_nothing_is_left_of_connections_whose_session_moved_on(serve: Start) -> None:
    server = await serve()
    first = await server.dial()
    welcome = await first.shake_hands()
    before = len(alive())

    for _ in range(CYCLES):
        second = await server.dial()
        await second.shake_hands(welcome.session_id, welcome.password or b"")
        assert await first.rest() == b""
        await first.close()
        first = second
    await until(lambda: len(server.listener.open) == 1)
    await asyncio.sleep(0)

    assert len(alive()) == before
    assert len(server.listener.engine.sessions.alive) == 1


async def test_watches_go_with_their_connection(serve: Start) -> None:
    server = await serve()
    engine = server.listener.engine
    leaver, stayer = await server.dial(), await server.dial()
    for client in (leaver, stayer):
        await client.shake_hands()
        client.send(exists(1, watch=True) + request(2, OpCode.ADD_WATCH, r.AddWatchRequest("/", 1).encode()))
        assert [await client.xid(), await client.xid()] == [1, 2]
    assert engine.watches.active == 2

    await leaver.reset()
    await until(lambda: len(server.listener.open) == 1)

    assert engine.watches.active == 1
    assert len(engine.callers) == 1


async def test_an_event_for_a_connection_that_is_gone_harms_nobody(serve: Start) -> None:
    server = await serve()
    leaver, stayer = await server.dial(), await server.dial()
    for client in (leaver, stayer):
        await client.shake_hands()
    leaver.send(exists(1, "/a", watch=True))
    await leaver.xid()

    await leaver.reset()
    stayer.send(request(1, OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode()))

    assert await stayer.xid() == 1
