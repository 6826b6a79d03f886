"""Watchers: the end of their iteration, too many pending events, and limits on concurrent waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.simulation import Connect, with_client
from support.waiting import DEADLINE_S
from support.watch_events import CREATED, DELETED, drain_events, next_events, type_and_path

from zoolet.client import Client, ClosedError, Event, State, WatchOverflowError
from zoolet.client.aio.watcher import Watcher
from zoolet.protocol.errors import ErrorCode
from zoolet.testing import Server, drop_request, error


async def test_watch_overflow_drops_events_and_is_reported_once(zk: Client) -> None:
    async with zk.watch("/a", limit=3) as events:
        await zk.create("/a")
        for _ in range(3):
            await zk.set("/a", b"")
        await zk.delete("/a")

        with pytest.raises(WatchOverflowError) as caught:
            await events.next()
        assert await next_events(events, 1) == [(DELETED, "/a")]
        await zk.create("/a")
        assert await next_events(events, 1) == [(CREATED, "/a")]
    assert caught.value.limit == 3


async def test_watch_keeps_events_up_to_its_limit(zk: Client) -> None:
    async with zk.watch("/a", limit=3) as events:
        await zk.create("/a")
        await zk.set("/a", b"")
        await zk.delete("/a")

        assert len(await drain_events(zk, events)) == 3


async def test_watch_overflow_error_names_path_without_chroot(zk: Client) -> None:
    async with zk.watch("/a", limit=1) as events:
        await zk.create("/a")
        await zk.delete("/a")

        with pytest.raises(WatchOverflowError) as caught:
            await events.next()
    assert caught.value.path == "/a"


async def test_client_close_wakes_task_waiting_for_event(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    async with zk.watch("/a") as events, zk.watch_exists("/b") as once:
        waiting = [asyncio.create_task(watch.next()) for watch in (events, once)]
        await asyncio.sleep(0)

        await zk.aclose()

        for task in waiting:
            with pytest.raises(ClosedError):
                async with asyncio.timeout(DEADLINE_S):
                    await task


async def test_queued_events_are_readable_after_client_close(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    async with zk.watch("/a") as events:
        await zk.create("/a")
        await zk.aclose()

        assert type_and_path(await events.next()) == (CREATED, "/a")
        with pytest.raises(ClosedError):
            await events.next()


async def test_watch_can_be_iterated_after_cancelled_wait(zk: Client) -> None:
    async with zk.watch("/a") as events:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await events.next()
        await zk.create("/a")

        assert await next_events(events, 1) == [(CREATED, "/a")]


async def test_watch_yields_no_queued_events_after_its_block(zk: Client) -> None:
    async with zk.watch("/a") as events:
        await zk.create("/a")

    assert [event async for event in events] == []


async def test_end_of_watch_block_stops_iteration_in_other_task(zk: Client) -> None:
    async def collect(events: Watcher) -> list[Event]:
        return [event async for event in events]

    async with zk.watch("/a") as events:
        collecting = asyncio.create_task(collect(events))
        await zk.sync()

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([collecting])
    assert not collecting.cancelled()
    assert collecting.result() == []


async def test_two_tasks_may_wait_for_same_watch(zk: Client) -> None:
    async with zk.watch("/a") as events:
        first, second = asyncio.create_task(events.next()), asyncio.create_task(events.next())
        await zk.sync()
        await zk.create("/a")
        await zk.delete("/a")
        await zk.sync()
        _, left = await asyncio.wait([first, second], timeout=DEADLINE_S)
        for task in left:
            task.cancel()

    assert not left


async def test_client_close_interrupts_entry_of_recursive_watch(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    with server.fault(drop_request(), "getChildren") as fault:
        server.refuse_connections()
        entering = asyncio.create_task(zk.watch("/", recursive=True).__aenter__())
        await server.until(lambda: fault.hits)
        await zk.wait_for(State.SUSPENDED)

        await zk.aclose()
        await asyncio.wait([entering], timeout=DEADLINE_S)
        ended = entering.done()
        entering.cancel()
        await asyncio.wait([entering])

    assert ended
    assert isinstance(entering.exception(), ClosedError)


async def test_recursive_watch_entry_keeps_operation_timeout(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts, operation_timeout=0.05)
    with server.fault(drop_request(), "getChildren") as fault:
        server.refuse_connections()
        entering = asyncio.create_task(zk.watch("/", recursive=True).__aenter__())
        await server.until(lambda: fault.hits)
        await asyncio.wait([entering], timeout=DEADLINE_S)
        ended = entering.done()
        entering.cancel()
        await asyncio.wait([entering])

    assert ended


@pytest.mark.parametrize("end", [Client.aclose, Client.sync], ids=["with the client", "by itself"])
def test_throttled_listing_of_recursive_watch_ends_with_watch(end: Callable[[Client], Awaitable[None]]) -> None:
    async def main(server: Server, zk: Client) -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        with server.fault(error(ErrorCode.THROTTLED_OP), "getChildren") as fault:
            entering = asyncio.create_task(zk.watch("/", recursive=True).__aenter__())
            await asyncio.sleep(0.05)
            await end(zk)
            entering.cancel()
            await asyncio.wait([entering])
            hits = fault.hits
            await asyncio.sleep(1)

            assert (hits, fault.hits) == (1, 1)
        assert complaints == []

    with_client(main)
