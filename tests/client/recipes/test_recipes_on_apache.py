"""Recipes other than locks behave the same on Apache's server and on the embedded one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.simulation import eventually
from support.waiting import DEADLINE_S

from zoolet.client import Client
from zoolet.client.recipes import (
    Barrier,
    ChildrenCache,
    Config,
    Counter,
    Discovery,
    DoubleBarrier,
    Instance,
    LockingQueue,
    Master,
    NodeCache,
    Party,
    PersistentEphemeral,
    PriorityQueue,
    Queue,
    TreeCache,
    UniqueId,
    Worker,
)


@pytest.fixture
async def pair(apache_hosts: str) -> AsyncIterator[tuple[Client, Client]]:
    """Two clients in a new chroot; at the end no ephemeral node may be left."""
    chroot = f"/test-{uuid.uuid4().hex}"
    async with Client(apache_hosts) as maker:
        await maker.create(chroot)
    async with Client(apache_hosts + chroot) as one, Client(apache_hosts + chroot) as two:
        yield one, two
        async with asyncio.timeout(DEADLINE_S):
            while await one.ephemerals() or await two.ephemerals():
                await asyncio.sleep(0.01)


async def test_persistent_ephemeral_works_on_apache(pair: tuple[Client, Client]) -> None:
    one, two = pair
    async with PersistentEphemeral(one, "/up/me", b"1") as node:
        assert (await two.get("/up/me"))[0] == b"1"
        await two.delete("/up/me")
        async with asyncio.timeout(DEADLINE_S):
            while await two.exists("/up/me") is None:
                await asyncio.sleep(0.005)
        await eventually(lambda: node.exists)
        await node.set(b"2")
        assert (await two.get("/up/me"))[0] == b"2"
    assert await two.exists("/up/me") is None


async def test_barriers_open_on_apache(pair: tuple[Client, Client]) -> None:
    one, two = pair
    assert await Barrier(one, "/b").create()
    wait = asyncio.ensure_future(Barrier(two, "/b").wait(DEADLINE_S))
    await asyncio.sleep(0)
    assert await Barrier(one, "/b").remove()
    await wait
    inside: list[int] = []

    async def member(zk: Client) -> None:
        async with DoubleBarrier(zk, "/d", 2, timeout=DEADLINE_S):
            inside.append(1)

    first = asyncio.ensure_future(member(one))
    async with asyncio.timeout(DEADLINE_S):
        while await two.exists("/d") is None or not await two.children("/d"):
            await asyncio.sleep(0.005)
    assert not inside
    await asyncio.gather(first, member(two))
    assert await two.children("/d") == []


async def test_double_barrier_passes_many_rounds(pair: tuple[Client, Client]) -> None:
    inside: dict[int, int] = {}

    async def member(zk: Client) -> None:
        for number in range(50):
            async with DoubleBarrier(zk, "/rounds", 2, timeout=DEADLINE_S):
                inside[number] = inside.get(number, 0) + 1
            assert inside[number] == 2

    await asyncio.gather(*map(member, pair))
    assert await pair[0].children("/rounds") == []


async def test_queue_works_on_apache(pair: tuple[Client, Client]) -> None:
    one, two = pair
    waiting = asyncio.ensure_future(Queue(two, "/q").get(DEADLINE_S))
    await Queue(one, "/q").put(b"1")
    assert await waiting == b"1"
    await Queue(one, "/q").put(b"2")
    assert await Queue(two, "/q").get_nowait() == b"2"


async def test_queue_keeps_order_of_insertion(pair: tuple[Client, Client]) -> None:
    one, two = pair
    for number in range(3):
        await PriorityQueue(one, "/q").put(b"%d" % number, 5)
    assert [await Queue(two, "/q").get(DEADLINE_S) for _ in range(3)] == [b"0", b"1", b"2"]


async def test_locking_queue_works_on_apache(pair: tuple[Client, Client]) -> None:
    one, two = pair
    await LockingQueue(one, "/q").put(b"1")
    entry = await LockingQueue(one, "/q").acquire(DEADLINE_S)
    waiting = asyncio.ensure_future(LockingQueue(two, "/q").acquire(DEADLINE_S))
    await entry.release()
    async with await waiting as entry:
        assert entry.value == b"1"
    assert await LockingQueue(one, "/q").size() == 0


@pytest.mark.parametrize("naming", ["text", "int", "long"])
async def test_counter_works_on_apache(pair: tuple[Client, Client], naming: str) -> None:
    sums = await asyncio.gather(*[Counter(zk, "/n", encoding=naming).add() for zk in pair for _ in range(5)])
    assert sorted(sums) == list(range(1, 11))


async def test_unique_id_works_on_apache(pair: tuple[Client, Client]) -> None:
    found = await asyncio.gather(*[UniqueId(zk, "/ids").next() for zk in pair for _ in range(5)])
    assert sorted(found) == list(range(1, 11))


@pytest.mark.parametrize("naming", ["kazoo", "curator"])
async def test_party_works_on_apache(pair: tuple[Client, Client], naming: str) -> None:
    one, two = pair
    async with Party(one, "/p", b"1", naming=naming) as party:
        async with Party(two, "/p", b"2", naming=naming):
            assert sorted(await party.members()) == [b"1", b"2"]
        assert await party.members() == [b"1"]


async def test_caches_follow_nodes_on_apache(pair: tuple[Client, Client]) -> None:
    one, two = pair
    async with TreeCache(one, "/t") as tree, ChildrenCache(one, "/t") as children, NodeCache(one, "/t/a") as node:
        await two.create("/t/a", b"1", parents=True)
        await two.create("/t/a/b", b"2")
        await two.set("/t/a", b"3")
        await eventually(
            lambda: (
                {path: cached.value for path, cached in tree.nodes.items()} == {"/t": b"", "/t/a": b"3", "/t/a/b": b"2"}
            )
        )
        await eventually(lambda: children.values == {"a": b"3"} and node.value == b"3")
        await two.delete("/t", recursive=True)
        await eventually(lambda: not tree.nodes and not children.values and node.stat is None)


async def test_config_works_on_apache(pair: tuple[Client, Client]) -> None:
    one, two = pair
    async with Config(one, "/c", default={}) as config:
        await Config(two, "/c").publish({"n": 1}, version=-1)
        await eventually(lambda: config.value == {"n": 1})
        await Config(two, "/c").update(lambda value: {"n": value["n"] + 1})
        await eventually(lambda: config.value == {"n": 2} and config.version == 1)


async def test_discovery_works_on_apache(pair: tuple[Client, Client]) -> None:
    one, two = pair
    instance = Instance("web", "w-1", "10.0.0.1", 80)
    async with Discovery(two, "/s") as seeker:
        async with Discovery(one, "/s") as discovery:
            await discovery.register(instance)
            assert await seeker.pick("web") == instance
        async with asyncio.timeout(DEADLINE_S):
            while await seeker.instances("web"):
                await asyncio.sleep(0.005)


async def test_master_and_worker_do_tasks_on_apache(pair: tuple[Client, Client]) -> None:
    one, two = pair

    async def double(task: str, value: Any) -> Any:
        return value * 2

    async def obey(value: Any) -> Any:
        return "yes"

    async with Master(one, "/jobs", "m") as master, Worker(two, "/jobs", "w", double, on_command=obey):
        name = await master.submit(21)
        assert await master.result(name, DEADLINE_S) == {"worker": "w", "result": 42}
        assert set(await master.workers()) == {"w"}
        assert await master.command("now", DEADLINE_S) == {"w": {"answer": "yes"}}
        async with asyncio.timeout(DEADLINE_S):
            while await one.children("/jobs/tasks"):
                await asyncio.sleep(0.005)
