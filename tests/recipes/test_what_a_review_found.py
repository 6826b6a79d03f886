"""What a review of the client and its recipes found by reading, each as it went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from zoolet.client import Client, ConnectionLossError, EventType, State
from zoolet.client.recipes import DoubleBarrier, Lock, LockLostError, ReadWriteLock, TryLock, Worker
from zoolet.protocol.errors import ErrorCode, NoAuthError, SessionExpiredError
from zoolet.server import Server
from zoolet.server.testing import Simulation, error, withhold_event


def simulate(main: Any, clients: int = 1) -> None:
    """Run a coroutine that is given a server and so many clients."""
    sim = Simulation(1, limit=600)

    async def run() -> None:
        async with sim.server() as server:
            made = [Client(server.hosts, timeout=6, rng=Random(number)) for number in range(clients)]
            for client in made:
                await client.start()
            try:
                await main(sim, server, *made)
            finally:
                for client in made:
                    await client.aclose()

    sim.run(run())


def test_a_writer_that_was_held_for_a_while_becomes_a_reader() -> None:
    async def main(sim: Simulation, server: Server, zk: Client) -> None:
        lock = ReadWriteLock(zk, "/rw")
        async with lock.write() as writer:
            await asyncio.sleep(1)
            reader = await lock.downgrade(writer)
            reader.raise_if_lost()
            await reader.release()

    simulate(main)


def test_nothing_is_held_once_the_client_closes_though_the_server_has_not_answered() -> None:
    async def main(sim: Simulation, server: Server, zk: Client) -> None:
        held = await Lock(zk, "/lock").acquire()
        closing = asyncio.create_task(zk.aclose())
        await asyncio.sleep(0)

        assert zk.state is State.CLOSED
        assert held.lost.is_set()
        assert held.valid_for() == zk.valid_for() == 0
        with pytest.raises(LockLostError):
            held.raise_if_lost()
        await closing

    simulate(main)


def test_an_event_of_a_transaction_is_not_missed_when_the_link_breaks_before_it() -> None:
    async def main(sim: Simulation, server: Server, zk: Client, other: Client) -> None:
        await other.create("/x")
        await other.create("/y")
        async with zk.watch_data("/x") as x, zk.watch_data("/y") as y:
            with server.fault(path="/y", session=zk, action=withhold_event(), strict=True):
                async with other.transaction() as t:
                    t.set("/x", b"1")
                    t.set("/y", b"1")
                assert (await x.next()).path == "/x"
                server.drop(zk)
            async with asyncio.timeout(5):
                assert (await y.next()).type is EventType.NODE_DATA_CHANGED

    simulate(main, 2)


@pytest.mark.parametrize("op", ["getChildren", "exists", "sync"])
def test_no_contender_stays_behind_whatever_error_its_second_question_gets(op: str) -> None:
    async def main(sim: Simulation, server: Server, zk: Client) -> None:
        await zk.ensure_path("/l")
        for lock in (Lock(zk, "/l"), TryLock(zk, "/l/try")):
            with server.fault(op=op, times=1, action=error(NoAuthError)):
                try:
                    await (await lock.acquire()).release()
                except NoAuthError:
                    await asyncio.sleep(1)
            assert not [path for path, node in server.tree().items() if node.ephemeral_owner]

    simulate(main)


def test_a_release_that_is_refused_is_tried_again() -> None:
    async def main(sim: Simulation, server: Server, zk: Client) -> None:
        with server.fault(op="delete", times=1, action=error(ErrorCode.THROTTLED_OP), strict=True):
            async with Lock(zk, "/l"):
                pass
            await asyncio.sleep(1)
        assert not [path for path, node in server.tree().items() if node.ephemeral_owner]

    simulate(main)


def test_a_reply_that_the_session_is_over_ends_what_is_held() -> None:
    async def main(sim: Simulation, server: Server, zk: Client) -> None:
        held = await Lock(zk, "/l").acquire()
        with server.fault(op="get", times=1, action=error(ErrorCode.SESSION_EXPIRED), strict=True):
            with pytest.raises(SessionExpiredError):
                await zk.get("/l")
        assert held.lost.is_set()

    simulate(main)


def test_the_next_round_at_a_double_barrier_is_not_disturbed_by_the_last() -> None:
    async def main(sim: Simulation, server: Server, zk: Client) -> None:
        barrier = DoubleBarrier(zk, "/b", 1)
        await barrier.enter()
        server.drop("all")
        leaving = asyncio.create_task(barrier.leave())
        await leaving
        await barrier.enter()
        await asyncio.sleep(2)
        assert len([path for path in server.tree("/b") if path.count("/") == 2 and "ready" not in path]) == 1
        await barrier.leave()

    simulate(main)


def test_what_a_worker_reports_goes_with_its_task() -> None:
    async def main(sim: Simulation, server: Server, zk: Client) -> None:
        async def do(task: str, value: Any) -> Any:
            await worker.report(task, "half")
            return value

        worker = Worker(zk, "/jobs", "w", do)
        async with worker:
            await zk.create("/jobs/tasks/t", b"1", parents=True)
            await zk.create("/jobs/assigned/w/t", b"1", parents=True)
            await asyncio.sleep(2)
            assert not [path for path in server.tree() if path.startswith("/jobs/progress/")]

    simulate(main)


def test_a_lost_connection_is_still_only_that() -> None:
    async def main(sim: Simulation, server: Server, zk: Client) -> None:
        task: Coroutine[Any, Any, Any] = zk.set("/", b"")
        server.drop(zk)
        with pytest.raises(ConnectionLossError):
            await task
        assert await zk.get("/") is not None

    simulate(main)
