"""An entry of a locking queue that a consumer has acquired: acknowledged, put back, or moved to the dead ones."""

from __future__ import annotations

import logging
from typing import Any, Self

from zoolet.client.aio.client import Client
from zoolet.client.aio.reliable import ensure_container
from zoolet.client.recipes._lease import LockLostError
from zoolet.client.recipes._owned_node import OwnedNode
from zoolet.client.serializers import UndecodableError
from zoolet.client.wire.transaction import Transaction
from zoolet.protocol import paths
from zoolet.protocol.errors import NoNodeError, SessionExpiredError, ZooKeeperError

_log = logging.getLogger("zoolet.client")


async def _move(client: Client, transaction: Transaction, path: str, move_to: str, data: bytes, attempts: int) -> None:
    """Move an entry to the end of another queue, in a transaction that was begun."""
    await ensure_container(client, paths.parent(move_to))
    transaction.delete(path)
    transaction.create(move_to, data, sequential=True)
    moved = (await transaction.commit())[-1]
    _log.warning("%s has failed %d times; it is %s now", path, attempts, moved)


class Entry:
    """An entry and its lease; ``async with`` acknowledges it, or releases it if the block raises.

    Attributes:
        path: Its node.
        data: What the node holds, as bytes.
        value: What was put; None if it cannot be read.
        error: Why it cannot be read: its bytes are in ``error.data``. To acknowledge it takes it off the queue.
        attempts: How often it was acquired, this time included.
        move_to: Where it goes if this attempt, its last one, fails; empty if it comes back.
        lease: Its lease, with ``lost``, ``token``, ``raise_if_lost()`` and ``transaction()``.
    """

    def __init__(self, client: Client, path: str, data: bytes, lease: OwnedNode, attempts: int) -> None:
        self._client = client
        self.path = path
        self.data = data
        self.lease = lease
        self.attempts = attempts
        self.value: Any = None
        self.error: UndecodableError | None = None
        self.move_to = ""

    async def acknowledge(self) -> None:
        """Delete the entry.

        Raises:
            LockLostError: The lease is lost: it has another consumer, or had one.
            ConnectionLossError: It may have been deleted.
        """
        try:
            self.lease.raise_if_lost()
            self.lease._begin_exchange()  # its node goes now
            async with self.lease.transaction() as transaction:
                for path in (self.path, self.lease.path, self.lease.proof_node):
                    transaction.delete(path)
        except SessionExpiredError:
            raise LockLostError(self.path, "the session is over") from None
        except BaseException as error:
            self.lease.release_nowait()  # if it was not deleted, another consumer is to have it
            if isinstance(error, NoNodeError):
                raise LockLostError(self.path, "another consumer has acknowledged it") from None
            raise
        self.lease._mark_released()

    async def consume(self) -> Any:
        """Acknowledge it, and return its value.

        Raises:
            UndecodableError: The serializer cannot read it.
        """
        await self.acknowledge()
        if self.error is not None:
            raise self.error
        return self.value

    async def release(self) -> None:
        """Leave it to another consumer, after the delay that the queue's *retry* names; after its last attempt, move it
        to the dead ones.
        """
        if not self.lease.lost.is_set() and not self.lease.released:
            self.lease._begin_exchange()  # its node goes now
            try:
                await self._fail()
                self.lease._mark_released()
            except ZooKeeperError as error:  # the next consumer will do it
                _log.info("%s could not be marked as failed: %s", self.path, error)
            except BaseException:  # cancelled
                self.lease.release_nowait()
                raise
        await self.lease.release()

    async def _fail(self) -> None:
        """Release the lease, in one transaction with the time of the failure, or the entry's move to the dead ones."""
        transaction = self._client.transaction()
        transaction.delete(self.lease.proof_node)
        transaction.delete(self.lease.path)
        if self.move_to:
            await _move(self._client, transaction, self.path, self.move_to, self.data, self.attempts)
        else:
            transaction.set(self.path, self.data)
            await transaction.commit()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await (self.acknowledge() if kind is None else self.release())
