"""Unread bytes of clients: the count, and the client that is disconnected when the total is too large."""

from __future__ import annotations

import asyncio

import pytest
from support.frames import get, request
from support.live_server import Serve
from support.waiting import until

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server.core.settings import EngineSettings


async def test_single_large_unread_reply_does_not_disconnect_client(serve: Serve) -> None:
    server = await serve(settings=EngineSettings(max_unread_bytes_total=1_000))
    server.make_node("/big", 8_000_000)

    await server.dial_without_reading(get(1, "/big"))

    assert len(server.daemon.connections.open) == 1
    assert server.engine.metrics.refused["unread_of_all"] == 0


async def test_client_with_most_unread_bytes_is_disconnected(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve(settings=EngineSettings(max_unread_bytes_total=1_000_000))
    server.make_node("/big", 10_000_000)
    server.make_node("/small", 8_000_000)
    greedy = await server.dial_without_reading(get(1, "/big"))

    modest = asyncio.create_task(server.dial_without_reading(get(1, "/small")))
    await until(lambda: server.engine.metrics.refused["unread_of_all"])
    await until(lambda: len(server.daemon.connections.open) == 1)
    modest.cancel()

    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await greedy.payload()
    assert [line for line in caplog.messages if "zoolet.maxUnreadBytesTotal" in line]
    assert server.engine.metrics.refused["unread_of_all"] == 1


async def test_unread_bytes_are_not_counted_after_late_read(serve: Serve) -> None:
    server = await serve()
    server.make_node("/big", 8_000_000)
    client = await server.dial_without_reading(get(1, "/big"))
    counted = server.daemon.connections.unread.total

    await client.payload()
    await until(lambda: not server.daemon.connections.unread.by_connection)

    assert counted > 1_000_000
    assert server.daemon.connections.unread.total == 0


async def test_unread_bytes_of_closed_client_are_not_counted(serve: Serve) -> None:
    server = await serve()
    server.make_node("/big", 8_000_000)
    client = await server.dial_without_reading(get(1, "/big"))

    await client.reset()
    await server.settle()

    assert (server.daemon.connections.unread.total, list(server.daemon.connections.unread.by_connection)) == (0, [])


@pytest.mark.slow
async def test_reply_above_64_mib_reaches_reading_client(serve: Serve) -> None:
    server = await serve(settings=EngineSettings(max_unread_bytes_total=1 << 20, max_unread_bytes=1 << 20))
    tree = server.engine.tree
    for number in range(70):
        name = f"{number:02}" + "n" * 1_000_000
        tree.create(f"/{name}", name, tree.root, b"", 0, 0, 1, 0)
    client = await server.dial()
    await client.shake_hands()

    client.send(request(1, OpCode.GET_CHILDREN, r.GetChildrenRequest("/", False).encode()))
    reply = await client.payload()

    assert len(reply) > 64 << 20
    assert len(r.GetChildrenResponse.decode(reply[16:]).children) == 71


async def test_client_with_too_many_unread_events_is_counted(serve: Serve) -> None:
    server = await serve(settings=EngineSettings(max_unread_bytes=100_000))
    server.make_node("/big", 8_000_000)
    watch = request(1, OpCode.ADD_WATCH, r.AddWatchRequest("/", 1).encode())
    await server.dial_without_reading(watch + get(2, "/big"))
    writer = await server.dial()
    await writer.shake_hands()

    for xid in range(100):
        path = f"/{xid:03}" + "n" * 5_000
        writer.send(request(xid, OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0).encode()))
        await writer.answer()
    await until(lambda: len(server.daemon.connections.open) == 1)

    assert server.engine.metrics.refused["unread"] == 1
    assert server.daemon.connections.unread.total == 0
