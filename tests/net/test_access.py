"""Who gets in, on a live port: connections that are nobody's, pipelined logins, and sockets that only keep a place."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import int_at
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server.app import assemble
from zoolet.server.config import Config
from zoolet.server.core.settings import Settings
from zoolet.server.net import tls
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.protocol import ServerProtocol
from zoolet.server.net.tls_settings import TlsSettings

FILES: Final = Path(__file__).parents[1] / "support" / "tls"
DEADLINE_S: Final = 5.0  # only ever reached on failure
HELLO: Final = frame(ConnectRequest(timeout_ms=30_000).encode())
CREATE: Final = frame(
    r.RequestHeader(1, OpCode.CREATE).encode() + r.CreateRequest("/in", b"", OPEN_ACL_UNSAFE, 0).encode()
)
RESET: Final = struct.pack("ii", 1, 0)


# --- what the tests say it with ---


class Stub(asyncio.Transport):
    """A transport of which nobody can say whose it is."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Know nothing."""
        return default

    def abort(self) -> None:
        """Record it."""
        self.aborted = True


@dataclass
class Live:
    """A server in this loop, with a plain port and one for TLS."""

    listener: Daemon
    port: int
    secure_port: int
    opened: list[asyncio.StreamWriter] = field(default_factory=list)
    stopped: bool = False

    async def dial(self, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the plain port."""
        return self._kept(await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0)))

    async def be_silent(self, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the port for TLS, and say nothing."""
        return self._kept(await asyncio.open_connection("127.0.0.1", self.secure_port, local_addr=(host, 0)))

    async def dial_tls(self, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the port for TLS, and shake hands."""
        context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))
        async with asyncio.timeout(DEADLINE_S):
            streams = await asyncio.open_connection("127.0.0.1", self.secure_port, ssl=context, local_addr=(host, 0))
        return self._kept(streams)

    async def stop(self, *, patient: bool) -> None:
        """Stop it, within two seconds."""
        self.stopped = True
        async with asyncio.timeout(2.0):
            await self.listener.stop(patient=patient)

    async def lets_in(self, host: str = "127.0.0.1") -> bool:
        """Return whether a client gets a session over TLS."""
        try:
            return (await session(await self.dial_tls(host))).session_id != 0
        except (OSError, asyncio.IncompleteReadError):
            return False

    def _kept(
        self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.opened.append(streams[1])
        return streams


async def session(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> ConnectResponse:
    """Open a session."""
    reader, writer = streams
    writer.write(HELLO)
    return ConnectResponse.decode(await payload(reader))


async def payload(reader: asyncio.StreamReader) -> bytes:
    """Wait for one frame."""
    async with asyncio.timeout(DEADLINE_S):
        (length,) = int_at(await reader.readexactly(4))
        return await reader.readexactly(length)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Wait until the server closes; return what came before. A reset is a close too."""
    async with asyncio.timeout(DEADLINE_S):
        with suppress(ConnectionError):
            return await reader.read()
        return b""


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


def reset_at_once(port: int, data: bytes = b"") -> int:
    """Connect, send and reset, all before the loop of the server can accept; return how much was sent."""
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(data)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    link.close()
    return len(data)


Start = Callable[..., Awaitable[Live]]


@pytest.fixture
async def serve() -> AsyncIterator[Start]:
    """A function that starts a server; takes fields of its Config."""
    made: list[Live] = []

    async def start(**config: Any) -> Live:
        listener = assemble(Config(**config))
        context = tls.context(TlsSettings(str(FILES / "server.pem"), key=str(FILES / "server-key.pem")))
        live = Live(
            listener, await listener.start("127.0.0.1", 0), await listener.start_secure("127.0.0.1", 0, context)
        )
        made.append(live)
        return live

    yield start
    for live in made:
        for writer in live.opened:
            writer.transport.abort()
        await _stop(live)


async def _stop(live: Live) -> None:
    if not live.stopped:
        await live.stop(patient=False)


# --- connections that are nobody's ---


async def test_a_connection_without_a_peer_is_aborted(serve: Start) -> None:
    live, stub = await serve(), Stub()

    ServerProtocol(live.listener).connection_made(stub)

    assert stub.aborted


async def test_a_connection_without_a_peer_counts_nowhere(serve: Start) -> None:
    live = await serve(max_client_cnxns=1, max_cnxns=1)
    transport = ServerProtocol(live.listener)

    transport.connection_made(Stub())

    assert (dict(live.listener.open), dict(live.listener.engine.connections), transport.was_made) == ({}, {}, False)
    assert (await session(await live.dial())).session_id != 0


async def test_no_request_of_a_connection_without_a_peer_is_done(serve: Start) -> None:
    live = await serve()
    transport = ServerProtocol(live.listener)
    transport.connection_made(Stub())

    transport.data_received(HELLO + CREATE)
    transport.eof_received()
    transport.connection_lost(None)

    assert live.listener.engine.sessions.alive == {}
    assert live.listener.engine.tree.get("/in") is None


async def test_connections_that_are_reset_before_they_are_accepted_give_their_places_back(serve: Start) -> None:
    live = await serve(max_client_cnxns=20)
    resets = [reset_at_once(live.port, HELLO + CREATE) for _ in range(20)]
    await session(await live.dial("127.0.0.2"))
    await until(lambda: len(live.listener.open) == 1)

    welcomes = [await session(await live.dial()) for _ in range(20)]

    assert len(resets) == 20
    assert 0 not in [welcome.session_id for welcome in welcomes]


def test_on_the_loop_of_the_daemon_a_connection_that_is_reset_before_it_is_accepted_opens_no_session() -> None:
    # asyncio's own loop keeps the name that accept() gave; uvloop asks for it later, when there is none any more
    async def reset_and_look() -> list[int]:
        listener = assemble(Config())
        port = await listener.start("127.0.0.1", 0)
        resets = [reset_at_once(port, HELLO + CREATE) for _ in range(20)]
        assert len(resets) == 20
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        await session((reader, writer))
        await until(lambda: len(listener.open) == 1)
        writer.transport.abort()
        await listener.stop(patient=False)
        return list(listener.engine.sessions.alive)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        alive = runner.run(reset_and_look())

    assert len(alive) == 1


async def test_tls_connections_that_are_reset_before_they_are_accepted_leave_nothing(serve: Start) -> None:
    live = await serve(max_client_cnxns=2, max_cnxns=2)
    resets = [reset_at_once(live.secure_port) for _ in range(50)]

    await until(lambda: not live.listener.open)
    streams = await live.be_silent()
    streams[1].close()

    assert len(resets) == 50
    assert await _eventually(live.lets_in)


async def _eventually(ask: Callable[[], Awaitable[bool]]) -> bool:
    async with asyncio.timeout(DEADLINE_S):
        while not await ask():
            await asyncio.sleep(0.001)
    return True


# --- one segment ---


async def test_a_request_pipelined_before_the_login_is_not_done(serve: Start) -> None:
    live = await serve(settings=Settings(require_auth=frozenset({"digest"})))
    reader, writer = await live.dial()
    login = frame(r.RequestHeader(-4, OpCode.AUTH).encode() + r.AuthPacket(0, "digest", b"a:b").encode())

    writer.write(HELLO + CREATE + login + CREATE)
    await rest(reader)

    assert live.listener.engine.tree.get("/in") is None


async def test_a_request_pipelined_behind_the_login_is_done(serve: Start) -> None:
    live = await serve(settings=Settings(require_auth=frozenset({"digest"})))
    reader, writer = await live.dial()
    login = frame(r.RequestHeader(-4, OpCode.AUTH).encode() + r.AuthPacket(0, "digest", b"a:b").encode())

    writer.write(HELLO + login + CREATE)
    replies = [await payload(reader) for _ in range(3)]

    assert len(replies) == 3
    assert live.listener.engine.tree.get("/in") is not None


# --- sockets that only keep a place ---


async def test_silent_connections_count_when_they_are_accepted(serve: Start) -> None:
    live = await serve(max_client_cnxns=2)
    silent = [await live.be_silent() for _ in range(2)]

    assert not await live.lets_in()
    assert len(silent) == 2


async def test_silent_connections_take_nothing_from_another_host(serve: Start) -> None:
    live = await serve(max_client_cnxns=1)
    await live.be_silent()
    await live.be_silent()

    assert await live.lets_in("127.0.0.2")


async def test_silent_connections_count_together_with_the_plain_ones(serve: Start) -> None:
    live = await serve(max_client_cnxns=2)
    await session(await live.dial())
    await live.be_silent()

    assert not await live.lets_in()


async def test_one_connection_too_many_is_closed_before_its_handshake(serve: Start) -> None:
    live = await serve(max_client_cnxns=1)
    await live.be_silent()

    reader, _ = await live.be_silent()

    assert await rest(reader) == b""


async def test_all_connections_together_are_counted_when_they_are_accepted(serve: Start) -> None:
    live = await serve(max_cnxns=2, max_client_cnxns=0)
    await live.be_silent("127.0.0.3")
    await live.be_silent("127.0.0.4")

    assert not await live.lets_in()


async def test_a_silent_connection_is_closed_when_its_time_is_up(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.05)
    live = await serve(max_client_cnxns=1)
    reader, _ = await live.be_silent()

    assert await rest(reader) == b""
    assert await _eventually(live.lets_in)


async def test_half_a_hello_gives_no_more_time(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.05)
    live = await serve(max_client_cnxns=1)
    reader, writer = await live.be_silent()

    writer.write(b"\x16\x03\x01\x02\x00\x01")
    await rest(reader)

    assert await _eventually(live.lets_in)


def test_a_handshake_has_ten_seconds() -> None:
    assert tls.HANDSHAKE_SECONDS == 10.0


@pytest.mark.parametrize("data", [b"ruok", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(100), HELLO])
async def test_a_handshake_that_fails_gives_its_place_back(serve: Start, data: bytes) -> None:
    live = await serve(max_client_cnxns=1)
    reader, writer = await live.be_silent()
    writer.write(data)
    writer.write_eof()
    await rest(reader)

    assert await _eventually(live.lets_in)


async def test_a_handshake_that_is_reset_gives_its_place_back(serve: Start) -> None:
    live = await serve(max_client_cnxns=1)
    _, writer = await live.be_silent()
    assert not await live.lets_in()

    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()

    assert await _eventually(live.lets_in)


async def test_a_client_that_ends_its_tls_gives_its_place_back(serve: Start) -> None:
    live = await serve(max_client_cnxns=1)
    streams = await live.dial_tls()
    await session(streams)

    streams[1].close()

    assert await _eventually(live.lets_in)


async def test_no_place_is_given_back_twice(serve: Start) -> None:
    live = await serve(max_client_cnxns=1)
    reader, writer = await live.be_silent()
    writer.write(b"nonsense")
    await rest(reader)
    await _eventually(live.lets_in)
    live.opened[-1].transport.abort()
    await until(lambda: not live.listener.open)

    kept = await live.be_silent()

    assert not await live.lets_in()
    assert kept is not None


async def test_silence_after_the_handshake_is_ended_like_any_other(serve: Start) -> None:
    live = await serve(settings=Settings(tick_time=20, sessionless_timeout=40))
    reader, _ = await live.dial_tls()

    assert await rest(reader) == b""


def open_and_send_nonsense(port: int) -> ssl.SSLSocket:
    """Shake hands, and send what no frame begins with; nothing is ever read, so no close is ever answered."""
    context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))
    plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
    secure.sendall(b"\xff" * 8)
    return secure


