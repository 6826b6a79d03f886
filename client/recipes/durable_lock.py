"""A lock that outlives sessions: a named owner holds and renews it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import weakref
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ...protocol import paths
from ...protocol.acl import ACL
from ...protocol.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from ...protocol.records import Stat
from .. import serializers
from ..aio.limits import timeout_with_message
from ..aio.operations import BaseClient
from ..aio.reliable import RETRY_DELAY, RefusalCounter, repeat_despite_errors
from ..aio.suspension import SteadyClock
from ..wire.arguments import checked_count, checked_timeout
from ._base import checked_client
from ._lease import Lease
from ._lock_base import LockBase, OnLost
from ._owned_node import delete_node_pair, delete_node_pair_guaranteed

RENEWALS_PER_TTL: Final = 3
"""Number of renewals of a durable lock within its TTL."""


class Holder(NamedTuple):
    """The content of a durable lock's node.

    Args:
        owner: Name of the holder.
        ttl: Seconds without a renewal until other clients may take over the lock.
        hold_id: Unique id of this hold.
        version: Version of the node, incremented by each renewal.
    """

    owner: str
    ttl: float
    hold_id: str
    version: int

    @classmethod
    def read(cls, path: str, data: bytes, stat: Stat) -> Holder:
        """Return the holder that a node's data and Stat describe.

        Raises:
            ValueError: The node is not a durable lock.
        """
        try:
            fields = serializers.json.decode(data)
            return cls(str(fields["owner"]), checked_ttl(fields["ttl"]), str(fields["id"]), stat.version)
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{path} is not a durable lock: its data is {data[:80]!r}") from None

    def encode(self) -> bytes:
        """Encode the holder as the data of its node."""
        return serializers.json.encode({"owner": self.owner, "ttl": self.ttl, "id": self.hold_id})

    def proof_node(self, path: str) -> str:
        """Return the path of the node that exists until the lock is released or taken over."""
        return paths.join(path, self.hold_id)


def checked_ttl(ttl: float) -> float:
    """Check the TTL of a durable lock, in seconds, and return it.

    Raises:
        ValueError: The TTL is shorter than 0.1 s, or is not a finite number.
    """
    if not math.isfinite(checked_count("ttl", ttl, 0.1)):
        raise ValueError(f"ttl must be finite, not {ttl!r}")
    return ttl


class _NotFreeError(Exception):
    """The lock has a different holder."""


class DurableLease(Lease):
    """The lease of a durable lock, which is renewed in the background. It is lost when another client takes over the
    lock, or when the server has applied no renewal within the TTL, but not when a session ends.
    """

    _outlives_sessions = True
    _end_text = "its TTL has passed"
    _expired_reason = "not renewed within its TTL"
    _gone_reason = "another client took over the lock or deleted its nodes"
    _closed_reason = "the client was closed and no longer renews the lock, which becomes free after its TTL"

    def __init__(
        self, client: BaseClient[Any], path: str, holder: Holder, proof: Stat, clock: SteadyClock, sent_at: float
    ) -> None:
        self._ttl = holder.ttl
        self._clock = clock
        self._renewed_at = sent_at  # time when the latest applied renewal was sent
        self._renewal_task: asyncio.Task[Any] | None = None
        super().__init__(client, holder.proof_node(path), proof.czxid)
        self.path = path
        if not self.lost._happened:
            self._renewal_task = client._core.spawn(_renew(weakref.ref(self), client, path, holder, clock))

    def _time_left(self) -> float:
        return self._renewed_at + self._ttl - self._clock.now()

    def mark_renewed(self, sent_at: float) -> None:
        """Record that the server has applied a renewal that was sent at *sent_at*."""
        self._renewed_at = sent_at

    def _stop_monitors(self) -> None:
        super()._stop_monitors()
        if self._renewal_task is not None and self._renewal_task is not asyncio.current_task(
            self._renewal_task.get_loop()
        ):
            self._renewal_task.cancel()

    def _delete(self) -> asyncio.Future[None]:
        return asyncio.ensure_future(delete_node_pair(self._client, self.path, self.proof_node))

    async def _delete_guaranteed(self) -> None:
        await delete_node_pair_guaranteed(self._client, self.path, self.proof_node)


async def _renew(
    ref: weakref.ref[DurableLease], client: BaseClient[Any], path: str, holder: Holder, clock: SteadyClock
) -> None:
    sent_at, version = 0.0, holder.version

    async def renew() -> None:
        """Rewrite the holder's node, if it still belongs to this holder."""
        nonlocal sent_at, version
        while True:
            sent_at = clock.now()
            transaction = client.transaction()
            transaction.check(holder.proof_node(path))
            transaction.set(path, holder.encode(), version)
            try:
                await transaction.commit()
            except BadVersionError:  # an earlier renewal was applied without a reply, or there is a new holder
                now = Holder.read(path, *await client.get(path))
                if now.hold_id != holder.hold_id:
                    raise NoNodeError(path) from None
                version = now.version
            else:
                version += 1
                return

    while True:
        await asyncio.sleep(holder.ttl / RENEWALS_PER_TTL)
        try:
            await repeat_despite_errors(client, renew, fatal=(NoNodeError,), across_sessions=True)
        except (NoNodeError, ValueError):
            if (lease := ref()) is not None:
                lease._mark_gone()
            return
        if (lease := ref()) is None:
            return
        lease.mark_renewed(sent_at)
        del lease


