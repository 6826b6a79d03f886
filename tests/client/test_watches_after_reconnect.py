"""Watches report changes made while a client was disconnected or between two sessions; no event is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from support.relay import Relay
from support.simulation import Connect, simulate_clients
from support.waiting import DEADLINE_S
from support.watch_events import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    call_while_away,
    change_tree,
    drain_events,
    is_idle,
    result_of,
    type_and_path,
)

from zoolet.client import Client, EventType, State
from zoolet.client.aio.watcher import Watcher
from zoolet.protocol.enums import WatcherType
from zoolet.testing import Server, Simulation, drop_request, hold, withhold_event

drop_or_expire = pytest.mark.parametrize("expire", [False, True], ids=["drop", "expire"])


ABSENCES = {
    "created": (False, [], [("create", "/a")], [(CREATED, "/a")]),
    "changed": (False, ["/a"], [("set", "/a")], [(CHANGED, "/a")]),
    "deleted": (False, ["/a"], [("delete", "/a")], [(DELETED, "/a")]),
    "child": (False, ["/a"], [("create", "/a/x")], [(CHILDREN, "/a")]),
    "no child": (False, ["/a", "/a/x"], [("delete", "/a/x")], [(CHILDREN, "/a")]),
    "both gone": (False, ["/a", "/a/x"], [("delete", "/a/x"), ("delete", "/a")], [(DELETED, "/a")]),
    "none": (False, ["/a"], [], []),
    "none there": (False, [], [], []),
    "other": (False, [], [("create", "/b"), ("set", "/b")], []),
    "below": (False, ["/a", "/a/x"], [("set", "/a/x")], []),
    "recursive child": (True, ["/a"], [("create", "/a/x")], [(CREATED, "/a/x")]),
    "subtree": (True, ["/a"], [("create", "/a/x"), ("create", "/a/x/y")], [(CREATED, "/a/x"), (CREATED, "/a/x/y")]),
    "recursive changed": (True, ["/a/x/y"], [("set", "/a/x/y")], [(CHANGED, "/a/x/y")]),
    "top changed": (True, ["/a"], [("set", "/a")], [(CHANGED, "/a")]),
    "recursive deleted": (True, ["/a/x/y"], [("delete", "/a/x/y")], [(DELETED, "/a/x/y")]),
    "subtree deleted": (
        True, ["/a/x/y"], [("delete", "/a/x/y"), ("delete", "/a/x")], [(DELETED, "/a/x/y"), (DELETED, "/a/x")],
    ),
    "top deleted": (True, ["/a"], [("delete", "/a")], [(DELETED, "/a")]),
    "top created": (True, [], [("create", "/a"), ("create", "/a/x")], [(CREATED, "/a"), (CREATED, "/a/x")]),
    "another in its place": (
        True, ["/a/x"], [("delete", "/a/x"), ("create", "/a/x")], [(DELETED, "/a/x"), (CREATED, "/a/x")],
    ),
    "came and went": (True, ["/a"], [("create", "/a/x"), ("delete", "/a/x")], []),
    "recursive none": (True, ["/a/x"], [], []),
    "others": (True, ["/a", "/b"], [("set", "/b"), ("create", "/ab")], []),
}  # fmt: skip
"""Whether the watch is recursive, the nodes before, the changes while the client is away, and the events."""


@drop_or_expire
@pytest.mark.parametrize("absence", ABSENCES)
async def test_watch_reports_changes_made_while_client_was_away(
    server: Server, connect: Connect, expire: bool, absence: str
) -> None:
    recursive, before, meanwhile, tells = ABSENCES[absence]
    zk = await connect(server.hosts)
    server.populate(dict.fromkeys(before, b""))
    async with zk.watch("/a", recursive=recursive) as events:
        await call_while_away(zk, server, lambda: [change_tree(server, *one) for one in meanwhile], expire=expire)

        assert await drain_events(zk, events) == tells


@drop_or_expire
@pytest.mark.parametrize(
    ("make", "before", "meanwhile", "tells"),
    [
        (Client.watch_data, ["/a"], [("set", "/a")], (CHANGED, "/a")),
        (Client.watch_data, ["/a"], [("delete", "/a")], (DELETED, "/a")),
        (Client.watch_exists, [], [("create", "/a")], (CREATED, "/a")),
        (Client.watch_exists, ["/a"], [("set", "/a")], (CHANGED, "/a")),
        (Client.watch_exists, ["/a"], [("delete", "/a")], (DELETED, "/a")),
        (Client.watch_children, ["/a"], [("create", "/a/x")], (CHILDREN, "/a")),
        (Client.watch_children, ["/a"], [("delete", "/a")], (DELETED, "/a")),
    ],
    ids=["data", "data gone", "comes", "exists changed", "exists gone", "children", "children gone"],
)
async def test_one_shot_watch_fires_for_change_while_client_was_away(
    server: Server,
    connect: Connect,
    expire: bool,
    make: Callable[[Client, str], Watcher],
    before: list[str],
    meanwhile: list[tuple[str, str]],
    tells: tuple[EventType, str],
) -> None:
    zk = await connect(server.hosts)
    server.populate(dict.fromkeys(before, b""))
    async with make(zk, "/a") as watch:
        await call_while_away(zk, server, lambda: [change_tree(server, *one) for one in meanwhile], expire=expire)

        assert type_and_path(result_of(watch.next())) == tells


@drop_or_expire
async def test_watches_continue_after_reconnect_without_changes(server: Server, connect: Connect, expire: bool) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with (
        zk.watch("/a") as staying,
        zk.watch("/", recursive=True) as deep,
        zk.watch_data("/a") as data,
        zk.watch_children("/a") as children,
        zk.watch_exists("/b") as missing,
    ):
        await call_while_away(zk, server, lambda: None, expire=expire)
        await zk.set("/a", b"1")
        await zk.create("/a/x")
        await zk.create("/b")

        assert await drain_events(zk, staying) == [(CHANGED, "/a"), (CHILDREN, "/a")]
        assert await drain_events(zk, deep) == [(CHANGED, "/a"), (CREATED, "/a/x"), (CREATED, "/b")]
        assert type_and_path(result_of(data.next())) == (CHANGED, "/a")
        assert type_and_path(result_of(children.next())) == (CHILDREN, "/a")
        assert type_and_path(result_of(missing.next())) == (CREATED, "/b")
    assert not server.watches()


@drop_or_expire
async def test_deletion_after_reconnect_is_reported_once(server: Server, connect: Connect, expire: bool) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with zk.watch("/a") as events:
        await call_while_away(zk, server, lambda: None, expire=expire)
        await zk.delete("/a")
        await zk.create("/a")
        await zk.delete("/a")

        assert await drain_events(zk, events) == [(DELETED, "/a"), (CREATED, "/a"), (DELETED, "/a")]
    assert not server.watches()


async def test_events_delivered_on_reconnect_do_not_show_chroot(server: Server, connect: Connect) -> None:
    server.populate({"/app/a": b"", "/apple": b""})
    zk = await connect(server.hosts + "/app")
    async with zk.watch("/a") as events, zk.watch("/", recursive=True) as deep:
        await call_while_away(
            zk, server, lambda: [change_tree(server, "set", "/app/a"), change_tree(server, "create", "/app/b")]
        )

        assert await drain_events(zk, events) == [(CHANGED, "/a")]
        assert await drain_events(zk, deep) == [(CHANGED, "/a"), (CREATED, "/b")]


async def test_consecutive_reconnects_lose_no_event(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with zk.watch("/a") as events, zk.watch("/", recursive=True) as deep:
        for number in range(5):
            await call_while_away(zk, server, lambda: change_tree(server, "set", "/a"), expire=number == 2)
            assert await drain_events(zk, events) == [(CHANGED, "/a")]
            assert await drain_events(zk, deep) == [(CHANGED, "/a")]


async def test_reconnect_during_resync_of_subtree_loses_no_change(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.populate({"/a/x": b"", "/a/y": b""})
    async with zk.watch("/a", recursive=True) as deep:

        def both() -> None:
            change_tree(server, "set", "/a/x")
            change_tree(server, "create", "/a/y/z")

        with server.fault(drop_request(), "getChildren", "/a/y", times=1) as fault:
            await call_while_away(zk, server, both)
            async with asyncio.timeout(DEADLINE_S):
                await server.until(lambda: fault.hits)
                await zk.wait_for(State.CONNECTED)
                await zk.sync()
        found = await drain_events(zk, deep)

    assert set(found) == {(CHANGED, "/a/x"), (CREATED, "/a/y/z")}


async def test_hundreds_of_watches_are_restored_after_reconnect(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    paths = [f"/{'long' * 100}-{number:04d}" for number in range(700)]  # more than fit into two batches
    server.populate(dict.fromkeys(paths, b""))
    watches = [zk.watch_data(path) for path in paths]
    await asyncio.gather(*[watch.__aenter__() for watch in watches])

    with server.fault(hold(), "setWatches") as fault:
        fault.release()
        await call_while_away(
            zk, server, lambda: [change_tree(server, "set", path) for path in (paths[0], paths[350], paths[699])]
        )

    fired = [watch for watch in watches if not is_idle(watch)]
    assert fired == [watches[0], watches[350], watches[699]]
    assert len(server.watches()) == 697


@pytest.fixture
async def apache_relay(apache: str) -> AsyncIterator[Relay]:
    """A relay in front of Apache's server."""
    async with Relay(apache) as standing:
        yield standing


