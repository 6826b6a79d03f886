"""Writing a tree to a server: what is there already and the same is not written again.

So a transfer that was interrupted is simply made once more, and one that is complete changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from zoolet.client.aio.client import Client
from zoolet.client.aio.subtree import answers
from zoolet.client.transfer.node import TransferNode, joined
from zoolet.client.transfer.source import NO_PERMISSION, Look, Source, creates_of, look, retried
from zoolet.protocol import paths
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.errors import (
    ConnectionLossError,
    ErrorCode,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from zoolet.protocol.operations import OpCode

PAIRS: Final = 250
"""Children that one transaction creates and deletes again to raise a counter."""
LISTED: Final = 20
"""Nodes of each kind that an outcome names."""
FARTHEST: Final = 1_000_000
"""By how much a counter is raised at most."""


@dataclass
class Nodes:
    """Some nodes.

    Args:
        count: How many there are.
        first: The paths of the first few.
    """

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, paths: list[str]) -> None:
        """Add nodes."""
        self.count += len(paths)
        self.first += paths[: LISTED - len(self.first)]


@dataclass
class Outcome:
    """The changes that a transfer has made, or would make.

    Args:
        created: The nodes that it has created.
        changed: Those that it has changed.
        same: How many were the same already.
        counters: How many counters of sequential children it has raised.
        failed: The nodes that could not be written, with the reasons.
    """

    created: Nodes = field(default_factory=Nodes)
    changed: Nodes = field(default_factory=Nodes)
    same: int = 0
    counters: int = 0
    failed: dict[str, str] = field(default_factory=dict)


async def copy(source: Source, target: Target, show: Callable[[str, int, int], None]) -> None:
    """Write all that a source has to a target.

    Args:
        source: Whose nodes have been counted.
        target: Where they are written.
        show: Called with what is counted, how many are done, and of how many.
    """
    await target.begin()
    done = 0
    async for batch in source.batches():
        await target.write(batch)
        done += len(batch)
        show("nodes", done, source.total)
    await target.finish()


class Target:
    """Where a tree is written.

    Args:
        client: A connected client.
        root: The path of the tree there.
        dry_run: Write nothing.
    """

    def __init__(self, client: Client, root: str, *, dry_run: bool = False) -> None:
        self._client = client
        self._root = root
        self._dry_run = dry_run
        self._counters: dict[str, int] = {}
        self.outcome = Outcome()

    async def begin(self) -> None:
        """Create what is above the root."""
        above = paths.parent(self._root) if self._root != "/" else "/"
        if above == "/" or self._dry_run or await retried(self._client, lambda: self._client.exists(above)) is not None:
            return
        await retried(self._client, lambda: self._client.ensure_path(above))

    async def write(self, batch: list[TransferNode]) -> None:
        """Write nodes, in order."""
        for node in batch:
            if node.creates:
                self._counters[joined(self._root, node.path)] = node.creates
        while batch:
            batch = await retried(self._client, lambda batch=batch: self._write(batch))  # type: ignore[misc]

    async def _write(self, batch: list[TransferNode]) -> list[TransferNode]:
        """Write nodes; after a loss of the connection this is done again, and finds what it has written.

        Returns:
            The nodes that somebody else has created meanwhile.
        """
        client = self._client
        created: dict[str, TransferNode] = {}
        changed: list[str] = []
        failed: dict[str, str] = {}
        written: list[str] = []
        calls: list[Awaitable[Any]] = []
        targets = [joined(self._root, node.path) for node in batch]
        for path, node, seen in zip(targets, batch, await look(client, targets), strict=True):
            if isinstance(seen, NoAuthError):
                failed[path] = NO_PERMISSION
                continue
            if isinstance(seen, ZooKeeperError):
                writes = [self._create(path, node)]
                created[path] = node
            elif writes := self._changes(path, node, seen):
                changed.append(path)
            if not self._dry_run:
                try:
                    calls += [client.call(*write) for write in writes]
                except ValueError as error:  # it is longer than max_request
                    failed[path] = str(error).removeprefix(f"{path}: ")
                    continue
                written += [path] * len(writes)
        appeared: list[TransferNode] = []
        for path, reply in zip(written, await answers(calls, ZooKeeperError), strict=True):
            if isinstance(reply, ConnectionLossError | SessionExpiredError):
                raise reply
            if isinstance(reply, NodeExistsError):
                appeared.append(created.pop(path))
            elif isinstance(reply, ZooKeeperError):
                failed[path] = NO_PERMISSION if isinstance(reply, NoAuthError) else ErrorCode(reply.code).name
        outcome = self.outcome  # only now: everything above may run again
        outcome.created.add([path for path in created if path not in failed])
        outcome.changed.add([path for path in changed if path not in failed])
        outcome.same += len(batch) - len(appeared) - len({*created, *changed, *failed})
        outcome.failed |= failed
        return appeared

    def _create(self, path: str, node: TransferNode) -> tuple[OpCode, Any]:
        acl = OPEN_ACL_UNSAFE if node.acl is None else node.acl
        below = self._client.add_chroot(path)
        if node.ttl is not None:
            mode = CreateMode.PERSISTENT_WITH_TTL
            return OpCode.CREATE_TTL, r.CreateTTLRequest(below, node.data, acl, mode, node.ttl)
        if node.container:
            return OpCode.CREATE_CONTAINER, r.CreateRequest(below, node.data, acl, CreateMode.CONTAINER)
        return OpCode.CREATE, r.CreateRequest(below, node.data, acl, CreateMode.PERSISTENT)

    def _changes(self, path: str, node: TransferNode, seen: Look) -> list[tuple[OpCode, Any]]:
        changes: list[tuple[OpCode, Any]] = []
        if node.implied:
            return changes
        if seen.data != node.data:
            changes.append((OpCode.SET_DATA, r.SetDataRequest(self._client.add_chroot(path), node.data, -1)))
        if path != "/" and node.acl is not None and set(seen.acl) != set(node.acl):
            changes.append((OpCode.SET_ACL, r.SetACLRequest(self._client.add_chroot(path), node.acl, -1)))
        return changes

    async def finish(self) -> None:
        """Raise the counters of sequential children to those of the source, so that no number comes twice.

        A server has no request for that: children are created and deleted again.
        """
        for path, creates in ({} if self._dry_run else self._counters).items():
            try:
                await retried(self._client, lambda path=path, creates=creates: self._raise(path, creates))  # type: ignore[misc]
            except NoNodeError:
                self.outcome.failed.setdefault(path, "it is gone")
            except ZooKeeperError as error:
                self.outcome.failed.setdefault(path, f"its counter of sequential children stays behind: {error}")

    async def _raise(self, path: str, creates: int) -> None:
        (seen,) = await look(self._client, [path])
        if isinstance(seen, ZooKeeperError):
            raise seen
        missing = creates - creates_of(seen.stat)
        if missing <= 0:
            return
        if missing > FARTHEST:
            self.outcome.failed[path] = f"its counter of sequential children is {missing:,} behind"
            return
        name = f"{path.rstrip('/')}/zoolet-counter-{self._client.new_uuid()}"
        while missing > 0:
            count = min(missing, PAIRS)
            async with self._client.transaction() as transaction:
                for _ in range(count):
                    transaction.create(name, b"")
                    transaction.delete(name)
            missing -= count
        self.outcome.counters += 1
