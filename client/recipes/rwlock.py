"""A lock that many readers or one writer hold, in the order in which they asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.reliable import delete_in_background
from zoolet.client.recipes._base import checked_client
from zoolet.client.recipes._contender import Rule, Turn, wait_for_writer
from zoolet.client.recipes._lease import NODE_GONE, Lease, LockLostError
from zoolet.client.recipes._lock_base import LockBase, OnLost
from zoolet.client.recipes._node_names import Naming, Namings, NodeName, in_order, namings_of, number_of, prefix
from zoolet.client.recipes.lock import Lock, Release
from zoolet.protocol import paths
from zoolet.protocol.acl import ACL
from zoolet.protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError
from zoolet.protocol.paths import sequence_suffix


def wait_for_every_predecessor(line: Sequence[NodeName], own: int) -> Turn:
    """Wait for the contender right before, then look again: a writer may have become a reader in its place."""
    return Turn(line[own - 1], False) if own else Turn(None, True)


def wait_for_every_writer(line: Sequence[NodeName], own: int) -> Turn:
    """Wait for the last writer before, then look again."""
    return wait_for_writer(line, own)._replace(last=False)


class ReadLock(Lock):
    """The readers' side of a :class:`ReadWriteLock`: held together with other readers."""

    kind = "read"
    kinds = ("read", "write")
    rule: Rule = staticmethod(wait_for_every_writer)

    def excludes(self, held: LockBase[Any]) -> bool:
        """Return whether the task is the writer."""
        return isinstance(held, WriteLock) and super().excludes(held)

    def take_over(self, writer: Lease, nodes: list[tuple[str, int]]) -> Lease:
        """Return the lease of a reader whose nodes have taken the place of a writer's.

        Raises:
            LockLostError: It is lost already.
        """
        reader = self._acquired(self._make_lease(nodes, 0))
        writer._become(reader)
        return reader


class WriteLock(Lock):
    """The writers' side of a :class:`ReadWriteLock`: held by one."""

    kind = "write"
    kinds = ("read", "write")
    rule: Rule = staticmethod(wait_for_every_predecessor)

    def includes(self, held: LockBase[Any]) -> bool:
        """Return whether the task is the writer: a reader cannot become one, for two would wait for each other."""
        return isinstance(held, WriteLock)


class ReadWriteLock:
    """``async with rw.read() as lease:`` and ``async with rw.write() as lease:``.

    Znodes: ``PATH/<name>``, ephemeral and sequential, named as kazoo's ReadLock and WriteLock or Curator's
    InterProcessReadWriteLock.

    Guarantees: a writer is alone. Nobody overtakes: a reader that comes after a waiting writer waits for it. A writer
    wakes one client; the end of a writer wakes the readers that waited for it. A writer can become a reader without
    letting another writer in (:meth:`downgrade`); not the other way round: two readers that both want to become
    writers would wait for each other forever.

    Limits: those of :class:`~zoolet.client.recipes.lock.Lock`.

    Args:
        client: Whose session holds it.
        path: What is locked.
        naming: ``kazoo``, ``curator`` or ``both``; as for Lock.
        timeout: Seconds to wait at most; None for no limit.
        on_lost: As for Lock.
        reentrant: Allow the task that is inside a block to enter once more: a writer as a writer or a reader, a reader
            as a reader.
        revocable: As for Lock. A client that wants to write can ask all readers, with ``write().revoke()``.
        release: As for Lock.
        data: What the nodes hold; as for Lock.
        acl: As for Lock.
    """

    def __init__(
        self,
        client: Client,
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
        self._namings = namings_of(naming)[::-1]  # as in the nodes of a lease
        options: dict[str, Any] = {"naming": naming, "timeout": timeout, "on_lost": on_lost, "data": data}
        options |= {"reentrant": reentrant, "revocable": revocable, "release": release}
        self._read = ReadLock(self._client, path, **options)
        self._write = WriteLock(self._client, path, **options)

    def read(self) -> ReadLock:
        """Return the readers' side."""
        return self._read

    def write(self) -> WriteLock:
        """Return the writers' side."""
        return self._write

    async def downgrade(self, lease: Lease) -> Lease:
        """Become a reader: in one transaction the writer's node goes and a reader's takes its place in line.

        Args:
            lease: The writer's; it is released by this.

        Returns:
            The reader's, to be released with its ``release()``, for it outlives an ``async with`` block of the
            writer's. Until the end of that block its loss cancels the block.

        Raises:
            LockLostError: The writer's node is gone.
            ValueError: The lease is not a writer's of this lock.
        """
        lease.raise_if_lost()
        writer_nodes = [path for path, _ in lease.nodes]
        if lease._client.session_id != self._client.session_id or not self._are_writers(writer_nodes):
            raise ValueError(f"{lease!r} is not a writer's lease of the lock at {self._path}")
        uuid = self._client.new_uuid()
        reader_nodes = [
            self._reader_of(writer_node, naming, uuid)
            for writer_node, naming in zip(writer_nodes, self._namings, strict=True)
        ]
        lease._begin_exchange()
        try:
            czxid = await self._exchange(writer_nodes, reader_nodes)
        except BaseException:  # cancelled, too: which of the nodes are there is unknown
            lease._mark_lost("its downgrade was interrupted")
            for reader_node in reader_nodes:
                delete_in_background(self._client, reader_node)
            raise
        return self._read.take_over(lease, [(reader_node, czxid) for reader_node in reader_nodes])

    def _are_writers(self, nodes: list[str]) -> bool:
        """Return whether nodes are those of a writer of this lock, one of each naming."""
        return len(nodes) == len(self._namings) and all(
            paths.parent(node) == self._path and in_order(naming, ("write",), [paths.name(node)])
            for node, naming in zip(nodes, self._namings, strict=True)
        )

    def _reader_of(self, writer_node: str, naming: Naming, uuid: str) -> str:
        """Return the path of the reader's node that takes a writer's place."""
        return paths.join(self._path, prefix(naming, "read", uuid) + sequence_suffix(number_of(writer_node)))

    async def _exchange(self, writer_nodes: list[str], reader_nodes: list[str]) -> int:
        """Put nodes in the place of others, however often the reply is lost; return the czxid of the new ones."""
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