@pytest.mark.slow
async def test_a_tls_client_that_does_not_answer_a_close_is_dropped_as_soon_as_a_plain_one(serve: Start) -> None:
    live = await serve()
    connection = await asyncio.to_thread(open_and_send_nonsense, live.secure_port)
    await until(lambda: not live.listener.engine.connections)

    with connection:
        await until(lambda: not live.listener.open)

    assert not live.listener.open


async def test_a_stop_ends_the_handshakes_under_way(serve: Start) -> None:
    live = await serve()
    silent = [await live.be_silent() for _ in range(3)]
    silent[2][1].write(b"\x16\x03\x01\x02\x00\x01")
    await live.dial_tls()  # by now those before it have been accepted

    await live.stop(patient=False)

    assert [await rest(reader) for reader, _ in silent] == [b"", b"", b""]


async def test_a_patient_stop_does_not_wait_for_handshakes(serve: Start) -> None:
    live = await serve()
    silent = [await live.be_silent() for _ in range(3)]
    await session(await live.dial("127.0.0.2"))
    live.opened[-1].transport.abort()

    await live.stop(patient=True)

    assert [await rest(reader) for reader, _ in silent] == [b"", b"", b""]


async def test_a_stopped_server_has_no_port_for_tls(serve: Start) -> None:
    live = await serve()

    await live.stop(patient=True)

    with pytest.raises(ConnectionRefusedError):
        await live.be_silent()
