"""Watches: what they tell, in which order, what the server knows of them before and after, and that no event is lost
with a connection or a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from zoolet.client import (
    Client,
    ClosedError,
    Event,
    EventType,
    NoNodeError,
    State,
    WatchOverflowError,
    serializers,
)
from zoolet.client.client import Watcher
from zoolet.client.serializers import UndecodableError
from zoolet.protocol.enums import WatcherType
from zoolet.server import Server
from zoolet.server.testing import drop_request, hold

Connect = Callable[..., Awaitable[Client]]
T = TypeVar("T")

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED
CHILDREN = EventType.NODE_CHILDREN_CHANGED
DEADLINE_S = 5.0  # only ever reached on failure


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns without waiting for anything."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        found: T = stop.value
        return found
    coroutine.close()
    raise AssertionError("it would have to wait")


def waits(events: Watcher) -> bool:
    """Return whether there is no event to take."""
    return not events._watch.events


async def take(events: Watcher, count: int) -> list[tuple[EventType, str]]:
    """Wait for so many events."""
    async with asyncio.timeout(DEADLINE_S):
        return [told(await events.next()) for _ in range(count)]


async def rest(zk: Client, events: Watcher) -> list[tuple[EventType, str]]:
    """Take all events that the server had to tell by now."""
    await zk.sync("/")
    if events._watch.census is not None:
        async with asyncio.timeout(DEADLINE_S):
            while events._watch.census._left:
                await zk.sync("/")
    found = []
    while not waits(events):
        found.append(told(at_once(events.next())))
    return found


def told(event: Event) -> tuple[EventType, str]:
    return event.type, event.path


async def away(zk: Client, server: Server, meanwhile: Callable[[], Any], *, expire: bool = False) -> None:
    """Let something happen while a client is disconnected, or is between two sessions, and wait until it is back."""
    server.refuse_connections()
    states = zk.states()
    (server.expire if expire else server.drop)(zk)
    async with asyncio.timeout(DEADLINE_S):
        while await anext(states) is not State.SUSPENDED:
            pass
    meanwhile()
    server.accept_connections()
    async with asyncio.timeout(DEADLINE_S):
        await zk.wait_for(State.CONNECTED)
        await zk.sync("/")


def do(server: Server, op: str, path: str) -> None:
    """Change the tree behind the client's back."""
    from zoolet.protocol import records as r
    from zoolet.protocol.acl import OPEN_ACL_UNSAFE
    from zoolet.protocol.operations import OpCode

    from support.peer import Peer  # isort: skip

    peer = Peer(server._engine)
    peer.connect()
    if op == "create":
        peer.call(OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0))
    elif op == "set":
        peer.call(OpCode.SET_DATA, r.SetDataRequest(path, b"new", -1))
    else:
        peer.call(OpCode.DELETE, r.DeleteRequest(path, -1))
    peer.send(OpCode.CLOSE_SESSION)


# --- what they tell ---


