"""Two-phase commit: several sites do something, all of them or none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.limits import timeout_saying
from zoolet.client.aio.reliable import PAUSE, repeat
from zoolet.client.recipes._base import Recipe
from zoolet.client.wire.arguments import checked_node_name
from zoolet.client.wire.states import WatchOverflowError
from zoolet.protocol import paths
from zoolet.protocol.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)

T = TypeVar("T")
COMMIT: Final = "commit"
ABORT: Final = "abort"
_DONE: Final = " done"
"""Appended to the vote of a site that has acted."""


class TwoPhaseCommit(Recipe):
    """A step that several sites take, all of them or none::

        transfer = TwoPhaseCommit(zk, "/transfers/17")
        await transfer.propose({"amount": 5}, ["bank-a", "bank-b"])       # the coordinator

        proposal = await transfer.proposal()                              # each site
        await transfer.vote("bank-a", commit=can_be_done(proposal))
        if await transfer.outcome():
            do_it(proposal)
        await transfer.acted("bank-a")

        await transfer.finish()                                           # the coordinator

    Znodes: PATH persistent, JSON with the ``sites`` and the ``value``; ``PATH/<site>`` persistent, its vote: nothing,
    then ``commit`` or ``abort``, and behind it ``done`` when it has acted.

    Guarantees: the outcome is commit if every site has voted so, and abort as soon as one has voted otherwise. A vote
    is cast once, and counts even if its site dies. Nobody has to wait for a site that has not voted: :meth:`abort`
    votes for it, unless it does so itself in that moment. Every program that comes back finds the votes, and so the
    outcome.

    Limits: a site that has voted to commit has to wait for the others' votes, or :meth:`abort`, before it acts. What it
    does then must not fail, or be repeated until it is done. For a site that never comes back somebody else calls
    :meth:`vote` and :meth:`acted`. After :meth:`finish` nothing is left; a path is for one transaction, such as
    ``/transfers/17``.

    Source: the recipe of two-phased commit in ZooKeeper's documentation.
    """

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(client, path)
        self._json = self._client.with_serializer(serializers.json)
        self._raw = self._client.with_serializer(serializers.raw)

    # --- the coordinator ---

    async def propose(self, value: Any, sites: Sequence[str]) -> None:
        """Propose something to the sites.

        Args:
            value: What; any JSON value.
            sites: The names of all that have to agree, one or more.

        Raises:
            NodeExistsError: There is a transaction of this path.
            ConnectionLossError: There was no connection in time; if its ``maybe_applied`` is true, it may have been
                proposed.
            ValueError: There is no site, or a name cannot be a node's.
        """
        names = sorted({checked_node_name(site) for site in sites})
        if isinstance(sites, str) or not names:
            raise ValueError(f"sites is {sites!r}; it must be a list of at least one name")
        data = serializers.json.encode({"id": self._client.new_uuid(), "sites": names, "value": value})
        lost: ConnectionLossError | None = None  # of the last try whose reply was lost
        while True:
            transaction = self._raw.transaction()
            transaction.create(self._path, data)
            for name in names:
                transaction.create(self._at(name))
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
                lost = error

    async def finish(self, timeout: float | None = None) -> bool:
        """Wait until all sites have acted, delete the transaction, and return whether it was committed.

        Raises:
            TimeoutError: Some had not acted in time; :meth:`votes` tells which.
            NoNodeError: There is no transaction of this path.
        """

        def outcome_of_all(votes: dict[str, str]) -> bool | None:
            return _outcome(votes) if all(vote.endswith(_DONE) for vote in votes.values()) else None

        outcome = await self._wait_for(outcome_of_all, timeout, lambda: "some sites had not acted")
        try:
            nodes = [*map(self._at, await self.votes()), self._path]
        except NoNodeError:  # another one has finished it in this moment
            return outcome
        stats = [stat for path in nodes if (stat := await self._client.exists(path)) is not None]
        if len(stats) < len(nodes):
            return outcome

        async def delete() -> None:
            async with self._raw.transaction() as transaction:
                for path, stat in zip(nodes, stats, strict=True):
                    transaction.check(path, stat.version)
                    transaction.delete(path)

        # If the reply is lost, and another transaction of this path has begun, its nodes have other versions.
        await repeat(delete, done=(NoNodeError, BadVersionError))
        return outcome

    # --- a site ---

    async def proposal(self, timeout: float | None = None) -> Any:
        """Wait for the transaction, and return what is proposed.

        Raises:
            TimeoutError: There was none in time.
        """
        async with timeout_saying(timeout, lambda: f"{self._path} was not proposed") as limit:
            while True:
                try:
                    async with self._client.watch_exists(self._path) as watch:
                        if watch.initial is not None:
                            return (await self._json.get(self._path))[0]["value"]
                        limit.before_waiting()
                        await watch.next()
                except (ConnectionLossError, SessionExpiredError, NoNodeError):
                    await asyncio.sleep(PAUSE)

    async def vote(self, site: str, *, commit: bool) -> bool:
        """Vote, once; return whether the vote that counts is this one: another program may have voted abort instead.

        Raises:
            NoNodeError: There is no transaction of this path, or it does not concern this site.
            ConnectionLossError: There was no connection in time; it can be repeated.
        """
        vote = COMMIT if commit else ABORT
        return (await self._cast(site, vote)).removesuffix(_DONE) == vote

    async def _cast(self, site: str, vote: str) -> str:
        """Vote for a site if nobody has; return its vote."""
        path = self._at(site)
        with contextlib.suppress(BadVersionError):  # it was cast before
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

    async def acted(self, site: str) -> None:
        """Record that a site has done what the outcome says.

        Raises:
            RuntimeError: There is no outcome yet.
            NoNodeError: There is no transaction of this path, or it does not concern this site. If it is repeated after
                an error: it was recorded, and the transaction has been finished.
            ConnectionLossError: There was no connection in time; it may have been recorded.
        """
        outcome = _outcome(await self.votes())
        if outcome is None:
            raise RuntimeError(f"{self._path} has no outcome yet; {site} cannot have acted")
        lost = False  # the reply to one that may have been applied
        while True:
            try:
                vote = await self._cast(site, COMMIT if outcome else ABORT)  # another site may have aborted it before
                if not vote.endswith(_DONE):
                    await self._raw.set(self._at(site), (vote + _DONE).encode(), 1)
                return
            except BadVersionError:  # it was cast, or recorded, in this moment
                continue
            except NoNodeError:
                if not lost:
                    raise
                return  # all have acted, and it was finished
            except SessionExpiredError:
                lost = True
            except ConnectionLossError as error:
                if not error.maybe_applied:
                    raise
                lost = True

    # --- everybody ---

    async def outcome(self, timeout: float | None = None) -> bool:
        """Wait for the outcome; return whether it is commit.

        Raises:
            TimeoutError: Not all had voted in time; :meth:`abort` decides it.
            NoNodeError: There is no transaction of this path.
        """
        return await self._wait_for(_outcome, timeout, lambda: "not all sites had voted")

    async def abort(self) -> bool:
        """Vote abort for every site that has not voted; return whether it is aborted: it may have been committed.

        Raises:
            NoNodeError: There is no transaction of this path.
            ConnectionLossError: There was no connection in time; it can be repeated.
        """
        votes = await self.votes()
        cast = {site: vote or await self._cast(site, ABORT) for site, vote in votes.items()}
        return not _outcome(cast)

    async def votes(self) -> dict[str, str]:
        """Return each site's vote: empty, ``commit`` or ``abort``; ``commit done`` or ``abort done`` if it has acted.

        Raises:
            NoNodeError: There is no transaction of this path.
        """
        fields, _ = await self._json.get(self._path)
        votes = await asyncio.gather(*[self._raw.get(self._at(site)) for site in fields["sites"]])
        return {site: data.decode() for site, (data, _) in zip(fields["sites"], votes, strict=True)}

    async def _wait_for(
        self, find: Callable[[dict[str, str]], T | None], timeout: float | None, what: Callable[[], str]
    ) -> T:
        async with timeout_saying(timeout, lambda: f"{self._path}: {what()}") as limit:
            while True:
                try:
                    async with self._client.watch(self._path, recursive=True) as events:
                        while (result := find(await self.votes())) is None:
                            limit.before_waiting()
                            await events.next()
                        return result
                except (ConnectionLossError, SessionExpiredError, WatchOverflowError):
                    await asyncio.sleep(PAUSE)


def _outcome(votes: dict[str, str]) -> bool | None:
    """Return whether it is commit; None if that is open."""
    if any(vote.startswith(ABORT) for vote in votes.values()):
        return False
    return True if all(vote.startswith(COMMIT) for vote in votes.values()) else None
