"""A lock that many readers or one writer hold, in the order in which they asked."""

from __future__ import annotations

from collections.abc import Sequence

from zoolet.client.recipes._contender import Contender, Rule, Turn, wait_for_writer
from zoolet.client.recipes._lease import LockLostError
from zoolet.client.recipes._node_names import Entry, checked_naming, number_of, prefix
from zoolet.client.recipes.lock import Lock, LockLease
from zoolet.client.reliable import delete_guaranteed
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError
from zoolet.protocol.paths import sequence_suffix


def wait_for_every_predecessor(entries: Sequence[Entry], mine: int) -> Turn:
    """Wait for whoever came right before; look again then, for a writer may have become a reader in its place."""
    return Turn(entries[mine - 1], False) if mine else Turn(None, True)


def wait_for_every_writer(entries: Sequence[Entry], mine: int) -> Turn:
    """Wait for the last writer who came before."""
    return wait_for_writer(entries, mine)._replace(last=False)


class ReadLock(Lock):
    """The readers' side of a :class:`ReadWriteLock`: held together with other readers."""

    kind = "read"
    kinds = ("read", "write")
    rule: Rule = staticmethod(wait_for_every_writer)


class WriteLock(Lock):
    """The writers' side of a :class:`ReadWriteLock`: held by one."""

    kind = "write"
    kinds = ("read", "write")
    rule: Rule = staticmethod(wait_for_every_predecessor)


class ReadWriteLock:
    """``async with rw.read() as held:`` and ``async with rw.write() as held:``.

    Znodes: ``PATH/<name>``, ephemeral and sequential, named as kazoo's ReadLock and WriteLock or Curator's
    InterProcessReadWriteLock.

    Guarantees: a writer is alone. Nobody overtakes: a reader that comes after a waiting writer waits for it. A writer
    wakes one client; the end of a writer wakes the readers that waited for it. A writer can become a reader without
    letting another writer in (:meth:`downgrade`). The other way round there is none: two readers that both want to
    become writers would wait for each other for ever.

    Limits: those of :class:`~zoolet.client.recipes.lock.Lock`.

    Args:
        client: Whose session holds it.
        path: What is locked.
        layout: ``kazoo`` or ``curator``.
        timeout: Seconds to wait at the most; None for ever.
        on_lost: As for Lock.
        data: What the nodes hold.
    """

    def __init__(
        self,
        client: ClientSurface,
        path: str,
        *,
        naming: str = "kazoo",
        timeout: float | None = None,
        on_lost: str = "cancel",
        data: bytes = b"",
    ) -> None:
        self._client = client
        self._path = path
        self._naming = checked_naming(naming)
        self._timeout = timeout
        self._on_lost = on_lost
        self._data = data

    def read(self) -> ReadLock:
        """Return the readers' side."""
        return ReadLock(
            self._client,
            self._path,
            naming=self._naming,
            timeout=self._timeout,
            on_lost=self._on_lost,
            data=self._data,
        )

    def write(self) -> WriteLock:
        """Return the writers' side."""
        return WriteLock(
            self._client,
            self._path,
            naming=self._naming,
            timeout=self._timeout,
            on_lost=self._on_lost,
            data=self._data,
        )

    async def downgrade(self, held: LockLease) -> LockLease:
        """Become a reader: in one transaction the writer's node goes and a reader's takes its place in line.

        Args:
            held: The writer's; it is released by this.

        Returns:
            The reader's, to be released with its ``release()``.

        Raises:
            LockLostError: The writer's node is gone.
        """
        held.raise_if_lost()
        number = sequence_suffix(number_of(held.path))
        mine = paths.join(self._path, prefix(self._naming, "read", self._client.new_uuid()) + number)
        held.stop_watching()
        try:
            czxid = await self._exchange(held.path, mine)
        except BaseException:
            held.mark_lost("its downgrade was broken off")
            self._client.spawn(delete_guaranteed(self._client, mine))
            raise
        place = Contender(self._client, self._path, naming=self._naming, kind="read", kinds=("read", "write"))
        place.node, place.token = mine, czxid
        held.mark_released()
        return LockLease(self._client, [place], revocable=False)

    async def _exchange(self, writer: str, reader: str) -> int:
        """Put one node in the place of another, however often the reply is lost; give the new one's czxid."""
        client = self._client
        while True:
            transaction = client.transaction()
            transaction.create(reader, b"", ephemeral=True)
            transaction.delete(writer)
            try:
                await transaction.commit()
            except (NoNodeError, NodeExistsError, ConnectionLossError) as error:
                if isinstance(error, ConnectionLossError) and not error.maybe_applied:
                    raise
                stat = await client.exists(reader)
                if stat is not None:
                    return stat.czxid
                if isinstance(error, NoNodeError):
                    raise LockLostError(writer, "its node is gone") from None
                continue
            stat = await client.exists(reader)
            if stat is None:
                raise LockLostError(reader, "its node is gone")
            return stat.czxid
