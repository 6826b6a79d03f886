"""In a two-phase commit all sites act, or none does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.leftovers import leftovers
from support.simulation import Connect, eventually, simulate_clients, with_client
from support.waiting import DEADLINE_S

from zoolet.client import Client, ConnectionLossError, NodeExistsError, NoNodeError
from zoolet.client.recipes import TwoPhaseCommit
from zoolet.testing import Server, Simulation, drop_request, hold, lose_reply


@pytest.mark.parametrize("votes", [(True, True), (True, False), (False, False)])
def test_transaction_commits_only_if_all_sites_agree(votes: tuple[bool, bool]) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        async def site(name: str, commit: bool) -> bool:
            transaction = TwoPhaseCommit(await connect(), "/tx/1")
            assert await transaction.proposal() == {"move": 5}
            assert await transaction.vote(name, commit=commit)
            outcome = await transaction.outcome()
            await transaction.mark_done(name)
            return outcome

        sites = [asyncio.create_task(site(name, vote)) for name, vote in zip("ab", votes, strict=True)]
        await asyncio.sleep(1)
        transaction = TwoPhaseCommit(await connect(), "/tx/1")
        await transaction.propose({"move": 5}, ["a", "b"])
        assert await transaction.finish(timeout=10) is all(votes)
        assert await asyncio.gather(*sites) == [all(votes)] * 2
        assert set(server.tree()) == {"/tx"}

    simulate_clients(main)


def test_single_vote_to_abort_decides_transaction() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.propose(None, ["a", "b"])
        await transaction.vote("a", commit=False)
        assert await transaction.outcome(timeout=1) is False

    with_client(main)


def test_aborted_transaction_stays_aborted() -> None:
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


def test_committed_transaction_cannot_be_aborted() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.propose(None, ["a"])
        await transaction.vote("a", commit=True)
        assert await transaction.abort() is False
        assert not await transaction.vote("a", commit=False)
        assert await transaction.outcome() is True

    with_client(main)


def test_finish_waits_for_all_sites() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.propose(1, ["a", "b"])
        with pytest.raises(RuntimeError, match="no outcome yet"):
            await transaction.mark_done("a")
        for name in "ab":
            await transaction.vote(name, commit=True)
        await transaction.mark_done("a")
        await transaction.mark_done("a")
        with pytest.raises(TimeoutError):
            await transaction.finish(timeout=5)
        assert await transaction.votes() == {"a": "commit done", "b": "commit"}
        assert await TwoPhaseCommit(zk, "/tx").outcome() is True  # as read by a restarted site
        await transaction.mark_done("b")
        assert await transaction.finish(timeout=5) is True
        for gone in (transaction.outcome(), transaction.votes(), transaction.finish(), transaction.abort()):
            with pytest.raises(NoNodeError):
                await gone

    with_client(main)


def test_completed_action_is_recorded_despite_concurrent_abort() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        transaction, site = TwoPhaseCommit(one, "/tx"), TwoPhaseCommit(two, "/tx")
        await transaction.propose(1, ["a", "b"])
        await transaction.vote("a", commit=False)
        with server.fault(hold(), "setData", "/tx/b", client=two) as fault:
            acting = asyncio.create_task(site.mark_done("b"))
            await eventually(lambda: fault.hits)
            await transaction.abort()
            fault.release()
            await acting
        await transaction.mark_done("a")
        assert await transaction.votes() == {"a": "abort done", "b": "abort done"}
        assert await transaction.finish(timeout=5) is False

    simulate_clients(main)


def test_finish_repeated_after_lost_reply_keeps_next_transaction() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first, second = TwoPhaseCommit(one, "/tx"), TwoPhaseCommit(two, "/tx")
        await first.propose(1, ["a"])
        await first.vote("a", commit=True)
        await first.mark_done("a")
        with server.fault(lose_reply(), "multi", client=one, times=1, strict=True) as fault:
            finishing = asyncio.create_task(first.finish())
            await eventually(lambda: fault.hits)
            await second.propose(2, ["a"])
            await second.vote("a", commit=True)
            assert await finishing is True
        assert await second.votes() == {"a": "commit"}

    simulate_clients(main)


def test_transaction_proposed_during_second_finish_is_kept() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first, second = TwoPhaseCommit(one, "/tx"), TwoPhaseCommit(two, "/tx")
        await first.propose(1, ["a"])
        await first.vote("a", commit=True)
        await first.mark_done("a")
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


def test_proposal_without_reply_raises_maybe_applied() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.refuse_connections()
        with server.fault(lose_reply(), "multi", times=1, strict=True):
            with pytest.raises(ConnectionLossError) as caught:
                await TwoPhaseCommit(zk.with_operation_timeout(1), "/tx").propose(1, ["a"])
            assert caught.value.maybe_applied
        server.accept_connections()

    with_client(main)


def test_timeout_error_names_missing_step() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        with pytest.raises(TimeoutError, match="/tx was not proposed within 1 s"):
            await transaction.proposal(timeout=1)
        await transaction.propose(1, ["a"])
        with pytest.raises(TimeoutError, match="/tx: not all sites had voted within 1 s"):
            await transaction.outcome(timeout=1)

    with_client(main)


def test_used_transaction_path_and_unknown_site_are_refused() -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.propose(1, ["a"])
        with pytest.raises(NodeExistsError):
            await transaction.propose(1, ["a"])
        with pytest.raises(NoNodeError):
            await transaction.vote("b", commit=True)

    with_client(main)


@pytest.mark.parametrize("sites", [[], "ab", ["a/b"], [""]])
def test_proposal_with_invalid_sites_is_refused(sites: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(ValueError):
            await TwoPhaseCommit(zk, "/tx").propose(1, sites)
        assert "/tx" not in server.tree()

    with_client(main)


@pytest.mark.parametrize("op", ["multi", "setData", "getData", "addWatch"])
@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_transaction_commits_despite_lost_messages(op: str, action: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        with server.fault(action(), op, times=1, strict=True):
            await transaction.propose(1, ["a"])
            assert await transaction.vote("a", commit=True)
            assert await transaction.outcome() is True
        await transaction.mark_done("a")
        assert await transaction.finish() is True

    with_client(main)


def test_cancelled_site_can_repeat_its_step() -> None:
    async def work(zk: Client) -> None:
        transaction = TwoPhaseCommit(zk, "/tx")
        await transaction.proposal()
        await transaction.vote("a", commit=True)
        await transaction.outcome()
        await transaction.mark_done("a")

    async def after(server: Server, zk: Client) -> None:
        await work(zk)
        assert await TwoPhaseCommit(zk, "/tx").finish(timeout=10) is True
        assert not leftovers(server)

    cancel_everywhere(work, before=lambda zk: TwoPhaseCommit(zk, "/tx").propose(1, ["a"]), after=after)


async def test_two_phase_commit_works_on_each_server(any_hosts: str) -> None:
    async with Client(any_hosts) as zk:
        transaction = TwoPhaseCommit(zk, f"/{zk._core.new_uuid()}")
        await transaction.propose({"n": 1}, ["a", "b"])
        await transaction.vote("a", commit=True)
        waiting = asyncio.ensure_future(transaction.outcome(timeout=DEADLINE_S))
        await transaction.vote("b", commit=True)
        assert await waiting is True
        for name in "ab":
            await transaction.mark_done(name)
        assert await transaction.finish(timeout=DEADLINE_S) is True
