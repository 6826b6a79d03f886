"""Reading what others write, again and again: one loop for all recipes that report changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

from zoolet.client.aio.client import Client
from zoolet.client.aio.reliable import PAUSE, ensure_container, repeat
from zoolet.client.aio.subtree import ask
from zoolet.client.aio.watcher import Watcher
from zoolet.client.wire.states import State
from zoolet.protocol import paths
from zoolet.protocol.errors import ConnectionLossError, NoNodeError, SessionExpiredError

T = TypeVar("T")
_NOTHING: Final[Any] = object()


async def observe(
    client: Client, watch: Callable[[], Watcher], read: Callable[[], Awaitable[T]], path: str
) -> AsyncIterator[T]:
    """Yield what is read now, and after each change of what is watched, if it differs from the last; as the caches do,
    it goes on after an outage and in a new session.

    Args:
        client: Whose watches these are.
        watch: Makes a watch that fires once.
        read: Reads what is yielded.
        path: Created if it is missing, so that it can be watched.

    Raises:
        ClosedError: The client was closed.
        ZooKeeperError: The server refuses it.
    """
    last: Any = _NOTHING
    while True:
        try:
            async with watch() as watcher:
                value = await read()
                if value != last:
                    last = value
                    yield value
                await watcher.next()
        except NoNodeError:
            await repeat(lambda: ensure_container(client, path))
        except (ConnectionLossError, SessionExpiredError):
            await asyncio.sleep(PAUSE)


async def children_of(client: Client, path: str) -> list[str]:
    """Return the names of a node's children, none if there is no such node."""
    try:
        return await client.children(path)
    except NoNodeError:
        return []


async def values_of(client: Client, path: str, names: list[str]) -> dict[str, Any]:
    """Read some children of a node at once; return the values by name, without those that are gone."""
    answers = await ask(client.get, [paths.join(path, name) for name in names], NoNodeError)
    return {name: answer[0] for name, answer in zip(names, answers, strict=True) if isinstance(answer, tuple)}


async def set_shared_number(client: Client, path: str, number: int) -> None:
    """Write a number that :func:`shared_number` reads; the node is created if it is missing."""
    await client.ensure_path(path)
    await client.set(path, str(number).encode())


def shared_number(path: str, data: bytes, what: str) -> int | None:
    """Return the number of leases or members that a node's data name; None if they are empty.

    Raises:
        ValueError: They are something else.
    """
    if not data:
        return None
    if re.fullmatch(rb"0*[1-9][0-9]{0,9}", data) is None:
        raise ValueError(f"{path} has no number of {what}, but {data!r}: resize() sets one")
    return int(data)


class SessionGuard:
    """Makes a watcher fail when a session ends: what the watcher waits for concerns that session alone.

    Args:
        client: Whose watcher it is.
        watcher: Raises SessionExpiredError.
        path: For the error.
        session_id: The session.
    """

    def __init__(self, client: Client, watcher: Watcher, path: str, session_id: int) -> None:
        self._watcher = watcher
        self._error = SessionExpiredError(path, "the session ended")
        client.add_listener(self)  # for as long as the guard is kept
        if client.session_id != session_id:
            watcher.fail(self._error)

    def on_state(self, state: State) -> None:
        """Receive the client's state."""
        if state is State.LOST:
            self._watcher.fail(self._error)
