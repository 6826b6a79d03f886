"""A lock that many readers or one writer hold, in the order in which they asked."""

from __future__ import annotations

from collections.abc import Sequence

from zoolet.client.client import Client
from zoolet.client.recipes.contender import Contender, Rule, Turn, writers
from zoolet.client.recipes.held import LockLostError
from zoolet.client.recipes.layout import Entry, checked_layout, number_of, prefix
from zoolet.client.recipes.lock import Lock, LockHeld
from zoolet.protocol import paths
from zoolet.protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError
from zoolet.protocol.paths import sequence_suffix


def after_all(entries: Sequence[Entry], mine: int) -> Turn:
    """Wait for whoever came right before; look again then, for a writer may have become a reader in its place."""
    return Turn(entries[mine - 1], False) if mine else Turn(None, True)


def after_writers(entries: Sequence[Entry], mine: int) -> Turn:
    """Wait for the last writer who came before."""
    return writers(entries, mine)._replace(last=False)


class ReadLock(Lock):
    """The readers' side of a :class:`ReadWriteLock`: held together with other readers."""

    kind = "read"
    kinds = ("read", "write")
    rule: Rule = staticmethod(after_writers)


class WriteLock(Lock):
    """The writers' side of a :class:`ReadWriteLock`: held by one."""

    kind = "write"
    kinds = ("read", "write")
    rule: Rule = staticmethod(after_all)


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
        client: Client,
        path: str,
        *,
        layout: str = "kazoo",
        timeout: float | None = None,
        on_lost: str = "cancel",
        data: bytes = b"",
    ) -> None:
        self._client = client
        self._path = path
        self._layout = checked_layout(layout)
        self._timeout = timeout
        self._on_lost = on_lost
        self._data = data

    def read(self) -> ReadLock:
        """Give the readers' side."""
        return ReadLock(
            self._client,
            self._path,
            layout=self._layout,
            timeout=self._timeout,
            on_lost=self._on_lost,
            data=self._data,
        )

    def write(self) -> WriteLock:
        """Give the writers' side."""
        return WriteLock(
            self._client,
            self._path,
            layout=self._layout,
            timeout=self._timeout,
            on_lost=self._on_lost,
            data=self._data,
        )

    async def downgrade(self, held: LockHeld) -> LockHeld:
        """Become a reader: in one transaction the writer's node goes and a reader's takes its place in line.

        Args:
            held: The writer's; it is released by this.

        Returns:
            The reader's, to be released with its ``release()``.

        Raises:
            LockLostError: The writer's node is gone.
        """
        held.ensure()
        number = sequence_suffix(number_of(held.path))
        mine = paths.join(self._path, prefix(self._layout, "read", self._client.unique()) + number)
        held.stop_watching()
        try:
            czxid = await self._exchange(held.path, mine)
        except BaseException:
            held.give_way("its downgrade was broken off")
            self._client.in_background(self._client.sweep(mine))
            raise
        place = Contender(self._client, self._path, layout=self._layout, kind="read", kinds=("read", "write"))
        place.node, place.token = mine, czxid
        held.given_up()
        return LockHeld(self._client, [place], revocable=False)

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
