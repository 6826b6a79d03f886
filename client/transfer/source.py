"""Reading a tree from a server: parents before children, many requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from zoolet.client.aio.client import Client
from zoolet.client.aio.subtree import MAX_IN_FLIGHT, answers
from zoolet.client.transfer.node import TransferNode, joined
from zoolet.client.wire.states import State
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL
from zoolet.protocol.errors import (
    ConnectionLossError,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from zoolet.protocol.operations import OpCode

BATCH_BYTES: Final = 4 << 20
"""The data of a batch above which the next one has fewer nodes."""
RECONNECT_TIMEOUTS: Final = 6
"""Session timeouts to wait for a connection that is lost."""
ATTEMPTS: Final = 10
"""How often requests are made whose connection is lost each time."""
NO_PERMISSION: Final = "no permission; --auth may give it"
SYSTEM: Final = "/zookeeper"
"""The nodes of the server itself, which are not transferred."""
T = TypeVar("T")


async def retried(client: Client, attempt: Callable[[], Awaitable[T]]) -> T:
    """Make requests that may be made again, until their replies arrive.

    Raises:
        ConnectionLossError: There is no connection for several session timeouts, or it is lost each time.
    """
    seconds = RECONNECT_TIMEOUTS * max(1.0, client.session_timeout)
    for _ in range(ATTEMPTS - 1):
        try:
            return await attempt()
        except (ConnectionLossError, SessionExpiredError):
            try:
                async with asyncio.timeout(seconds):
                    await client.wait_for(State.CONNECTED)
            except TimeoutError:
                raise ConnectionLossError(None, f"there was no connection for {seconds:.0f} s") from None
    return await attempt()


class Look(NamedTuple):
    """A node of a server."""

    data: bytes | None
    stat: r.Stat
    acl: Any


async def look(client: Client, paths: list[str]) -> list[Look | ZooKeeperError]:
    """Return data, Stat and ACL list of nodes; for those that do not exist or must not be read, the error."""
    calls: list[Awaitable[Any]] = []
    for path in paths:
        calls.append(client.call(OpCode.GET_DATA, r.GetDataRequest(client.add_chroot(path), False)))
        calls.append(client.call(OpCode.GET_ACL, r.GetACLRequest(client.add_chroot(path))))
    replies: Iterator[Any] = iter(await answers(calls, NoNodeError, NoAuthError))
    looks: list[Look | ZooKeeperError] = []
    for data, acl in zip(replies, replies, strict=True):
        errors = [reply for reply in (data, acl) if isinstance(reply, ZooKeeperError)]
        if not errors and any(is_masked(entry) for entry in acl.acl or ()):
            errors = [NoAuthError()]  # a copy would lock out whom the list is for
        looks.append(errors[0] if errors else Look(data.data, data.stat, tuple(acl.acl or ())))
    return looks


def is_masked(entry: ACL) -> bool:
    """Return whether the hash of a password is masked: servers do that for those who have no ADMIN permission.

    Source: FinalRequestProcessor, case getACL.
    """
    return entry.id.scheme == "digest" and (entry.id.id or "").endswith(":x")


def creates_of(stat: r.Stat) -> int:
    """Return how many children were created below a node, ever.

    A node's cversion counts creates and deletes, and those that were created and not deleted are there.
    """
    return ((stat.cversion + stat.numChildren) & 0xFFFFFFFF) >> 1


class Source:
    """A tree on a server. Nodes that are created while it is read are not in it: they may be those that are written.

    Args:
        client: A connected client.
        root: The path of the tree.

    Attributes:
        ephemerals: How many ephemeral nodes were left out.
        unreadable: The nodes that must not be read; what is below them is missing, too.
        total: How many nodes there are, about; 0 if the server does not say.
    """

    def __init__(self, client: Client, root: str) -> None:
        self._client = client
        self._root = root
        self.ephemerals = 0
        self.unreadable: list[str] = []
        self.total = 0
        self._until = 0

    async def count(self) -> None:
        """Ask how many nodes there are.

        Raises:
            NoNodeError: The root does not exist.
        """
        if await retried(self._client, lambda: self._client.exists(self._root)) is None:
            raise NoNodeError(self._root)
        self._until = self._client.last_zxid
        try:
            self.total = 1 + await self._client.count_below(self._root)
        except ZooKeeperError:  # of a server before 3.6: the bar has no end
            self.total = 0

    async def batches(self) -> AsyncIterator[list[TransferNode]]:
        """Yield the nodes, parents in an earlier batch than their children."""
        pending, most = [""], MAX_IN_FLIGHT
        while pending:
            paths, pending[-most:] = pending[-most:], []
            batch, children = await retried(self._client, lambda paths=paths: self._read(paths))  # type: ignore[misc]
            pending += children
            yield batch
            size = sum(len(node.data or b"") for node in batch)
            most = max(1, min(MAX_IN_FLIGHT, most * 2, most * BATCH_BYTES // max(1, size)))

    async def _read(self, paths: list[str]) -> tuple[list[TransferNode], list[str]]:
        client = self._client
        looks = await look(client, [joined(self._root, path) for path in paths])
        batch, parents, ephemerals, unreadable = [], [], 0, []
        # Those that were deleted or created meanwhile are left out.
        for path, seen in zip(paths, looks, strict=True):
            if isinstance(seen, NoAuthError):
                unreadable.append(joined(self._root, path))
            elif isinstance(seen, Look) and seen.stat.ephemeralOwner and path:
                ephemerals += 1
            elif isinstance(seen, Look) and seen.stat.czxid <= self._until:
                batch.append(TransferNode(path, seen.data, seen.acl, creates_of(seen.stat)))
                if seen.stat.numChildren:
                    parents.append(path)
        lists = await answers([client.children(joined(self._root, path)) for path in parents], NoNodeError, NoAuthError)
        children = [
            f"{path}/{name}" for path, names in zip(parents, lists, strict=True) if isinstance(names, list)
            for name in names
        ]  # fmt: skip
        self.ephemerals += ephemerals  # only now: what is above may have been made again
        self.unreadable += unreadable
        return batch, [path for path in children if client.add_chroot(joined(self._root, path)) != SYSTEM]
