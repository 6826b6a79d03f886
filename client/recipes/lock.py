"""A fair lock: one holder at a time, in the order of the requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, get_args

from ...protocol import paths
from ...protocol.acl import ACL
from ...protocol.errors import NoNodeError, ZooKeeperError
from ...protocol.hexadecimal import hexadecimal
from ...protocol.recipe_names import Naming, Namings, NodeName, sort_by_arrival
from .. import serializers
from ..aio.operations import BaseClient
from ..wire.arguments import checked_choice, checked_timeout
from ._base import checked_client, resolve_namings
from ._contender import Contender, Rule, process_name, wait_for_predecessor
from ._follow import read_children
from ._lease import REVOKE_DATA, Lease
from ._lock_base import LockBase, OnLost

Release = Literal["send", "wait"]
_RELEASE_CHOICES: Final[tuple[str, ...]] = get_args(Release)
FACTS_TIMEOUT: Final = 0.2
"""Maximum time in seconds to find out which client holds the lock, for the error message of a timeout."""


class Lock(LockBase[Lease]):
    """A fair lock: ``async with Lock(zk, "/locks/p") as lease:``, or ``zk.lock("/locks/p")``.

    Znodes: ``PATH/<name>``, ephemeral and sequential, named as by kazoo's Lock or Curator's InterProcessMutex. Their
    data is *data*. PATH is created if it is missing, as a container: the server deletes it some time after its last
    child.

    Guarantees: clients hold the lock in the order of their nodes. A release wakes only one waiter. A waiter that gives
    up (timeout, cancellation, lost replies) leaves no node. If the reply to the create is lost, the node is found by a
    unique id in its name (:func:`~zoolet.client.aio.reliable.create_protected`). A lease reports its loss.

    Limits: a holder that is stopped for longer than its session timeout does not notice the loss of the lock until it
    resumes. Use ``lease.token`` or ``lease.transaction()`` for work that must be correct even then.

    Args:
        client: Client whose session holds the lock.
        path: Path of the lock.
        timeout: Longest wait in seconds, or None for no limit.
        naming: ``kazoo`` to also exclude kazoo's Lock(path), ``curator`` to also exclude Curator's
            InterProcessMutex(path), ``both`` to exclude the two of them, at twice the cost. (kazoo and Curator do not
            exclude each other. With ``extra_lock_patterns=["-lock-"]``, kazoo's Lock waits for Curator's, but Curator's
            does not wait for kazoo's.)
        on_lost: ``cancel`` cancels the task inside the ``async with`` block when the lock is lost, and the block
            raises LockLostError. ``flag`` only triggers ``lease.lost``.
        reentrant: Whether the task that holds the lock may enter or acquire it again. The last exit or release releases
            it. If False, entering it again raises DeadlockError, because the task would wait for itself.
        revocable: Whether :meth:`revoke` can request the release, which triggers ``lease.revoked``.
        release: ``send`` only sends the release at the end of a block, ``wait`` also waits for the server's answer.
        data: Human-readable data of the nodes, by default host and process id, such as ``host-1:4711``.
        acl: ACL list of the nodes, by default the client's.

    Raises:
        ValueError: An argument is invalid.
    """

    kind = "lock"
    kinds: tuple[str, ...] = ("lock",)
    rule: Rule = staticmethod(wait_for_predecessor)
    levels = 1
    """Number of nodes that are containers, counted from the path upwards."""

    def __init__(
        self,
        client: BaseClient[Any],
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
        client = checked_client(client)
        super().__init__(on_lost, client, self.kinds, client._core.add_chroot(path))
        self._client = client if acl is None else client.with_acl(acl)
        self._raw = self._client.with_serializer(serializers.raw)
        self._path = path
        self._timeout = checked_timeout(timeout)
        self.namings: tuple[Naming, ...] = resolve_namings(naming)
        self.reentrant = reentrant
        self.waits_for_release = checked_choice("release", release, _RELEASE_CHOICES) == "wait"
        self._revocable = revocable
        self.data: bytes = process_name() if data is None else serializers.raw.encode(data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    def excludes(self, held: LockBase[Any]) -> bool:
        """Return whether the two locks have a naming in common."""
        return isinstance(held, Lock) and not set(self.namings).isdisjoint(held.namings)

    def _new_contender(self, naming: str) -> Contender:
        return Contender(
            self._raw,
            self._path,
            naming=naming,
            kind=self.kind,
            kinds=self.kinds,
            rule=self.rule,
            data=self.data,
            levels=self.levels,
        )

    async def acquire(self, timeout: float | None = None) -> Lease:
        """Wait for the lock, and return its lease.

        Args:
            timeout: Longest wait in seconds; None for the lock's own timeout; 0 to acquire the lock only if it is free.

        Raises:
            DeadlockError: The calling task holds the lock and would wait for itself.
            TimeoutError: The lock was not free in time. The message names the holder.
            ConnectionLossError: No connection was available in time.
            SessionExpiredError: The session ended during the wait.
        """
        if (lease := self._enter_own_lease()) is not None:
            return lease
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        places = list(map(self._new_contender, self.namings))
        if seconds is None:
            return await self._wait_in_lines(places)
        if (lease := await self._acquire_nowait(seconds)) is not None:
            return lease
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._wait_in_lines(places)
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            del limit  # it refers to the task, which may refer to the error
        raise TimeoutError(f"{self._path} was not free within {seconds:g} s{await self._holder_facts(places)}")

    async def _wait_in_lines(self, places: list[Contender]) -> Lease:
        """Wait in the line of each contender in turn, and return the lease."""
        try:
            for place in places:
                await place.enter()
                await place.wait()
            return self._record_holder(await self._confirm_lease(places))
        except BaseException:  # a cancellation also has to clean up
            _leave_lines(places)
            raise

    async def _holder_facts(self, places: Sequence[Contender] = ()) -> str:
        """Return a text with the holder and the number of waiters; empty if the server does not answer quickly."""
        with contextlib.suppress(ZooKeeperError, TimeoutError):
            async with asyncio.timeout(FACTS_TIMEOUT):
                others = [node for node in await self.contenders() if not any(place.owns(node) for place in places)]
                if not others:  # the lock may be free by now
                    return ""
                data, stat = await self._raw.get(others[0])
                name = str(data)
                with contextlib.suppress(UnicodeDecodeError):
                    name = data.decode() or "an unnamed client"
                now = places[0].server_time() if places else None
                since = f", requested {now - stat.ctime / 1000:.0f} s ago" if now is not None else ""
                return (
                    f": held by {name} (session {hexadecimal(stat.ephemeralOwner)}{since}), {len(others) - 1} waiting"
                )
        return ""

    async def attempt(self) -> Lease | None:
        """Acquire the lock if it is free, or return None. No node is created while another client holds the lock.

        Raises:
            ConnectionLossError: No connection was available in time.
            SessionExpiredError: The session ended during the attempt.
        """
        if self.reentrant and (lease := self._enter_own_lease()) is not None:
            return lease
        places: list[Contender] = []
        if len(self.namings) > 1 and not await self.is_free():  # with one naming, the contender itself checks the line
            return None
        try:
            for naming in self.namings:
                place = self._new_contender(naming)
                if not await place.attempt():
                    _leave_lines(places)
                    return None
                places.append(place)
            return self._record_holder(await self._confirm_lease(places))
        except BaseException:  # a cancellation also has to clean up
            _leave_lines(places)
            raise

    async def is_free(self) -> bool:
        """Return whether :meth:`acquire` would succeed without waiting."""
        return all([await self._new_contender(naming).is_free() for naming in self.namings])

    async def _confirm_lease(self, places: list[Contender]) -> Lease:
        token = places[-1].token
        for place in places[:-1]:  # the other places were not watched while the last place waited
            token = await place.confirm()
        return self._make_lease([(place.node, place.czxid) for place in reversed(places)], token)

    def _make_lease(self, nodes: list[tuple[str, int]], token: int) -> Lease:
        """Return a lease of nodes, each with its czxid. The node that was acquired last comes first."""
        (path, czxid), *more = nodes
        return Lease(self._client, path, czxid, token=token, revocable=self._revocable, more_nodes=more)

    async def contenders(self) -> list[str]:
        """Return the paths of all nodes in line, the holder's first."""
        return [paths.join(self._path, node.name) for node in await self._line()]

    async def _line(self) -> list[NodeName]:
        return sort_by_arrival(self.namings[-1], self.kinds, await read_children(self._client, self._path))

    async def revoke(self) -> bool:
        """Request every holder to release the lock. Return whether the lock is held. Holders may ignore the request."""
        client, asked = self._raw, False
        line = await self._line()
        readers = next((place for place, node in enumerate(line) if node.row.kind != "read"), len(line))
        for node in line[: max(readers, 1)]:  # the leading readers, or else the first node
            with contextlib.suppress(NoNodeError):  # the holder may have released the lock since
                await client.set(paths.join(self._path, node.name), REVOKE_DATA)
                asked = True
        return asked


def _leave_lines(places: list[Contender]) -> None:
    for place in reversed(places):
        place.leave()
