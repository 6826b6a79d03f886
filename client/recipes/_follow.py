"""Helpers for recipes that follow nodes of other clients: watches, reads, and a loop that reports changes."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from ...protocol import paths
from ...protocol.errors import ConnectionLossError, NoNodeError, SessionExpiredError
from ..aio.operations import BaseClient
from ..aio.reliable import RETRY_DELAY
from ..aio.subtree import request_each
from ..aio.watcher import Watcher
from ..wire.states import State

T = TypeVar("T")
_NO_VALUE: Final[Any] = object()


@contextlib.asynccontextmanager
async def watch_list(client: BaseClient[Any], path: str) -> AsyncIterator[Watcher[list[str] | None]]:
    """Watch a node's children, or the creation of a missing node, until one event.

    ``initial`` contains the names of the children, or is None if the node does not exist. The node is not created.
    """
    async with contextlib.AsyncExitStack() as stack:
        while True:
            try:
                watch: Watcher[Any] = await stack.enter_async_context(client.watch_children(path))
            except NoNodeError:
                watch = await stack.enter_async_context(client.watch_exists(path))
            if watch.initial is None or isinstance(watch.initial, list):
                break
        yield watch


async def observe(
    watch: Callable[[], AbstractAsyncContextManager[Watcher[Any]]], read: Callable[[], Awaitable[T]]
) -> AsyncIterator[T]:
    """Yield the result of *read* now, and after each change if the result differs from the previous one.

    Like the caches, this continues after an outage and in a new session.

    Args:
        watch: Function that returns a watch that fires once.
        read: Function that reads the next item.

    Raises:
        ClosedError: The client was closed.
        ZooKeeperError: The server refused a request.
    """
    last: Any = _NO_VALUE
    while True:
        try:
            async with watch() as watcher:
                value = await read()
                if value != last:
                    last = value
                    yield value
                await watcher.next()
        except (ConnectionLossError, SessionExpiredError):
            await asyncio.sleep(RETRY_DELAY)


async def read_children(client: BaseClient[Any], path: str) -> list[str]:
    """Return the names of a node's children, or an empty list if the node does not exist."""
    try:
        return await client.children(path)
    except NoNodeError:
        return []


async def read_values(client: BaseClient[Any], path: str, names: list[str]) -> dict[str, Any]:
    """Read some children of a node in parallel. Return the values by name, without children that no longer exist."""
    answers = await request_each(client.get, [paths.join(path, name) for name in names], NoNodeError)
    return {name: answer[0] for name, answer in zip(names, answers, strict=True) if isinstance(answer, tuple)}


async def set_shared_number(client: BaseClient[Any], path: str, number: int) -> None:
    """Write a number for :func:`parse_shared_number`, and create the node if it is missing."""
    await client.ensure_path(path)
    await client.set(path, str(number).encode())


def parse_shared_number(path: str, data: bytes, items: str) -> int | None:
    """Return the number of leases or members in a node's data, or None if the data is empty.

    Args:
        path: Path of the node, for the error message.
        data: Data of the node.
        items: Noun for the counted items, for the error message.

    Raises:
        ValueError: The data is not a number.
    """
    if not data:
        return None
    if re.fullmatch(rb"0*[1-9][0-9]{0,9}", data) is None:
        raise ValueError(f"{path}: expected a number of {items}, found {data!r}; call resize() to set the number")
    return int(data)


class SessionGuard:
    """A listener that makes a watcher fail when a session ends, because the event can only occur in that session.

    Args:
        client: Client that owns the watcher.
        watcher: Watcher that raises SessionExpiredError when the session ends.
        path: Path for the error.
        session_id: Id of the session.
    """

    def __init__(self, client: BaseClient[Any], watcher: Watcher, path: str, session_id: int) -> None:
        self._watcher = watcher
        self._error = SessionExpiredError(path, "the session expired")
        client._core.add_listener(self)  # the listener stays until the guard is garbage collected
        if client.session_id != session_id:
            watcher._fail(self._error)

    def on_state(self, state: State) -> None:
        """Make the watcher fail when the session is lost."""
        if state is State.LOST:
            self._watcher._fail(self._error)
