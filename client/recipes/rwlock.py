"""A lock for many readers or one writer, in the order of their requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...protocol import paths
from ...protocol.acl import ACL
from ...protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError
from ...protocol.paths import sequence_suffix
from ...protocol.recipe_names import Namings, NodeName, prefix, sort_by_arrival
from .. import serializers
from ..aio.operations import BaseClient
from ..aio.reliable import delete_in_background
from ._base import checked_client, resolve_namings
from ._contender import Rule, WaitTarget, wait_for_writer
from ._lease import NODE_GONE, Lease, LockLostError
from ._lock_base import LockBase, OnLost
from .lock import Lock, Release


def wait_for_every_predecessor(line: Sequence[NodeName], own: int) -> WaitTarget:
    """Return the immediate predecessor as the contender to wait for.

    The line is checked again afterwards, because a writer may have become a reader in between.
    """
    return WaitTarget(line[own - 1], False) if own else WaitTarget(None, True)


def wait_for_every_writer(line: Sequence[NodeName], own: int) -> WaitTarget:
    """Return the last writer ahead as the contender to wait for. The line is checked again afterwards."""
    return wait_for_writer(line, own)._replace(last=False)


class ReadLock(Lock):
    """The lock for readers of a :class:`ReadWriteLock`. Several readers can hold it together."""

    kind = "read"
    kinds = ("read", "write")
    rule: Rule = staticmethod(wait_for_every_writer)

    def excludes(self, held: LockBase[Any]) -> bool:
        """Return whether *held* is a write lock that this read lock would have to wait for."""
        return isinstance(held, WriteLock) and super().excludes(held)

    def take_over(self, writer: Lease, nodes: list[tuple[str, int]]) -> Lease:
        """Return the lease of a reader whose nodes have replaced the nodes of *writer*.

        Raises:
            LockLostError: The reader's lease is already lost.
        """
        reader = self._record_holder(self._make_lease(nodes, 0))
        writer._replace_with(reader)
        return reader


class WriteLock(Lock):
    """The lock for writers of a :class:`ReadWriteLock`. Only one writer can hold it."""

    kind = "write"
    kinds = ("read", "write")
    rule: Rule = staticmethod(wait_for_every_predecessor)

    def includes(self, held: LockBase[Any]) -> bool:
        """Return whether *held* is a write lock. A reader cannot become a writer: two readers would deadlock."""
        return isinstance(held, WriteLock)


class ReadWriteLock:
    """A lock for readers and writers: ``async with rw.read() as lease:`` and ``async with rw.write() as lease:``.

    Znodes: ``PATH/<name>``, ephemeral and sequential, named as by kazoo's ReadLock and WriteLock or Curator's
    InterProcessReadWriteLock.

    Guarantees: a writer excludes all others. Clients do not overtake each other: a reader that arrives after a waiting
    writer waits for it. The release of a reader wakes at most the writer after it. The release of a writer wakes the
    readers that wait for it, or the writer after it. A writer can become a reader
    (:meth:`downgrade`), and no other writer gets in between. The reverse is not possible: two readers that both want to
    become writers would wait for each other forever.

    Limits: as for :class:`~zoolet.client.recipes.lock.Lock`.

    Args:
        client: Client whose session holds the lock.
        path: Path of the lock.
        naming: ``kazoo``, ``curator`` or ``both``; as for Lock.
        timeout: Longest wait in seconds, or None for no limit.
        on_lost: As for Lock.
        reentrant: Whether a task inside a block may enter again: a writer as a writer or a reader, a reader as a
            reader.
        revocable: As for Lock. A client that wants to write can call ``write().revoke()`` to request the release by all
            readers.
        release: As for Lock.
        data: Data of the nodes; as for Lock.
        acl: As for Lock.
    """

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        *,
        naming: Namings = "kazoo",
        timeout: float | None = None,
        on_lost: OnLost = "cancel",
        reentrant: bool = False,
        revocable: bool = False,
        release: Release = "send",
        data: bytes | None = None,
        acl: Iterable[ACL] | None = None,
    ) -> None:
        client = checked_client(client).with_serializer(serializers.raw)
        self._client = client if acl is None else client.with_acl(acl)
        self._path = path
        self._namings = resolve_namings(naming)[::-1]  # namings in the order of a lease's nodes
        options: dict[str, Any] = {"naming": naming, "timeout": timeout, "on_lost": on_lost, "data": data}
        options |= {"reentrant": reentrant, "revocable": revocable, "release": release}
        self._read = ReadLock(self._client, path, **options)
        self._write = WriteLock(self._client, path, **options)

    def read(self) -> ReadLock:
        """Return the lock for readers."""
        return self._read

    def write(self) -> WriteLock:
        """Return the lock for writers."""
        return self._write

    async def downgrade(self, lease: Lease) -> Lease:
        """Become a reader: one transaction deletes the writer's node and gives its place in line to a reader's node.

        Args:
            lease: Lease of the writer, which this releases.

        Returns:
            Lease of the reader. Release it with its ``release()``, because it outlives the writer's ``async with``
            block. Until the end of that block, losing the reader's lease cancels the block.

        Raises:
            LockLostError: The writer's node no longer exists.
            ValueError: *lease* is not a writer's lease of this lock.
        """
        lease.raise_if_lost()
        writer_nodes = [path for path, _ in lease.nodes]
        own = self._writer_names(writer_nodes)
        if lease._client.session_id != self._client.session_id or not own:
            raise ValueError(f"{lease!r} is not a writer's lease of the lock at {self._path}")
        uuid = self._client._core.new_uuid()
        reader_nodes = [
            paths.join(self._path, prefix(node.row.naming, "read", uuid) + sequence_suffix(node.number)) for node in own
        ]
        lease._start_exchange()
        try:
            czxid = await self._replace_nodes(writer_nodes, reader_nodes)
        except BaseException:  # any of the nodes may exist, even after a cancellation
            lease._mark_lost("the downgrade was interrupted")
            for reader_node in reader_nodes:
                delete_in_background(self._client, reader_node)
            raise
        return self._read.take_over(lease, [(reader_node, czxid) for reader_node in reader_nodes])

    def _writer_names(self, nodes: list[str]) -> list[NodeName]:
        """Return the names of the nodes of a writer of this lock, one per naming, or an empty list for other nodes."""
        names = [paths.name(node) for node in nodes if paths.parent(node) == self._path]
        line = [
            node
            for name, naming in zip(names, self._namings, strict=False)
            for node in sort_by_arrival(naming, ("write",), [name])
        ]
        return line if len(line) == len(nodes) == len(self._namings) else []

    async def _replace_nodes(self, writer_nodes: list[str], reader_nodes: list[str]) -> int:
        """Replace the writer's nodes, even if replies are lost repeatedly. Return the czxid of the new nodes."""
        while True:
            transaction = self._client.transaction()
            for reader_node in reader_nodes:
                transaction.create(reader_node, self._read.data, ephemeral=True)
            for writer_node in writer_nodes:
                transaction.delete(writer_node)
            failed = None
            try:
                await transaction.commit()
            except (NoNodeError, NodeExistsError, ConnectionLossError) as error:
                if isinstance(error, ConnectionLossError) and not error.maybe_applied:
                    raise
                failed = error
            stat = await self._client.exists(reader_nodes[-1])
            if stat is not None:
                return stat.czxid
            if failed is None or isinstance(failed, NoNodeError):
                raise LockLostError(writer_nodes[-1], NODE_GONE) from None
