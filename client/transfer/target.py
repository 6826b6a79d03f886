"""Writing a tree to a server: what is there already and the same is not written again.

So a transfer that was interrupted is simply made once more, and one that is complete changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from zoolet.client.client import Client
from zoolet.client.transfer.node import TransferNode, joined
from zoolet.client.transfer.source import Look, answers, creates_of, look, retried
from zoolet.protocol import paths
from zoolet.protocol import records as r
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.errors import (
    ConnectionLossError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from zoolet.protocol.operations import OpCode

PAIRS: Final = 250
"""Children that one transaction creates and deletes again to raise a counter."""
FARTHEST: Final = 1_000_000
"""By how much a counter is raised at most."""


@dataclass
class Outcome:
    """What a transfer has done, or would do.

    Args:
        created: How many nodes it has created.
        changed: How many it has changed.
        same: How many were the same already.
        counters: How many counters of sequential children it has raised.
        failed: The nodes that could not be written, with the reasons.
    """

    created: int = 0
    changed: int = 0
    same: int = 0
    counters: int = 0
    failed: dict[str, str] = field(default_factory=dict)


class Target:
    """Where a tree is written.

    Args:
        client: A connected client without a chroot.
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
        outcome = await retried(self._client, lambda: self._write(batch))
        for name in ("created", "changed", "same"):
            setattr(self.outcome, name, getattr(self.outcome, name) + getattr(outcome, name))
        self.outcome.failed |= outcome.failed

    async def _write(self, batch: list[TransferNode]) -> Outcome:
        """Write nodes; after a loss of the connection this is done again, and finds what it has written."""
        outcome, client = Outcome(), self._client
        targets = [joined(self._root, node.path) for node in batch]
        written: list[str] = []
        calls: list[Awaitable[Any]] = []
        for path, node, seen in zip(targets, batch, await look(client, targets), strict=True):
            if isinstance(seen, NoAuthError):
                outcome.failed[path] = "it must not be read"
                continue
            writes = (
                [self._create(path, node)]
                if isinstance(seen, ZooKeeperError)
                else list(self._changes(path, node, seen))
            )
            outcome.created += isinstance(seen, ZooKeeperError)
            outcome.changed += bool(writes) and isinstance(seen, Look)
            outcome.same += not writes
            if not self._dry_run:
                written += [path] * len(writes)
                calls += [client.call(*write) for write in writes]
        replies = await answers(calls, ZooKeeperError)
        for path, reply in zip(written, replies, strict=True):
            if isinstance(reply, ConnectionLossError | SessionExpiredError):
                raise reply
            if isinstance(reply, ZooKeeperError) and not isinstance(reply, NodeExistsError):
                outcome.failed.setdefault(path, reply.code.name if hasattr(reply.code, "name") else str(reply))
        return outcome

    def _create(self, path: str, node: TransferNode) -> tuple[OpCode, r.CreateRequest | r.CreateTTLRequest]:
        if node.ttl is not None:
            mode = CreateMode.PERSISTENT_WITH_TTL
            return OpCode.CREATE_TTL, r.CreateTTLRequest(path, node.data, node.acl, mode, node.ttl)
        if node.container:
            return OpCode.CREATE_CONTAINER, r.CreateRequest(path, node.data, node.acl, CreateMode.CONTAINER)
        return OpCode.CREATE, r.CreateRequest(path, node.data, node.acl, CreateMode.PERSISTENT)

    def _changes(self, path: str, node: TransferNode, seen: Look) -> Iterator[tuple[OpCode, Any]]:
        if seen.data != node.data:
            yield OpCode.SET_DATA, r.SetDataRequest(path, node.data, -1)
        if path != "/" and set(seen.acl) != set(node.acl):
            yield OpCode.SET_ACL, r.SetACLRequest(path, node.acl, -1)

    async def finish(self) -> None:
        """Raise the counters of sequential children to those of the source, so that no number comes twice.

        A server has no request for that: children are created and deleted again.
        """
        for path, creates in self._counters.items():
            try:
                await retried(self._client, lambda path=path, creates=creates: self._raise(path, creates))  # type: ignore[misc]
            except NoNodeError:
                if not self._dry_run:
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
        self.outcome.counters += 1
        name = f"{path.rstrip('/')}/zoolet-counter-{self._client.new_uuid()}"
        while missing > 0 and not self._dry_run:
            count = min(missing, PAIRS)
            async with self._client.transaction() as transaction:
                for _ in range(count):
                    transaction.create(name, b"")
                    transaction.delete(name)
            missing -= count
