"""Both elections: the leader, the followers, and the view of observers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.leftovers import wait_until_clean
from support.simulation import Connect, simulate_clients

from zoolet.client import ClosedError
from zoolet.client.recipes import Election, LockLostError, NodeElection
from zoolet.testing import Server, Simulation

both_elections = pytest.mark.parametrize("kind", [Election, NodeElection])


@pytest.mark.parametrize("naming", ["kazoo", "curator"])
def test_candidates_lead_in_order_of_arrival(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        order: list[bytes] = []
        tokens: list[int] = []

        async def stand(name: bytes) -> None:
            async with Election(await connect(), "/leader", name, naming=naming) as leadership:
                order.append(name)
                tokens.append(leadership.token)
                await asyncio.sleep(5)

        names = [b"a", b"b", b"c", b"d"]
        tasks = []
        for name in names:
            tasks.append(asyncio.create_task(stand(name)))
            await asyncio.sleep(0.5)
        observer = Election(await connect(), "/leader", naming=naming)
        assert await observer.candidates() == names
        assert await observer.leader() == b"a"
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        await asyncio.sleep(0.1)
        assert await observer.candidates() == [b"a", b"c", b"d"]
        await asyncio.gather(tasks[0], *tasks[2:])
        assert order == [b"a", b"c", b"d"]
        assert tokens == sorted(tokens)
        await wait_until_clean(server)
        assert await observer.candidates() == []
        assert await observer.leader() is None

    simulate_clients(main)


@both_elections
def test_election_without_candidates_has_no_leader(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        assert await kind(await connect(), "/leader").leader() is None

    simulate_clients(main)


@both_elections
def test_leader_that_resigns_is_replaced(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first = await kind(one, "/leader", b"one").lead()
        with pytest.raises(TimeoutError):
            await kind(two, "/leader", b"two").lead(0.5)
        waiting = asyncio.create_task(kind(two, "/leader", b"two").lead())
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await first.release()
        second = await waiting
        assert second.token > first.token
        assert await kind(one, "/leader").leader() == b"two"
        await second.release()
        await wait_until_clean(server)

    simulate_clients(main)


@both_elections
def test_leader_stops_leading_after_session_end(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        with pytest.raises(LockLostError):  # noqa: PT012
            async with kind(one, "/leader", b"one"):
                await asyncio.sleep(0.5)
                server.expire(one)
                await asyncio.sleep(1000)
        async with kind(two, "/leader", b"two", timeout=10.0):
            assert await kind(two, "/leader").leader() == b"two"

    simulate_clients(main)


@both_elections
def test_observer_sees_leaders_despite_session_loss(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two, watcher = await connect(), await connect(), await connect()
        seen: list[bytes | None] = []

        async def look_on() -> None:
            async for leader in kind(watcher, "/leader").observe():
                seen.append(leader)  # noqa: PERF401 - as they come

        looking = asyncio.create_task(look_on())
        await asyncio.sleep(0.5)
        first = await kind(one, "/leader", b"one").lead()
        await asyncio.sleep(0.5)
        sim.network.drop()
        await asyncio.sleep(1)
        await first.release()
        await asyncio.sleep(0.5)
        server.expire(watcher)
        second = await kind(two, "/leader", b"two").lead()
        await asyncio.sleep(5)
        assert seen == [None, b"one", None, b"two"]
        looking.cancel()
        await asyncio.wait([looking])
        await second.release()
        await server.until(lambda: not server.watches(), timeout=20)

    simulate_clients(main)


@both_elections
def test_attempt_to_lead_succeeds_immediately_or_creates_no_node(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = kind(await connect(), "/leader"), kind(await connect(), "/leader")
        leadership = await one.attempt()
        before = server.tree()
        assert await two.attempt() is None
        with pytest.raises(TimeoutError, match="not free"):
            await two.lead(0)
        assert server.tree() == before
        await leadership.release()
        await (await two.lead(0)).release()
        await wait_until_clean(server)

    simulate_clients(main)


@both_elections
@pytest.mark.parametrize("waiting", [True, False], ids=["while it waits", "while it leads"])
def test_permanent_leader_is_reelected_in_next_session(kind: Any, waiting: bool) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, tokens = await connect(), []

        async def lead(leadership: Any) -> None:
            tokens.append(leadership.token)
            await asyncio.sleep(3600)

        other = await kind(await connect(), "/leader").lead()
        running = asyncio.create_task(kind(zk, "/leader").run(lead))
        await asyncio.sleep(1)
        if waiting:
            server.expire(zk)
            await asyncio.sleep(1)
        await other.release()
        await server.until(lambda: tokens, timeout=30)
        if not waiting:
            server.expire(zk)
            await server.until(lambda: len(tokens) == 2, timeout=30)
        assert tokens == sorted(set(tokens))
        running.cancel()
        await asyncio.wait([running])
        await wait_until_clean(server)

    simulate_clients(main)


@both_elections
def test_leader_resigns_and_stands_again_after_function_returns(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        terms: list[str] = []

        def candidate(name: str) -> Any:
            async def lead() -> None:  # the function may omit the argument *leadership*
                terms.append(name)
                await asyncio.sleep(1)

            return lead

        tasks = [asyncio.create_task(kind(await connect(), "/leader").run(candidate(name))) for name in "ab"]
        await asyncio.sleep(10)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert terms[:4] == ["a", "b", "a", "b"]
        await wait_until_clean(server)

    simulate_clients(main)


@both_elections
def test_run_requires_function(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        with pytest.raises(TypeError, match=r"^lead must be a function, not 5$"):
            await kind(await connect(), "/leader").run(5)

    simulate_clients(main)


@both_elections
def test_candidate_fails_when_its_client_closes(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with kind(one, "/leader"):
            running = asyncio.ensure_future(kind(two, "/leader").run(lambda: asyncio.sleep(1)))
            await asyncio.sleep(1)
            await two.aclose()
            with pytest.raises(ClosedError, match=r"the client is clos(ing|ed)$"):
                await running

    simulate_clients(main)
