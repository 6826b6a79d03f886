"""Several watches of one client on one path: a 3.8 server keeps only one mode for them, but users see no difference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Final

import pytest
from support.simulation import Connect
from support.waiting import DEADLINE_S, until

from zoolet.client import Client, EventType
from zoolet.client.aio.watcher import Watcher
from zoolet.client.recipes import TreeCache
from zoolet.testing import Server

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
OTHER_WATCHES: Final[dict[str, Callable[[Client], Watcher]]] = {
    "data": lambda zk: zk.watch_data("/a"),
    "exists": lambda zk: zk.watch_exists("/a"),
    "children": lambda zk: zk.watch_children("/a"),
    "persistent": lambda zk: zk.watch("/a"),
}
EXPECTED_EVENTS: Final = {"data": CHANGED, "exists": CHANGED, "children": CHILDREN, "persistent": CHANGED}


@pytest.fixture(params=["3.8", "3.9", "apache"])
async def pair(request: pytest.FixtureRequest, connect: Connect) -> AsyncIterator[tuple[Client, Client]]:
    """Two clients of one server, in a chroot of their own."""
    async with AsyncExitStack() as stack:
        if request.param == "apache":
            at = request.getfixturevalue("apache")
        else:
            at = (await stack.enter_async_context(Server(compat=request.param))).hosts
        async with Client(at) as zk:
            chroot = await zk.create("/modes-", sequential=True)
        one, two = [await connect(at + chroot) for _ in range(2)]
        await one.ensure_path("/a/x")
        yield one, two


async def wait_for_events(watch: Watcher, wanted: set[EventType]) -> None:
    """Wait until events of exactly the types in *wanted* have arrived for ``/a``, in any order.

    If the watch is registered again during a change, the client finds it by comparison, so an event can arrive twice.
    """
    seen = set()
    async with asyncio.timeout(DEADLINE_S):
        while seen != wanted:
            event = await watch.next()
            seen.add(event.type)
            assert (event.path, seen | wanted) == ("/a", wanted)


@pytest.mark.parametrize("order", ["cache first", "other first", "other at once", "other ended"])
@pytest.mark.parametrize("other", OTHER_WATCHES)
async def test_watch_and_tree_cache_of_same_path_both_get_events(
    pair: tuple[Client, Client], other: str, order: str
) -> None:
    one, two = pair
    cache, watch = TreeCache(one, "/a"), OTHER_WATCHES[other](one)
    async with AsyncExitStack() as stack:
        if order == "other at once":
            await asyncio.gather(stack.enter_async_context(cache), stack.enter_async_context(watch))
        elif order == "other first":
            await stack.enter_async_context(watch)
            await stack.enter_async_context(cache)
        else:
            await stack.enter_async_context(cache)
            await stack.enter_async_context(watch)
        if order == "other ended":
            await watch.__aexit__(None, None, None)

        await two.create("/a/y", b"1")
        await two.set("/a/x", b"2")
        await two.set("/a", b"3")
        await two.create("/a/x/z", b"4")

        wanted = {"/a": b"3", "/a/x": b"2", "/a/x/z": b"4", "/a/y": b"1"}
        await until(lambda: {path: node.value for path, node in cache.nodes.items()} == wanted)
        if order != "other ended":
            event = await asyncio.wait_for(watch.next(), DEADLINE_S)
            if other == "persistent" and event.type == CHILDREN:
                event = await asyncio.wait_for(watch.next(), DEADLINE_S)
            assert (event.type, event.path) == (EXPECTED_EVENTS[other], "/a")


async def test_persistent_and_recursive_watch_of_path_both_get_events(pair: tuple[Client, Client]) -> None:
    one, two = pair
    async with one.watch("/a", recursive=True) as recursive, one.watch("/a") as persistent:
        await two.create("/a/y")
        await two.create("/a/y/deep")
        await two.delete("/a/x")
        await two.set("/a", b"1")

        seen = [await asyncio.wait_for(persistent.next(), DEADLINE_S) for _ in range(3)]
        assert [(event.type, event.path) for event in seen] == [(CHILDREN, "/a"), (CHILDREN, "/a"), (CHANGED, "/a")]
        below = [await asyncio.wait_for(recursive.next(), DEADLINE_S) for _ in range(4)]
        assert [event.path for event in below] == ["/a/y", "/a/y/deep", "/a/x", "/a"]


async def test_other_watches_survive_end_of_recursive_watch(pair: tuple[Client, Client]) -> None:
    one, two = pair
    async with AsyncExitStack() as stack:
        async with one.watch("/a", recursive=True):
            persistent = await stack.enter_async_context(one.watch("/a"))
            data = await stack.enter_async_context(one.watch_data("/a"))
            children = await stack.enter_async_context(one.watch_children("/a"))

        await two.create("/a/y")
        await two.set("/a", b"1")

        assert (await asyncio.wait_for(children.next(), DEADLINE_S)).type == CHILDREN
        assert (await asyncio.wait_for(data.next(), DEADLINE_S)).type == CHANGED
        await wait_for_events(persistent, {CHILDREN, CHANGED})


@pytest.mark.parametrize("kind", ["children", "data", "persistent"])
async def test_watch_entered_while_recursive_watch_ends_gets_events(pair: tuple[Client, Client], kind: str) -> None:
    one, two = pair
    for _ in range(5):
        async with AsyncExitStack() as stack:
            recursive = one.watch("/a", recursive=True)
            await recursive.__aenter__()
            watch = OTHER_WATCHES[kind](one)
            entering = asyncio.ensure_future(stack.enter_async_context(watch))
            await asyncio.sleep(0)
            await recursive.__aexit__(None, None, None)
            await entering
            node = await two.create("/a/n-", sequential=True)
            await two.set("/a", node.encode())

            await wait_for_events(
                watch, {"children": {CHILDREN}, "data": {CHANGED}, "persistent": {CHILDREN, CHANGED}}[kind]
            )
