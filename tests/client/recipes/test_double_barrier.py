"""At a double barrier all participants start together and finish together."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.kazoo_clients import kazoo_client
from support.leftovers import leftovers, nodes_below
from support.simulation import Connect, eventually, make_client, simulate_clients, with_client
from support.waiting import DEADLINE_S

from zoolet.client import Client, SessionExpiredError
from zoolet.client.recipes import DoubleBarrier
from zoolet.testing import Server, Simulation, delay, drop_request, lose_reply


@pytest.mark.parametrize("members", [0, -1, 1.5, "2"])
def test_member_count_below_one_is_refused(members: Any) -> None:
    with pytest.raises(ValueError, match="members"):
        DoubleBarrier(Client("127.0.0.1:1"), "/b", members)


def test_single_member_passes() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with DoubleBarrier(zk, "/up/b", 1):
            assert "/up/b/ready" in server.tree()
        assert set(server.tree()) == {"/up", "/up/b"}
        await asyncio.sleep(1)
        assert not leftovers(server, zk)

    with_client(main)


def test_members_enter_and_leave_together() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as two, make_client(server, seed=7) as three:
            inside: list[int] = []
            outside: list[int] = []
            go = asyncio.Event()

            async def member(one: Client, number: int, after: float) -> None:
                async with DoubleBarrier(one, "/b", 3):
                    inside.append(number)
                    await go.wait()
                    await asyncio.sleep(after)
                    assert not outside
                outside.append(number)

            jobs = [asyncio.ensure_future(member(zk, 1, 0)), asyncio.ensure_future(member(two, 2, 10))]
            await asyncio.sleep(10)
            assert not inside
            assert len(nodes_below(server, "/b")) == 2
            assert all(re.fullmatch("[0-9a-f]{32}", name) for name in nodes_below(server, "/b"))
            jobs.append(asyncio.ensure_future(member(three, 3, 20)))
            await eventually(lambda: len(inside) == 3)
            assert server.tree()["/b/ready"].ephemeral_owner == 0
            go.set()
            await asyncio.gather(*jobs)
            assert set(server.tree()) == {"/b"}
            assert not leftovers(server, zk, two, three)

    with_client(main)


def test_timeout_of_entry_leaves_no_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(TimeoutError):
            await DoubleBarrier(zk, "/b", 2, timeout=5).enter()
        await asyncio.sleep(1)
        assert set(server.tree()) == {"/b"}
        assert not leftovers(server, zk)

    with_client(main)


def test_slow_member_causes_timeout() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            one, two = DoubleBarrier(zk, "/b", 2, timeout=5), DoubleBarrier(other, "/b", 2)
            await asyncio.gather(one.enter(), two.enter())
            with pytest.raises(TimeoutError):
                await one.leave()
            assert len(nodes_below(server, "/b")) == 2
            await two.leave()
            assert set(server.tree()) == {"/b"}

    with_client(main)


def test_session_end_while_entering_double_barrier_raises() -> None:
    async def main(server: Server, zk: Client) -> None:
        entering = asyncio.ensure_future(DoubleBarrier(zk, "/b", 2).enter())
        await asyncio.sleep(1)
        server.expire(zk)
        with pytest.raises(SessionExpiredError):
            await asyncio.wait_for(entering, 30)
        await asyncio.sleep(1)
        assert not leftovers(server, zk)

    with_client(main)


def test_member_losing_session_does_not_block_others() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            one, two = DoubleBarrier(zk, "/b", 2), DoubleBarrier(other, "/b", 2)
            await asyncio.gather(one.enter(), two.enter())
            server.expire(other)
            await asyncio.wait_for(one.leave(), 20)
            await asyncio.wait_for(two.leave(), 20)
            assert set(server.tree()) == {"/b"}

    with_client(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
@pytest.mark.parametrize("op", ["create", "delete", "exists", "getChildren"])
def test_double_barrier_works_despite_lost_messages(op: str, action: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:

            async def member(one: Client) -> None:
                async with DoubleBarrier(one, "/b", 2):
                    await asyncio.sleep(0.1)

            with server.fault(action(), op, nth=(2, 4, 5), strict=True):
                await asyncio.wait_for(asyncio.gather(member(zk), member(other)), 60)
                await asyncio.sleep(10)
            assert set(server.tree()) == {"/b"}
            assert not leftovers(server, zk, other)

    with_client(main)


def test_cancelled_entry_cleans_up() -> None:
    async def enter(zk: Client) -> None:
        with pytest.raises(TimeoutError):
            await DoubleBarrier(zk, "/up/b", 2, timeout=5).enter()

    cancel_everywhere(enter)


def test_cancelled_leave_does_not_block_others() -> None:
    barriers: list[DoubleBarrier] = []

    async def enter(zk: Client) -> None:
        barriers[:] = [DoubleBarrier(zk, "/b", 1)]
        await barriers[0].enter()

    async def leave(zk: Client) -> None:
        await barriers[0].leave()

    async def gone(server: Server, zk: Client) -> None:
        assert set(nodes_below(server, "/b")) <= {"ready"}

    cancel_everywhere(leave, before=enter, after=gone)


async def test_double_barrier_interoperates_with_kazoo() -> None:
    async with Server() as server, make_client(server) as zk, kazoo_client(server) as kazoo:
        theirs = kazoo.DoubleBarrier("/b", 2, identifier="k")
        entering = asyncio.ensure_future(asyncio.to_thread(theirs.enter))
        await asyncio.wait_for(DoubleBarrier(zk, "/b", 2).enter(), DEADLINE_S)
        await asyncio.wait_for(entering, DEADLINE_S)
        assert theirs.participating
        assert "/b/ready" in server.tree()


def test_leave_completed_late_does_not_disturb_next_round() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        barrier = DoubleBarrier(zk, "/b", 1)
        await barrier.enter()
        server.drop("all")
        leaving = asyncio.create_task(barrier.leave())
        await leaving
        await barrier.enter()
        await asyncio.sleep(2)
        assert len([path for path in server.tree("/b") if path.count("/") == 2 and "ready" not in path]) == 1
        await barrier.leave()

    simulate_clients(main)


# --- several rounds at one path ---


@pytest.mark.parametrize("op", ["getChildren", "delete", "exists", "multi", "create"])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_at_one_path_start_and_end_together(seed: int, op: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        inside: dict[int, int] = {}
        outside: dict[int, int] = {}

        async def member(zk: Client, own_barrier: bool) -> None:
            barrier = DoubleBarrier(zk, "/b", 3)
            for number in range(30):
                barrier = barrier if own_barrier else DoubleBarrier(zk, "/b", 3)
                async with barrier:
                    inside[number] = inside.get(number, 0) + 1
                    assert not outside.get(number)
                    await asyncio.sleep(sim.rng.choice([0, 0, 0.001, 0.01]))
                assert inside[number] == 3
                outside[number] = outside.get(number, 0) + 1
                await asyncio.sleep(sim.rng.choice([0, 0, 0.001, 0.01]))

        clients = [await connect() for _ in range(3)]
        slow = delay(0.02)
        with server.fault(slow, op, client=clients[2], probability=0.5):
            await asyncio.wait_for(asyncio.gather(*[member(zk, bool(place)) for place, zk in enumerate(clients)]), 600)
        await asyncio.sleep(1)
        assert set(server.tree()) == {"/b"}
        assert not leftovers(server, *clients)

    simulate_clients(main, seed)


def test_crashed_round_does_not_admit_single_member() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two, three, four = [await connect() for _ in range(4)]
        await asyncio.gather(DoubleBarrier(one, "/b", 2).enter(), DoubleBarrier(two, "/b", 2).enter())
        server.expire(one)
        server.expire(two)
        assert list(nodes_below(server, "/b")) == ["ready"]

        with pytest.raises(TimeoutError):
            await DoubleBarrier(three, "/b", 2, timeout=5).enter()

        barriers = [DoubleBarrier(zk, "/b", 2, timeout=5) for zk in (three, four)]
        await asyncio.gather(*[barrier.enter() for barrier in barriers])
        await asyncio.gather(*[barrier.leave() for barrier in barriers])
        assert set(server.tree()) == {"/b"}

    simulate_clients(main)


def test_error_inside_block_is_raised_immediately() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()

        async def fail() -> None:
            async with DoubleBarrier(one, "/b", 2):
                raise KeyError("defect")

        failing = asyncio.ensure_future(fail())
        async with DoubleBarrier(two, "/b", 2):
            with pytest.raises(KeyError):
                await asyncio.wait_for(failing, 1)
        await asyncio.sleep(1)
        assert set(server.tree()) == {"/b"}

    simulate_clients(main)


@pytest.mark.parametrize("how", ["timeout", "error"])
def test_member_with_lost_delete_is_counted_once_on_return(how: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        barrier = DoubleBarrier(zk, "/b", 2, timeout=5)
        with server.fault(drop_request(), "delete", client=zk, times=1, strict=True):
            if how == "timeout":
                with pytest.raises(TimeoutError):
                    await barrier.enter()
            else:
                entering = asyncio.ensure_future(DoubleBarrier(other, "/b", 2).enter())
                with pytest.raises(KeyError):  # noqa: PT012
                    async with barrier:
                        await entering
                        raise KeyError
                await other.delete(next(path for path in server.tree() if path.endswith("/ready")))
                for path in [path for path in server.tree() if server.tree()[path].ephemeral_owner == other.session_id]:
                    await other.delete(path)
            with pytest.raises(TimeoutError):
                await barrier.enter()

    simulate_clients(main)


# --- a number of members that is stored in the node ---


def test_barrier_reads_its_number_of_members_from_node_data() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(3)]
        with pytest.raises(TimeoutError, match="/b: fewer than the shared number of members arrived within 1 s"):
            await DoubleBarrier(clients[0], "/b", timeout=1).enter()
        await DoubleBarrier(clients[0], "/b").resize(3)

        async def member(zk: Client) -> None:
            async with DoubleBarrier(zk, "/b"):
                await asyncio.sleep(1)

        for resized in (3, 2):
            rounds = [asyncio.create_task(member(zk)) for zk in clients[:2]]
            await asyncio.sleep(10)
            if resized == 3:
                assert not any(task.done() for task in rounds)
                rounds.append(asyncio.create_task(member(clients[2])))
            await asyncio.wait_for(asyncio.gather(*rounds), 10)
            await DoubleBarrier(clients[2], "/b").resize(2)

        waiting = asyncio.create_task(member(clients[0]))
        await asyncio.sleep(10)
        assert not waiting.done()
        await DoubleBarrier(clients[2], "/b").resize(1)
        await asyncio.wait_for(waiting, 10)
        assert not nodes_below(server, "/b")

    simulate_clients(main)


@pytest.mark.parametrize("size", [1, 3])
def test_resize_during_round_does_not_disturb_members_inside(size: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(2)]
        barriers = [DoubleBarrier(zk, "/b", timeout=10.0) for zk in clients]
        await barriers[0].resize(2)
        await asyncio.gather(*[barrier.enter() for barrier in barriers])
        await barriers[0].resize(size)
        await asyncio.gather(*[barrier.leave() for barrier in barriers])
        await barriers[0].resize(2)
        await asyncio.gather(*[barrier.enter() for barrier in barriers])
        await asyncio.gather(*[barrier.leave() for barrier in barriers])

    simulate_clients(main)


def test_slow_leave_keeps_ready_node_of_next_round() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(4)]
        slow, *others = [DoubleBarrier(zk, "/b", 2, timeout=30.0) for zk in clients]
        await asyncio.gather(slow.enter(), others[0].enter())
        with server.fault(delay(2.0), "multi", client=clients[0], strict=True):  # this transaction deletes /b/ready
            leaving = asyncio.create_task(slow.leave())
            await others[0].leave()
            container = server.tree()["/b"].czxid
            await asyncio.gather(*[barrier.enter() for barrier in others[1:]])
            await leaving

        assert "/b/ready" in server.tree()
        assert server.tree()["/b"].czxid == container
        await asyncio.gather(*[barrier.leave() for barrier in others[1:]])

    simulate_clients(main)


def test_member_entering_late_keeps_ready_node_of_next_round() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(4)]
        slow, quitter, *others = [DoubleBarrier(zk, "/b", 2, timeout=30.0) for zk in clients]

        async def fail_inside() -> None:
            async with quitter:
                raise KeyError

        quitting = asyncio.create_task(fail_inside())
        await asyncio.sleep(0.5)
        # The third getData reads the version of the barrier's node.
        with server.fault(delay(3.0), "getData", client=clients[0], nth=3, strict=True):
            entering = asyncio.create_task(slow.enter())
            with pytest.raises(KeyError):
                await quitting
            await asyncio.sleep(0.2)
            await asyncio.gather(*[barrier.enter() for barrier in others])
            await entering
        leaving = asyncio.create_task(slow.leave())
        await asyncio.sleep(5)
        assert "/b/ready" in server.tree()
        await asyncio.gather(leaving, *[barrier.leave() for barrier in others])
        await eventually(lambda: set(server.tree()) == {"/b"})

    simulate_clients(main)
