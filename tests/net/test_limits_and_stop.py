"""How many connections there may be, what an orderly stop sends, and that a closed connection leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest
from support.daemon import DaemonProcess

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import int_at, pack_int
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server.app import assemble
from zoolet.server.config import Config
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.core.settings import Settings
from zoolet.server.net.daemon import SPARE_DESCRIPTORS, STOP_SECONDS, Daemon
from zoolet.server.net.protocol import ServerProtocol

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

    def __init__(self, **config: object) -> None:
        self.config = Config(host="127.0.0.1", max_client_cnxns=0)
        for name, value in config.items():
            setattr(self.config, name, value)
        self.listener: Daemon
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

    async def dial_without_reading(self, requests: bytes) -> Client:
        """Connect with a socket that holds little, open a session, ask, and read no more."""
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.setblocking(False)
        await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", self.port))
        client = Client(*await asyncio.open_connection(sock=link, limit=1024))
        self.clients.append(client)
        await client.shake_hands()
        before = len(self.listener._not_reading)
        client.send(requests)
        await until(lambda: len(self.listener._not_reading) > before)
        return client

    async def settle(self) -> None:
        """Wait until the server has seen that all connections are gone."""
        await until(lambda: not self.listener.open)


Start = Callable[..., Awaitable[Server]]


@pytest.fixture
async def serve() -> AsyncIterator[Start]:
    """A function that starts a server; takes fields of its Config."""
    servers: list[Server] = []

    async def start(**config: object) -> Server:
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
    return [one for one in gc.get_objects() if isinstance(one, ServerProtocol | ServerConnection | ClientConnection)]


async def admitted(client: Client) -> bool:
    """Return whether the server lets a client shake hands."""
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
    monkeypatch.setattr("zoolet.server.net.protocol.LINGER", 0.01)
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
    assert len(engine.connections) == 1


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


# --- what clients do not read ---


def get(xid: int, path: str) -> bytes:
    """Write a getData."""
    return request(xid, OpCode.GET_DATA, r.GetDataRequest(path, False).encode())


def with_node(server: Server, path: str, size: int) -> None:
    """Make a node behind the back of all clients."""
    server.listener.engine.tree.create(path, bytes(size), 0, 0, 1, 0)


async def test_one_client_alone_may_leave_a_reply_unread_however_large(serve: Start) -> None:
    server = await serve(settings=Settings(max_write_buffer_total=1_000))
    with_node(server, "/big", 8_000_000)

    await server.dial_without_reading(get(1, "/big"))

    assert len(server.listener.open) == 1
    assert server.listener.engine.metrics.refused["unread_total"] == 0


async def test_of_those_that_do_not_read_the_one_with_most_is_disconnected(
    serve: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve(settings=Settings(max_write_buffer_total=1_000_000))
    with_node(server, "/big", 10_000_000)
    with_node(server, "/small", 8_000_000)
    greedy = await server.dial_without_reading(get(1, "/big"))

    modest = asyncio.create_task(server.dial_without_reading(get(1, "/small")))
    await until(lambda: server.listener.engine.metrics.refused["unread_total"])
    await until(lambda: len(server.listener.open) == 1)
    modest.cancel()

    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await greedy.payload()
    assert [line for line in caplog.messages if "zoolet.maxUnreadBytesTotal" in line]
    assert server.listener.engine.metrics.refused["unread_total"] == 1


async def test_what_was_read_after_all_is_counted_no_more(serve: Start) -> None:
    server = await serve()
    with_node(server, "/big", 8_000_000)
    client = await server.dial_without_reading(get(1, "/big"))
    counted = server.listener._unread

    await client.payload()
    await until(lambda: not server.listener._not_reading)

    assert counted > 1_000_000
    assert server.listener._unread == 0


async def test_what_a_client_that_is_gone_did_not_read_is_counted_no_more(serve: Start) -> None:
    server = await serve()
    with_node(server, "/big", 8_000_000)
    client = await server.dial_without_reading(get(1, "/big"))

    await client.reset()
    await server.settle()

    assert (server.listener._unread, list(server.listener._not_reading)) == (0, [])


@pytest.mark.slow
async def test_a_reply_of_more_than_64_mib_reaches_a_client_that_reads(serve: Start) -> None:
    server = await serve(settings=Settings(max_write_buffer_total=1 << 20, max_write_buffer=1 << 20))
    tree = server.listener.engine.tree
    for number in range(70):
        tree.create(f"/{number:02}" + "n" * 1_000_000, b"", 0, 0, 1, 0)
    client = await server.dial()
    await client.shake_hands()

    client.send(request(1, OpCode.GET_CHILDREN, r.GetChildrenRequest("/", False).encode()))
    reply = await client.payload()

    assert len(reply) > 64 << 20
    assert len(r.GetChildrenResponse.decode(reply[16:]).children) == 71


async def test_a_client_that_leaves_too_many_events_unread_is_counted(serve: Start) -> None:
    server = await serve(settings=Settings(max_write_buffer=100_000))
    with_node(server, "/big", 8_000_000)
    watch = request(1, OpCode.ADD_WATCH, r.AddWatchRequest("/", 1).encode())
    await server.dial_without_reading(watch + get(2, "/big"))
    writer = await server.dial()
    await writer.shake_hands()

    for xid in range(100):
        path = f"/{xid:03}" + "n" * 5_000
        writer.send(request(xid, OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0).encode()))
        await writer.xid()
    await until(lambda: len(server.listener.open) == 1)

    assert server.listener.engine.metrics.refused["unread"] == 1
    assert server.listener._unread == 0


# --- a stop that clients do not help with ---


async def test_a_stop_disconnects_those_that_do_not_read_when_its_time_is_up(
    serve: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("zoolet.server.net.daemon.STOP_SECONDS", 0.02)
    server = await serve()
    with_node(server, "/big", 8_000_000)
    await server.dial_without_reading(get(1, "/big"))

    async with asyncio.timeout(DEADLINE_S):
        await server.listener.stop()

    assert STOP_SECONDS == 5.0
    assert not server.listener.open
    assert "disconnecting 1 clients that do not read" in caplog.text


async def test_a_stop_can_be_cut_short(serve: Start) -> None:
    server = await serve()
    with_node(server, "/big", 8_000_000)
    await server.dial_without_reading(get(1, "/big"))

    stopping = asyncio.create_task(server.listener.stop())
    await asyncio.sleep(0)
    server.listener.abort_all()
    async with asyncio.timeout(1):
        await stopping

    assert not server.listener.open


def stubborn(daemon: DaemonProcess) -> socket.socket:
    """Connect, and read nothing of 20 MB."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect((daemon.host, daemon.port))
    create = r.CreateRequest("/big", bytes(1_000_000), OPEN_ACL_UNSAFE, 0).encode()
    link.sendall(HELLO + request(1, OpCode.CREATE, create))
    assert len(link.recv(41, socket.MSG_WAITALL)) == 41
    link.recv(4 + 16 + 4 + 4, socket.MSG_WAITALL)  # the reply to the create
    link.sendall(b"".join(get(xid, "/big") for xid in range(20)))
    link.recv(20, socket.MSG_WAITALL)  # the head of the first
    return link


