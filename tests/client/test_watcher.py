"""Watchers: the events of each kind of watch, and their order relative to replies."""

from __future__ import annotations

import asyncio

import pytest
from support.simulation import Connect
from support.waiting import DEADLINE_S
from support.watch_events import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    drain_events,
    next_events,
    result_of,
    type_and_path,
)

from zoolet.client import Client, NoNodeError
from zoolet.testing import Server

# --- events ---


async def test_persistent_watch_reports_all_events_of_node(zk: Client) -> None:
    async with zk.watch("/a") as events:
        await zk.create("/a")
        await zk.set("/a", b"1")
        await zk.create("/a/x")
        await zk.delete("/a/x")
        await zk.delete("/a")
        await zk.create("/a")

        assert await next_events(events, 6) == [
            (CREATED, "/a"),
            (CHANGED, "/a"),
            (CHILDREN, "/a"),
            (CHILDREN, "/a"),
            (DELETED, "/a"),
            (CREATED, "/a"),
        ]


async def test_persistent_watch_ignores_other_nodes(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch("/a") as events:
        await zk.create("/ab")
        await zk.create("/a/x")
        await zk.set("/a/x", b"")
        await zk.create("/a/x/y")

        assert await drain_events(zk, events) == [(CHILDREN, "/a")]


async def test_recursive_watch_reports_each_node_below(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch("/a", recursive=True) as events:
        await zk.create("/a/x/y", parents=True)
        await zk.set("/a/x/y", b"1")
        await zk.create("/ab")
        await zk.set("/a", b"1")
        await zk.delete("/a", recursive=True)

        assert await drain_events(zk, events) == [
            (CREATED, "/a/x"),
            (CREATED, "/a/x/y"),
            (CHANGED, "/a/x/y"),
            (CHANGED, "/a"),
            (DELETED, "/a/x/y"),
            (DELETED, "/a/x"),
            (DELETED, "/a"),
        ]


async def test_recursive_root_watch_reports_everything(zk: Client) -> None:
    async with zk.watch("/", recursive=True) as events:
        await zk.create("/a/b", parents=True)
        await zk.set("/", b"")

        assert await next_events(events, 3) == [(CREATED, "/a"), (CREATED, "/a/b"), (CHANGED, "/")]


async def test_data_watch_returns_data_and_fires_once(zk: Client) -> None:
    await zk.create("/a", b"1")
    async with zk.watch_data("/a") as watch:
        value, stat = watch.initial
        await zk.set("/a", b"2", version=stat.version)
        await zk.set("/a", b"3")

        events = [type_and_path(event) async for event in watch]

    assert value == b"1"
    assert events == [(CHANGED, "/a")]


async def test_data_watch_reports_deletion(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch_data("/a") as watch:
        await zk.delete("/a")

        assert type_and_path(await watch.next()) == (DELETED, "/a")


async def test_exists_watch_reports_creation(zk: Client) -> None:
    async with zk.watch_exists("/a") as watch:
        assert watch.initial is None
        await zk.create("/a")

        assert type_and_path(await watch.next()) == (CREATED, "/a")


async def test_exists_watch_of_existing_node_reports_change(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch_exists("/a") as watch:
        assert watch.initial == await zk.exists("/a")
        await zk.set("/a", b"1")

        assert type_and_path(await watch.next()) == (CHANGED, "/a")


async def test_children_watch_reports_deleted_child(zk: Client) -> None:
    await zk.create("/a/x", parents=True)
    async with zk.watch_children("/a") as watch:
        assert watch.initial == ["x"]
        await zk.set("/a", b"1")
        await zk.delete("/a/x")

        assert type_and_path(await watch.next()) == (CHILDREN, "/a")


async def test_children_watch_reports_deletion_of_node(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch_children("/a") as watch:
        await zk.delete("/a")

        assert type_and_path(await watch.next()) == (DELETED, "/a")


async def test_next_raises_after_one_shot_watch_fired(zk: Client) -> None:
    async with zk.watch_exists("/a") as watch:
        await zk.create("/a")
        await watch.next()

        with pytest.raises(RuntimeError, match="has fired or ended"):
            await watch.next()


async def test_data_or_children_watch_of_missing_node_is_not_set(zk: Client) -> None:
    for watch in (zk.watch_data("/a"), zk.watch_children("/a")):
        with pytest.raises(NoNodeError) as caught:
            await watch.__aenter__()
        assert caught.value.path == "/a"
    assert not await zk.check_watches("/a")


async def test_watch_delivers_changes_by_other_clients(hosts: str, zk: Client, connect: Connect) -> None:
    other = await connect(hosts)
    async with zk.watch("/", recursive=True) as events:
        await other.create("/a")

        assert await next_events(events, 1) == [(CREATED, "/a")]


async def test_watch_event_has_zxid_of_its_change(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    async with zk.watch("/a") as events:
        stat = (await zk.create_and_stat("/a"))[1]

        assert (await events.next()).zxid == stat.czxid


# --- order of events and replies ---


async def test_watch_event_precedes_reply_to_write_that_caused_it(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch("/a") as events:
        for _ in range(20):
            await zk.set("/a", b"")

            assert type_and_path(result_of(events.next())) == (CHANGED, "/a")


async def test_event_precedes_reply_that_shows_change(hosts: str, zk: Client, connect: Connect) -> None:
    other = await connect(hosts)
    await zk.create("/a", b"0")
    async with zk.watch("/a") as events:
        for number in range(20):
            writing = other.set("/a", b"%d" % (number + 1))
            while (await zk.get("/a"))[0] == b"%d" % number:
                continue

            assert type_and_path(result_of(events.next())) == (CHANGED, "/a")
            await writing


async def test_no_change_is_missed_between_consecutive_data_watches(hosts: str, zk: Client, connect: Connect) -> None:
    other = await connect(hosts)
    await zk.create("/n", b"0")

    async def count() -> None:
        for number in range(1, 31):
            await other.set("/n", b"%d" % number)

    counting = asyncio.create_task(count())
    async with asyncio.timeout(DEADLINE_S):
        while True:
            async with zk.watch_data("/n") as watch:
                if watch.initial[0] == b"30":
                    break
                await watch.next()
    await counting
