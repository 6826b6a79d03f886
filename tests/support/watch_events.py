"""Helpers that read the events of watches and change the tree without the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from support.waiting import DEADLINE_S

from zoolet.client import Client, Event, EventType, State
from zoolet.client.aio.watcher import Watcher
from zoolet.testing import Server

T = TypeVar("T")
CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED
CHILDREN = EventType.NODE_CHILDREN_CHANGED


def result_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        found: T = stop.value
        return found
    coroutine.close()
    raise AssertionError("it would have to wait")


def is_idle(events: Watcher) -> bool:
    """Return whether an event stream has no pending event."""
    return not events.pending


async def next_events(events: Watcher, count: int) -> list[tuple[EventType, str]]:
    """Wait for *count* events."""
    async with asyncio.timeout(DEADLINE_S):
        return [type_and_path(await events.next()) for _ in range(count)]


async def drain_events(zk: Client, events: Watcher) -> list[tuple[EventType, str]]:
    """Return all events that the server has sent so far."""
    await zk.sync("/")
    async with asyncio.timeout(DEADLINE_S):
        while events.resyncing:
            await zk.sync("/")
    found = []
    while not is_idle(events):
        found.append(type_and_path(result_of(events.next())))
    return found


def type_and_path(event: Event) -> tuple[EventType, str]:
    """Return the type and path of an event."""
    return event.type, event.path


async def call_while_away(zk: Client, server: Server, meanwhile: Callable[[], Any], *, expire: bool = False) -> None:
    """Call a function while a client has no connection or session, and wait until the client is connected again."""
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


def change_tree(server: Server, op: str, path: str) -> None:
    """Create, set or delete a node through a connection of its own."""
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
