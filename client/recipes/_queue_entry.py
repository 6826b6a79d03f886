"""An acquired entry of a locking queue, which can be acknowledged, put back, or moved to the dead entries."""

from __future__ import annotations

import logging
from typing import Generic, Self

from ...protocol import paths
from ...protocol.errors import NoNodeError, SessionExpiredError, ZooKeeperError
from ..aio.limits import wait_for_cleanup
from ..aio.operations import BaseClient
from ..aio.reliable import ensure_container
from ..serializers import UndecodableError, V
from ..wire.transaction import Transaction
from ._base import STOP_TIMEOUT
from ._lease import LockLostError
from ._owned_node import OwnedNode

_log = logging.getLogger("zoolet.client")


async def _move_entry(
    client: BaseClient, transaction: Transaction, path: str, move_to: str, data: bytes, attempts: int
) -> None:
    """Move an entry to the end of another queue: add the operations to *transaction*, and commit it."""
    await ensure_container(client, paths.parent(move_to), levels=2)
    transaction.delete(path)
    transaction.create(move_to, data, sequential=True)
    moved = (await transaction.commit())[-1]
    _log.warning("%s has failed %d times and was moved to %s", path, attempts, moved)


class QueueEntry(Generic[V]):
    """An entry and its lease: ``async with`` acknowledges the entry, or releases it if the block raises.

    Attributes:
        path: Path of the entry's node.
        data: Data of the node, as bytes.
        value: Value that was put; None if it cannot be read.
        error: Reason why the value cannot be read, with the bytes in ``error.data``. Acknowledge such an entry to take
            it off the queue.
        attempts: Number of times that the entry was acquired, including this time.
        move_to: Path to move the entry to, without the number, if this last attempt fails; empty in earlier attempts.
        lease: Lease of the entry, with ``lost``, ``token``, ``raise_if_lost()`` and ``transaction()``.
    """

    def __init__(self, client: BaseClient, path: str, data: bytes, lease: OwnedNode, attempts: int) -> None:
        self._client = client
        self.path = path
        self.data = data
        self.lease = lease
        self.attempts = attempts
        self.value: V = None  # type: ignore[assignment] # None remains only with an error
        self.error: UndecodableError | None = None
        self.move_to = ""

    async def acknowledge(self) -> None:
        """Delete the entry.

        Raises:
            LockLostError: The lease is lost, so another consumer may hold or have consumed the entry.
            ConnectionLossError: The connection was lost, and the entry may have been deleted.
        """
        try:
            self.lease.raise_if_lost()
            self.lease._start_exchange()  # the deletion of the node must not count as a loss
            async with self.lease.transaction() as transaction:
                for path in (self.path, self.lease.path, self.lease.proof_node):
                    transaction.delete(path)
        except BaseException as error:
            self.lease.release_nowait()  # if the entry still exists, other consumers can acquire it
            if isinstance(error, SessionExpiredError):
                raise LockLostError(self.path, "the session expired") from None
            if isinstance(error, NoNodeError):
                raise LockLostError(self.path, "another consumer has acknowledged the entry") from None
            raise
        self.lease._mark_released()

    async def consume(self) -> V:
        """Acknowledge the entry, and return its value.

        Raises:
            UndecodableError: The serializer cannot read the value.
            LockLostError: As for :meth:`acknowledge`.
            ConnectionLossError: As for :meth:`acknowledge`.
        """
        await self.acknowledge()
        if self.error is not None:
            raise self.error
        return self.value

    async def release(self) -> None:
        """Put the entry back for other consumers. They get it after the delay of the queue's *retry*.

        After its last attempt, move it to the dead entries instead.
        """
        if not self.lease.lost._happened and not self.lease.released:
            self.lease._start_exchange()  # the deletion of the node must not count as a loss
            try:
                await self._fail()
                self.lease._mark_released()
            except ZooKeeperError as error:  # the next consumer marks the entry as failed
                _log.info("%s could not be marked as failed: %s", self.path, error)
            except BaseException:  # a cancellation also has to release the lease
                self.lease.release_nowait()
                raise
        await self.lease.release()

    async def _fail(self) -> None:
        """Release the lease, in one transaction that also records the time of the failure or moves the entry away."""
        transaction = self._client.transaction()
        transaction.delete(self.lease.proof_node)
        transaction.delete(self.lease.path)
        if self.move_to:
            await _move_entry(self._client, transaction, self.path, self.move_to, self.data, self.attempts)
        else:
            transaction.set(self.path, self.data)
            await transaction.commit()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return await self.acknowledge()
        await wait_for_cleanup(self._client._core.spawn(self.release()), STOP_TIMEOUT)