async def test_apache_reports_changes_made_while_client_was_away(
    apache: str, apache_relay: Relay, connect: Connect
) -> None:
    zk, other = await connect(apache_relay.hosts), await connect(apache)
    top = await zk.create("/away-", sequential=True)
    for name in ("data", "gone", "parent", "parent/x"):
        await zk.create(f"{top}/{name}")
    async with (
        zk.watch(f"{top}/data") as data,
        zk.watch(f"{top}/gone") as gone,
        zk.watch(f"{top}/new") as new,
        zk.watch(f"{top}/parent") as parent,
        zk.watch(top, recursive=True) as deep,
        zk.watch_children(top) as once,
    ):
        states = zk.states()
        writes = [
            other.set(f"{top}/data", b"1"),
            other.delete(f"{top}/gone"),
            other.create(f"{top}/new"),
            other.delete(f"{top}/parent/x"),
        ]
        apache_relay.drop()  # in the iteration of the event loop that sends the writes
        await asyncio.gather(*writes)
        async with asyncio.timeout(DEADLINE_S):
            while await anext(states) is not State.SUSPENDED:
                pass
            await zk.wait_for(State.CONNECTED)

        assert await drain_events(zk, data) == [(CHANGED, f"{top}/data")]
        assert await drain_events(zk, gone) == [(DELETED, f"{top}/gone")]
        assert await drain_events(zk, new) == [(CREATED, f"{top}/new")]
        assert await drain_events(zk, parent) == [(CHILDREN, f"{top}/parent")]
        assert set(await drain_events(zk, deep)) == {
            (CHANGED, f"{top}/data"),
            (DELETED, f"{top}/gone"),
            (CREATED, f"{top}/new"),
            (DELETED, f"{top}/parent/x"),
        }
        assert type_and_path(result_of(once.next())) == (CHILDREN, top)
    for path in (top, f"{top}/data", f"{top}/new", f"{top}/parent"):
        assert not await zk.check_watches(path, WatcherType.ANY)


