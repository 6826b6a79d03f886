"""Programs that only read or wait create no nodes, and need no permission to create them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest
from support.leftovers import leftovers
from support.simulation import eventually, make_client, with_client

from zoolet.client import Client, acl
from zoolet.client.recipes import Election, LockingQueue, NodeElection, Party, Queue, Semaphore
from zoolet.protocol.acl import ACL, Id
from zoolet.testing import Server

OBSERVERS: Final[dict[str, Callable[[Client], AsyncIterator[Any]]]] = {
    "Election": lambda zk: Election(zk, "/top/path").observe(),
    "NodeElection": lambda zk: NodeElection(zk, "/top/path").observe(),
    "Party": lambda zk: Party(zk, "/top/path").changes(),
}
WAITING_BLOCKS: Final[dict[str, Callable[[Client], Any]]] = {
    "Election": lambda zk: Election(zk, "/top/path", b"me"),
    "NodeElection": lambda zk: NodeElection(zk, "/top/path", b"me"),
    "Party": lambda zk: Party(zk, "/top/path", b"me"),
}


@pytest.mark.parametrize("name", OBSERVERS)
def test_observer_of_missing_path_does_not_create_it(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        seen: list[Any] = []

        async def observe() -> None:
            async for item in OBSERVERS[name](zk):
                seen.append(item)  # noqa: PERF401

        async with make_client(server, seed=6) as other:
            # Clients without write permission cannot create nodes below it.
            await other.create("/top", acl=[ACL(acl.READ | acl.ADMIN, Id("world", "anyone"))])
            observing = asyncio.create_task(observe())
            await asyncio.sleep(1)
            assert set(server.tree()) == {"/top"}

            await other.set_acl("/top", acl.OPEN)
            async with WAITING_BLOCKS[name](other):
                await eventually(lambda: len(seen) == 2)
            await eventually(lambda: len(seen) == 3)
            await other.delete("/top", recursive=True)
            await asyncio.sleep(1)

        assert seen[0] == seen[2] != seen[1]
        assert not server.tree()
        observing.cancel()
        await asyncio.wait([observing])

    with_client(main)


@pytest.mark.parametrize("kind", [Queue, LockingQueue])
def test_consumer_of_missing_queue_does_not_create_it(kind: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(TimeoutError):
            await kind(zk, "/q").get(timeout=1)
        waiting = asyncio.create_task(kind(zk, "/q").get())
        await asyncio.sleep(1)
        assert not server.tree()

        async with make_client(server, seed=6) as other:
            await kind(other, "/q").put(b"v")
            assert await waiting == b"v"

        await asyncio.sleep(600)  # the server deletes unused containers
        assert set(server.tree()) <= {"/q"}
        assert not leftovers(server, zk)

    with_client(main)


@pytest.mark.parametrize("naming", ["kazoo", "curator"])
def test_attempt_at_held_semaphore_creates_no_node(naming: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, Semaphore(other, "/s", naming=naming):
            await asyncio.sleep(0.1)
            before = server.tree()
            with server.recording(zk) as made:
                assert await Semaphore(zk, "/s", naming=naming).attempt() is None

            assert server.tree() == before
            assert all(op.op.startswith("get") for op in made)
        await asyncio.sleep(600)
        assert not server.tree()

    with_client(main)
