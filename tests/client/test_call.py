"""Calls: started immediately, sent together, answered in order, and limited in size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.simulation import Connect
from support.waiting import DEADLINE_S

from zoolet.client import Client
from zoolet.client.aio.connection import ClientProtocol, Connection
from zoolet.protocol.enums import MAX_FRAME
from zoolet.protocol.records import SetDataRequest


async def test_concurrent_calls_share_socket_write_and_keep_order(
    hosts: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    answered: list[int] = []
    start_handshake = Connection.start_handshake

    def observed(connection: Connection, protocol: ClientProtocol) -> None:
        transport: Any = protocol.transport
        write = transport.write
        monkeypatch.setattr(transport, "write", lambda data: (writes.append(data), write(data)))
        start_handshake(connection, protocol)

    monkeypatch.setattr(Connection, "start_handshake", observed)
    zk = await connect(hosts)
    writes.clear()

    calls = [zk.create("/a"), *[zk.set("/a", b"%d" % number) for number in range(100)], zk.get("/a")]
    for number, call in enumerate(calls):
        call.add_done_callback(lambda _, number=number: answered.append(number))  # type: ignore[attr-defined]
    results = await asyncio.gather(*calls)

    assert len(writes) == 1
    assert answered == list(range(102))
    assert [stat.version for stat in results[1:101]] == list(range(1, 101))
    assert results[101][0] == b"99"


async def test_call_starts_before_it_is_awaited(zk: Client) -> None:
    call = zk.create("/a")

    assert await zk.exists("/a") is not None
    assert await call == "/a"


async def test_call_works_with_asyncio_functions(zk: Client) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(zk.create("/a"))
    shielded = await asyncio.shield(zk.exists("/a"))
    waited = await asyncio.wait_for(zk.get("/a"), DEADLINE_S)

    assert task.result() == "/a"
    assert shielded == waited[1]


async def test_request_size_limit_is_inclusive(zk: Client) -> None:
    await zk.create("/a")
    room = MAX_FRAME - 8 - len(SetDataRequest(zk.add_chroot("/a"), b"", -1).encode())
    before = zk.statistics()

    with pytest.raises(ValueError, match=rf"/a: .*{MAX_FRAME + 1} bytes.*{MAX_FRAME}"):
        zk.set("/a", bytes(room + 1))

    assert zk.statistics() == before
    assert (await zk.set("/a", bytes(room))).dataLength == room


async def test_lower_request_limit_is_respected(hosts: str, connect: Connect) -> None:
    zk = await connect(hosts, max_request=500)

    with pytest.raises(ValueError, match="the limit is 500"):
        zk.create("/a", bytes(500))
    with pytest.raises(ValueError, match="the limit is 500"):
        async with zk.transaction() as t:
            t.create("/a", bytes(500))
    assert await zk.create("/a", bytes(300)) == "/a"


async def test_call_closed_as_coroutine_is_cancelled(zk: Client) -> None:
    call = zk.get("/")
    call.close()

    with pytest.raises(asyncio.CancelledError):
        await call
