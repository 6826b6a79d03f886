"""The source of a transfer: a tree that is read from a server, parents first, with concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from ...client.aio.subtree import MAX_IN_FLIGHT, gather_answers
from ...client.client import Client
from ...client.wire.states import State
from ...protocol import records as r
from ...protocol.acl import is_masked
from ...protocol.errors import (
    ConnectionLossError,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from ...protocol.operations import OpCode
from ...protocol.paths import ZOOKEEPER
from .node import TransferNode, join_root

BATCH_BYTES: Final = 4 << 20
"""Number of bytes in a batch. After a larger batch, the next batch has fewer nodes."""
RECONNECT_TIMEOUTS: Final = 6
"""Maximum time to wait for a lost connection, in session timeouts."""
MAX_ATTEMPTS: Final = 10
"""Maximum number of attempts for requests whose connection is lost."""
NO_PERMISSION: Final = "permission denied (authenticate with --auth)"
T = TypeVar("T")


async def repeat_until_answered(client: Client, attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat requests after a lost connection, until their replies arrive, and return the result.

    Raises:
        ConnectionLossError: The client was disconnected for several session timeouts, or lost its connection in each
            attempt.
    """
    seconds = RECONNECT_TIMEOUTS * max(1.0, client.session_timeout)
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return await attempt()
        except (ConnectionLossError, SessionExpiredError):
            try:
                async with asyncio.timeout(seconds):
                    await client.wait_for(State.CONNECTED, State.READ_ONLY)
            except TimeoutError:
                raise ConnectionLossError(None, f"no connection within {seconds:.0f} s") from None
    return await attempt()


class NodeState(NamedTuple):
    """Data, Stat and ACL list of a node on a server."""

    data: bytes | None
    stat: r.Stat
    acl: Any


async def read_states(client: Client, paths: list[str]) -> list[NodeState | ZooKeeperError]:
    """Return the state of each node, or the error if the node is missing or not readable."""
    calls: list[Awaitable[Any]] = []
    for path in paths:
        calls.append(client.call(OpCode.GET_DATA, r.GetDataRequest(client.add_chroot(path), False)))
        calls.append(client.call(OpCode.GET_ACL, r.GetACLRequest(client.add_chroot(path))))
    replies: Iterator[Any] = iter(await gather_answers(calls, NoNodeError, NoAuthError))
    looks: list[NodeState | ZooKeeperError] = []
    for data, acl in zip(replies, replies, strict=True):
        errors = [reply for reply in (data, acl) if isinstance(reply, ZooKeeperError)]
        if not errors and any(is_masked(entry) for entry in acl.acl or ()):
            errors = [NoAuthError()]  # a copy would contain masked passwords, and lock out the users
        looks.append(errors[0] if errors else NodeState(data.data, data.stat, tuple(acl.acl or ())))
    return looks


class SourceTree:
    """A tree on a server, which may change during the transfer. Every node that exists throughout is read.

    Args:
        client: A connected client.
        root: Path of the tree.
        copy: Client and root of the transfer's target. If the target is part of the tree, the target is skipped.

    Attributes:
        ephemerals: Number of ephemeral nodes, which are skipped.
        unreadable: Nodes that the client may not read. The nodes below them are also missing.
        deleted: Nodes that were deleted before their state and the names of their children were read.
        has_copy: Whether the target was skipped, because it is part of the tree.
        total: Approximate number of nodes; 0 if the server does not report it.
    """

    def __init__(self, client: Client, root: str, copy: tuple[Client, str] | None = None) -> None:
        self._client = client
        self._root = root
        self._copy = copy
        self.ephemerals = 0
        self.unreadable: list[str] = []
        self.deleted: list[str] = []
        self.has_copy = False
        self.total = 0

    async def count(self) -> None:
        """Check that the root exists, and query the number of nodes for :attr:`total`.

        Raises:
            NoNodeError: The root does not exist.
        """
        if await repeat_until_answered(self._client, lambda: self._client.exists(self._root)) is None:
            raise NoNodeError(self._root)
        try:
            self.total = 1 + await self._client.count_below(self._root)
        except ZooKeeperError:  # servers before 3.6 cannot count nodes, so the progress shows no total
            self.total = 0

    async def batches(self) -> AsyncIterator[list[TransferNode]]:
        """Yield the nodes in batches. A parent is in an earlier batch than its children.

        At the end, nodes that were missing are read again, because they may have been recreated.
        """
        pending, most, is_last = [""], MAX_IN_FLIGHT, False
        while pending:
            paths, pending[-most:] = pending[-most:], []
            batch, children = await repeat_until_answered(self._client, lambda paths=paths: self._read(paths))  # type: ignore[misc]
            pending += children
            yield batch
            size = sum(len(node.data or b"") for node in batch)
            most = max(1, min(MAX_IN_FLIGHT, most * 2, most * BATCH_BYTES // max(1, size)))
            if not pending and not is_last:
                pending, self.deleted, is_last = self.deleted, [], True
        self.deleted = [join_root(self._root, path) for path in self.deleted]

    async def _read(self, paths: list[str]) -> tuple[list[TransferNode], list[str]]:
        client = self._client
        looks = await read_states(client, [join_root(self._root, path) for path in paths])
        batch, parents, ephemerals, unreadable, deleted = [], [], 0, [], []
        for path, seen in zip(paths, looks, strict=True):
            if isinstance(seen, NoAuthError):
                unreadable.append(join_root(self._root, path))
            elif isinstance(seen, ZooKeeperError):
                deleted.append(path)
            elif seen.stat.ephemeralOwner and path:
                ephemerals += 1
            elif not await self._is_copy(path, seen.stat):
                batch.append(TransferNode(path, seen.data, seen.acl, r.children_created(seen.stat)))
                if seen.stat.numChildren:
                    parents.append(path)
        lists = await gather_answers(
            [client.children(join_root(self._root, path)) for path in parents], NoNodeError, NoAuthError
        )
        children = []
        for path, names in zip(parents, lists, strict=True):
            if isinstance(names, list):
                children += [f"{path}/{name}" for name in names]
            elif isinstance(names, NoAuthError):
                unreadable.append(join_root(self._root, path))
            else:
                deleted.append(path)
                batch = [node for node in batch if node.path != path]
        self.ephemerals += ephemerals  # only after the last request, because a failed attempt is repeated
        self.unreadable += unreadable
        self.deleted += deleted
        return batch, [path for path in children if client.add_chroot(join_root(self._root, path)) != ZOOKEEPER]

    async def _is_copy(self, path: str, stat: r.Stat) -> bool:
        """Return whether a node is the root of the target (same path and creation), and set :attr:`has_copy`."""
        if self._copy is None or not path or join_root(self._root, path) != self._copy[1]:
            return False
        target = await self._copy[0].exists(self._copy[1])
        self.has_copy = target is not None and (target.czxid, target.ctime) == (stat.czxid, stat.ctime)
        return self.has_copy