async def test_a_watch_tells_of_all_that_happens_to_its_node(zk: Client) -> None:
    async with zk.watch("/a") as events:
        await zk.create("/a")
        await zk.set("/a", b"1")
        await zk.create("/a/x")
        await zk.delete("/a/x")
        await zk.delete("/a")
        await zk.create("/a")

        assert await take(events, 6) == [
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

        assert await take(events, 3) == [(CREATED, "/a"), (CREATED, "/a/b"), (CHANGED, "/")]


async def test_a_data_watch_gives_what_it_read_and_tells_once(zk: Client) -> None:
    await zk.create("/a", b"1")
    async with zk.watch_data("/a") as watch:
        value, stat = watch.initial
        await zk.set("/a", b"2", version=stat.version)
        await zk.set("/a", b"3")

        events = [told(event) async for event in watch]

    assert value == b"1"
    assert events == [(CHANGED, "/a")]


async def test_a_data_watch_tells_of_a_deletion(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch_data("/a") as watch:
        await zk.delete("/a")

        assert told(await watch.next()) == (DELETED, "/a")


async def test_an_exists_watch_waits_for_a_node_to_come(zk: Client) -> None:
    async with zk.watch_exists("/a") as watch:
        assert watch.initial is None
        await zk.create("/a")

        assert told(await watch.next()) == (CREATED, "/a")


async def test_an_exists_watch_of_a_node_that_is_there_waits_for_a_change(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch_exists("/a") as watch:
        assert watch.initial == await zk.exists("/a")
        await zk.set("/a", b"1")

        assert told(await watch.next()) == (CHANGED, "/a")


async def test_a_children_watch_tells_that_one_came_or_went(zk: Client) -> None:
    await zk.create("/a/x", parents=True)
    async with zk.watch_children("/a") as watch:
        assert watch.initial == ["x"]
        await zk.set("/a", b"1")
        await zk.delete("/a/x")

        assert told(await watch.next()) == (CHILDREN, "/a")


async def test_a_children_watch_tells_that_its_node_went(zk: Client) -> None:
    await zk.create("/a")
    async with zk.watch_children("/a") as watch:
        await zk.delete("/a")

        assert told(await watch.next()) == (DELETED, "/a")


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


async def test_others_changes_are_told_too(hosts: str, zk: Client, connect: Connect) -> None:
    other = await connect(hosts)
    async with zk.watch("/", recursive=True) as events:
        await other.create("/a")

        assert await take(events, 1) == [(CREATED, "/a")]


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

            assert told(at_once(events.next())) == (CHANGED, "/a")


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

            assert told(at_once(events.next())) == (CHANGED, "/a")
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


# --- what the server knows ---


@pytest.mark.parametrize("how", ["persistent", "recursive", "data", "exists", "missing", "children"])
async def test_the_server_has_the_watch_inside_the_block_and_forgets_it_at_the_end(zk: Client, how: str) -> None:
    await zk.create("/a")
    path = "/gone" if how == "missing" else "/a"
    make: dict[str, Callable[[], Watcher]] = {
        "persistent": lambda: zk.watch(path),
        "recursive": lambda: zk.watch(path, recursive=True),
        "data": lambda: zk.watch_data(path),
        "exists": lambda: zk.watch_exists(path),
        "missing": lambda: zk.watch_exists(path),
        "children": lambda: zk.watch_children(path),
    }

    async with make[how]():
        assert await zk.check_watches(path)

    assert not await zk.check_watches(path)
    assert not list(zk._session.watches)


async def test_a_block_that_raises_forgets_its_watch(zk: Client) -> None:
    with pytest.raises(KeyError):
        async with zk.watch("/a"):
            raise KeyError

    assert not await zk.check_watches("/a")


async def test_a_watch_that_was_never_left_goes_with_its_session(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.watch("/a").__aenter__()
    assert server.watches()

    await zk.aclose()

    assert not server.watches()


async def test_a_second_watch_of_one_path_keeps_the_server_s_watch_until_it_ends_too(zk: Client) -> None:
    async with zk.watch("/a") as longer:
        async with zk.watch("/a") as shorter:
            await zk.create("/a")
            assert await take(shorter, 1) == [(CREATED, "/a")]
        assert await zk.check_watches("/a")
        await zk.set("/a", b"")

        assert await take(longer, 2) == [(CREATED, "/a"), (CHANGED, "/a")]
    assert not await zk.check_watches("/a")


async def test_watches_of_different_kinds_on_one_path_each_tell(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with (
        zk.watch("/a") as staying,
        zk.watch("/a", recursive=True) as deep,
        zk.watch_data("/a") as data,
        zk.watch_children("/a") as children,
    ):
        await zk.set("/a", b"1")
        await zk.create("/a/x")

        assert await rest(zk, staying) == [(CHANGED, "/a"), (CHILDREN, "/a")]
        assert await rest(zk, deep) == [(CHANGED, "/a"), (CREATED, "/a/x")]
        assert told(at_once(data.next())) == (CHANGED, "/a")
        assert told(at_once(children.next())) == (CHILDREN, "/a")
    assert not server.watches()


async def test_watches_of_different_kinds_on_one_path_each_tell_on_apache_too(apache: str, connect: Connect) -> None:
    zk = await connect(apache)
    path = await zk.create("/kinds-", sequential=True)
    async with zk.watch(path) as staying, zk.watch_data(path):
        await zk.set(path, b"1")
        await zk.set(path, b"2")

        assert await rest(zk, staying) == [(CHANGED, path), (CHANGED, path)]


async def test_a_watch_that_ends_while_one_that_fires_once_lives_leaves_nothing_behind(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with zk.watch_data("/a") as once:
        async with zk.watch("/a"):
            pass
        await zk.set("/a", b"1")
        await once.next()

    assert not server.watches()


@pytest.mark.parametrize("make", [Client.watch_data, Client.watch_exists, Client.watch_children])
@pytest.mark.parametrize("recursive", [False, True])
async def test_a_watch_that_fires_once_outlives_one_that_was_there_before_it(
    hosts: str, zk: Client, make: Callable[[Client, str], Watcher], recursive: bool
) -> None:
    await zk.create("/a")
    staying = await zk.watch("/a", recursive=recursive).__aenter__()
    async with make(zk, "/a") as once:
        await staying.__aexit__(None, None, None)
        await zk.set("/a", b"1")
        await zk.create("/a/x")
        await zk.sync()

        assert not waits(once)
    assert not await zk.check_watches("/a")


async def test_a_watch_that_fires_once_is_set_though_one_that_was_there_before_it_ends_meanwhile(zk: Client) -> None:
    await zk.create("/a")
    staying = await zk.watch("/a").__aenter__()
    once = zk.watch_data("/a")
    await asyncio.gather(once.__aenter__(), staying.__aexit__(None, None, None))
    await zk.sync()
    await zk.set("/a", b"1")
    await zk.sync()

    assert not waits(once)
    assert not await zk.check_watches("/a")


async def test_a_watch_that_stays_is_set_though_one_that_was_there_before_it_ends_meanwhile(zk: Client) -> None:
    await zk.create("/a")
    before, after = await zk.watch("/a").__aenter__(), zk.watch("/a")
    await asyncio.gather(after.__aenter__(), before.__aexit__(None, None, None))
    await zk.sync()
    await zk.set("/a", b"1")
    await zk.sync()

    assert not waits(after)
    await after.__aexit__(None, None, None)
    assert not await zk.check_watches("/a")


@pytest.mark.parametrize("make", [Client.watch_data, Client.watch_exists, Client.watch_children])
async def test_a_watch_that_fires_once_is_set_though_its_like_ends_meanwhile(
    zk: Client, make: Callable[[Client, str], Watcher]
) -> None:
    await zk.create("/a")
    before, after = await make(zk, "/a").__aenter__(), make(zk, "/a")
    await asyncio.gather(after.__aenter__(), before.__aexit__(None, None, None))
    await zk.sync()
    await zk.delete("/a")
    await zk.sync()

    assert not waits(after)


async def test_a_watch_of_a_path_that_is_entered_as_another_is_left_hears_everything(zk: Client) -> None:
    await zk.create("/a")
    before, after = await zk.watch("/a").__aenter__(), zk.watch("/a")
    await asyncio.gather(before.__aexit__(None, None, None), after.__aenter__())
    await zk.sync()
    await zk.set("/a", b"1")
    await zk.sync()

    assert not waits(after)
    await after.__aexit__(None, None, None)


async def test_the_last_watch_of_a_path_takes_those_with_it_that_ended_before(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with zk.watch_data("/a"):
        async with zk.watch("/a", recursive=True):
            pass

    assert not server.watches()


async def test_a_data_watch_of_undecodable_data_leaves_nothing_at_the_server(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts, serializer=serializers.json)
    server.populate({"/a": b"{"})

    with pytest.raises(UndecodableError):
        await zk.watch_data("/a").__aenter__()
    await zk.sync()

    assert not server.watches()


async def test_a_registration_that_is_cancelled_leaves_nothing_at_the_server(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    for op, watch in (
        ("addWatch", zk.watch("/a")),
        ("addWatch", zk.watch("/a", recursive=True)),
        ("getData", zk.watch_data("/a")),
        ("exists", zk.watch_exists("/a")),
        ("exists", zk.watch_exists("/gone")),
        ("getChildren", zk.watch_children("/a")),
    ):
        held = hold()
        with server.fault(op, action=held) as fault:
            entering = asyncio.create_task(watch.__aenter__())
            await server.wait_for(lambda fault=fault: fault.hits)

            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
        await zk.sync()
        await zk.sync()  # the removal goes out when the reply has come

        assert not server.watches()
        assert not list(zk._session.watches)


async def test_leaving_a_block_while_disconnected_does_not_wait(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    watch = zk.watch("/a")
    await watch.__aenter__()
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)

    async with asyncio.timeout(DEADLINE_S):
        await watch.__aexit__(None, None, None)
        assert zk.state is State.SUSPENDED
        server.accept_connections()
        await zk.wait_for(State.CONNECTED)
        await zk.sync()

    assert not server.watches()


# --- ends, and overflow ---


async def test_more_events_than_may_wait_are_dropped_and_said_once(zk: Client) -> None:
    async with zk.watch("/a", limit=3) as events:
        await zk.create("/a")
        for _ in range(3):
            await zk.set("/a", b"")
        await zk.delete("/a")

        with pytest.raises(WatchOverflowError) as caught:
            await events.next()
        assert await take(events, 1) == [(DELETED, "/a")]
        await zk.create("/a")
        assert await take(events, 1) == [(CREATED, "/a")]
    assert caught.value.limit == 3


async def test_as_many_events_as_may_wait_are_all_kept(zk: Client) -> None:
    async with zk.watch("/a", limit=3) as events:
        await zk.create("/a")
        await zk.set("/a", b"")
        await zk.delete("/a")

        assert len(await rest(zk, events)) == 3


async def test_an_overflow_names_the_path_as_the_caller_named_it(zk: Client) -> None:
    async with zk.watch("/a", limit=1) as events:
        await zk.create("/a")
        await zk.delete("/a")

        with pytest.raises(WatchOverflowError) as caught:
            await events.next()
    assert caught.value.path == "/a"


async def test_closing_the_client_wakes_whoever_waits_for_an_event(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    async with zk.watch("/a") as events, zk.watch_exists("/b") as once:
        waiting = [asyncio.create_task(watch.next()) for watch in (events, once)]
        await asyncio.sleep(0)

        await zk.aclose()

        for task in waiting:
            with pytest.raises(ClosedError):
                async with asyncio.timeout(DEADLINE_S):
                    await task


async def test_events_that_wait_are_still_had_after_the_client_was_closed(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    async with zk.watch("/a") as events:
        await zk.create("/a")
        await zk.aclose()

        assert told(await events.next()) == (CREATED, "/a")
        with pytest.raises(ClosedError):
            await events.next()


async def test_an_iteration_that_is_cancelled_can_go_on(zk: Client) -> None:
    async with zk.watch("/a") as events:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await events.next()
        await zk.create("/a")

        assert await take(events, 1) == [(CREATED, "/a")]


async def test_after_its_block_a_watch_has_no_more_events(zk: Client) -> None:
    async with zk.watch("/a") as events:
        await zk.create("/a")

    assert [event async for event in events] == []


async def test_the_end_of_a_block_ends_an_iteration_in_another_task(zk: Client) -> None:
    async def collect(events: Watcher) -> list[Event]:
        return [event async for event in events]

    async with zk.watch("/a") as events:
        collecting = asyncio.create_task(collect(events))
        await zk.sync()

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([collecting])
    assert not collecting.cancelled()
    assert collecting.result() == []


async def test_two_tasks_may_wait_for_the_events_of_one_watch(zk: Client) -> None:
    async with zk.watch("/a") as events:
        first, second = asyncio.create_task(events.next()), asyncio.create_task(events.next())
        await zk.sync()
        await zk.create("/a")
        await zk.delete("/a")
        await zk.sync()
        _, left = await asyncio.wait([first, second], timeout=0.1)
        for task in left:
            task.cancel()

    assert not left


async def test_closing_the_client_ends_the_entering_of_a_recursive_watch(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    with server.fault("getChildren", action=drop_request()) as fault:
        server.refuse_connections()
        entering = asyncio.create_task(zk.watch("/", recursive=True).__aenter__())
        await server.wait_for(lambda: fault.hits)
        await zk.wait_for(State.SUSPENDED)

        await zk.aclose()
        await asyncio.wait([entering], timeout=0.2)
        ended = entering.done()
        entering.cancel()
        await asyncio.wait([entering])

    assert ended
    assert isinstance(entering.exception(), ClosedError)


async def test_entering_a_recursive_watch_waits_no_longer_than_its_patience(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts, operation_timeout=0.05)
    with server.fault("getChildren", action=drop_request()) as fault:
        server.refuse_connections()
        entering = asyncio.create_task(zk.watch("/", recursive=True).__aenter__())
        await server.wait_for(lambda: fault.hits)
        await asyncio.wait([entering], timeout=0.5)
        ended = entering.done()
        entering.cancel()
        await asyncio.wait([entering])

    assert ended


# --- no event is lost: while disconnected, and between two sessions ---

HOW = pytest.mark.parametrize("expire", [False, True], ids=["drop", "expire"])


@HOW
@pytest.mark.parametrize(
    ("before", "meanwhile", "tells"),
    [
        ([], [("create", "/a")], [(CREATED, "/a")]),
        (["/a"], [("set", "/a")], [(CHANGED, "/a")]),
        (["/a"], [("delete", "/a")], [(DELETED, "/a")]),
        (["/a"], [("create", "/a/x")], [(CHILDREN, "/a")]),
        (["/a", "/a/x"], [("delete", "/a/x")], [(CHILDREN, "/a")]),
        (["/a", "/a/x"], [("delete", "/a/x"), ("delete", "/a")], [(DELETED, "/a")]),
        (["/a"], [], []),
        ([], [], []),
        ([], [("create", "/b"), ("set", "/b")], []),
        (["/a", "/a/x"], [("set", "/a/x")], []),
    ],
    ids=["created", "changed", "deleted", "child", "no child", "both gone", "none", "none there", "other", "below"],
)
async def test_a_watch_tells_what_happened_meanwhile(
    server: Server,
    connect: Connect,
    expire: bool,
    before: list[str],
    meanwhile: list[tuple[str, str]],
    tells: list[tuple[EventType, str]],
) -> None:
    zk = await connect(server.hosts)
    server.populate(dict.fromkeys(before, b""))
    async with zk.watch("/a") as events:
        await away(zk, server, lambda: [do(server, *one) for one in meanwhile], expire=expire)

        assert await rest(zk, events) == tells


@HOW
@pytest.mark.parametrize(
    ("before", "meanwhile", "tells"),
    [
        (["/a"], [("create", "/a/x")], [(CREATED, "/a/x")]),
        (["/a"], [("create", "/a/x"), ("create", "/a/x/y")], [(CREATED, "/a/x"), (CREATED, "/a/x/y")]),
        (["/a/x/y"], [("set", "/a/x/y")], [(CHANGED, "/a/x/y")]),
        (["/a"], [("set", "/a")], [(CHANGED, "/a")]),
        (["/a/x/y"], [("delete", "/a/x/y")], [(DELETED, "/a/x/y")]),
        (["/a/x/y"], [("delete", "/a/x/y"), ("delete", "/a/x")], [(DELETED, "/a/x/y"), (DELETED, "/a/x")]),
        (["/a"], [("delete", "/a")], [(DELETED, "/a")]),
        ([], [("create", "/a"), ("create", "/a/x")], [(CREATED, "/a"), (CREATED, "/a/x")]),
        (["/a/x"], [("delete", "/a/x"), ("create", "/a/x")], [(DELETED, "/a/x"), (CREATED, "/a/x")]),
        (["/a"], [("create", "/a/x"), ("delete", "/a/x")], []),
        (["/a/x"], [], []),
        (["/a", "/b"], [("set", "/b"), ("create", "/ab")], []),
    ],
    ids=[
        "child",
        "subtree",
        "changed",
        "top changed",
        "deleted",
        "subtree deleted",
        "top deleted",
        "top created",
        "another in its place",
        "came and went",
        "none",
        "others",
    ],
)
async def test_a_recursive_watch_tells_what_happened_below_meanwhile(
    server: Server,
    connect: Connect,
    expire: bool,
    before: list[str],
    meanwhile: list[tuple[str, str]],
    tells: list[tuple[EventType, str]],
) -> None:
    zk = await connect(server.hosts)
    server.populate(dict.fromkeys(before, b""))
    async with zk.watch("/a", recursive=True) as events:
        await away(zk, server, lambda: [do(server, *one) for one in meanwhile], expire=expire)

        assert await rest(zk, events) == tells


@HOW
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
async def test_a_watch_that_fires_once_tells_what_happened_meanwhile(
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
        await away(zk, server, lambda: [do(server, *one) for one in meanwhile], expire=expire)

        assert told(at_once(watch.next())) == tells


@HOW
async def test_watches_go_on_after_an_absence_in_which_nothing_happened(
    server: Server, connect: Connect, expire: bool
) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with (
        zk.watch("/a") as staying,
        zk.watch("/", recursive=True) as deep,
        zk.watch_data("/a") as data,
        zk.watch_children("/a") as children,
        zk.watch_exists("/b") as missing,
    ):
        await away(zk, server, lambda: None, expire=expire)
        await zk.set("/a", b"1")
        await zk.create("/a/x")
        await zk.create("/b")

        assert await rest(zk, staying) == [(CHANGED, "/a"), (CHILDREN, "/a")]
        assert await rest(zk, deep) == [(CHANGED, "/a"), (CREATED, "/a/x"), (CREATED, "/b")]
        assert told(at_once(data.next())) == (CHANGED, "/a")
        assert told(at_once(children.next())) == (CHILDREN, "/a")
        assert told(at_once(missing.next())) == (CREATED, "/b")
    assert not server.watches()


@HOW
async def test_a_watch_tells_of_a_deletion_once_even_after_an_absence(
    server: Server, connect: Connect, expire: bool
) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with zk.watch("/a") as events:
        await away(zk, server, lambda: None, expire=expire)
        await zk.delete("/a")
        await zk.create("/a")
        await zk.delete("/a")

        assert await rest(zk, events) == [(DELETED, "/a"), (CREATED, "/a"), (DELETED, "/a")]
    assert not server.watches()


async def test_events_of_an_absence_do_not_show_the_chroot(server: Server, connect: Connect) -> None:
    server.populate({"/app/a": b"", "/apple": b""})
    zk = await connect(server.hosts + "/app")
    async with zk.watch("/a") as events, zk.watch("/", recursive=True) as deep:
        await away(zk, server, lambda: [do(server, "set", "/app/a"), do(server, "create", "/app/b")])

        assert await rest(zk, events) == [(CHANGED, "/a")]
        assert await rest(zk, deep) == [(CHANGED, "/a"), (CREATED, "/b")]


async def test_absences_one_after_the_other_lose_nothing(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with zk.watch("/a") as events, zk.watch("/", recursive=True) as deep:
        for number in range(5):
            await away(zk, server, lambda: do(server, "set", "/a"), expire=number == 2)
            assert await rest(zk, events) == [(CHANGED, "/a")]
            assert await rest(zk, deep) == [(CHANGED, "/a")]


async def test_an_absence_during_the_count_of_a_recursive_watch_loses_nothing(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.populate({"/a/x": b"", "/a/y": b""})
    async with zk.watch("/a", recursive=True) as deep:

        def both() -> None:
            do(server, "set", "/a/x")
            do(server, "create", "/a/y/z")

        with server.fault("getChildren", "/a/y", times=1, action=drop_request()) as fault:
            await away(zk, server, both)
            async with asyncio.timeout(DEADLINE_S):
                await server.wait_for(lambda: fault.hits)
                await zk.wait_for(State.CONNECTED)
                await zk.sync()
        found = await rest(zk, deep)

    assert set(found) == {(CHANGED, "/a/x"), (CREATED, "/a/y/z")}


async def test_hundreds_of_watches_are_all_had_again(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    paths = [f"/{'long' * 100}-{number:04d}" for number in range(700)]  # more than two batches hold
    server.populate(dict.fromkeys(paths, b""))
    watches = [zk.watch_data(path) for path in paths]
    await asyncio.gather(*[watch.__aenter__() for watch in watches])

    with server.fault("setWatches", action=hold()) as fault:
        fault.release()
        await away(zk, server, lambda: [do(server, "set", path) for path in (paths[0], paths[350], paths[699])])

    fired = [watch for watch in watches if not waits(watch)]
    assert fired == [watches[0], watches[350], watches[699]]
    assert len(server.watches()) == 697


async def test_apache_s_server_too_tells_what_happened_during_an_absence(apache: str, connect: Connect) -> None:
    zk, other = await connect(apache), await connect(apache)
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
        assert zk._connection is not None
        assert zk._connection._link is not None
        with_link = zk._connection._link
        writes = [
            other.set(f"{top}/data", b"1"),
            other.delete(f"{top}/gone"),
            other.create(f"{top}/new"),
            other.delete(f"{top}/parent/x"),
        ]
        with_link.cut("the test cut it")  # in the same turn in which the writes go out
        await asyncio.gather(*writes)
        async with asyncio.timeout(DEADLINE_S):
            while await anext(states) is not State.SUSPENDED:
                pass
            await zk.wait_for(State.CONNECTED)

        assert await rest(zk, data) == [(CHANGED, f"{top}/data")]
        assert await rest(zk, gone) == [(DELETED, f"{top}/gone")]
        assert await rest(zk, new) == [(CREATED, f"{top}/new")]
        assert await rest(zk, parent) == [(CHILDREN, f"{top}/parent")]
        assert set(await rest(zk, deep)) == {
            (CHANGED, f"{top}/data"),
            (DELETED, f"{top}/gone"),
            (CREATED, f"{top}/new"),
            (DELETED, f"{top}/parent/x"),
        }
        assert told(at_once(once.next())) == (CHILDREN, top)
    for path in (top, f"{top}/data", f"{top}/new", f"{top}/parent"):
        assert not await zk.check_watches(path, WatcherType.ANY)


@pytest.mark.slow
async def test_a_tree_of_1600_levels_that_vanishes_is_told_of_whole_and_children_first(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)
    levels = ["/a" * depth for depth in range(1, 1_602)]
    server.populate(dict.fromkeys(levels, b""))

    async with zk.watch("/a", recursive=True) as events:
        await rest(zk, events)
        await away(zk, server, lambda: [do(server, "delete", path) for path in reversed(levels)])

        assert await rest(zk, events) == [(DELETED, path) for path in reversed(levels)]


@pytest.mark.slow
async def test_a_deep_tree_that_vanishes_beside_others_is_all_that_is_told_of(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    levels = ["/top" + "/a" * depth for depth in range(1, 1_602)]
    server.populate(dict.fromkeys(["/top/stays", *levels], b""))

    async with zk.watch("/top", recursive=True) as events:
        await rest(zk, events)
        await away(zk, server, lambda: [do(server, "delete", path) for path in reversed(levels)])

        assert await rest(zk, events) == [(DELETED, path) for path in reversed(levels)]
