"""The states that a client goes through, and what it says of itself."""

from __future__ import annotations

import asyncio

import pytest
from support.apache import free_port
from support.simulation import Connect, client_of, simulate
from support.states import until

from zoolet.client import Backoff, Client, ClosedError, ConnectionLossError, State
from zoolet.server import Server
from zoolet.server.testing import Simulation

# --- the start ---


def test_a_call_on_a_client_that_was_not_started_says_how_to_start_it() -> None:
    with pytest.raises(RuntimeError, match="async with Client"):
        Client("127.0.0.1:1").get("/")


async def test_a_client_starts_once(embedded: Client) -> None:
    with pytest.raises(RuntimeError, match="started before"):
        await embedded.start()


# --- states ---


async def test_a_dropped_connection_suspends_and_the_session_goes_on(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    session_id = zk.session_id
    states = zk.states()
    await zk.create("/here", ephemeral=True)

    server.drop(zk)
    seen = await until(states, State.SUSPENDED)
    seen += await until(states, State.CONNECTED)

    assert seen == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]
    assert zk.session_id == session_id
    assert await zk.ephemerals() == ["/here"]


async def test_an_expired_session_is_lost_and_followed_by_another(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    session_id = zk.session_id
    states = zk.states()
    await zk.create("/here", ephemeral=True)

    server.expire(zk)
    seen = await until(states, State.LOST)
    seen += await until(states, State.CONNECTED)

    assert seen == [State.CONNECTED, State.SUSPENDED, State.LOST, State.CONNECTED]
    assert zk.session_id not in (0, session_id)
    assert await zk.exists("/here") is None


def test_a_session_is_lost_when_no_server_is_reached_for_as_long_as_it_lasts() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with client_of(server) as zk:
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
            assert 9.9 <= sim.time() - began <= 16.0  # the next attempt tells
            assert (zk.session_id, zk.valid_for()) == (0, 0.0)

            server.accept_connections()
            assert await zk.wait_for(State.CONNECTED) is State.CONNECTED
            assert zk.session_id not in (0, session_id)

    simulate(main)


async def test_closing_is_the_last_state(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    states = zk.states()

    await zk.aclose()

    assert [state async for state in states] == [State.CONNECTED, State.CLOSED]
    assert [state async for state in zk.states()] == [State.CLOSED]
    assert zk.state is State.CLOSED


async def test_no_state_is_left_out_however_late_somebody_looks(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    states = zk.states()
    for _ in range(3):
        live = zk.states()
        server.drop(zk)
        await until(live, State.SUSPENDED)
        await until(live, State.CONNECTED)
    await zk.aclose()

    seen = [state async for state in states]

    assert seen == [State.CONNECTED, *[State.SUSPENDED, State.CONNECTED] * 3, State.CLOSED]


async def test_waiting_for_a_state_that_will_never_be_says_why(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    waiting = asyncio.create_task(zk.wait_for(State.LOST))
    await asyncio.sleep(0)

    await zk.aclose()

    with pytest.raises(ClosedError):
        await waiting


async def test_a_client_that_reaches_nobody_says_whom_and_why_within_its_timeout() -> None:
    port = free_port()
    zk = Client(f"127.0.0.1:{port}", timeout=0.05, backoff=Backoff(first=0.01))

    with pytest.raises(
        ConnectionLossError, match=rf"no server was reached within 0.05 s; the last: 127.0.0.1:{port}: .*{port}"
    ):
        await zk.start()

    assert zk.state is State.CLOSED


async def test_its_repr_shows_where_it_is_and_how_it_stands(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)

    assert repr(zk) == f"<zoolet Client {server.hosts} connected>"


async def test_the_server_may_grant_another_timeout(connect: Connect) -> None:
    async with Server(config={"maxSessionTimeout": 3000}) as server:
        zk = await connect(server.hosts, timeout=60.0)

        assert zk.session_timeout == 3.0
        await zk.aclose()
