"""Calls that consist of several requests, made one after the other.

The caller has already submitted the first request, so the call has started when the client's method returns. Each
function deletes its variable for a request after awaiting it. Otherwise an error would be in a reference cycle: the
request refers to the error, the error to the function's frame, and the frame to the request.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ...protocol import paths
from ...protocol.errors import (
    BadVersionError,
    ConnectionLossError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from ...protocol.records import Stat

if TYPE_CHECKING:
    from .operations import BaseClient


T = TypeVar("T")
CreateFunction = Callable[[str], Awaitable[Any]]
"""Function that creates a persistent, empty node at a path."""


async def create_with_parents(client: BaseClient[Any], path: str, attempt: Callable[[], Awaitable[str]]) -> str:
    """Create a node, and its parents if they are missing."""
    try:
        return await attempt()
    except NoNodeError:
        await client.ensure_path(paths.parent(path))
    return await attempt()


async def ensure_path(
    client: BaseClient[Any],
    path: str,
    create: CreateFunction,
    create_chroot: CreateFunction,
    first: Awaitable[Any] | None,
) -> None:
    """Create a node and its parents where they are missing. The root of the server always exists.

    Args:
        client: The client that makes the requests.
        path: The path of the node, without the chroot.
        create: Function that creates a node at a path of the client.
        create_chroot: Function that creates a node at a path of the server.
        first: The first request, which was already submitted; None if the node is the root of the server.
    """
    if first is None:
        return
    try:
        await first
    except NodeExistsError:
        return
    except NoAuthError:
        if await client.exists(path) is None:
            raise
    except ConnectionLossError as error:
        if not error.maybe_applied:
            raise
        await ensure_path(client, path, create, create_chroot, create(path))  # repeatable: an existing node is accepted
    except NoNodeError:
        if path == "/":
            await _ensure_chroot(client.add_chroot("/"), create_chroot)
        else:
            parent = paths.parent(path)
            await ensure_path(client, parent, create, create_chroot, create(parent))
            await ensure_path(client, path, create, create_chroot, create(path))
    finally:
        del first


async def _ensure_chroot(chroot: str, create_chroot: CreateFunction) -> None:
    slash = 0
    while slash != -1:
        slash = chroot.find("/", slash + 1)
        try:
            await create_chroot(chroot[: slash if slash != -1 else None])
        except NodeExistsError:
            continue


async def delete_subtree(client: BaseClient[Any], path: str, version: int, listed: Awaitable[list[str]]) -> None:
    """Delete a node and everything below it."""
    while True:
        try:
            names = await listed
        finally:
            del listed
        for name in names:
            child = paths.join(path, name)
            try:
                await delete_subtree(client, child, -1, client.children(child))
            except NoNodeError:
                continue
        try:
            return await client.delete(path, version)
        except NotEmptyError:
            listed = client.children(path)


async def update(
    client: BaseClient[T], path: str, change: Callable[[T], T | Awaitable[T]], reading: Awaitable[tuple[T, Stat]]
) -> tuple[T, Stat]:
    """Replace a node's value with the result of *change*. Retry if the node has changed since the value was read."""
    while True:
        try:
            value, stat = await reading
        finally:
            del reading
        new: Any = change(value)
        if inspect.isawaitable(new):
            new = await new
        try:
            return new, await client.set(path, new, stat.version)
        except BadVersionError:
            reading = client.get(path)