@pytest.mark.slow
def test_sigterm_ends_the_daemon_in_time_although_a_client_does_not_read() -> None:
    with DaemonProcess() as daemon, stubborn(daemon):
        started = time.monotonic()
        daemon.process.terminate()
        code = daemon.process.wait(STOP_SECONDS + 1)
        took = time.monotonic() - started

    assert code == 0
    assert took > 1  # it was given time to read


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_daemon_at_once(second: signal.Signals) -> None:
    with DaemonProcess() as daemon, stubborn(daemon):
        daemon.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.process.wait(0.3)
        daemon.process.send_signal(second)
        code = daemon.process.wait(1)

    assert code == 0


# --- the last descriptors ---


@pytest.fixture
def last_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection gets one of the last descriptors."""
    monkeypatch.setattr("zoolet.server.net.daemon.Daemon.is_last_descriptor", _is_last)


def _is_last(listener: Daemon, number: int) -> bool:
    listener._last_descriptor = 0
    listener.warn_of_descriptors()
    return True


@pytest.mark.usefixtures("last_descriptors")
@pytest.mark.parametrize("word", [b"srvr", b"ruok"])
async def test_a_word_is_answered_with_one_of_the_last_descriptors(serve: Start, word: bytes) -> None:
    server = await serve(whitelist=["*"])
    client = await server.dial()

    client.send(word)

    assert await client.rest() != b""


@pytest.mark.usefixtures("last_descriptors")
async def test_no_session_is_opened_with_one_of_the_last_descriptors(serve: Start) -> None:
    server = await serve()
    client = await server.dial()

    client.send(HELLO)

    assert await client.rest() == b""
    assert not server.listener.engine.sessions.alive


@pytest.mark.usefixtures("last_descriptors")
async def test_one_who_says_nothing_keeps_no_last_descriptor(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.net.protocol.WORD_ONLY_SECONDS", 0.01)
    server = await serve()

    client = await server.dial()
    client.send(b"mn")

    with suppress(ConnectionError):
        assert await client.rest() == b""
    await server.settle()


@pytest.mark.usefixtures("last_descriptors")
async def test_one_line_says_that_descriptors_run_out(serve: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve()

    clients = [await server.dial() for _ in range(10)]
    await until(lambda: len(server.listener.open) == 10)

    assert len([line for line in caplog.messages if "running out of file descriptors" in line]) == 1
    assert len(clients) == 10


@pytest.mark.parametrize(("below", "last"), [(-1, False), (0, True), (SPARE_DESCRIPTORS - 1, True)])
async def test_the_last_eight_descriptors_are_the_last(serve: Start, below: int, last: bool) -> None:
    server = await serve()

    found = server.listener.is_last_descriptor(server.listener._last_descriptor + below)

    assert found is last


@pytest.mark.slow
def test_a_daemon_without_descriptors_answers_mntr_and_says_so_once() -> None:
    with tempfile.TemporaryFile() as log:
        daemon = DaemonProcess("-Dzookeeper.4lw.commands.whitelist=*", "-Dzookeeper.maxClientCnxns=0", stderr=log)
        daemon.command = ["/bin/sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *daemon.command]
        with daemon:
            links = [socket.create_connection((daemon.host, daemon.port), DEADLINE_S) for _ in range(80)]
            held = [link for link in links if shaken_hands(link)]
            answer = mntr_in_time(daemon)
            for link in links:
                link.close()
        log.seek(0)
        lines = [line for line in log.read().decode().splitlines() if "descriptor" in line]

    assert 20 < len(held) <= 64 - SPARE_DESCRIPTORS
    assert "zk_max_file_descriptor_count\t64" in answer
    assert len(lines) == 1


def shaken_hands(link: socket.socket) -> bool:
    """Shake hands if the server lets one."""
    link.settimeout(1.5)
    with suppress(OSError):
        link.sendall(HELLO)
        return len(link.recv(41)) == 41
    return False


def mntr_in_time(daemon: DaemonProcess) -> str:
    """Ask until there is an answer: others may hold the last descriptors for a second each."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection((daemon.host, daemon.port), 1) as link:
            link.sendall(b"mntr")
            if answer := b"".join(iter(lambda: link.recv(65536), b"")):
                return answer.decode()
    return ""
