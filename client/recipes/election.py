"""Leader election with sequential nodes: a leader, and followers in order."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar

from ...protocol.recipe_names import Naming, sort_by_arrival
from .. import serializers
from ..aio.blocks import Block, ends_block, entered_block, returns_coroutine
from ..aio.operations import BaseClient
from ..aio.reliable import RETRY_DELAY, repeat
from ..wire.arguments import checked_bytes, checked_function
from ._base import checked_client, checked_naming
from ._follow import observe, read_children, read_values, watch_list
from ._lease import Lease, LockLostError
from ._lock_base import LockBase, OnLost
from .lock import Lock

L = TypeVar("L", bound=Lease)


class _Candidacy(Lock):
    """A lock with the node names of an election."""

    kind = "latch"
    kinds = ("latch",)


class ElectionBase(Generic[L]):
    """The common part of elections: a lock whose holder is the leader.

    Args:
        client: Client whose session the candidate uses.
        path: Path of the election.
        lock: Lock whose holder is the leader.
    """

    def __init__(self, client: BaseClient[Any], path: str, lock: LockBase[L]) -> None:
        self._client = checked_client(client).with_serializer(serializers.raw)
        self._path = path
        self._lock = lock

    async def lead(self, timeout: float | None = None) -> L:
        """Become a candidate and wait for leadership. To resign, call ``release()`` of the result.

        Args:
            timeout: Longest wait in seconds; None for the election's own timeout.

        Raises:
            TimeoutError: Other candidates led until the timeout. The client is no longer a candidate.
        """
        return await self._lock.acquire(timeout)

    async def attempt(self) -> L | None:
        """Become the leader if no candidate leads, and return the lease. Otherwise create no node, and return None."""
        return await self._lock.attempt()

    async def run(self, lead: Callable[..., Awaitable[Any]]) -> None:
        """Lead whenever elected, in new sessions and after each loss, until this call is cancelled.

        With a blocking client, which cannot cancel a thread, close the client in a different thread instead.

        Args:
            lead: Function that is called with each leadership, or without arguments if it has no parameters. It is
                cancelled when the leadership is lost, unless *on_lost* is ``flag``. When it returns or raises
                LockLostError, ConnectionLossError or SessionExpiredError, the client
                resigns and becomes a candidate again.

        Raises:
            ClosedError: The client was closed.
            TypeError: *lead* is not an async function.
            Exception: *lead* raised an error other than LockLostError, ConnectionLossError and SessionExpiredError.
        """
        checked_function("lead", lead)
        has_parameter = bool(inspect.signature(lead).parameters)

        async def once() -> None:
            async with self as leadership:
                leading = lead(leadership) if has_parameter else lead()
                if not inspect.isawaitable(leading):
                    raise TypeError(f"{lead!r} must be an async function, but returned {leading!r}")
                await leading

        while True:
            await repeat(once, done=(LockLostError,), limits_refusals=False)
            await asyncio.sleep(RETRY_DELAY)  # the pause lets other candidates lead

    @returns_coroutine
    def __aenter__(self) -> Awaitable[L]:
        return self._lock.__aenter__(entered_block(self))

    @ends_block
    @returns_coroutine
    def __aexit__(self, block: Block, *error: Any) -> Awaitable[None]:
        return self._lock._leave(block, *error)


class Election(ElectionBase[Lease]):
    """An election of a leader among candidates that lead in the order of their arrival::

        async with Election(zk, "/leader", b"host-1") as leadership:
            ...  # leads, until the block is left or leadership.lost happens

    or, to run for election again whenever leadership ends, ``await Election(zk, "/leader", b"host-1").run(lead)``.

    Znodes: ``PATH/<name>``, ephemeral and sequential, with the candidate's name as data, named as by kazoo's Election
    (a Lock) or Curator's LeaderLatch.

    Guarantees: the candidate that came first leads. When its node is deleted, the next candidate leads, and only that
    one wakes up. ``leadership.token`` grows from leader to leader.

    Limits: as for Lock: a leader that is stopped does not notice that it no longer leads.

    Args:
        client: Client whose session the candidate uses.
        path: Path of the election.
        name: Name of the candidate, for :meth:`candidates`.
        naming: ``kazoo`` or ``curator``.
        timeout: Longest wait for leadership in seconds with ``async with``, or None for no limit.
        on_lost: As for Lock.
    """

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        name: bytes = b"",
        *,
        naming: Naming = "kazoo",
        timeout: float | None = None,
        on_lost: OnLost = "cancel",
    ) -> None:
        self._naming = checked_naming(naming)
        data = checked_bytes("name", name)
        lock = _Candidacy(client, path, naming=naming, timeout=timeout, on_lost=on_lost, data=data)
        super().__init__(client, path, lock)

    async def candidates(self) -> list[bytes]:
        """Return the names of the candidates, the leader's first."""
        line = sort_by_arrival(self._naming, _Candidacy.kinds, await read_children(self._client, self._path))
        return list((await read_values(self._client, self._path, [node.name for node in line])).values())

    async def leader(self) -> bytes | None:
        """Return the leader's name, or None while no candidate leads."""
        return next(iter(await self.candidates()), None)

    def observe(self) -> AsyncIterator[bytes | None]:
        """Yield the leader's name, and yield it again after each change. The name is None while no candidate leads."""
        return observe(lambda: watch_list(self._client, self._path), self.leader)
