"""A client's watches on the server: which are registered, when they are removed, and how they share a path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.simulation import Connect
from support.waiting import DEADLINE_S
from support.watch_events import (
    CHANGED,
    CHILDREN,
    CREATED,
    drain_events,
    is_idle,
    next_events,
    result_of,
    type_and_path,
)

from zoolet.client import Client, State, serializers
from zoolet.client.aio.watcher import Watcher
from zoolet.client.serializers import UndecodableError
from zoolet.protocol.enums import WatcherType
from zoolet.protocol.errors import NoWatcherError
from zoolet.testing import Server, hold

# --- checks and removals by hand ---


async def test_check_watches_reports_server_watch(zk: Client) -> None:
    async with zk.watch_children("/"):
        assert await zk.check_watches("/", WatcherType.CHILDREN)
    assert not await zk.check_watches("/", WatcherType.CHILDREN)
    assert not await zk.check_watches("/nowhere")


async def test_missing_watch_cannot_be_removed(zk: Client) -> None:
    with pytest.raises(NoWatcherError) as caught:
        await zk.remove_watches("/a")

    assert caught.value.path == "/a"


async def test_watch_is_removed_at_server(zk: Client) -> None:
    async with zk.watch_children("/"):
        await zk.remove_watches("/", WatcherType.CHILDREN)

        assert not await zk.check_watches("/", WatcherType.CHILDREN)


# --- watches on the server ---


@pytest.mark.parametrize("how", ["persistent", "recursive", "data", "exists", "missing", "children"])
async def test_server_has_watch_only_inside_block(zk: Client, how: str) -> None:
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
    assert not zk.statistics().registrations


async def test_failing_watch_block_removes_its_watch(zk: Client) -> None:
    with pytest.raises(KeyError):
        async with zk.watch("/a"):
            raise KeyError

    assert not await zk.check_watches("/a")


async def test_unclosed_watch_is_removed_with_session(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.watch("/a").__aenter__()
    assert server.watches()

    await zk.aclose()

    assert not server.watches()


async def test_server_watch_stays_until_last_watch_ends(zk: Client) -> None:
    async with zk.watch("/a") as longer:
        async with zk.watch("/a") as shorter:
            await zk.create("/a")
            assert await next_events(shorter, 1) == [(CREATED, "/a")]
        assert await zk.check_watches("/a")
        await zk.set("/a", b"")

        assert await next_events(longer, 2) == [(CREATED, "/a"), (CHANGED, "/a")]
    assert not await zk.check_watches("/a")


async def test_watches_of_different_kinds_on_path_all_fire(server: Server, connect: Connect) -> None:
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

        assert await drain_events(zk, staying) == [(CHANGED, "/a"), (CHILDREN, "/a")]
        assert await drain_events(zk, deep) == [(CHANGED, "/a"), (CREATED, "/a/x")]
        assert type_and_path(result_of(data.next())) == (CHANGED, "/a")
        assert type_and_path(result_of(children.next())) == (CHILDREN, "/a")
    assert not server.watches()


async def test_apache_keeps_watches_of_different_kinds(apache: str, connect: Connect) -> None:
    zk = await connect(apache)
    path = await zk.create("/kinds-", sequential=True)
    async with zk.watch(path) as staying, zk.watch_data(path):
        await zk.set(path, b"1")
        await zk.set(path, b"2")

        assert await drain_events(zk, staying) == [(CHANGED, path), (CHANGED, path)]


async def test_fired_one_shot_watch_outliving_other_watch_is_removed(server: Server, connect: Connect) -> None:
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
async def test_one_shot_watch_outlives_earlier_persistent_watch(
    hosts: str, zk: Client, make: Callable[[Client, str], Watcher], recursive: bool
) -> None:
    await zk.create("/a")
    staying = await zk.watch("/a", recursive=recursive).__aenter__()
    async with make(zk, "/a") as once:
        await staying.__aexit__(None, None, None)
        await zk.set("/a", b"1")
        await zk.create("/a/x")
        await zk.sync()

        assert not is_idle(once)
    assert not await zk.check_watches("/a")


async def test_one_shot_watch_set_while_persistent_watch_ends_fires(zk: Client) -> None:
    await zk.create("/a")
    staying = await zk.watch("/a").__aenter__()
    once = zk.watch_data("/a")
    await asyncio.gather(once.__aenter__(), staying.__aexit__(None, None, None))
    await zk.sync()
    await zk.set("/a", b"1")
    await zk.sync()

    assert not is_idle(once)
    assert not await zk.check_watches("/a")


async def test_persistent_watch_set_before_earlier_watch_ends_fires(zk: Client) -> None:
    await zk.create("/a")
    before, after = await zk.watch("/a").__aenter__(), zk.watch("/a")
    await asyncio.gather(after.__aenter__(), before.__aexit__(None, None, None))
    await zk.sync()
    await zk.set("/a", b"1")
    await zk.sync()

    assert not is_idle(after)
    await after.__aexit__(None, None, None)
    assert not await zk.check_watches("/a")


@pytest.mark.parametrize("make", [Client.watch_data, Client.watch_exists, Client.watch_children])
async def test_one_shot_watch_set_while_watch_of_same_kind_ends_fires(
    zk: Client, make: Callable[[Client, str], Watcher]
) -> None:
    await zk.create("/a")
    before, after = await make(zk, "/a").__aenter__(), make(zk, "/a")
    await asyncio.gather(after.__aenter__(), before.__aexit__(None, None, None))
    await zk.sync()
    await zk.delete("/a")
    await zk.sync()

    assert not is_idle(after)


async def test_persistent_watch_set_after_earlier_watch_ends_fires(zk: Client) -> None:
    await zk.create("/a")
    before, after = await zk.watch("/a").__aenter__(), zk.watch("/a")
    await asyncio.gather(before.__aexit__(None, None, None), after.__aenter__())
    await zk.sync()
    await zk.set("/a", b"1")
    await zk.sync()

    assert not is_idle(after)
    await after.__aexit__(None, None, None)


async def test_last_watch_of_path_removes_ended_watches(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    async with zk.watch_data("/a"):
        async with zk.watch("/a", recursive=True):
            pass

    assert not server.watches()


async def test_data_watch_of_undecodable_data_is_removed(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts, serializer=serializers.json)
    server.populate({"/a": b"{"})

    with pytest.raises(UndecodableError):
        await zk.watch_data("/a").__aenter__()
    await zk.sync()

    assert not server.watches()


async def test_cancelled_registration_leaves_no_server_watch(server: Server, connect: Connect) -> None:
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
        with server.fault(held, op) as fault:
            entering = asyncio.create_task(watch.__aenter__())
            await server.until(lambda fault=fault: fault.hits)

            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
        await zk.sync()
        await zk.sync()  # the removal is sent once the reply has arrived

        assert not server.watches()
        assert not zk.statistics().registrations


async def test_watch_block_of_offline_client_exits_without_waiting(server: Server, connect: Connect) -> None:
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
