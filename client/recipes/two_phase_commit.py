"""Two-phase commit: an action that either all sites carry out or none do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...protocol import paths
from ...protocol.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from .. import serializers
from ..aio.limits import timeout_with_message
from ..aio.operations import BaseClient
from ..aio.reliable import RETRY_DELAY, RefusalCounter, repeat
from ..wire.arguments import checked_node_name
from ..wire.states import WatchOverflowError
from ._base import Recipe

T = TypeVar("T")
COMMIT: Final = "commit"
ABORT: Final = "abort"
_DONE_SUFFIX: Final = " done"
"""Suffix of the vote of a site that has acted."""


class TwoPhaseCommit(Recipe):
    """An action that either all sites carry out or none do::

        transfer = TwoPhaseCommit(zk, "/transfers/17")
        await transfer.propose({"amount": 5}, ["bank-a", "bank-b"])       # the coordinator

        proposal = await transfer.proposal()                              # each site
        await transfer.vote("bank-a", commit=can_be_done(proposal))
        if await transfer.outcome():
            do_it(proposal)
        await transfer.mark_done("bank-a")

        await transfer.finish()                                           # the coordinator

    Znodes: PATH, persistent, JSON with the ``sites`` and the ``value``. ``PATH/<site>``, persistent, the vote of the
    site: empty, then ``commit`` or ``abort``, followed by ``done`` when it has acted.

    Guarantees: the outcome is commit if every site votes commit, and abort as soon as one votes abort. A vote is cast
    once, and counts even if its site dies. No site has to wait for a site that has not voted: :meth:`abort` votes for
    it, unless that site votes at the same moment. Every program that restarts finds the votes, and so the outcome.

    Limits: a site that has voted to commit must wait for the other votes, or for :meth:`abort`, before it acts. Its
    action must not fail, or must be repeated until it succeeds. If a site never returns, another program must call
    :meth:`vote` and :meth:`mark_done` for it. After :meth:`finish` nothing is left. Use a separate path for each
    transaction, such as ``/transfers/17``.

    Args:
        client: Client that proposes, votes or reads the outcome.
        path: Path of the transaction.

    Source: the recipe of two-phased commit in ZooKeeper's documentation.
    """

    def __init__(self, client: BaseClient[Any], path: str) -> None:
        super().__init__(client, path)
        self._json = self._client.with_serializer(serializers.json)
        self._raw = self._client.with_serializer(serializers.raw)

    # --- the coordinator ---

    async def propose(self, value: Any, sites: Sequence[str]) -> None:
        """Propose a transaction to the sites.

        Args:
            value: The proposal, any JSON value.
            sites: Names of all sites that must agree, at least one.

        Raises:
            NodeExistsError: The path already has a transaction.
            ConnectionLossError: No connection was available in time. If ``maybe_applied`` is true, the transaction may
                have been proposed.
            ValueError: *sites* is empty, or a name is not a valid node name.
        """
        names = sorted({checked_node_name(site) for site in sites})
        if isinstance(sites, str) or not names:
            raise ValueError(f"sites must be a list of at least one name, not {sites!r}")
        data = serializers.json.encode({"id": self._client._core.new_uuid(), "sites": names, "value": value})
        lost: ConnectionLossError | None = None  # error of the last try without a reply
        refusals = RefusalCounter()
        while True:
            transaction = self._raw.transaction()
            transaction.create(self._path, data)
            for name in names:
                transaction.create(self._child_path(name))
            try:
                await transaction.commit()
                return
            except NoNodeError:
                await self._client.ensure_path(paths.parent(self._path))
            except NodeExistsError:
                if lost is None or (await self._raw.get(self._path))[0] != data:
                    raise
                return
            except SessionExpiredError as error:
                lost = ConnectionLossError(self._path, str(error))
            except ConnectionLossError as error:
                if not error.maybe_applied:
                    raise lost or error from None
                refusals.check(error)
                lost = error

    async def finish(self, timeout: float | None = None) -> bool:
        """Wait until all sites have acted, delete the transaction, and return whether it was committed.

        Raises:
            TimeoutError: Some sites had not acted in time. Call :meth:`votes` to see which.
            NoNodeError: The path has no transaction.
        """

        def outcome_of_all(votes: dict[str, str]) -> bool | None:
            return _compute_outcome(votes) if all(vote.endswith(_DONE_SUFFIX) for vote in votes.values()) else None

        outcome = await self._wait_for(outcome_of_all, timeout, lambda: "some sites had not acted")
        try:
            nodes = [*map(self._child_path, await self.votes()), self._path]
        except NoNodeError:  # another client may have finished the transaction since
            return outcome
        stats = [stat for path in nodes if (stat := await self._client.exists(path)) is not None]
        if len(stats) < len(nodes):
            return outcome

        async def delete() -> None:
            async with self._raw.transaction() as transaction:
                for path, stat in zip(nodes, stats, strict=True):
                    transaction.check(path, stat.version)
                    transaction.delete(path)

        # If the reply is lost and the path has a new transaction, its nodes have different versions.
        await repeat(delete, done=(NoNodeError, BadVersionError))
        return outcome

    # --- a site ---

    async def proposal(self, timeout: float | None = None) -> Any:
        """Wait for the transaction, and return the proposal.

        Raises:
            TimeoutError: No transaction was proposed in time.
        """
        async with timeout_with_message(timeout, lambda: f"{self._path} was not proposed") as limit:
            while True:
                try:
                    async with self._client.watch_exists(self._path) as watch:
                        if watch.initial is not None:
                            return (await self._json.get(self._path))[0]["value"]
                        limit.check_may_wait()
                        await watch.next()
                except (ConnectionLossError, SessionExpiredError, NoNodeError):
                    await asyncio.sleep(RETRY_DELAY)

    async def vote(self, site: str, *, commit: bool) -> bool:
        """Vote once for a site, and return whether this vote counts.

        It does not count if another program has already voted differently for this site.

        Raises:
            NoNodeError: The path has no transaction, or the transaction does not involve this site.
            ConnectionLossError: No connection was available in time. You can repeat the call.
        """
        vote = COMMIT if commit else ABORT
        return (await self._cast_vote(site, vote)).removesuffix(_DONE_SUFFIX) == vote

    async def _cast_vote(self, site: str, vote: str) -> str:
        """Vote for a site that has no vote yet. Return the site's vote."""
        path = self._child_path(site)
        with contextlib.suppress(BadVersionError):  # the site has already voted
            while True:
                try:
                    await self._raw.set(path, vote.encode(), 0)
                    break
                except SessionExpiredError:
                    continue
                except ConnectionLossError as error:
                    if not error.maybe_applied:
                        raise
        return str((await self._raw.get(path))[0].decode())

    async def mark_done(self, site: str) -> None:
        """Record that a site has carried out the outcome.

        Raises:
            RuntimeError: The transaction has no outcome yet.
            NoNodeError: The path has no transaction, or the transaction does not involve this site. If the call repeats
                a failed call, this means that the failed call was recorded, and that the transaction has been finished.
            ConnectionLossError: No connection was available in time. The action may have been recorded.
        """
        outcome = _compute_outcome(await self.votes())
        if outcome is None:
            raise RuntimeError(f"{self._path} has no outcome yet; wait for outcome() before mark_done({site!r})")
        lost = False  # whether a request without a reply may have been applied
        while True:
            try:
                vote = await self._cast_vote(site, COMMIT if outcome else ABORT)  # a vote may be missing after abort()
                if not vote.endswith(_DONE_SUFFIX):
                    await self._raw.set(self._child_path(site), (vote + _DONE_SUFFIX).encode(), 1)
                return
            except BadVersionError:  # the vote was cast or recorded since
                continue
            except NoNodeError:
                if not lost:
                    raise
                return  # all sites have acted, and the transaction was finished
            except SessionExpiredError:
                lost = True
            except ConnectionLossError as error:
                if not error.maybe_applied:
                    raise
                lost = True

    # --- every client ---

    async def outcome(self, timeout: float | None = None) -> bool:
        """Wait for the outcome: True for commit, False for abort.

        Raises:
            TimeoutError: Some sites had not voted in time. Call :meth:`abort` to decide the outcome.
            NoNodeError: The path has no transaction.
        """
        return await self._wait_for(_compute_outcome, timeout, lambda: "not all sites had voted")

    async def abort(self) -> bool:
        """Vote abort for every site that has not voted. Return False if the transaction was committed instead.

        Raises:
            NoNodeError: The path has no transaction.
            ConnectionLossError: No connection was available in time. You can repeat the call.
        """
        votes = await self.votes()
        cast = {site: vote or await self._cast_vote(site, ABORT) for site, vote in votes.items()}
        return not _compute_outcome(cast)

    async def votes(self) -> dict[str, str]:
        """Return the vote of each site by name: empty, ``commit`` or ``abort``.

        After a site has acted, its vote is ``commit done`` or ``abort done``.

        Raises:
            NoNodeError: The path has no transaction.
        """
        fields, _ = await self._json.get(self._path)
        votes = await asyncio.gather(*[self._raw.get(self._child_path(site)) for site in fields["sites"]])
        return {site: data.decode() for site, (data, _) in zip(fields["sites"], votes, strict=True)}

    async def _wait_for(
        self, find: Callable[[dict[str, str]], T | None], timeout: float | None, missing: Callable[[], str]
    ) -> T:
        async with timeout_with_message(timeout, lambda: f"{self._path}: {missing()}") as limit:
            while True:
                try:
                    async with self._client.watch(self._path, recursive=True) as events:
                        while (result := find(await self.votes())) is None:
                            limit.check_may_wait()
                            await events.next()
                        return result
                except (ConnectionLossError, SessionExpiredError, WatchOverflowError):
                    await asyncio.sleep(RETRY_DELAY)


def _compute_outcome(votes: dict[str, str]) -> bool | None:
    """Return whether the outcome is commit, or None if it is undecided."""
    if any(vote.startswith(ABORT) for vote in votes.values()):
        return False
    return True if all(vote.startswith(COMMIT) for vote in votes.values()) else None
