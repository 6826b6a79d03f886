"""A lock: one holder at a time, in the order in which they asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, get_args

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.recipes._base import checked_client
from zoolet.client.recipes._contender import Contender, Rule, process_name, wait_for_predecessor
from zoolet.client.recipes._follow import children_of
from zoolet.client.recipes._lease import REVOKE, Lease
from zoolet.client.recipes._lock_base import LockBase, OnLost
from zoolet.client.recipes._node_names import Naming, Namings, NodeName, in_order, namings_of
from zoolet.client.wire.arguments import checked_choice, checked_timeout
from zoolet.protocol import paths
from zoolet.protocol.acl import ACL
from zoolet.protocol.errors import NoNodeError, ZooKeeperError
from zoolet.protocol.hexadecimal import hexadecimal

Release = Literal["send", "wait"]
_RELEASES: Final[tuple[str, ...]] = get_args(Release)
FACTS_TIMEOUT: Final = 0.2
"""Seconds after a timeout for finding out who holds the lock."""


class Lock(LockBase[Lease]):
    """A fair lock: ``async with Lock(zk, "/locks/p") as lease:``, or ``zk.lock("/locks/p")``.

    Znodes: ``PATH/<name>``, ephemeral and sequential, named as kazoo's Lock or Curator's InterProcessMutex; their data
    is *data*. PATH is created if it is missing, as a container: the server deletes it some time after its last child.

    Guarantees: holders follow each other in the order of their nodes. When one goes, one waiter wakes up. A waiter that
    gives up (timeout, cancellation, lost replies) leaves no node. If the reply to the create is lost, the node is found
    again by a unique id in its name (:func:`~zoolet.client.aio.reliable.create_protected`). A lease says when it is
    lost.

    Limits: a holder that is stopped for longer than its session timeout does not know that it lost the lock until it
    goes on. Use ``lease.token`` or ``lease.transaction()`` for what must be right even so.

    Args:
        client: Whose session holds it.
        path: What is locked.
        timeout: Seconds to wait at most; None for no limit.
        naming: ``kazoo`` to exclude kazoo's Lock(path) too, ``curator`` to exclude Curator's InterProcessMutex(path),
            ``both`` to exclude both, at twice the price. (kazoo and Curator do not exclude each other; kazoo's with
            ``extra_lock_patterns=["-lock-"]`` waits for Curator's, and Curator's does not for it.)
        on_lost: ``cancel`` cancels the task inside the ``async with`` block when the lock is lost, and the block
            raises LockLostError; ``flag`` only makes ``lease.lost`` happen.
        reentrant: Allow the task that holds it to enter or acquire it once more; the last exit or release releases it.
            Without this, that raises DeadlockError: the task would wait for itself.
        revocable: Let :meth:`revoke` ask the holder to release it: ``lease.revoked`` happens.
        release: ``send`` only sends the release at the end of a block; ``wait`` waits until the server has answered it.
        data: What the node holds, for people to read; by default host and process id, ``host-1:4711``.
        acl: The ACL list of its nodes; by default the client's.

    Raises:
        ValueError: An argument is invalid.
    """

    kind = "lock"
    kinds: tuple[str, ...] = ("lock",)
    rule: Rule = staticmethod(wait_for_predecessor)

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        timeout: float | None = None,
        naming: Namings = "kazoo",
        on_lost: OnLost = "cancel",
        reentrant: bool = False,
        revocable: bool = False,
        release: Release = "send",
        data: bytes | None = None,
        acl: Iterable[ACL] | None = None,
    ) -> None:
        super().__init__(on_lost)
        client = checked_client(client)
        self._share_holdings(client, self.kinds, client.add_chroot(path))
        self._client = client if acl is None else client.with_acl(acl)
        self._path = path
        self._timeout = checked_timeout(timeout)
        self.namings: tuple[Naming, ...] = namings_of(naming)
        self.reentrant = reentrant
        self.waits_for_release = checked_choice("release", release, _RELEASES) == "wait"
        self._revocable = revocable
        self.data: bytes = process_name() if data is None else data

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    def excludes(self, held: LockBase[Any]) -> bool:
        """Return whether they have a naming in common."""
        return isinstance(held, Lock) and not set(self.namings).isdisjoint(held.namings)

    def _place(self, naming: str) -> Contender:
        return Contender(
            self._client,
            self._path,
            naming=naming,
            kind=self.kind,
            kinds=self.kinds,
            rule=self.rule,
            data=self.data,
        )

    async def acquire(self, timeout: float | None = None) -> Lease:
        """Wait for the lock; return its lease.

        Args:
            timeout: Seconds to wait at most; None for what the lock was made with; 0 to acquire it only if it is free.

        Raises:
            DeadlockError: This task holds it, and would wait for itself.
            TimeoutError: It was not free in time; the message says who holds it.
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended while waiting.
        """
        if (lease := self._own_lease()) is not None:
            return lease
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        if (lease := await self._acquired_at_once(seconds)) is not None:
            return lease
        places, limit = [self._place(naming) for naming in self.namings], asyncio.timeout(seconds)
        try:
            async with limit:
                for place in places:
                    await place.acquire()
                return self._acquired(await self._lease_of(places))
        except BaseException as error:  # cancelled, too
            _leave(places)
            if isinstance(error, TimeoutError) and limit.expired():
                raise TimeoutError(
                    f"{self._path} was not free within {seconds:g} s{await self._facts(places)}"
                ) from None
            raise

    async def _facts(self, places: Sequence[Contender] = ()) -> str:
        """Return who holds it and how many wait, if the server tells that at once."""
        with contextlib.suppress(ZooKeeperError, TimeoutError):
            async with asyncio.timeout(FACTS_TIMEOUT):
                others = [node for node in await self.contenders() if not any(place.owns(node) for place in places)]
                if not others:  # it is free in this moment
                    return ""
                data, stat = await self._client.with_serializer(serializers.raw).get(others[0])
                name = str(data)
                with contextlib.suppress(UnicodeDecodeError):
                    name = data.decode() or "somebody"
                now = places[0].server_time() if places else None
                since = f", which asked for it {now - stat.ctime / 1000:.0f} s ago" if now is not None else ""
                return (
                    f": held by {name} (session {hexadecimal(stat.ephemeralOwner)}{since}), {len(others) - 1} waiting"
                )
        return ""

    async def attempt(self) -> Lease | None:
        """Acquire it if it is free; None if it is not. No node is created while somebody holds it.

        Raises:
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended meanwhile.
        """
        if self.reentrant and (lease := self._own_lease()) is not None:
            return lease
        places: list[Contender] = []
        if len(self.namings) > 1 and not await self.is_free():  # with one, the place looks itself
            return None
        try:
            for naming in self.namings:
                place = self._place(naming)
                if not await place.attempt():
                    _leave(places)
                    return None
                places.append(place)
            return self._acquired(await self._lease_of(places))
        except BaseException:  # cancelled, too
            _leave(places)
            raise

    async def is_free(self) -> bool:
        """Return whether an acquire would get it without waiting."""
        return all([await self._place(naming).is_free() for naming in self.namings])

    async def _lease_of(self, places: list[Contender]) -> Lease:
        token = places[-1].token
        for place in places[:-1]:  # nothing watched them while the last one waited
            token = await place.confirm()
        return self._make_lease([(place.node, place.czxid) for place in reversed(places)], token)

    def _make_lease(self, nodes: list[tuple[str, int]], token: int) -> Lease:
        """Return the lease of some nodes, each with its czxid: first the one that was acquired last."""
        (path, czxid), *more = nodes
        return Lease(self._client, path, czxid, token=token, revocable=self._revocable, more_nodes=more)

    async def contenders(self) -> list[str]:
        """Return the paths of all nodes in line, the holder's first."""
        return [paths.join(self._path, node.name) for node in await self._line()]

    async def _line(self) -> list[NodeName]:
        return in_order(self.namings[-1], self.kinds, await children_of(self._client, self._path))

    async def revoke(self) -> bool:
        """Ask every holder to release it, which it may or may not do; return whether there was one."""
        client, asked = self._client.with_serializer(serializers.raw), False
        line = await self._line()
        readers = next((place for place, node in enumerate(line) if node.kind != "read"), len(line))
        for node in line[: max(readers, 1)]:  # all readers before the first writer hold it, or else the first one
            with contextlib.suppress(NoNodeError):  # it has just been released
                await client.set(paths.join(self._path, node.name), REVOKE)
                asked = True
        return asked


def _leave(places: list[Contender]) -> None:
    for place in reversed(places):
        place.leave()
