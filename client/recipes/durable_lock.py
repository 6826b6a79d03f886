"""A lock that outlives sessions: its holder has a name, and renews it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import weakref
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.limits import timeout_saying
from zoolet.client.aio.reliable import PAUSE, repeat_despite_errors
from zoolet.client.aio.suspension import SteadyClock
from zoolet.client.recipes._base import checked_client
from zoolet.client.recipes._lease import Lease
from zoolet.client.recipes._lock_base import LockBase, OnLost
from zoolet.client.recipes._owned_node import delete_both, delete_both_guaranteed
from zoolet.client.wire.arguments import checked_count, checked_timeout
from zoolet.protocol import paths
from zoolet.protocol.acl import ACL
from zoolet.protocol.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from zoolet.protocol.records import Stat

RENEWALS: Final = 3
"""How often a durable lock is renewed within its TTL."""


class Holder(NamedTuple):
    """The content of the node of a durable lock.

    Args:
        owner: Who holds it.
        ttl: Seconds without a renewal after which others may take it over.
        hold_id: Tells this hold from all others.
        version: The version of the node; each renewal adds one.
    """

    owner: str
    ttl: float
    hold_id: str
    version: int

    @classmethod
    def read(cls, path: str, data: bytes, stat: Stat) -> Holder:
        """Read a node.

        Raises:
            ValueError: It is not a durable lock's.
        """
        try:
            fields = serializers.json.decode(data)
            return cls(str(fields["owner"]), checked_ttl(fields["ttl"]), str(fields["id"]), stat.version)
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{path} is not a durable lock: its data are {data[:80]!r}") from None

    def encode(self) -> bytes:
        """Return the node's data."""
        return serializers.json.encode({"owner": self.owner, "ttl": self.ttl, "id": self.hold_id})

    def proof_node(self, path: str) -> str:
        """Return the node that exists for as long as nobody has taken the lock over."""
        return paths.join(path, self.hold_id)


def checked_ttl(ttl: float) -> float:
    """Return the TTL of a durable lock, in seconds.

    Raises:
        ValueError: It is shorter than 0.1 s, or no finite number.
    """
    if not math.isfinite(checked_count("ttl", ttl, 0.1)):
        raise ValueError(f"ttl is {ttl!r}; it must be finite")
    return ttl


class _NotFreeError(Exception):
    """It has another holder."""


class DurableLease(Lease):
    """A durable lock that is held: renewed in the background, and lost when it was taken over, or when the server has
    applied no renewal within its TTL. The end of a session does not end it.
    """

    _outlives_sessions = True
    _ends = "its TTL has passed"
    _expired = "it was not renewed within its TTL"
    _gone = "another one has taken it over, or somebody deleted its nodes"
    _closed = "the client was closed, and does not renew it any more; it is free when its TTL has passed"

    def __init__(
        self, client: Client, path: str, holder: Holder, proof: Stat, clock: SteadyClock, sent_at: float
    ) -> None:
        self._ttl = holder.ttl
        self._clock = clock
        self._renewed_at = sent_at  # when the newest renewal that was applied had been sent
        self._renewing: asyncio.Task[Any] | None = None
        super().__init__(client, holder.proof_node(path), proof.czxid)
        self.path = path
        if not self.lost.is_set():
            self._renewing = client.spawn(_renew(weakref.ref(self), client, path, holder, clock))

    def _time_left(self) -> float:
        return self._renewed_at + self._ttl - self._clock.now()

    def mark_renewed(self, sent_at: float) -> None:
        """Record that the server has applied a renewal that was sent at that time."""
        self._renewed_at = sent_at

    def _stop_monitors(self) -> None:
        super()._stop_monitors()
        if self._renewing is not None and self._renewing is not asyncio.current_task():
            self._renewing.cancel()

    def _delete(self) -> asyncio.Future[None]:
        return asyncio.ensure_future(delete_both(self._client, self.path, self.proof_node))

    async def _delete_guaranteed(self) -> None:
        await delete_both_guaranteed(self._client, self.path, self.proof_node)


