"""The target of a transfer: a tree on a server. Nodes that are already identical are skipped.

An interrupted transfer can therefore be repeated, and repeating a complete transfer changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from ...client.aio.subtree import gather_answers
from ...client.client import Client
from ...client.wire.operations import NewNode
from ...protocol import paths
from ...protocol import records as r
from ...protocol.enums import CreateMode
from ...protocol.errors import (
    ConnectionLossError,
    ErrorCode,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OpCode
from .node import TransferNode, join_root
from .source import NO_PERMISSION, NodeState, SourceTree, read_states, repeat_until_answered

PAIRS_PER_TRANSACTION: Final = 250
"""Number of children that one transaction creates and deletes to raise a counter."""
MAX_LISTED: Final = 20
"""Maximum number of nodes of each kind that an outcome lists."""
MAX_COUNTER_RAISE: Final = 1_000_000
"""Maximum number by which a counter is raised."""


@dataclass
class NodeTally:
    """A number of nodes, and the paths of the first nodes.

    Args:
        count: Number of nodes.
        first: Paths of the first nodes, at most :data:`MAX_LISTED`.
    """

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, paths: list[str]) -> None:
        """Count nodes, and keep the first paths."""
        self.count += len(paths)
        self.first += paths[: MAX_LISTED - len(self.first)]


@dataclass
class TransferOutcome:
    """The changes that a transfer has made, or that a dry run would make.

    Args:
        created: Nodes that were created.
        changed: Nodes that were changed.
        same: Number of nodes that were already identical.
        counters: Number of nodes whose counter of sequential children was raised.
        failed: Reasons by path, for nodes that could not be written.
    """

    created: NodeTally = field(default_factory=NodeTally)
    changed: NodeTally = field(default_factory=NodeTally)
    same: int = 0
    counters: int = 0
    failed: dict[str, str] = field(default_factory=dict)


async def copy(source: SourceTree, target: Target, show: Callable[[str, int, int], None]) -> None:
    """Write all nodes of a source to a target.

    Args:
        source: The source, whose nodes have been counted.
        target: The target.
        show: Function that shows the progress: called with the name of the items, the number done and the total.
    """
    await target.begin()
    done = 0
    async for batch in source.batches():
        await target.write(batch)
        done += len(batch)
        show("nodes", done, source.total)
    await target.finish()


def nested_target_error(source: str, target: str) -> str:
    """Return the error message for a target that is inside its source."""
    return f"cannot copy {source} to {target}: the tree would be copied into itself"


class Target:
    """A tree on a server that a transfer writes to.

    Args:
        client: A connected client.
        root: Path of the tree on the server.
        dry_run: Whether to count the changes without making them.
    """

    def __init__(self, client: Client, root: str, *, dry_run: bool = False) -> None:
        self._client = client
        self._root = root
        self._dry_run = dry_run
        self._counters: dict[str, int] = {}
        self._planned: dict[str, str] = {}  # nodes that a dry run would create, and the reason if that would fail
        self.outcome = TransferOutcome()

    async def begin(self) -> None:
        """Create the missing ancestors of the root, or in a dry run check whether they could be created."""
        client, above, missing = self._client, self._root, []
        while (above := paths.parent(above)) != "/":
            if await repeat_until_answered(client, lambda above=above: client.exists(above)) is not None:  # type: ignore[misc]
                break
            missing.append(above)
        if missing and not self._dry_run:
            await repeat_until_answered(client, lambda: client.ensure_path(missing[0]))
        elif missing:
            top = TransferNode(missing[-1], b"")
            (answer,) = await gather_answers(
                [repeat_until_answered(client, lambda: self._rehearse(top.path, self._create(top.path, top)))],
                ZooKeeperError,
            )
            self._planned = dict.fromkeys(missing, "" if answer is None else _failure_reason(answer))

    async def write(self, batch: list[TransferNode]) -> None:
        """Write nodes, parents first, and note the counters that :meth:`finish` raises."""
        for node in batch:
            if node.creates:
                self._counters[join_root(self._root, node.path)] = node.creates
        while batch:
            batch = await repeat_until_answered(self._client, lambda batch=batch: self._write(batch))  # type: ignore[misc]

    async def _write(self, batch: list[TransferNode]) -> list[TransferNode]:
        """Write nodes, and add them to the outcome. A repetition after a connection loss skips the written nodes.

        Returns:
            Nodes that another client created at the same time.
        """
        client = self._client
        created: dict[str, TransferNode] = {}
        changed: list[str] = []
        failed: dict[str, str] = {}
        written: list[str] = []
        calls: list[Awaitable[Any]] = []
        targets = [join_root(self._root, node.path) for node in batch]
        for path, node, seen in zip(targets, batch, await read_states(client, targets), strict=True):
            if isinstance(seen, NoAuthError):
                failed[path] = NO_PERMISSION
                continue
            if isinstance(seen, NodeState) and seen.stat.ephemeralOwner:
                failed[path] = f"an ephemeral node of session {hexadecimal(seen.stat.ephemeralOwner)}"
                continue
            if isinstance(seen, ZooKeeperError):
                writes = [self._create(path, node)]
                created[path] = node
            elif writes := self._changes(path, node, seen):
                changed.append(path)
            try:
                calls += self._requests(path, writes, created)
            except ValueError as error:  # the request is longer than max_request
                failed[path] = str(error).removeprefix(f"{path}: ")
                continue
            written += [path] * (len(calls) - len(written))
        appeared: list[TransferNode] = []
        for path, reply in zip(written, await gather_answers(calls, ZooKeeperError), strict=True):
            if isinstance(reply, ConnectionLossError | SessionExpiredError):
                raise reply
            if isinstance(reply, NodeExistsError):
                appeared.append(created.pop(path))
            elif isinstance(reply, ZooKeeperError):
                failed[path] = _failure_reason(reply)
        for path in created if self._dry_run else ():  # parents come first, so their failures are known
            if reason := failed.get(path) or self._planned.get(paths.parent(path)):
                failed[path] = reason
            self._planned[path] = failed.get(path, "")
        outcome = self.outcome  # updated last, because everything above may be repeated
        outcome.created.add([path for path in created if path not in failed])
        outcome.changed.add([path for path in changed if path not in failed])
        outcome.same += len(batch) - len(appeared) - len({*created, *changed, *failed})
        outcome.failed |= failed
        return appeared

    def _requests(
        self, path: str, writes: list[tuple[OpCode, Any]], created: Container[str]
    ) -> Iterable[Awaitable[Any]]:
        """Return the requests of some writes, or in a dry run their rehearsals.

        ACL changes and nodes below new nodes cannot be rehearsed.

        Raises:
            ValueError: A request is longer than *max_request*.
        """
        if not self._dry_run:
            return [self._client.call(*write) for write in writes]
        limit = self._client._core._max_request  # noqa: SLF001
        for _, request in writes:
            if (size := len(request.encode()) + 8) > limit:
                raise ValueError(f"the request has {size} bytes; the limit is {limit} (max_request)")
        above = paths.parent(path)
        if path in created and (above in created or above in self._planned):
            return []
        return [self._rehearse(path, write) for write in writes if write[0] != OpCode.SET_ACL]

    async def _rehearse(self, path: str, write: tuple[OpCode, Any]) -> None:
        """Try a write in a transaction that always fails, because it also expects two different versions of the node.

        Raises:
            ZooKeeperError: The write would fail with this error.
        """
        transaction = self._client.transaction()
        transaction._add(*write, path)  # noqa: SLF001 - takes any ACL list
        transaction.check(path, 1)
        transaction.check(path, 2)
        with suppress(ValueError):  # only the transaction exceeds max_request, not the write
            try:
                await transaction.commit()
            except ZooKeeperError:
                if not transaction.results or transaction.results[0] is not None:
                    raise

    def _create(self, path: str, node: TransferNode) -> tuple[OpCode, Any]:
        new = NewNode.of(False, False, node.container, None)
        if node.ttl is not None:
            new = NewNode(CreateMode.PERSISTENT_WITH_TTL, node.ttl)
        return new.request(self._client.add_chroot(path), node.data, node.acl)

    def _changes(self, path: str, node: TransferNode, seen: NodeState) -> list[tuple[OpCode, Any]]:
        changes: list[tuple[OpCode, Any]] = []
        if node.implied:
            return changes
        if seen.data != node.data:
            changes.append((OpCode.SET_DATA, r.SetDataRequest(self._client.add_chroot(path), node.data, -1)))
        if path != "/" and node.acl is not None and set(seen.acl) != set(node.acl):
            changes.append((OpCode.SET_ACL, r.SetACLRequest(self._client.add_chroot(path), node.acl, -1)))
        return changes

    async def finish(self) -> None:
        """Raise the counters of sequential children to the values of the source, because no number may be used twice.

        The protocol has no request for this, so temporary children are created and deleted. A dry run skips this.
        """
        for path, creates in ({} if self._dry_run else self._counters).items():
            try:
                await repeat_until_answered(
                    self._client,
                    lambda path=path, creates=creates: self._raise_counter(path, creates),  # type: ignore[misc]
                )
            except NoNodeError:
                self.outcome.failed.setdefault(path, "the node no longer exists")
            except ZooKeeperError as error:
                text = f"the counter of sequential children could not be raised: {error}"
                self.outcome.failed.setdefault(path, text)

    async def _raise_counter(self, path: str, creates: int) -> None:
        (seen,) = await read_states(self._client, [path])
        if isinstance(seen, ZooKeeperError):
            raise seen
        missing = creates - r.children_created(seen.stat)
        if missing <= 0:
            return
        if missing > MAX_COUNTER_RAISE:
            self.outcome.failed[path] = (
                f"the counter of sequential children is {missing:,} too low; the limit is {MAX_COUNTER_RAISE:,}"
            )
            return
        name = f"{path.rstrip('/')}/zoolet-counter-{uuid4()}"
        while missing > 0:
            count = min(missing, PAIRS_PER_TRANSACTION)
            async with self._client.transaction() as transaction:
                for _ in range(count):
                    transaction.create(name, b"")
                    transaction.delete(name)
            missing -= count
        self.outcome.counters += 1


def _failure_reason(error: ZooKeeperError) -> str:
    return NO_PERMISSION if isinstance(error, NoAuthError) else ErrorCode(error.code).name