class DurableLock(LockBase[DurableLease]):
    """A lock that outlives sessions and restarts: ``async with DurableLock(zk, "/job", "host-1", ttl=60) as lease:``.

    Znodes: PATH, persistent, JSON with ``owner``, ``ttl`` and ``id``. ``PATH/<id>``, persistent, the proof of
    ownership. The two nodes are created and deleted together.

    Guarantees: one holder at a time. The holder renews the lock three times per TTL, in any session. A contender takes
    over the lock once it has seen it without a renewal for its TTL, in a transaction that fails if the lock has been
    renewed since. Clocks are not compared. A program that restarts with the token of its hold regains the lock
    immediately, unless another client has held it since. ``lease.token`` grows from hold to hold. ``lease.lost``
    happens before another client can acquire the lock, unless that client presents the lease's token.

    Limits: leaving a block releases the lock, even if the block raises or is cancelled. To keep the lock across a
    restart, :meth:`acquire` it, and release it when the work is done. The TTL must be longer than the longest outage to
    survive, and longer than the session timeout. If the holder dies, the lock stays held until a contender has watched
    it for its TTL. Where sessions are enough, Lock is fair and faster. The lock is unfair, and its release wakes all
    waiters. A server that loses its data loses its durable locks.

    Args:
        client: Client that accesses the lock.
        path: Path of the lock.
        owner: Human-readable name of the holder.
        ttl: Seconds without a renewal until other clients may take over the lock, at least 0.1.
        token: Token of a previous hold to resume, or 0.
        timeout: Longest wait in seconds, or None for no limit.
        on_lost: As for Lock.
        acl: ACL list of the nodes, by default the client's. All contenders need all permissions.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        owner: str,
        *,
        ttl: float = 60.0,
        token: int = 0,
        timeout: float | None = None,
        on_lost: OnLost = "cancel",
        acl: Iterable[ACL] | None = None,
    ) -> None:
        client = checked_client(client)
        super().__init__(on_lost, client, "durable", client.add_chroot(path))
        if not isinstance(owner, str) or not owner:
            raise ValueError(f"owner must be a non-empty string, not {owner!r}")
        self._client = (client if acl is None else client.with_acl(acl)).with_serializer(serializers.raw)
        self._path = path
        self._owner = owner
        self._ttl = checked_ttl(ttl)
        self._token = checked_count("token", token, 0)
        self._timeout = checked_timeout(timeout)
        self._clock = SteadyClock()
        self._seen_holder: Holder | None = None  # the holder at the latest check
        self._seen_at = 0.0  # time of the first check that found this holder and version; the TTL counts from then
        self._refusals = RefusalCounter()
        self._without_proof = ""  # id of a hold whose proof node is deleted

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path} of {self._owner}>"

    async def holder(self) -> Holder | None:
        """Return the holder, even if its TTL has passed. Return None if the lock was released or never held.

        Raises:
            ValueError: The node is not a durable lock.
        """
        with contextlib.suppress(NoNodeError):
            return Holder.read(self._path, *await self._client.get(self._path))
        return None

    async def acquire(self, timeout: float | None = None) -> DurableLease:
        """Wait until the lock is free, or was not renewed for its TTL, and acquire it.

        Raises:
            DeadlockError: The calling task holds the lock and would wait for itself.
            TimeoutError: The lock was not free in time.
            ConnectionLossError: No connection was available in time. Created nodes are deleted after a reconnect.
            ValueError: The node is not a durable lock.
        """
        self._enter_own_lease()
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        return await self._acquire_nowait(seconds) or await self._acquire(True, seconds)

    async def attempt(self) -> DurableLease | None:
        """Acquire the lock if it is free, and return the lease. Return None if it is not free.

        Repeated attempts also detect that the holder no longer renews the lock.

        Raises:
            ConnectionLossError: No connection was available in time. Created nodes are deleted after a reconnect.
            ValueError: The node is not a durable lock.
        """
        try:
            return await self._acquire(False, None)
        except _NotFreeError:
            return None

    async def _acquire(self, wait: bool, timeout: float | None) -> DurableLease:
        sent_at: dict[str, float] = {}  # request times of holds that may exist, by their ids
        lease: DurableLease | None = None
        self._refusals = RefusalCounter()
        try:
            async with timeout_with_message(timeout, lambda: f"{self._path} was not acquired", self._holder_text):
                while lease is None:
                    try:
                        lease = await self._attempt(sent_at, wait)
                    except SessionExpiredError:  # a durable lock outlives the session
                        await asyncio.sleep(RETRY_DELAY)
            return self._record_holder(lease)
        except BaseException:  # a cancellation also has to clean up
            if lease is not None:  # the lease was acquired, but the caller cannot receive it
                lease.release_nowait()
            for hold_id in sent_at:
                proof_node = paths.join(self._path, hold_id)
                self._client._core.spawn(delete_node_pair_guaranteed(self._client, self._path, proof_node))
            raise

    def _holder_text(self) -> str:
        return f": held by {self._seen_holder.owner}" if self._seen_holder is not None else ""

    async def _holder_facts(self) -> str:
        return self._holder_text()

    async def _attempt(self, sent_at: dict[str, float], wait: bool) -> DurableLease | None:
        """Return the lease if an earlier attempt succeeded. Otherwise try to take over the lock, and return None."""
        holder = await self._wait_until_available(sent_at, wait)
        if holder is not None and holder.hold_id in sent_at:
            return await self._confirm(holder, sent_at)
        await self._take_over(holder, sent_at)
        return None

    async def _wait_until_available(self, sent_at: dict[str, float], wait: bool) -> Holder | None:
        """Wait until the lock can be taken over, or an earlier request of this attempt has acquired it.

        Returns:
            The current or previous holder; None if the lock is free.

        Raises:
            _NotFreeError: The lock is not free, and *wait* is False.
        """
        if sent_at:
            await self._client.sync(self._path)
        while True:
            try:
                async with self._client.watch_data(self._path) as watch:
                    holder = Holder.read(self._path, *watch.initial)
                    left = 0.0 if holder.hold_id in sent_at else await self._time_left(holder)
                    if left <= 0:
                        return holder
                    if not wait:
                        raise _NotFreeError
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await watch.next()
            except NoNodeError:
                self._seen_holder = None
                return None

    async def _time_left(self, holder: Holder) -> float:
        """Return the seconds until *holder* loses the lock if it is not renewed. Return 0 if ``_token`` matches."""
        if holder != self._seen_holder:
            self._seen_holder, self._seen_at = holder, self._clock.now()
        if self._token:
            proof = await self._client.exists(holder.proof_node(self._path))
            if proof is not None and proof.czxid == self._token:
                return 0.0
        return self._seen_at + holder.ttl - self._clock.now()

    async def _take_over(self, before: Holder | None, sent_at: dict[str, float]) -> None:
        """Try to acquire a lock that is free or can be taken over. The next check shows the result."""
        client, path = self._client, self._path
        holder = Holder(self._owner, self._ttl, client._core.new_uuid(), 0)
        transaction = client.transaction()
        if before is None:
            transaction.create(path, holder.encode())
        else:
            transaction.set(path, holder.encode(), before.version)
            if before.hold_id != self._without_proof:
                transaction.delete(before.proof_node(path))
        transaction.create(holder.proof_node(path))
        sent_at[holder.hold_id] = self._clock.now()
        try:
            await transaction.commit()
        except (NodeExistsError, BadVersionError):  # another client was faster, or the lock was renewed
            del sent_at[holder.hold_id]
        except NoNodeError as error:
            del sent_at[holder.hold_id]
            if before is None:
                await client.ensure_path(paths.parent(path))
            elif error.path != path:
                self._without_proof = before.hold_id
        except (ConnectionLossError, SessionExpiredError) as error:
            if isinstance(error, ConnectionLossError) and not error.maybe_applied:
                del sent_at[holder.hold_id]
                raise
            self._refusals.check(error)

    async def _confirm(self, holder: Holder, sent_at: dict[str, float]) -> DurableLease | None:
        proof = await self._client.exists(holder.proof_node(self._path))
        if proof is None:
            del sent_at[holder.hold_id]
            self._without_proof = holder.hold_id
            return None
        return DurableLease(self._client, self._path, holder, proof, self._clock, sent_at[holder.hold_id])
