"""Clients that send more than they read, or send tiny pieces: they cost the server little, and other clients nothing.

Requests of a client wait in its own socket until it reads its replies. Events cannot wait there, because the client
has not requested them, so a client that leaves too many unread is disconnected.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pytest
from support.engine import assemble_daemon
from support.frames import add_watch, create, exists, get, request, set_data
from support.waiting import until
from support.wire import StreamWire

from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at
from zoolet.protocol.operations import OpCode
from zoolet.server.config import ServerConfig
from zoolet.server.core.settings import EngineSettings
from zoolet.server.net.daemon import Daemon

MIB: Final = 1 << 20
DATA: Final = b"x" * 1_000_000
REPLY_SIZE: Final = 4 + 16 + 4 + len(DATA) + 68  # of a getData that returns DATA, including the frame
Dial = Callable[..., Awaitable[StreamWire]]


@pytest.fixture
async def daemon(request: pytest.FixtureRequest) -> AsyncIterator[Daemon]:
    """A server in the running event loop; indirect parameters are its settings."""
    settings = EngineSettings(**getattr(request, "param", {}))
    daemon = assemble_daemon(ServerConfig(host="127.0.0.1", settings=settings))
    await daemon.start("127.0.0.1", 0)
    yield daemon
    await daemon.stop()


@pytest.fixture
async def dial(daemon: Daemon) -> AsyncIterator[Dial]:
    """A function that returns a client with a session; ``room`` is the size of its receive buffer, in bytes."""
    clients: list[StreamWire] = []
    loop = asyncio.get_running_loop()

    async def connect(*, room: int = 64 << 10) -> StreamWire:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        link.setblocking(False)
        await loop.sock_connect(link, ("127.0.0.1", daemon.port))
        client = StreamWire(*await asyncio.open_connection(sock=link, limit=4096))
        clients.append(client)
        await client.shake_hands()
        return client

    yield connect
    for client in clients:
        await client.abort()
    with suppress(TimeoutError):
        await until(lambda: not daemon.connections.open)


def unsent_bytes(daemon: Daemon) -> int:
    """Count the bytes in this process that wait for clients to read them."""
    return sum(
        protocol._transport.get_write_buffer_size()
        for protocol in daemon.connections.open.values()
        if protocol._transport is not None
    )


def write_paused(daemon: Daemon) -> list[bool]:
    """Return, for each connection, whether the server has stopped reading from it."""
    return [protocol.write_paused for protocol in daemon.connections.open.values()]


@contextmanager
def memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the largest growth of the process, in bytes."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


async def read_in_order(client: StreamWire, count: int) -> list[int]:
    """Read *count* replies to getData of DATA; return their xids."""
    order: list[int] = []
    for _ in range(count):
        reply = await client.read(REPLY_SIZE)
        assert int_at(reply, 0) == (REPLY_SIZE - 4,)
        order += int_at(reply, 4)
    return order


# --- a client that does not read its replies ---


async def test_unread_replies_do_not_accumulate(daemon: Daemon, dial: Dial) -> None:
    greedy, other = await dial(), await dial()
    await other.call(create(1, "/big", DATA))

    with memory() as growth:
        greedy.send(b"".join(get(xid, "/big") for xid in range(5000)))
        await until(lambda: any(write_paused(daemon)))
        for xid in range(200):
            await other.call(exists(xid, "/big"))

        assert unsent_bytes(daemon) <= 4 * MIB
        assert growth() <= 12 * MIB  # includes the joined batch, and the copies of the reply


async def test_large_replies_do_not_block_other_clients(daemon: Daemon, dial: Dial) -> None:
    greedy, other = await dial(room=4 * MIB), await dial()
    await other.call(create(1, "/big", DATA))

    greedy.send(b"".join(get(xid, "/big") for xid in range(1000)))
    reading = asyncio.create_task(read_in_order(greedy, 1000))
    served = [await other.call(exists(xid, "/")) for xid in range(20)]

    assert served == [0] * 20
    assert not reading.done()
    reading.cancel()
    await asyncio.wait([reading])


@pytest.mark.slow
async def test_late_reader_gets_all_replies_in_order(daemon: Daemon, dial: Dial) -> None:
    greedy, other = await dial(room=2 * MIB), await dial()
    await other.call(create(1, "/big", DATA))
    greedy.send(b"".join(get(xid, "/big") for xid in range(500)))
    await until(lambda: any(write_paused(daemon)))

    order = await read_in_order(greedy, 500)

    assert order == list(range(500))
    assert await greedy.call(exists(-7, "/")) == 0


async def test_connection_closes_after_reader_has_all_output(
    daemon: Daemon, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoolet.server.net.lingering.LINGER", 0.1)
    slow, other = await dial(), await dial()
    await other.call(create(1, "/big", DATA))

    slow.send(b"".join(get(xid, "/big") for xid in range(4)) + request(9, OpCode.CLOSE_SESSION))
    for _ in range(40):  # reads steadily, but at most 4 MB in 0.4 s
        await slow.read(REPLY_SIZE // 10)
        await asyncio.sleep(0.01)
    left = await slow.read(4 * REPLY_SIZE - 40 * (REPLY_SIZE // 10) + 20)

    assert int_at(left, len(left) - 16) == (9,)


# --- a client that does not read its events ---


@pytest.mark.parametrize("daemon", [{"max_unread_bytes": 2 * MIB}], indirect=True)
async def test_excess_of_unread_events_disconnects_client(
    daemon: Daemon, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    watcher, writer = await dial(), await dial()
    path = "/" + "n" * 20_000  # a long path, because then few events have many bytes
    await writer.call(create(1, path))
    await watcher.call(add_watch(1, path, 0))

    with memory() as growth:
        written = 0
        while len(daemon.connections.open) == 2 and written < 2000:
            assert await writer.call(set_data(1, path)) == 0
            written += 1

        assert len(daemon.connections.open) == 1
        assert growth() <= 12 * MIB
    assert [record.levelname for record in caplog.records if "disconnecting" in record.getMessage()] == ["WARNING"]


@pytest.mark.parametrize("daemon", [{"max_unread_bytes": 2 * MIB}], indirect=True)
async def test_disconnected_client_keeps_only_its_session(daemon: Daemon, dial: Dial) -> None:
    watcher, writer = await dial(), await dial()
    path = "/" + "n" * 20_000
    await writer.call(create(1, path))
    await watcher.call(add_watch(1, path, 1))

    writer.send(b"".join(set_data(xid, path) for xid in range(500)))
    xids = await writer.xids(500)
    await until(lambda: len(daemon.connections.open) == 1)

    assert xids == list(range(500))
    assert len(daemon.engine.sessions.alive) == 2
    assert daemon.engine.watches.active == 0


@pytest.mark.parametrize("daemon", [{"max_unread_bytes": 64 * MIB}], indirect=True)
async def test_late_reader_gets_all_events(daemon: Daemon, dial: Dial) -> None:
    watcher, writer = await dial(), await dial()
    path = "/" + "n" * 20_000
    await writer.call(create(1, path))
    await watcher.call(add_watch(1, path, 0))

    for xid in range(400):  # 8 MB
        await writer.call(set_data(xid, path))
    events = [r.WatcherEvent.decode((await watcher.answer()).body) for _ in range(400)]

    assert {event.path for event in events} == {path}
    assert await watcher.call(exists(1, "/")) == 0


# --- tiny pieces ---


async def test_large_frame_in_small_pieces_is_answered(dial: Dial) -> None:
    client = await dial()
    await client.call(create(1, "/big"))
    whole = set_data(2, "/big", DATA)

    for at in range(0, len(whole), 1000):
        client.send(whole[at : at + 1000])

    assert (await client.answer()).err == 0


async def test_small_frames_byte_by_byte_are_answered(dial: Dial) -> None:
    client = await dial()

    for byte in b"".join(get(xid, "/") for xid in range(10)):
        client.send(bytes([byte]))

    assert await client.xids(10) == list(range(10))