async def _renew(ref: weakref.ref[DurableLease], client: Client, path: str, holder: Holder, clock: SteadyClock) -> None:
    sent_at, version = 0.0, holder.version

    async def renew() -> None:
        """Write the holder's node again, if it is still this holder's."""
        nonlocal sent_at, version
        while True:
            sent_at = clock.now()
            transaction = client.transaction()
            transaction.check(holder.proof_node(path))
            transaction.set(path, holder.encode(), version)
            try:
                await transaction.commit()
            except BadVersionError:  # the reply to an earlier one was lost, or this is another holder's node by now
                now = Holder.read(path, *await client.get(path))
                if now.hold_id != holder.hold_id:
                    raise NoNodeError(path) from None
                version = now.version
            else:
                version += 1
                return

    while True:
        await asyncio.sleep(holder.ttl / RENEWALS)
        try:
            await repeat_despite_errors(client, renew, fatal=(NoNodeError,), while_expired=True)
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

    Znodes: PATH persistent, JSON with ``owner``, ``ttl`` and ``id``; and ``PATH/<id>`` persistent, which proves whose
    PATH is. They are created and deleted together.

    Guarantees: one holder at a time. It renews the lock three times in a TTL, in whatever session. One that is not
    renewed is taken over by a contender that has seen it unchanged for its TTL, in a transaction that fails if it was
    renewed meanwhile; no clocks are compared. A program that was restarted, and has kept the token of its hold, has it
    again at once, unless another one had it in between. ``lease.token`` grows from hold to hold, and ``lease.lost``
    happens before another one can have it, unless that has presented its token.

    Limits: the end of a block releases it, also if the block raises or is cancelled: to keep it across a restart,
    :meth:`acquire` it, and release it when the work is done. A TTL has to be longer than the longest outage that is to
    be survived, and longer than the session timeout. After the holder has died the lock is held until somebody has
    watched it for its TTL. Where sessions are enough, Lock is fair and faster. Unfair; all that wait wake up when it
    ends. A server that loses its data loses its durable locks.

    Args:
        client: What is used to hold it.
        path: What is locked.
        owner: The holder's name, for people.
        ttl: Seconds without a renewal after which others may take it over, 0.1 or more.
        token: That of a former hold, to resume; 0 for none.
        timeout: Seconds to wait at most; None for no limit.
        on_lost: As for Lock.
        acl: The ACL list of its nodes; by default the client's. All contenders need all permissions.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        owner: str,
        *,
        ttl: float = 60.0,
        token: int = 0,
        timeout: float | None = None,
        on_lost: OnLost = "cancel",
        acl: Iterable[ACL] | None = None,
    ) -> None:
        super().__init__(on_lost)
        client = checked_client(client)
        self._share_holdings(client, "durable", client.add_chroot(path))
        if not isinstance(owner, str) or not owner:
            raise ValueError(f"owner is {owner!r}; it must be the name of the holder")
        self._client = (client if acl is None else client.with_acl(acl)).with_serializer(serializers.raw)
        self._path = path
        self._owner = owner
        self._ttl = checked_ttl(ttl)
        self._token = checked_count("token", token, 0)
        self._timeout = checked_timeout(timeout)
        self._clock = SteadyClock()
        self._seen: Holder | None = None  # the last that was seen
        self._seen_at = 0.0
        self._without_proof = ""  # a hold whose proof node somebody has deleted

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path} of {self._owner}>"

    async def holder(self) -> Holder | None:
        """Return who holds it, or held it last and did not release it; None if nobody does.

        Raises:
            ValueError: The node is not a durable lock's.
        """
        with contextlib.suppress(NoNodeError):
            return Holder.read(self._path, *await self._client.get(self._path))
        return None

    async def acquire(self, timeout: float | None = None) -> DurableLease:
        """Wait until it is free, or was not renewed for its TTL, and acquire it.

        Raises:
            DeadlockError: This task holds it, and would wait for itself.
            TimeoutError: It was not free in time.
            ConnectionLossError: There was no connection in time; what was created is deleted once there is one.
            ValueError: The node is not a durable lock's.
        """
        self._own_lease()
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        return await self._acquired_at_once(seconds) or await self._acquire(True, seconds)

    async def attempt(self) -> DurableLease | None:
        """Acquire it if it is free; None if it is not. Attempts that follow each other notice, too, that its holder
        does not renew it.

        Raises:
            ConnectionLossError: There was no connection in time; what was created is deleted once there is one.
            ValueError: The node is not a durable lock's.
        """
        try:
            return await self._acquire(False, None)
        except _NotFreeError:
            return None

    async def _acquire(self, wait: bool, timeout: float | None) -> DurableLease:
        sent_at: dict[str, float] = {}  # when each hold was asked for that may be held by now
        lease: DurableLease | None = None
        try:
            async with timeout_saying(timeout, lambda: f"{self._path} was not acquired", self._held_by):
                while lease is None:
                    try:
                        lease = await self._attempt(sent_at, wait)
                    except SessionExpiredError:  # which this lock outlives
                        await asyncio.sleep(PAUSE)
            return self._acquired(lease)
        except BaseException:  # cancelled, too
            if lease is not None:  # it came too late
                lease.release_nowait()
            for hold_id in sent_at:
                proof_node = paths.join(self._path, hold_id)
                self._client.spawn(delete_both_guaranteed(self._client, self._path, proof_node))
            raise

    def _held_by(self) -> str:
        return f": held by {self._seen.owner}" if self._seen is not None else ""

    async def _facts(self) -> str:
        return self._held_by()

    async def _attempt(self, sent_at: dict[str, float], wait: bool) -> DurableLease | None:
        """Look who holds it, and take it over, or return the lease if that was done before."""
        holder = await self._look(sent_at, wait)
        if holder is not None and holder.hold_id in sent_at:
            return await self._confirm(holder, sent_at)
        await self._take_over(holder, sent_at)
        return None

    async def _look(self, sent_at: dict[str, float], wait: bool) -> Holder | None:
        """Wait until the lock can be taken over, or is this very one's; return its holder, None if it has none.

        Raises:
            _NotFreeError: Instead of the wait, unless *wait*.
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
                self._seen = None
                return None

    async def _time_left(self, holder: Holder) -> float:
        """Return for how many seconds the lock is its holder's if it is not renewed; 0 if its token was presented."""
        if holder != self._seen:
            self._seen, self._seen_at = holder, self._clock.now()
        if self._token:
            proof = await self._client.exists(holder.proof_node(self._path))
            if proof is not None and proof.czxid == self._token:
                return 0.0
        return self._seen_at + holder.ttl - self._clock.now()

    async def _take_over(self, before: Holder | None, sent_at: dict[str, float]) -> None:
        """Ask for the lock, which nobody holds any more; what became of that, the next look shows."""
        client, path = self._client, self._path
        holder = Holder(self._owner, self._ttl, client.new_uuid(), 0)
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
        except (NodeExistsError, BadVersionError):  # another one was first, or it was renewed
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

    async def _confirm(self, holder: Holder, sent_at: dict[str, float]) -> DurableLease | None:
        proof = await self._client.exists(holder.proof_node(self._path))
        if proof is None:
            del sent_at[holder.hold_id]
            self._without_proof = holder.hold_id
            return None
        return DurableLease(self._client, self._path, holder, proof, self._clock, sent_at[holder.hold_id])
