"""Leader election by sequential nodes: a leader, and followers in order."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.reliable import PAUSE, repeat
from zoolet.client.recipes._base import checked_client
from zoolet.client.recipes._follow import children_of, observe, values_of
from zoolet.client.recipes._lease import Lease, LockLostError
from zoolet.client.recipes._lock_base import OnLost
from zoolet.client.recipes._node_names import Naming, checked_naming, in_order
from zoolet.client.recipes.lock import Lock
from zoolet.client.wire.arguments import checked_bytes


class _Candidacy(Lock):
    """A lock whose nodes are named as an election's."""

    kind = "latch"
    kinds = ("latch",)


class Election:
    """One leader, and the others in the order in which they will follow::

        async with Election(zk, "/leader", b"host-1") as leadership:
            ...  # leads, until the block is left or leadership.lost happens

    or, to lead again and again, ``await Election(zk, "/leader", b"host-1").run(lead)``.

    Znodes: ``PATH/<name>``, ephemeral and sequential, whose data is the candidate's name; named as kazoo's Election (a
    Lock) or Curator's LeaderLatch.

    Guarantees: the candidate that came first leads; when it goes, the next does, and only that one wakes up.
    ``leadership.token`` grows from leader to leader.

    Limits: those of Lock: a leader that is stopped does not know that it leads no more.

    Args:
        client: Whose session it is in.
        path: What is led.
        name: The candidate's name, for :meth:`candidates`.
        naming: ``kazoo`` or ``curator``.
        timeout: Seconds that ``async with`` waits for leadership at most; None for no limit.
        on_lost: As for Lock.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        name: bytes = b"",
        *,
        naming: Naming = "kazoo",
        timeout: float | None = None,
        on_lost: OnLost = "cancel",
    ) -> None:
        self._client = checked_client(client).with_serializer(serializers.raw)
        self._path = path
        self._naming = checked_naming(naming)
        self._line = _Candidacy(
            client, path, naming=naming, timeout=timeout, on_lost=on_lost, data=checked_bytes("name", name)
        )

    async def lead(self, timeout: float | None = None) -> Lease:
        """Become a candidate and wait for leadership; ``release()`` of the result resigns.

        Raises:
            TimeoutError: Others led for all that time; this is not a candidate any more.
        """
        return await self._line.acquire(timeout)

    async def attempt(self) -> Lease | None:
        """Lead if nobody does; None if somebody does, and then no node was created."""
        return await self._line.attempt()

    async def run(self, lead: Callable[..., Awaitable[Any]]) -> None:
        """Lead whenever elected, for life: in new sessions, too, and after each loss, until this is cancelled or *lead*
        raises another error.

        Args:
            lead: Called with the leadership each time, or without it if it has no parameter; cancelled when the
                leadership is lost, unless *on_lost* is ``flag``. When it returns, this resigns, and is a candidate
                again; so it does when it raises LockLostError, ConnectionLossError or SessionExpiredError.

        Raises:
            ClosedError: The client was closed.
        """
        await lead_for_life(self, lead)

    async def candidates(self) -> list[bytes]:
        """Return the names of the candidates, the leader's first."""
        line = in_order(self._naming, _Candidacy.kinds, await children_of(self._client, self._path))
        return list((await values_of(self._client, self._path, [node.name for node in line])).values())

    async def leader(self) -> bytes | None:
        """Return the leader's name; None if there is no leader."""
        return next(iter(await self.candidates()), None)

    async def observe(self) -> AsyncIterator[bytes | None]:
        """Iterate the leader's name: now, and after each change; None while there is none."""
        watch = self._client.watch_children
        async for leader in observe(self._client, lambda: watch(self._path), self.leader, self._path):
            yield leader

    async def __aenter__(self) -> Lease:
        return await self._line.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._line.__aexit__(*error)


async def lead_for_life(election: AbstractAsyncContextManager[Lease], lead: Callable[..., Awaitable[Any]]) -> None:
    """Enter an election again and again, and call *lead* with each leadership; see :meth:`Election.run`."""
    has_parameter = bool(inspect.signature(lead).parameters)

    async def once() -> None:
        async with election as leadership:
            leading = lead(leadership) if has_parameter else lead()
            if not inspect.isawaitable(leading):
                raise TypeError(f"{lead!r} must be an async function; it returned {leading!r}")
            await leading

    while True:
        await repeat(once, done=(LockLostError,))
        await asyncio.sleep(PAUSE)  # others may have their turn
