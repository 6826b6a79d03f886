"""Leaving a block while the server is down takes at most a second, because the session ends anyway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.leftovers import leftovers
from support.simulation import eventually, with_client
from support.waiting import DEADLINE_S, PROMPT_S

from zoolet.client import (
    Client,
    ClosedError,
    ConnectionLossError,
    SessionExpiredError,
    State,
    blocking,
    serializers,
)
from zoolet.client.recipes import (
    Config,
    Discovery,
    DoubleBarrier,
    DurableLock,
    Election,
    Instance,
    Lock,
    LockingQueue,
    LockLostError,
    Master,
    MultiLock,
    NodeCache,
    NodeElection,
    Party,
    PersistentEphemeral,
    ReadWriteLock,
    Semaphore,
    TreeCache,
    TryLock,
    Worker,
)
from zoolet.testing import Server

Block = Callable[[Client], Any]


async def _do_task(name: str, value: Any) -> Any:
    return value


BLOCKS: dict[str, Block] = {
    "Party": lambda zk: Party(zk, "/party", b"me"),
    "PersistentEphemeral": lambda zk: PersistentEphemeral(zk, "/up/me"),
    "Discovery": lambda zk: Discovery(zk, "/services"),
    "Worker": lambda zk: Worker(zk, "/jobs", "w", _do_task),
    "Master": lambda zk: Master(zk, "/jobs", "m"),
    "Lock": lambda zk: Lock(zk, "/lock"),
    "DurableLock": lambda zk: DurableLock(zk, "/durable", "me"),
    "MultiLock": lambda zk: MultiLock(zk, ["/a", "/b"]),
    "ReadWriteLock": lambda zk: ReadWriteLock(zk, "/rw").write(),
    "Semaphore": lambda zk: Semaphore(zk, "/pool", 2),
    "Election": lambda zk: Election(zk, "/leader"),
    "NodeElection": lambda zk: NodeElection(zk, "/master"),
    "DoubleBarrier": lambda zk: DoubleBarrier(zk, "/step", 1),
    "TryLock": lambda zk: TryLock(zk, "/try"),
    "NodeCache": lambda zk: NodeCache(zk, "/node"),
    "TreeCache": lambda zk: TreeCache(zk, "/"),
    "Config": lambda zk: Config(zk, "/config"),
    "watch": lambda zk: zk.watch("/"),
    "recursive watch": lambda zk: zk.watch("/", recursive=True),
    "one-shot watch": lambda zk: zk.watch_exists("/"),
}
STARTS_WITHOUT_SERVER = ("Discovery", "Master")
"""Recipes whose blocks start without a server. They wait for the server in the background."""


async def _refuse_and_drop_clients(server: Server, zk: Client, state: State) -> None:
    """Refuse and drop connections, and wait until the client is in *state*, SUSPENDED or LOST."""
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(state)
    await asyncio.sleep(0.1)


async def _seconds_to_leave(
    server: Server, zk: Client, block: Any, state: State = State.SUSPENDED, *, cancelled: bool = False
) -> float:
    """Enter a block, and return how long leaving it takes without a server."""
    now, started, ends = asyncio.get_running_loop().time, asyncio.Event(), asyncio.Event()

    async def use() -> None:
        async with block as entered:
            if isinstance(entered, Discovery):
                await entered.register(Instance("web", "web-1"))
                await entered.instances("web")
            started.set()
            await ends.wait()

    using = asyncio.create_task(use())
    await started.wait()
    await _refuse_and_drop_clients(server, zk, state)
    started_at = now()
    if cancelled:
        using.cancel()
    ends.set()
    await asyncio.wait([using], timeout=DEADLINE_S)
    took = now() - started_at
    if not using.cancelled() and (error := using.exception()) is not None:
        assert isinstance(error, LockLostError | ConnectionLossError)
    return took


@pytest.mark.parametrize("cancelled", [False, True], ids=["ended", "cancelled"])
@pytest.mark.parametrize("state", [State.SUSPENDED, State.LOST])
@pytest.mark.parametrize("name", BLOCKS)
def test_block_exits_within_second_without_server(name: str, state: State, cancelled: bool) -> None:
    async def main(server: Server, zk: Client) -> None:
        assert await _seconds_to_leave(server, zk, BLOCKS[name](zk), state, cancelled=cancelled) <= 1.0
        server.accept_connections()
        await zk.wait_for(State.CONNECTED)
        await eventually(lambda: not leftovers(server, zk))

    with_client(main)


# --- entering blocks without a server ---


@pytest.mark.parametrize("state", [State.SUSPENDED, State.LOST])
@pytest.mark.parametrize("name", [name for name in BLOCKS if name not in STARTS_WITHOUT_SERVER])
def test_block_cannot_start_without_server(name: str, state: State) -> None:
    async def main(server: Server, zk: Client) -> None:
        block = BLOCKS[name](zk.with_operation_timeout(3.0))
        await _refuse_and_drop_clients(server, zk, state)

        async with asyncio.timeout(3.1):
            with pytest.raises((ConnectionLossError, SessionExpiredError)):
                await block.__aenter__()

        server.accept_connections()
        await zk.wait_for(State.CONNECTED)
        await eventually(lambda: not leftovers(server, zk))

    with_client(main)


@pytest.mark.parametrize("name", [name for name in BLOCKS if name not in STARTS_WITHOUT_SERVER])
def test_starting_block_can_be_cancelled_immediately(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        await _refuse_and_drop_clients(server, zk, State.SUSPENDED)
        starting = asyncio.create_task(BLOCKS[name](zk).__aenter__())
        await asyncio.sleep(1)
        starting.cancel()

        async with asyncio.timeout(0.3):
            await asyncio.wait([starting])

        assert starting.cancelled()
        server.accept_connections()
        await zk.wait_for(State.CONNECTED)
        await eventually(lambda: not leftovers(server, zk))

    with_client(main)


@pytest.mark.parametrize("closed", [False, True], ids=["not started", "closed"])
@pytest.mark.parametrize("name", BLOCKS)
def test_block_of_stopped_client_is_refused(name: str, closed: bool) -> None:
    async def main(server: Server, zk: Client) -> None:
        if closed:
            await zk.aclose()
        client = zk if closed else Client(server.hosts)

        with pytest.raises(ClosedError if closed else RuntimeError):
            await BLOCKS[name](client).__aenter__()

    with_client(main)


# --- how long the end may take ---


def test_stop_timeout_extends_block_exit_without_server() -> None:
    async def main(server: Server, zk: Client) -> None:
        node = PersistentEphemeral(zk, "/up/me", stop_timeout=3.0)
        assert await _seconds_to_leave(server, zk, node) == pytest.approx(3.0)

    with_client(main)


def test_failing_block_does_not_wait_to_release_queue_entry() -> None:
    async def main(server: Server, zk: Client) -> None:
        now = asyncio.get_running_loop().time
        queue = LockingQueue(zk.with_serializer(serializers.raw), "/jobs")
        await queue.put(b"job")
        entry = await queue.acquire()
        server.refuse_connections()
        server.drop(zk)
        await asyncio.sleep(0.1)
        started_at = now()
        with pytest.raises(ZeroDivisionError):
            async with entry:
                raise ZeroDivisionError
        assert now() - started_at <= 1.0

    with_client(main)


def test_stop_timeout_limits_exit_of_blocking_recipe(zoolet: Server) -> None:
    with blocking.Client(zoolet.hosts, timeout=40.0) as zk:
        with blocking.recipes.Party(zk, "/party", b"me", stop_timeout=0.01):
            zoolet.refuse_connections()
            zoolet.drop("all")
            started_at = time.monotonic()
        took = time.monotonic() - started_at
    assert took < PROMPT_S, "it waited as long as the session"


def test_ephemeral_block_reentered_in_same_session_keeps_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        node = PersistentEphemeral(zk, "/up/me")
        await _seconds_to_leave(server, zk, node)
        first = server.tree()["/up/me"].czxid
        server.accept_connections()
        async with node:
            await asyncio.sleep(5)
            assert server.tree()["/up/me"].czxid == first

    with_client(main)


def test_double_barrier_cannot_be_reentered_without_server() -> None:
    async def main(server: Server, zk: Client) -> None:
        barrier = DoubleBarrier(zk.with_operation_timeout(3.0), "/step", 1)
        await barrier.enter()
        server.refuse_connections()
        server.drop(zk)
        await barrier.__aexit__(ZeroDivisionError)  # as if the block had raised

        async with asyncio.timeout(3.1):
            with pytest.raises(ConnectionLossError):
                await barrier.enter()

    with_client(main)


def test_cache_remains_usable_after_its_block_was_not_entered() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/node", b"v")
        cache = NodeCache(zk.with_operation_timeout(0.5), "/node")
        await _refuse_and_drop_clients(server, zk, State.SUSPENDED)
        with pytest.raises(ConnectionLossError):
            await cache.__aenter__()
        server.accept_connections()
        await zk.wait_for(State.CONNECTED)

        await cache.refresh()
        assert cache.value == b"v"

    with_client(main)
