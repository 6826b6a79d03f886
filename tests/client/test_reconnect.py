"""Reconnection: which server a client connects to, and which session it gets."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest
import uvloop
from support.apache import free_port
from support.simulation import Connect, simulate, with_client
from support.states import read_until
from support.waiting import DEADLINE_S

from zoolet.client import Backoff, Client, State
from zoolet.testing import Server, Simulation

# --- the choice of the server ---


async def test_dead_servers_are_skipped(server: Server, connect: Connect) -> None:
    dead = ",".join(f"127.0.0.1:{free_port()}" for _ in range(3))

    zk = await connect(f"{dead},{server.hosts}")

    assert zk.state is State.CONNECTED


async def test_client_gets_new_session_at_next_independent_server(connect: Connect) -> None:
    async with Server() as first, Server() as second:
        zk = await connect(f"{first.hosts},{second.hosts}")
        mine, other = (first, second) if first.sessions() else (second, first)
        mine.refuse_connections()
        states = zk.states()

        mine.drop("all")
        await read_until(states, State.LOST)
        await read_until(states, State.CONNECTED)

        assert list(other.sessions()) == [zk.session_id]
        await zk.aclose()


async def test_reconnect_to_empty_server_opens_new_session(connect: Connect) -> None:
    port = free_port()
    async with Server(port=port) as before:
        zk = await connect(before.hosts, timeout=0.2)
        for number in range(5):
            await zk.create(f"/{number}")

    async with Server(port=port):
        states = zk.states()
        await read_until(states, State.LOST)
        async with asyncio.timeout(DEADLINE_S):
            await zk.wait_for(State.CONNECTED)


def test_backoff_with_last_try_keeps_client_connecting() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.refuse_connections()
        server.drop(zk)
        await asyncio.sleep(1)

        assert (zk.state, zk.statistics().keeps_connecting) == (State.SUSPENDED, True)
        server.accept_connections()
        async with asyncio.timeout(0.5):
            await zk.wait_for(State.CONNECTED)

    with_client(main, backoff=Backoff(first=0.001, longest=0.001, tries=2))


# --- the time of the attempts ---


def simulate_outage(seconds: float, clients: int, addresses: int = 1) -> tuple[int, list[float]]:
    """Refuse and drop all clients of a server for some time.

    Returns:
        The number of lost sessions, and the seconds until each client is back, in order.
    """

    async def main(sim: Simulation, server: Server) -> tuple[int, list[float]]:
        async with contextlib.AsyncExitStack() as stack:
            # In a simulation each address of this machine is the same server.
            hosts = ",".join(f"127.0.0.{number}:{server.port}" for number in range(1, addresses + 1))
            zks = [await stack.enter_async_context(Client(hosts, rng=Random(seed))) for seed in range(clients)]
            await asyncio.sleep(1.5)  # long enough for the clients to treat their connections as stable
            await asyncio.gather(*[zk.exists("/") for zk in zks])
            before = [zk.session_id for zk in zks]

            async def back(zk: Client) -> float:
                await zk.wait_for(State.SUSPENDED)
                await zk.wait_for(State.CONNECTED)
                return asyncio.get_running_loop().time()

            backs = [asyncio.create_task(back(zk)) for zk in zks]
            await asyncio.sleep(0)
            if seconds:
                server.refuse_connections()
            server.drop("all")
            await asyncio.sleep(seconds)
            server.accept_connections()
            began = asyncio.get_running_loop().time()
            times = [time - began for time in await asyncio.gather(*backs)]
            return sum(zk.session_id != one for zk, one in zip(zks, before, strict=True)), sorted(times)

    result: tuple[int, list[float]] = simulate(main)
    return result


@pytest.mark.parametrize(("seconds", "most"), [(3, 0), (5, 0), (7, 0), (8.5, 2)])
def test_server_outage_within_session_timeout_costs_few_sessions(seconds: float, most: int) -> None:
    lost, times = simulate_outage(seconds, 40)

    assert lost <= most
    assert times[-1] <= 3.0


def test_clients_of_restarted_server_reconnect_gradually() -> None:
    _, times = simulate_outage(5.0, 200)

    assert max(sum(begin <= time < begin + 0.1 for time in times) for begin in times) < 50


def test_clients_of_lost_server_reconnect_gradually() -> None:
    _, times = simulate_outage(0, 200, addresses=3)

    assert max(sum(begin <= time < begin + 0.1 for time in times) for begin in times) < 50
    assert times[-1] < 2.1


def test_new_session_follows_expiry_without_delay() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.refuse_connections()
        server.drop(zk)
        await asyncio.sleep(9)
        server.expire(zk)
        server.accept_connections()
        await zk.wait_for(State.LOST)

        async with asyncio.timeout(0.05):
            await zk.wait_for(State.CONNECTED)

    with_client(main, backoff=Backoff(first=1.0))


# --- forks, and loops ---


def test_client_runs_on_uvloop() -> None:
    async def main(server: Server) -> None:
        async with Client(server.hosts) as zk, zk.watch("/", recursive=True) as events:
            await zk.create("/a", b"v")
            assert (await events.next()).path == "/a"
            states = zk.states()
            server.drop(zk)
            await read_until(states, State.SUSPENDED)
            assert (await zk.get("/a"))[0] == b"v"

    with Server() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(server))
        assert not server.sessions()
