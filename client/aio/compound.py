"""Calls that are several operations: each function makes them one after the other.

The first request of each was submitted by its caller, so that a call is under way when the method returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from zoolet.protocol import paths
from zoolet.protocol.errors import (
    BadVersionError,
    ConnectionLossError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from zoolet.protocol.records import Stat

if TYPE_CHECKING:
    from zoolet.client.aio.client import Client


Create = Callable[[str], Awaitable[Any]]
"""Creates a persistent, empty node."""


async def create_with_parents(client: Client, path: str, attempt: Callable[[], Awaitable[str]]) -> str:
    """Create a node, and those above it if they are missing."""
    try:
        return await attempt()
    except NoNodeError:
        await client.ensure_path(paths.parent(path))
    return await attempt()


async def ensure_path(
    client: Client, path: str, create: Create, create_chroot: Create, first: Awaitable[Any] | None
) -> None:
    """Create a node and all above it, where they are missing; the root of the server is always there."""
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
        await ensure_path(client, path, create, create_chroot, create(path))  # twice does no harm
    except NoNodeError:
        if path == "/":
            await _ensure_chroot(client.add_chroot("/"), create_chroot)
        else:
            parent = paths.parent(path)
            await ensure_path(client, parent, create, create_chroot, create(parent))
            await ensure_path(client, path, create, create_chroot, create(path))


async def _ensure_chroot(chroot: str, create_chroot: Create) -> None:
    slash = 0
    while slash != -1:
        slash = chroot.find("/", slash + 1)
        try:
            await create_chroot(chroot[: slash if slash != -1 else None])
        except NodeExistsError:
            continue


async def delete_all(client: Client, path: str, version: int, listed: Awaitable[list[str]]) -> None:
    """Remove a node and all below it."""
    while True:
        for name in await listed:
            child = paths.join(path, name)
            try:
                await delete_all(client, child, -1, client.children(child))
            except NoNodeError:
                continue
        try:
            return await client.delete(path, version)
        except NotEmptyError:
            listed = client.children(path)


async def update(
    client: Client, path: str, change: Callable[[Any], Any], reading: Awaitable[tuple[Any, Stat]]
) -> tuple[Any, Stat]:
    """Replace a node's value by what a function makes of it, until it was not changed by another in between."""
    while True:
        value, stat = await reading
        new = change(value)
        if inspect.isawaitable(new):
            new = await new
        try:
            return new, await client.set(path, new, stat.version)
        except BadVersionError:
            reading = client.get(path)
