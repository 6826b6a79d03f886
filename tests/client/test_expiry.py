"""The lifetime of a session: pings, silent servers, and how long the session is known to be valid."""

from __future__ import annotations

import asyncio

import pytest
from support.simulation import Connect, make_client, simulate

from zoolet.client import Client, State
from zoolet.testing import Server, Simulation


def test_pings_keep_idle_session_alive() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with make_client(server, 6.0) as zk:
            session_id, states = zk.session_id, zk.states()
            asked = len(server.ops())

            await asyncio.sleep(600)

            assert zk.session_id == session_id
            assert server.sessions()[session_id].connected
            assert await anext(states) is State.CONNECTED
            assert not states._states  # type: ignore[attr-defined]
            assert {op.op for op in server.ops()[asked:]} == {"ping"}
            assert len(server.ops()) - asked == pytest.approx(600 / 2.0, rel=0.02)  # every third of the timeout

    simulate(main)


def test_busy_session_sends_no_pings() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with make_client(server, 6.0) as zk:
            for _ in range(100):
                await asyncio.sleep(1.0)
                await zk.exists("/")

            assert {op.op for op in server.ops()} == {"connect", "exists"}

    simulate(main)


def test_silence_for_two_thirds_of_timeout_suspends_session() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with make_client(server, 6.0) as zk:
            states = zk.states()
            await zk.exists("/")
            began = sim.time()
            sim.network.pause()

            async for state in states:
                if state is State.SUSPENDED:
                    break
            assert sim.time() - began == pytest.approx(4.0, abs=0.05)
            sim.network.resume()
            await zk.wait_for(State.CONNECTED)

    simulate(main)


def test_valid_for_never_exceeds_session_lifetime() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with make_client(server, 6.0) as zk:
            assert 5.9 < zk.valid_for() <= 6.0
            for step in range(300):
                if step == 100:
                    sim.network.pause()
                if step == 140:
                    sim.network.resume()
                if step == 200:
                    server.refuse_connections()
                    server.drop("all")
                await asyncio.sleep(0.1)
                views = server.sessions()
                if zk.valid_for() > 0:
                    assert zk.valid_for() <= views[zk.session_id].expires_in + 0.001
            server.accept_connections()

    simulate(main)


async def test_valid_for_is_zero_before_start(server: Server, connect: Connect) -> None:
    assert Client(server.hosts).valid_for() == 0.0
    zk = await connect(server.hosts)
    assert zk.valid_for() > 9.0
