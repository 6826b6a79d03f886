"""Watchers: what each kind of watch tells, and in which order with replies."""

from __future__ import annotations

import asyncio

import pytest
from support.simulation import Connect
from support.watch_events import CHANGED, CHILDREN, CREATED, DEADLINE_S, DELETED, at_once, delivered, next_events, rest

from zoolet.client import Client, NoNodeError
from zoolet.server import Server

# --- what they tell ---


async def test_a_watch_tells_of_all_that_happens_to_its_node(zk: Client) -> None:
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


async def test_a_watch_does_not_tell_of_other_nodes(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch("/a") as events:
        await zk.create("/ab")
        await zk.create("/a/x")
        await zk.set("/a/x", b"")
        await zk.create("/a/x/y")

        assert await rest(zk, events) == [(CHILDREN, "/a")]


async def test_a_recursive_watch_tells_of_every_node_below_each_for_itself(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch("/a", recursive=True) as events:
        await zk.create("/a/x/y", parents=True)
        await zk.set("/a/x/y", b"1")
        await zk.create("/ab")
        await zk.set("/a", b"1")
        await zk.delete("/a", recursive=True)

        assert await rest(zk, events) == [
            (CREATED, "/a/x"),
            (CREATED, "/a/x/y"),
            (CHANGED, "/a/x/y"),
            (CHANGED, "/a"),
            (DELETED, "/a/x/y"),
            (DELETED, "/a/x"),
            (DELETED, "/a"),
        ]


async def test_a_recursive_watch_of_the_root_tells_of_everything(zk: Client) -> None:
    async with zk.watch("/", recursive=True) as events:
        await zk.create("/a/b", parents=True)
        await zk.set("/", b"")

        assert await next_events(events, 3) == [(CREATED, "/a"), (CREATED, "/a/b"), (CHANGED, "/")]


async def test_a_data_watch_gives_what_it_read_and_tells_once(zk: Client) -> None:
    await zk.create("/a", b"1")
    async with zk.watch_data("/a") as watch:
        value, stat = watch.initial
        await zk.set("/a", b"2", version=stat.version)
        await zk.set("/a", b"3")

        events = [delivered(event) async for event in watch]

    assert value == b"1"
    assert events == [(CHANGED, "/a")]


async def test_a_data_watch_tells_of_a_deletion(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch_data("/a") as watch:
        await zk.delete("/a")

        assert delivered(await watch.next()) == (DELETED, "/a")


async def test_an_exists_watch_waits_for_a_node_to_come(zk: Client) -> None:
    async with zk.watch_exists("/a") as watch:
        assert watch.initial is None
        await zk.create("/a")

        assert delivered(await watch.next()) == (CREATED, "/a")


async def test_an_exists_watch_of_a_node_that_is_there_waits_for_a_change(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch_exists("/a") as watch:
        assert watch.initial == await zk.exists("/a")
        await zk.set("/a", b"1")

        assert delivered(await watch.next()) == (CHANGED, "/a")


async def test_a_children_watch_tells_that_one_came_or_went(zk: Client) -> None:
    await zk.create("/a/x", parents=True)
    async with zk.watch_children("/a") as watch:
        assert watch.initial == ["x"]
        await zk.set("/a", b"1")
        await zk.delete("/a/x")

        assert delivered(await watch.next()) == (CHILDREN, "/a")


async def test_a_children_watch_tells_that_its_node_went(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch_children("/a") as watch:
        await zk.delete("/a")

        assert delivered(await watch.next()) == (DELETED, "/a")


async def test_a_watch_that_fired_says_so_when_asked_for_more(zk: Client) -> None:
    async with zk.watch_exists("/a") as watch:
        await zk.create("/a")
        await watch.next()

        with pytest.raises(RuntimeError, match="fires once"):
            await watch.next()


async def test_a_data_watch_of_a_missing_node_is_not_set(zk: Client) -> None:
    for watch in (zk.watch_data("/a"), zk.watch_children("/a")):
        with pytest.raises(NoNodeError) as caught:
            await watch.__aenter__()
        assert caught.value.path == "/a"
    assert not await zk.check_watches("/a")


async def test_others_changes_are_delivered_too(hosts: str, zk: Client, connect: Connect) -> None:
    other = await connect(hosts)
    async with zk.watch("/", recursive=True) as events:
        await other.create("/a")

        assert await next_events(events, 1) == [(CREATED, "/a")]


async def test_events_carry_the_zxid_of_their_change_where_the_server_says_it(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    async with zk.watch("/a") as events:
        stat = (await zk.create_and_stat("/a"))[1]

        assert (await events.next()).zxid == stat.czxid


# --- order ---


async def test_an_event_is_there_before_the_reply_of_the_write_that_caused_it(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch("/a") as events:
        for _ in range(20):
            await zk.set("/a", b"")

            assert delivered(at_once(events.next())) == (CHANGED, "/a")


async def test_an_event_is_there_before_the_reply_that_shows_the_change(
    hosts: str, zk: Client, connect: Connect
) -> None:
    other = await connect(hosts)
    await zk.create("/a", b"0")
    async with zk.watch("/a") as events:
        for number in range(20):
            writing = other.set("/a", b"%d" % (number + 1))
            while (await zk.get("/a"))[0] == b"%d" % number:
                continue

            assert delivered(at_once(events.next())) == (CHANGED, "/a")
            await writing


async def test_what_a_data_watch_found_and_its_event_leave_no_gap(hosts: str, zk: Client, connect: Connect) -> None:
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
