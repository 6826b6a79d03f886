"""Reading the events of watches, and changing the tree behind a client's back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from zoolet.client import Client, Event, EventType, State
from zoolet.client.aio.watcher import Watcher
from zoolet.server import Server

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
    return not events.pending


async def next_events(events: Watcher, count: int) -> list[tuple[EventType, str]]:
    """Wait for so many events."""
    async with asyncio.timeout(DEADLINE_S):
        return [delivered(await events.next()) for _ in range(count)]


async def rest(zk: Client, events: Watcher) -> list[tuple[EventType, str]]:
    """Take all events that the server had to tell by now."""
    await zk.sync("/")
    async with asyncio.timeout(DEADLINE_S):
        while events.resyncing:
            await zk.sync("/")
    found = []
    while not waits(events):
        found.append(delivered(at_once(events.next())))
    return found


def delivered(event: Event) -> tuple[EventType, str]:
    """Return what an event is about."""
    return event.type, event.path


async def away(zk: Client, server: Server, meanwhile: Callable[[], Any], *, expire: bool = False) -> None:
    """Run something while a client is disconnected, or is between two sessions, and wait until it is back."""
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
