"""Calls without a connection, and calls whose reply was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from support.simulation import Connect, make_client, simulate, simulate_clients
from support.states import read_until
from support.waiting import DEADLINE_S

from zoolet.client import Client, ClosedError, ConnectionLossError, SessionExpiredError, State
from zoolet.protocol.acl import CREATOR_ALL_ACL
from zoolet.testing import Server, Simulation, drop_request, lose_reply


async def test_offline_call_with_operation_timeout_zero_is_not_sent(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)

    for call in (zk.with_operation_timeout(0).create("/a"), zk.with_operation_timeout(0).get("/a")):
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(
                ConnectionLossError, match=r"/a: no connection in time; the request was not applied; 127\.0\.0\.1:"
            ) as lost:
                await call
        assert lost.value.path == "/a"
        assert not lost.value.maybe_applied


def test_client_left_open_at_end_of_event_loop_warns() -> None:
    async def main() -> None:
        await zk.start()

    with Server() as server:
        zk = Client(server.hosts)
        with pytest.warns(ResourceWarning, match="was not closed before its event loop ended: its session stays open"):
            asyncio.run(main())


def test_client_closed_before_end_of_event_loop_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    async def main(hosts: str) -> None:
        async with Client(hosts):
            pass

    with Server() as server:
        asyncio.run(main(server.hosts))
    assert not [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)]


def test_call_waits_operation_timeout_for_connection() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with make_client(server, operation_timeout=3.0) as zk:
            server.refuse_connections()
            server.drop("all")
            await zk.wait_for(State.SUSPENDED)
            began = sim.time()

            calls = {
                3.0: zk.set("/a", b""),
                1.0: zk.with_operation_timeout(1.0).set("/a", b""),
                2.0: zk.with_operation_timeout(2).get("/"),
            }
            for seconds, call in sorted(calls.items()):
                with pytest.raises(ConnectionLossError) as caught:
                    await call
                assert not caught.value.maybe_applied
                assert sim.time() - began == pytest.approx(seconds, abs=0.01)

    simulate(main)


async def test_calls_made_offline_are_sent_in_order(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)

    calls = [zk.create("/a", b"1"), zk.set("/a", b"2"), zk.get("/a")]
    server.accept_connections()
    made, stat, (value, read) = await asyncio.gather(*calls)

    assert (made, value, read) == ("/a", b"2", stat)


async def test_read_with_lost_reply_is_repeated(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a", b"v")
    reads: dict[str, Callable[[], Awaitable[Any]]] = {
        "getData": lambda: zk.get("/a"),
        "exists": lambda: zk.exists("/a"),
        "getChildren": lambda: zk.children("/"),
        "sync": lambda: zk.sync(),
        "multiRead": lambda: zk.multi_read(("get", "/a")),
        "getACL": lambda: zk.get_acl("/a"),
        "getAllChildrenNumber": lambda: zk.count_below("/"),
        "getEphemerals": lambda: zk.ephemerals(),
        "whoAmI": lambda: zk.who_am_i(),
        "checkWatches": lambda: zk.check_watches("/a"),
    }

    for op, read in reads.items():
        with server.fault(lose_reply(), op, times=1, strict=True) as fault:
            await read()
            assert fault.seen == 2, op


async def test_write_with_lost_reply_is_not_repeated(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    await zk.create("/b")
    writes: dict[str, Callable[[], Awaitable[Any]]] = {
        "create": lambda: zk.create("/c"),
        "setData": lambda: zk.set("/a", b"new"),
        "delete": lambda: zk.delete("/b"),
        "setACL": lambda: zk.set_acl("/a", CREATOR_ALL_ACL),
        "multi": lambda: _transaction(zk),
    }
    await zk.add_auth("digest", b"bob:secret")

    for op, write in writes.items():
        with server.fault(lose_reply(), op, times=1, strict=True) as fault:
            with pytest.raises(ConnectionLossError, match="the connection was lost") as caught:
                await write()
            await zk.sync()
            assert caught.value.maybe_applied
            assert fault.seen == 1, op

    assert sorted(server.tree()) == ["/a", "/c", "/t"]
    assert server.tree()["/a"].data == b"new"


async def _transaction(zk: Client) -> None:
    async with zk.transaction() as t:
        t.create("/t")


async def test_lost_write_is_reported_as_maybe_applied_if_not_applied(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)

    with server.fault(drop_request(), "create"), pytest.raises(ConnectionLossError) as caught:
        await zk.create("/a")

    assert caught.value.maybe_applied
    assert await zk.exists("/a") is None


async def test_calls_of_expired_session_fail(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    states = zk.states()
    server.expire(zk)
    await read_until(states, State.SUSPENDED)

    call, read = zk.create("/a"), zk.get("/a")
    server.accept_connections()

    for one in (call, read):
        with pytest.raises(SessionExpiredError) as caught:
            await one
        assert caught.value.path == "/a"
    await zk.wait_for(State.CONNECTED)
    assert await zk.exists("/a") is None


async def test_view_with_different_operation_timeout_shares_session(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    other = zk.with_operation_timeout(1.0)

    await other.create("/here", ephemeral=True)
    await zk.aclose()

    assert other.session_id == zk.session_id
    assert other.state is State.CLOSED
    with pytest.raises(ClosedError):
        other.get("/here")


async def test_operation_timeout_can_be_changed_before_start(server: Server) -> None:
    zk = Client(server.hosts)
    other = zk.with_operation_timeout(1.0)

    async with zk:
        assert await other.exists("/") is not None


def test_write_on_lost_connection_raises_and_next_read_succeeds() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        task: Coroutine[Any, Any, Any] = zk.set("/", b"")
        server.drop(zk)
        with pytest.raises(ConnectionLossError):
            await task
        assert await zk.get("/") is not None

    simulate_clients(main)
