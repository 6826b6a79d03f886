"""The protocol of one connection: a closed connection leaves no objects, and one without a peer is never served."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import pytest
import uvloop
from support.engine import assemble_daemon
from support.frames import HELLO, create, exists, request
from support.live_server import LiveServer, Serve
from support.waiting import until
from support.wire import StreamWire, reset_before_accept

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import pack_int
from zoolet.protocol.operations import OpCode
from zoolet.server.config import ServerConfig
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.core.settings import EngineSettings
from zoolet.server.net.protocol import ServerProtocol

CYCLES: Final = 20


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable garbage collection, so objects are freed only by their last reference; hide objects of earlier tests."""
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def alive() -> list[object]:
    """Return all objects in memory of the classes that each connection instantiates."""
    return [one for one in gc.get_objects() if isinstance(one, ServerProtocol | ServerConnection | ClientConnection)]


# --- leftovers of ended connections ---


async def _say_nothing(client: StreamWire) -> None:
    await client.close()


async def _leave(client: StreamWire) -> None:
    await client.shake_hands()
    await client.close()


async def _crash(client: StreamWire) -> None:
    await client.shake_hands()
    client.send(exists(1))
    await client.reset()


async def _end_the_session(client: StreamWire) -> None:
    await client.shake_hands()
    client.send(request(1, OpCode.CLOSE_SESSION))
    await client.rest()
    await client.close()


async def _watch_and_leave(client: StreamWire) -> None:
    await client.shake_hands()
    client.send(exists(1, watch=True) + request(2, OpCode.ADD_WATCH, r.AddWatchRequest("/", 1).encode()))
    assert await client.xids(2) == [1, 2]
    await client.close()


async def _fail_and_leave(client: StreamWire) -> None:
    await client.shake_hands()
    client.send(exists(1, "/nowhere") + request(2, OpCode.GET_DATA, pack_int(-2)))
    assert await client.xids(2) == [1, 2]
    await client.close()


async def _send_nonsense(client: StreamWire) -> None:
    await client.shake_hands()
    client.send(pack_int(-1))
    await client.rest()
    await client.close()


async def _send_half_a_frame(client: StreamWire) -> None:
    await client.shake_hands()
    client.send(pack_int(100) + bytes(10))
    await client.close()


async def _ask_with_a_word(client: StreamWire) -> None:
    client.send(b"srvr")
    await client.rest()
    await client.close()


async def _log_in_wrongly(client: StreamWire) -> None:
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
async def test_lost_connections_leave_no_objects(serve: Serve, live: Callable[[StreamWire], Awaitable[None]]) -> None:
    server = await serve()
    before = len(alive())

    for _ in range(CYCLES):
        await live(await server.dial())
    await _leave(await server.dial())  # connections are accepted in order, so all earlier ones have been accepted
    server.clients.clear()
    await server.settle()
    await asyncio.sleep(0)  # lets the event loop drop its last callback, which refers to a connection

    assert len(alive()) == before


