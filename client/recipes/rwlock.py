"""A lock that many readers or one writer hold, in the order in which they asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoolet.client.recipes._contender import Rule, Turn, wait_for_writer
from zoolet.client.recipes._lease import Lease, LockLostError
from zoolet.client.recipes._lock_base import LockBase
from zoolet.client.recipes._node_names import NodeName, checked_naming, number_of, prefix
from zoolet.client.recipes.lock import Lock
from zoolet.client.reliable import delete_in_background
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.acl import AclList
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
        return isinstance(held, WriteLock)


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
        naming: ``kazoo`` or ``curator``.
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
        client: ClientSurface,
        path: str,
        *,
        naming: str = "kazoo",
        timeout: float | None = None,
        on_lost: str = "cancel",
        reentrant: bool = False,
        revocable: bool = False,
        release: str = "send",
        data: bytes | None = None,
        acl: AclList | None = None,
    ) -> None:
        self._client = client if acl is None else client.with_acl(acl)
        self._path = path
        self._naming = checked_naming(naming)
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
            The reader's, to be released with its ``release()``.

        Raises:
            LockLostError: The writer's node is gone.
        """
        lease.raise_if_lost()
        number = sequence_suffix(number_of(lease.path))
        node = paths.join(self._path, prefix(self._naming, "read", self._client.new_uuid()) + number)
        lease.stop_monitoring()
        try:
            czxid = await self._exchange(lease.path, node)
        except BaseException:  # cancelled, too: which of the two nodes is there is unknown
            lease.mark_lost("its downgrade was interrupted")
            delete_in_background(self._client, node)
            raise
        lease.mark_released()
        return Lease(self._client, node, czxid)

    async def _exchange(self, writer: str, reader: str) -> int:
        """Put one node in the place of another, however often the reply is lost; return the new one's czxid."""
        while True:
            transaction = self._client.transaction()
            transaction.create(reader, b"", ephemeral=True)
            transaction.delete(writer)
            failed = None
            try:
                await transaction.commit()
            except (NoNodeError, NodeExistsError, ConnectionLossError) as error:
                if isinstance(error, ConnectionLossError) and not error.maybe_applied:
                    raise
                failed = error
            stat = await self._client.exists(reader)
            if stat is not None:
                return stat.czxid
            if failed is None or isinstance(failed, NoNodeError):
                raise LockLostError(writer, "its node is gone") from None
