"""Requests that the server answers by closing the connection, such as those above its jute.maxbuffer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from zoolet.client import Backoff, Client, ConnectionLossError
from zoolet.client.recipes import (
    DurableLock,
    Election,
    Lock,
    LockingQueue,
    Master,
    Party,
    PersistentEphemeral,
    Semaphore,
    TryLock,
    TwoPhaseCommit,
    Worker,
)
from zoolet.testing import Server, Simulation, drop_request

LIMIT_BYTES: Final = 100_000
LARGE_DATA: Final = bytes(LIMIT_BYTES + 1)
LIMIT_MESSAGE: Final = r"the request has 100\d\d\d bytes, which may exceed the jute\.maxbuffer"
Attempt = Callable[[Client], Awaitable[Any]]
ATTEMPTS: Final[dict[str, Attempt]] = {
    "create": lambda zk: zk.create("/a", LARGE_DATA, protected=True),
    "Lock": lambda zk: Lock(zk, "/a", data=LARGE_DATA).acquire(),
    "Lock, attempt": lambda zk: Lock(zk, "/a", data=LARGE_DATA).attempt(),
    "Semaphore": lambda zk: Semaphore(zk, "/a", data=LARGE_DATA).acquire(),
    "TryLock": lambda zk: TryLock(zk, "/a", data=LARGE_DATA).acquire(),
    "DurableLock": lambda zk: DurableLock(zk, "/a", "o" * LIMIT_BYTES).acquire(),
    "PersistentEphemeral": lambda zk: PersistentEphemeral(zk, "/a", LARGE_DATA).__aenter__(),
    "Party": lambda zk: Party(zk, "/a", LARGE_DATA).__aenter__(),
    "Election": lambda zk: Election(zk, "/a", LARGE_DATA).lead(),
    "Election, run": lambda zk: Election(zk, "/a", LARGE_DATA).run(asyncio.Event().wait),
    "TwoPhaseCommit": lambda zk: TwoPhaseCommit(zk, "/a").propose("x" * LIMIT_BYTES, ["one"]),
}


def run_with_limit(main: Callable[[Server, Client], Awaitable[Any]], limit: int = LIMIT_BYTES) -> None:
    """Run with a server that accepts small requests only, and a client."""

    async def run(sim: Simulation) -> None:
        async with (
            sim.server(config={"jute.maxbuffer": limit}) as server,
            Client(server.hosts, backoff=Backoff(first=0.01)) as zk,
        ):
            await main(server, zk)

    sim = Simulation(1)
    sim.run(run(sim))


def connection_count(server: Server) -> int:
    """Return the number of connections that the server has accepted."""
    return sum(op.op == "connect" for op in server.ops())


def test_error_of_oversized_request_names_its_size() -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(ConnectionLossError, match=LIMIT_MESSAGE):
            await zk.create("/a", LARGE_DATA)

    run_with_limit(main)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_oversized_recipe_request_fails_after_three_attempts(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.get("/")
        before = connection_count(server)

        async with asyncio.timeout(10):
            with pytest.raises(ConnectionLossError, match=LIMIT_MESSAGE):
                await ATTEMPTS[name](zk)

        await zk.get("/")
        assert connection_count(server) - before <= 3
        await asyncio.sleep(60)
        assert connection_count(server) - before <= 3

    run_with_limit(main)


def test_only_largest_request_is_blamed_for_closed_connection() -> None:
    async def main(server: Server, zk: Client) -> None:
        small, large = zk.create("/b"), zk.create("/a", LARGE_DATA)
        errors = await asyncio.gather(small, large, return_exceptions=True)

        assert [getattr(error, "refusals", None) for error in errors][1] == 1
        assert getattr(errors[0], "refusals", 0) == 0

    run_with_limit(main)


def test_waiting_lock_survives_oversized_request_of_same_client() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Client(server.hosts) as other:
            held = await Lock(other, "/l").acquire()
            waiting = asyncio.create_task(Lock(zk, "/l").acquire())
            await asyncio.sleep(1)
            with pytest.raises(ConnectionLossError):
                await Lock(zk, "/a", data=LARGE_DATA).acquire()

            await held.release()
            async with asyncio.timeout(5):
                await (await waiting).release()

    run_with_limit(main)


def test_oversized_value_of_persistent_ephemeral_fails_its_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def register() -> None:
            async with PersistentEphemeral(zk, "/a", b"small") as node:
                with pytest.raises(ConnectionLossError):
                    await node.set(LARGE_DATA)
                await asyncio.sleep(60)

        with pytest.raises(ConnectionLossError, match=LIMIT_MESSAGE):
            await register()

    run_with_limit(main)


@pytest.mark.parametrize("size", [LIMIT_BYTES - 80, 1_048_575 - 80], ids=["of the server", "of the client"])
def test_result_of_task_just_below_limit_is_error(size: int) -> None:
    async def work(task: str, value: Any) -> Any:
        return len(value)

    async def main(server: Server, zk: Client) -> None:
        async with Master(zk, "/jobs", "m") as master, Worker(zk, "/jobs", "w", work):
            large = [await master.submit("x" * size) for _ in range(2)]
            small = await master.submit("x")

            for task in large:
                assert "bytes" in (await master.result(task, timeout=60))["error"]
            assert (await master.result(small, timeout=60))["result"] == 1

    run_with_limit(main, max(LIMIT_BYTES, size + 80))


@pytest.mark.parametrize("size", [LIMIT_BYTES - 80, 1_048_575 - 80], ids=["of the server", "of the client"])
def test_entry_just_below_limit_does_not_block_queue(size: int) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q")
        await queue.put(bytes(size))
        await queue.put(b"small")

        assert await queue.get(timeout=60) == b"small"
        with pytest.raises(TimeoutError):
            await queue.get(timeout=1)

    run_with_limit(main, max(LIMIT_BYTES, size + 80))


def test_small_request_is_repeated_after_many_closed_connections() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(drop_request(), "create", times=10):
            with pytest.raises(ConnectionLossError) as caught:
                await zk.create("/a")
            assert caught.value.refusals == 0
            async with Lock(zk, "/l"):
                assert connection_count(server) > 5

    run_with_limit(main)