@pytest.mark.usefixtures("no_collector")
async def test_refused_connections_leave_no_objects(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()
    await until(lambda: server.daemon.connections.open)
    before = len(alive())

    for _ in range(CYCLES):
        refused = await server.dial()
        await refused.rest()
        await refused.close()
    await asyncio.sleep(0)

    assert len(alive()) == before


@pytest.mark.usefixtures("no_collector")
async def test_connections_of_moved_session_are_freed(serve: Serve) -> None:
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
    await until(lambda: len(server.daemon.connections.open) == 1)
    await asyncio.sleep(0)

    assert len(alive()) == before
    assert len(server.engine.sessions.alive) == 1


async def test_watches_of_lost_connection_are_removed(serve: Serve) -> None:
    server = await serve()
    engine = server.engine
    leaver, stayer = await server.dial(), await server.dial()
    for client in (leaver, stayer):
        await client.shake_hands()
        client.send(exists(1, watch=True) + request(2, OpCode.ADD_WATCH, r.AddWatchRequest("/", 1).encode()))
        assert await client.xids(2) == [1, 2]
    assert engine.watches.active == 2

    await leaver.reset()
    await until(lambda: len(server.daemon.connections.open) == 1)

    assert engine.watches.active == 1
    assert len(engine.connections) == 1


async def test_event_for_lost_connection_is_harmless(serve: Serve) -> None:
    server = await serve()
    leaver, stayer = await server.dial(), await server.dial()
    for client in (leaver, stayer):
        await client.shake_hands()
    leaver.send(exists(1, "/a", watch=True))
    await leaver.answer()

    await leaver.reset()
    stayer.send(request(1, OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode()))

    assert await stayer.xids(1) == [1]


# --- connections without an address ---

LOGIN: Final = request(-4, OpCode.AUTH, r.AuthPacket(0, "digest", b"a:b"))
CREATE: Final = create(1, "/in")


class Stub(asyncio.Transport):
    """A transport without the address of its peer."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the default."""
        return default

    def abort(self) -> None:
        """Record the abort."""
        self.aborted = True


class ResetStub(Stub):
    """A transport whose peer has reset the connection, before the event loop has noticed."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the address, and otherwise the default."""
        return ("127.0.0.1", 4711) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        """Return 0: no data waits."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits."""

    def can_write_eof(self) -> bool:
        """Return True: the transport can half-close."""
        return True

    def write_eof(self) -> None:
        """Fail like a socket."""
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


async def test_reset_connection_is_aborted_by_close(serve: Serve) -> None:
    live, stub = await serve(), ResetStub()
    protocol = ServerProtocol(live.daemon.connections)
    protocol.connection_made(stub)

    protocol.close()

    assert stub.aborted
    protocol.connection_lost(None)


async def test_connection_without_peer_address_is_aborted(serve: Serve) -> None:
    live, stub = await serve(), Stub()

    ServerProtocol(live.daemon.connections).connection_made(stub)

    assert stub.aborted


async def test_connection_without_peer_address_is_not_counted(serve: Serve) -> None:
    live = await serve(max_client_cnxns=1, max_cnxns=1)
    protocol = ServerProtocol(live.daemon.connections)

    protocol.connection_made(Stub())

    assert (dict(live.daemon.connections.open), dict(live.engine.connections), protocol.was_accepted) == ({}, {}, False)
    assert (await live.session()).id != 0


async def test_requests_without_peer_address_are_not_executed(serve: Serve) -> None:
    live = await serve()
    protocol = ServerProtocol(live.daemon.connections)
    protocol.connection_made(Stub())

    protocol.data_received(HELLO + CREATE)
    protocol.eof_received()
    protocol.connection_lost(None)

    assert live.engine.sessions.alive == {}
    assert live.engine.tree.get("/in") is None


async def test_connections_reset_before_accept_do_not_count(serve: Serve) -> None:
    live = await serve(max_client_cnxns=20)
    resets = [reset_before_accept(live.port, HELLO + CREATE) for _ in range(20)]
    await live.session("127.0.0.2")
    await until(lambda: len(live.daemon.connections.open) == 1)

    clients = [await live.session() for _ in range(20)]

    assert len(resets) == 20
    assert 0 not in [client.id for client in clients]


def test_reset_before_accept_opens_no_session() -> None:
    # asyncio's event loop keeps the address from accept(); uvloop queries it later, when it no longer exists
    async def reset_and_look() -> list[int]:
        server = LiveServer(assemble_daemon(ServerConfig()))
        await server.daemon.start("127.0.0.1", 0)
        resets = [reset_before_accept(server.port, HELLO + CREATE) for _ in range(20)]
        assert len(resets) == 20
        await server.session("127.0.0.2")
        await until(lambda: len(server.daemon.connections.open) == 1)
        await server.close()
        return list(server.engine.sessions.alive)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        alive = runner.run(reset_and_look())

    assert len(alive) == 1


# --- requests in one segment ---


async def test_request_pipelined_before_login_is_not_done(serve: Serve) -> None:
    live = await serve(settings=EngineSettings(require_auth=frozenset({"digest"})))
    client = await live.dial()

    client.send(HELLO + CREATE + LOGIN + CREATE)
    await client.closed()

    assert live.engine.tree.get("/in") is None


async def test_request_pipelined_after_login_is_done(serve: Serve) -> None:
    live = await serve(settings=EngineSettings(require_auth=frozenset({"digest"})))
    client = await live.dial()

    client.send(HELLO + LOGIN + CREATE)
    replies = [await client.payload() for _ in range(3)]

    assert len(replies) == 3
    assert live.engine.tree.get("/in") is not None
