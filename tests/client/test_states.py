"""The states of a client, and the information that it gives about itself."""

from __future__ import annotations

import asyncio

import pytest
from support.apache import free_port
from support.simulation import Connect, make_client, simulate
from support.states import read_until
from support.waiting import DEADLINE_S

from zoolet.client import Backoff, Client, ClosedError, ConnectionLossError, State
from zoolet.testing import Server, Simulation

# --- before and at the start of a client ---


def test_call_before_start_shows_how_to_start() -> None:
    with pytest.raises(RuntimeError, match="async with Client"):
        Client("127.0.0.1:1").get("/")


async def test_client_starts_only_once(embedded: Client) -> None:
    with pytest.raises(RuntimeError, match="has already been started"):
        await embedded.start()


# --- states ---


async def test_dropped_connection_suspends_session(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    session_id = zk.session_id
    states = zk.states()
    await zk.create("/here", ephemeral=True)

    server.drop(zk)
    seen = await read_until(states, State.SUSPENDED)
    seen += await read_until(states, State.CONNECTED)

    assert seen == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]
    assert zk.session_id == session_id
    assert await zk.ephemerals() == ["/here"]


async def test_expired_session_is_lost_and_replaced(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    session_id = zk.session_id
    states = zk.states()
    await zk.create("/here", ephemeral=True)

    server.expire(zk)
    seen = await read_until(states, State.LOST)
    seen += await read_until(states, State.CONNECTED)

    assert seen == [State.CONNECTED, State.SUSPENDED, State.LOST, State.CONNECTED]
    assert zk.session_id not in (0, session_id)
    assert await zk.exists("/here") is None


def test_session_is_lost_after_timeout_without_server() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with make_client(server) as zk:
            session_id = zk.session_id
            states = zk.states()
            server.refuse_connections()
            server.drop("all")
            began = sim.time()

            seen = []
            async for state in states:
                seen.append(state)
                if state is State.LOST:
                    break
            assert seen == [State.CONNECTED, State.SUSPENDED, State.LOST]
            assert 9.9 <= sim.time() - began <= 16.0  # the next attempt detects the expiry
            assert (zk.session_id, zk.valid_for()) == (0, 0.0)

            server.accept_connections()
            assert await zk.wait_for(State.CONNECTED) is State.CONNECTED
            assert zk.session_id not in (0, session_id)

    simulate(main)


async def test_closed_is_final_state(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    states = zk.states()

    await zk.aclose()

    assert [state async for state in states] == [State.CONNECTED, State.CLOSED]
    assert [state async for state in zk.states()] == [State.CLOSED]
    assert zk.state is State.CLOSED


async def test_state_iterator_read_late_yields_every_state(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    states = zk.states()
    for _ in range(3):
        live = zk.states()
        server.drop(zk)
        await read_until(live, State.SUSPENDED)
        await read_until(live, State.CONNECTED)
    await zk.aclose()

    seen = [state async for state in states]

    assert seen == [State.CONNECTED, *[State.SUSPENDED, State.CONNECTED] * 3, State.CLOSED]


async def test_wait_for_state_not_reached_raises_on_client_close(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    waiting = asyncio.create_task(zk.wait_for(State.LOST))
    await asyncio.sleep(0)

    await zk.aclose()

    with pytest.raises(ClosedError):
        await waiting


async def test_offline_client_names_servers_and_reasons() -> None:
    port = free_port()
    zk = Client(f"127.0.0.1:{port}", timeout=0.05, backoff=Backoff(first=0.01))

    error = rf"^no server was reached within 0.05 s; last attempt: 127.0.0.1:{port}: connection refused$"
    with pytest.raises(ConnectionLossError, match=error):
        await zk.start()

    assert zk.state is State.CLOSED


async def test_repr_shows_hosts_and_state(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)

    assert repr(zk) == f"<zoolet Client {server.hosts} connected>"


async def test_server_may_grant_different_timeout(connect: Connect) -> None:
    async with Server(config={"maxSessionTimeout": 3000}) as server:
        zk = await connect(server.hosts, timeout=60.0)

        assert zk.session_timeout == 3.0
        await zk.aclose()


async def test_concurrent_waits_of_one_iterator_get_one_state_each(embedded: Client) -> None:
    states = embedded.states()
    assert await anext(states) is State.CONNECTED
    waits = [asyncio.create_task(anext(states)) for _ in range(2)]  # type: ignore[arg-type]
    await asyncio.sleep(0)

    embedded._core.connection.abort("for the test")

    async with asyncio.timeout(DEADLINE_S):
        assert await asyncio.gather(*waits) == [State.SUSPENDED, State.CONNECTED]


async def test_cancelled_wait_for_state_takes_no_state_from_other_wait(embedded: Client) -> None:
    states = embedded.states()
    await anext(states)
    cancelled, other = (asyncio.create_task(anext(states)) for _ in range(2))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)

    embedded._core.connection.abort("for the test")

    async with asyncio.timeout(DEADLINE_S):
        assert await other is State.SUSPENDED