@pytest.mark.slow
async def test_deletion_of_deep_tree_is_reported_children_first(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    levels = ["/a" * depth for depth in range(1, 1_602)]
    server.populate(dict.fromkeys(levels, b""))

    async with zk.watch("/a", recursive=True) as events:
        await drain_events(zk, events)
        await call_while_away(zk, server, lambda: [change_tree(server, "delete", path) for path in reversed(levels)])

        assert await drain_events(zk, events) == [(DELETED, path) for path in reversed(levels)]


@pytest.mark.slow
async def test_deletion_of_deep_branch_does_not_report_its_siblings(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    levels = ["/top" + "/a" * depth for depth in range(1, 1_602)]
    server.populate(dict.fromkeys(["/top/stays", *levels], b""))

    async with zk.watch("/top", recursive=True) as events:
        await drain_events(zk, events)
        await call_while_away(zk, server, lambda: [change_tree(server, "delete", path) for path in reversed(levels)])

        assert await drain_events(zk, events) == [(DELETED, path) for path in reversed(levels)]


def test_event_of_transaction_is_not_lost_if_only_one_arrived() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        await other.create("/x")
        await other.create("/y")
        async with zk.watch_data("/x") as x, zk.watch_data("/y") as y:
            with server.fault(withhold_event(), path="/y", client=zk, strict=True):
                async with other.transaction() as t:
                    t.set("/x", b"1")
                    t.set("/y", b"1")
                assert (await x.next()).path == "/x"
                server.drop(zk)
            async with asyncio.timeout(5):
                assert (await y.next()).type is EventType.NODE_DATA_CHANGED

    simulate_clients(main)
