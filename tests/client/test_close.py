"""Closing: the session is closed immediately, earlier calls are answered, and it takes at most a second."""

from __future__ import annotations

import asyncio

import pytest
from support.simulation import Connect, client_of, simulate

from zoolet.client import Client, ClosedError, State
from zoolet.testing import Server, Simulation


async def test_close_removes_session_immediately(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/here", ephemeral=True)

    await zk.aclose()

    assert not server.sessions()
    assert not server.tree()


async def test_calls_before_close_are_answered_and_later_refused(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    call = zk.create("/a")

    await zk.aclose()

    assert await call == "/a"
    for late in (lambda: zk.get("/a"), lambda: zk.create("/b"), lambda: zk.add_auth("digest", b"a:b")):
        with pytest.raises(ClosedError):
            late()


async def test_close_fails_calls_waiting_for_connection(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)
    calls = [zk.get("/a"), zk.create("/a"), zk.add_auth("digest", b"bob:secret")]

    await zk.aclose()

    for call in calls:
        with pytest.raises(ClosedError):
            await call


async def test_close_is_repeatable_and_works_before_start(server: Server, connect: Connect) -> None:
    zk, never = await connect(server.hosts), Client(server.hosts)

    await asyncio.gather(zk.aclose(), zk.aclose())
    await zk.aclose()
    await never.aclose()

    assert never.state is State.CLOSED
    with pytest.raises(ClosedError):
        never.get("/")


async def test_calls_after_close_do_not_grow_traceback(embedded: Client) -> None:
    await embedded.aclose()
    depths = set()

    for _ in range(5):
        with pytest.raises(ClosedError) as caught:
            embedded.get("/")
        depths.add(len(caught.traceback))

    assert len(depths) == 1


def test_close_takes_one_second_on_any_network() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        took = {}
        for how in ("connected", "stalled", "paused", "cut", "refused"):
            zk = client_of(server)
            await zk.start()
            if how == "stalled":
                sim.network.pause()
            elif how == "paused":
                server.pause(zk)
            elif how == "cut":
                sim.network.drop()
            elif how == "refused":
                server.refuse_connections()
                server.drop("all")
                await zk.wait_for(State.SUSPENDED)
            began = sim.time()
            await zk.aclose()
            took[how] = sim.time() - began
            sim.network.resume()
            server.accept_connections()

        assert took["connected"] < 0.1
        assert max(took.values()) <= 1.0

    simulate(main)


def test_close_waits_for_cleanup_of_background_task() -> None:
    ended: list[str] = []

    async def job(seconds: float) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(seconds)
            ended.append(f"after {seconds} s")

    async def main(sim: Simulation, server: Server) -> None:
        zk = client_of(server)
        await zk.start()
        for seconds in (1, 600):
            zk._core.spawn(job(seconds))
        await asyncio.sleep(0)
        begun = asyncio.get_running_loop().time()
        await zk.aclose()
        assert ended == ["after 1 s"]
        assert asyncio.get_running_loop().time() - begun <= 2.1

    simulate(main)


def test_background_task_can_close_its_client() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        zk = client_of(server)
        await zk.start()
        await zk._core.spawn(zk.aclose())
        assert zk.state is State.CLOSED

    simulate(main)
