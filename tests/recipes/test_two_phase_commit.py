"""In a two-phase commit all sites do something, or none does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.leftovers import leftovers
from support.simulation import Connect, eventually, simulate_clients, with_client

from zoolet.client import Client, ConnectionLossError, NodeExistsError, NoNodeError
from zoolet.client.recipes import TwoPhaseCommit
from zoolet.server import Server
from zoolet.server.testing import Simulation, drop_request, hold, lose_reply


@pytest.mark.parametrize("votes", [(True, True), (True, False), (False, False)])
def test_it_is_committed_if_all_vote_so_and_only_then(votes: tuple[bool, bool]) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        async def site(name: str, commit: bool) -> bool:
            transaction = TwoPhaseCommit(await connect(), "/tx/1")
            assert await transaction.proposal() == {"move": 5}
            assert await transaction.vote(name, commit=commit)
            outcome = await transaction.outcome()
            await transaction.acted(name)
            return outcome

        sites = [asyncio.create_task(site(name, vote)) for name, vote in zip("ab", votes, strict=True)]
        await asyncio.sleep(1)
        transaction = TwoPhaseCommit(await connect(), "/tx/1")
        await transaction.propose({"move": 5}, ["a", "b"])
        assert await transaction.finish(timeout=10) is all(votes)
        assert await asyncio.gather(*sites) == [all(votes)] * 2
        assert set(server.tree()) == {"/tx"}

    simulate_clients(main)


def test_a_site_that_votes_abort_decides_it_before_the_others_have_voted() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.propose(None, ["a", "b"])
        await transaction.vote("a", commit=False)
        assert await transaction.outcome(timeout=1) is False

    with_client(main)


def test_what_is_aborted_stays_so_whatever_is_voted_later() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.propose(None, ["a", "b"])
        assert await transaction.vote("a", commit=True)
        with pytest.raises(TimeoutError):
            await transaction.outcome(timeout=5)
        assert await transaction.abort()
        assert not await transaction.vote("b", commit=True)
        assert await transaction.votes() == {"a": "commit", "b": "abort"}
        assert await transaction.vote("a", commit=True)
        assert not await transaction.outcome(timeout=1)

    with_client(main)


def test_what_is_committed_cannot_be_aborted() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.propose(None, ["a"])
        await transaction.vote("a", commit=True)
        assert await transaction.abort() is False
        assert not await transaction.vote("a", commit=False)
        assert await transaction.outcome() is True

    with_client(main)


def test_it_is_not_finished_before_all_have_acted() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.propose(1, ["a", "b"])
        with pytest.raises(RuntimeError, match="no outcome yet"):
            await transaction.acted("a")
        for name in "ab":
            await transaction.vote(name, commit=True)
        await transaction.acted("a")
        await transaction.acted("a")
        with pytest.raises(TimeoutError):
            await transaction.finish(timeout=5)
        assert await transaction.votes() == {"a": "commit done", "b": "commit"}
        assert await TwoPhaseCommit(zk, "/tx").outcome() is True  # by a site that comes back
        await transaction.acted("b")
        assert await transaction.finish(timeout=5) is True
        for gone in (transaction.outcome(), transaction.votes(), transaction.finish(), transaction.abort()):
            with pytest.raises(NoNodeError):
                await gone

    with_client(main)


def test_who_has_acted_is_recorded_although_another_votes_in_that_moment() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        transaction, site = TwoPhaseCommit(one, "/tx"), TwoPhaseCommit(two, "/tx")
        await transaction.propose(1, ["a", "b"])
        await transaction.vote("a", commit=False)
        with server.fault(hold(), "setData", "/tx/b", client=two) as fault:
            acting = asyncio.create_task(site.acted("b"))
            await eventually(lambda: fault.hits)
            await transaction.abort()
            fault.release()
            await acting
        await transaction.acted("a")
        assert await transaction.votes() == {"a": "abort done", "b": "abort done"}
        assert await transaction.finish(timeout=5) is False

    simulate_clients(main)


def test_a_repeated_finish_does_not_delete_the_next_transaction_of_the_path() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first, second = TwoPhaseCommit(one, "/tx"), TwoPhaseCommit(two, "/tx")
        await first.propose(1, ["a"])
        await first.vote("a", commit=True)
        await first.acted("a")
        with server.fault(lose_reply(), "multi", client=one, times=1, strict=True) as fault:
            finishing = asyncio.create_task(first.finish())
            await eventually(lambda: fault.hits)
            await second.propose(2, ["a"])
            await second.vote("a", commit=True)
            assert await finishing is True
        assert await second.votes() == {"a": "commit"}

    simulate_clients(main)


def test_what_is_proposed_after_another_has_finished_it_in_this_moment_stays() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first, second = TwoPhaseCommit(one, "/tx"), TwoPhaseCommit(two, "/tx")
        await first.propose(1, ["a"])
        await first.vote("a", commit=True)
        await first.acted("a")
        with server.fault(hold(), "exists", client=one, strict=True) as fault:
            finishing = asyncio.create_task(first.finish())
            await eventually(lambda: fault.hits)
            assert await second.finish() is True
            with server.fault(hold(), "multi", client=one):
                fault.release()
                await asyncio.sleep(1)
                await second.propose(2, ["a"])
        assert await finishing is True
        assert await second.votes() == {"a": ""}

    simulate_clients(main)


def test_a_proposal_that_may_have_been_made_says_so() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.refuse_connections()
        with server.fault(lose_reply(), "multi", times=1, strict=True):
            with pytest.raises(ConnectionLossError) as caught:
                await TwoPhaseCommit(zk.with_operation_timeout(1), "/tx").propose(1, ["a"])
            assert caught.value.maybe_applied
        server.accept_connections()

    with_client(main)


def test_a_timeout_says_what_was_missing() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        with pytest.raises(TimeoutError, match="/tx was not proposed within 1 s"):
            await transaction.proposal(timeout=1)
        await transaction.propose(1, ["a"])
        with pytest.raises(TimeoutError, match="/tx: not all sites had voted within 1 s"):
            await transaction.outcome(timeout=1)

    with_client(main)


def test_a_path_is_used_once_and_a_site_that_is_not_asked_cannot_vote() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.propose(1, ["a"])
        with pytest.raises(NodeExistsError):
            await transaction.propose(1, ["a"])
        with pytest.raises(NoNodeError):
            await transaction.vote("b", commit=True)

    with_client(main)


@pytest.mark.parametrize("sites", [[], "ab", ["a/b"], [""]])
def test_sites_that_make_no_sense_are_refused(sites: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(ValueError):
            await TwoPhaseCommit(zk, "/tx").propose(1, sites)
        assert "/tx" not in server.tree()

    with_client(main)


@pytest.mark.parametrize("op", ["multi", "setData", "getData", "addWatch"])
@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_what_is_lost_on_the_way_makes_no_difference(op: str, action: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        with server.fault(action(), op, times=1, strict=True):
            await transaction.propose(1, ["a"])
            assert await transaction.vote("a", commit=True)
            assert await transaction.outcome() is True
        await transaction.acted("a")
        assert await transaction.finish() is True

    with_client(main)


def test_one_that_is_cancelled_anywhere_can_be_repeated() -> None:
    async def work(zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.proposal()
        await transaction.vote("a", commit=True)
        await transaction.outcome()
        await transaction.acted("a")

    async def after(server: Server, zk: Client) -> None:
        await work(zk)
        assert await TwoPhaseCommit(zk, "/tx").finish(timeout=10) is True
        assert not leftovers(server)

    cancel_everywhere(work, before=lambda zk: TwoPhaseCommit(zk, "/tx").propose(1, ["a"]), after=after)


async def test_it_does_on_each_server_what_it_says(any_hosts: str) -> None:
    async with Client(any_hosts) as zk:
        transaction = TwoPhaseCommit(zk, f"/{zk.new_uuid()}")
        await transaction.propose({"n": 1}, ["a", "b"])
        await transaction.vote("a", commit=True)
        waiting = asyncio.ensure_future(transaction.outcome(timeout=10))
        await transaction.vote("b", commit=True)
        assert await waiting is True
        for name in "ab":
            await transaction.acted(name)
        assert await transaction.finish(timeout=10) is True
