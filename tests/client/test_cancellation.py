"""Cancellation of any operation at any moment, connected or not: the client keeps working, and nothing is left.

Everything runs in virtual time. An operation is started repeatedly and cancelled a moment later each time, until it
finishes before the cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final

import pytest
from support.waiting import DEADLINE_S

from zoolet.client import Backoff, Client, SessionExpiredError, State, ZooKeeperError
from zoolet.client.aio.watcher import Watcher
from zoolet.testing import Server, Simulation

LATENCY_S: Final = 0.001
STEP_S: Final = LATENCY_S / 2
MAX_MOMENTS: Final = 400  # more moments than any operation here takes


async def enter_watch(watch: Watcher) -> None:
    async with watch:
        await asyncio.sleep(LATENCY_S)


async def commit_transaction(zk: Client) -> None:
    async with zk.transaction() as t:
        t.create("/t")
        t.set("/top", b"1")


OPERATIONS: Final[dict[str, Callable[[Client], Coroutine[Any, Any, Any]]]] = {
    "get": lambda zk: zk.get("/top"),
    "set": lambda zk: zk.set("/top", b"1"),
    "create": lambda zk: zk.create("/new"),
    "create with parents": lambda zk: zk.create("/p/q/r", parents=True),
    "create protected": lambda zk: zk.create("/top/new", protected=True),
    "create protected, ephemeral and sequential": lambda zk: zk.create(
        "/p/new-", protected=True, ephemeral=True, sequential=True, parents=True
    ),
    "ensure_path": lambda zk: zk.ensure_path("/p/q/r/s"),
    "delete recursively": lambda zk: zk.delete("/top", recursive=True),
    "update": lambda zk: zk.update("/top", lambda old: old + b"!"),
    "multi_read": lambda zk: zk.multi_read(("get", "/top"), ("children", "/top")),
    "transaction": commit_transaction,
    "add_auth": lambda zk: zk.add_auth("digest", b"bob:secret"),
    "watch": lambda zk: enter_watch(zk.watch("/top")),
    "watch recursively": lambda zk: enter_watch(zk.watch("/top", recursive=True)),
    "watch_data": lambda zk: enter_watch(zk.watch_data("/top")),
    "watch_exists": lambda zk: enter_watch(zk.watch_exists("/top")),
    "watch_exists of nothing": lambda zk: enter_watch(zk.watch_exists("/nowhere")),
    "watch_children": lambda zk: enter_watch(zk.watch_children("/top")),
}


def simulation(seed: int = 3) -> Simulation:
    sim = Simulation(seed, limit=3600)
    sim.network.latency = (LATENCY_S, LATENCY_S)
    return sim


def names_of_other_tasks() -> set[str]:
    """Return the names of the tasks that are not done, except the current task."""
    return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def wait_until_idle(zk: Client) -> None:
    """Wait until the client has nothing more to do. Virtual time makes this fast."""
    async with asyncio.timeout(DEADLINE_S):
        with suppress(SessionExpiredError):
            await zk.sync()
        await zk.wait_for(State.CONNECTED)
        while not zk.statistics().idle:
            await asyncio.sleep(LATENCY_S)
    await asyncio.sleep(5 * LATENCY_S)


@pytest.mark.parametrize("meanwhile", ["nothing", "cut", "expire"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_cancellable_at_any_moment(name: str, meanwhile: str) -> None:
    sim = simulation()

    async def main() -> int:
        async with sim.server() as server:
            server.populate({"/top": {"a": {"x": b""}, "b": b""}})
            begun = server.snapshot()
            zk = Client(server.hosts, rng=Random(1), backoff=Backoff(first=LATENCY_S, longest=LATENCY_S))
            async with zk:
                for moment in range(MAX_MOMENTS):
                    task = asyncio.create_task(OPERATIONS[name](zk))
                    await asyncio.sleep(moment * STEP_S)
                    if task.done() and meanwhile == "nothing":
                        await task
                        return moment
                    if meanwhile == "cut":
                        sim.network.drop()
                    elif meanwhile == "expire":
                        server.expire("all")
                    ended = task.done()
                    task.cancel()
                    await asyncio.wait([task])
                    assert task.cancelled() or isinstance(task.exception(), ZooKeeperError | None)

                    await wait_until_idle(zk)
                    assert await zk.exists("/") is not None  # the client still works
                    assert names_of_other_tasks() == {"zoolet-client"}
                    assert server.watches() == ()
                    assert not zk.statistics().registrations
                    given = task.result() if not task.cancelled() and task.exception() is None else None
                    assert [path for path in server.tree() if "_c_" in path] in ([], [given])
                    if ended:
                        return moment
                    server.restore(begun)
        return MAX_MOMENTS

    assert 1 < sim.run(main()) < MAX_MOMENTS


def test_waiting_for_event_or_state_can_be_cancelled() -> None:
    sim = simulation()

    async def main() -> None:
        async with sim.server() as server, Client(server.hosts, rng=Random(1)) as zk:
            async with zk.watch("/a") as events:
                for moment in range(20):
                    waiting = [asyncio.create_task(events.next()), asyncio.create_task(zk.wait_for(State.LOST))]
                    await asyncio.sleep(moment * STEP_S)
                    for task in waiting:
                        task.cancel()
                    await asyncio.wait(waiting)
                    assert all(task.cancelled() for task in waiting)

                await zk.create("/a")
                assert (await events.next()).path == "/a"
            assert names_of_other_tasks() == {"zoolet-client"}

    sim.run(main())


def test_event_during_cancellation_is_not_lost() -> None:
    sim = simulation()

    async def main() -> None:
        async with sim.server() as server, Client(server.hosts, rng=Random(1)) as zk:
            async with zk.watch("/a") as events:
                for moment in range(12):
                    waiting = asyncio.create_task(events.next())
                    await asyncio.sleep(0)
                    change = zk.set("/a", b"") if moment else zk.create("/a")
                    await asyncio.sleep(moment * STEP_S)
                    waiting.cancel()
                    await asyncio.wait([waiting])
                    await change
                    got = [] if waiting.cancelled() else [waiting.result()]
                    got += [await events.next() for _ in range(events.pending)]
                    assert [event.path for event in got] == ["/a"]

    sim.run(main())


def test_start_is_cancellable_at_any_moment() -> None:
    sim = simulation()

    async def main() -> int:
        async with sim.server() as server:
            for moment in range(MAX_MOMENTS):
                zk = Client(server.hosts, rng=Random(1), auth=(("digest", b"bob:secret"),))
                task = asyncio.create_task(zk.start())
                await asyncio.sleep(moment * STEP_S)
                if task.done():
                    await zk.aclose()
                    return moment
                task.cancel()
                await asyncio.wait([task])

                assert task.cancelled()
                assert names_of_other_tasks() == set()
                assert zk.state in (State.CONNECTING, State.CLOSED)
        return MAX_MOMENTS

    assert 2 < sim.run(main()) < MAX_MOMENTS


def test_cancelled_close_can_be_repeated() -> None:
    sim = simulation()

    async def main() -> int:
        async with sim.server() as server:
            for moment in range(MAX_MOMENTS):
                zk = Client(server.hosts, rng=Random(1))
                await zk.start()
                task = asyncio.create_task(zk.aclose())
                await asyncio.sleep(moment * STEP_S)
                ended = task.done()
                task.cancel()
                await asyncio.wait([task])
                await zk.aclose()

                assert names_of_other_tasks() == set()
                assert zk.state is State.CLOSED
                if ended:
                    return moment
        return MAX_MOMENTS

    assert 2 < sim.run(main()) < MAX_MOMENTS


def test_cancelled_close_closes_client() -> None:
    sim = simulation()

    async def main() -> None:
        async with sim.server() as server:
            zk = Client(server.hosts, rng=Random(1))
            await zk.start()
            task = asyncio.create_task(zk.aclose())
            await asyncio.sleep(STEP_S)
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(1)
            left, state = names_of_other_tasks(), zk.state
            await zk.aclose()

            assert (left, state) == (set(), State.CLOSED)

    sim.run(main())


def test_cancelled_protected_create_without_reply_leaves_no_node() -> None:
    from zoolet.testing import lose_reply

    sim = simulation()

    async def main(server: Server) -> None:
        async with Client(server.hosts, rng=Random(1)) as zk:
            with server.fault(lose_reply(), "create", times=1, strict=True):
                task = asyncio.create_task(zk.create("/lock-", protected=True))
                await asyncio.sleep(1.5 * LATENCY_S)
                assert server.tree()
                task.cancel()
                await asyncio.wait([task])
            await wait_until_idle(zk)

            assert not server.tree()

    async def run() -> None:
        async with sim.server() as server:
            await main(server)

    sim.run(run())


def test_protected_create_cancelled_before_reply_is_undone() -> None:
    sim = simulation()

    async def run() -> None:
        async with sim.server() as server, Client(server.hosts, rng=Random(1)) as zk:
            call = zk.create("/lock-", protected=True)
            zk._core.flush()

            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await wait_until_idle(zk)

            assert not server.tree()

    sim.run(run())


def test_protected_create_finds_node_after_lost_reply() -> None:
    from zoolet.testing import lose_reply

    sim = simulation()

    async def run() -> None:
        async with sim.server() as server, Client(server.hosts, rng=Random(1)) as zk:
            with server.fault(lose_reply(), "create", times=1, strict=True):
                path = await zk.create("/lock-", ephemeral=True, sequential=True, protected=True)

            assert list(server.tree()) == [path]

    sim.run(run())


def test_call_cancelled_before_sending_is_never_sent() -> None:
    sim = simulation()

    async def run() -> None:
        async with sim.server() as server, Client(server.hosts, rng=Random(1)) as zk:
            zk.create("/a").cancel()
            await zk.sync()

            assert not server.tree()
            assert [op.op for op in server.ops()] == ["connect", "sync"]

    sim.run(run())


@pytest.mark.parametrize("sent", [False, True], ids=["unsent", "sent"])
def test_call_of_task_cancelled_before_first_step_has_no_effect(sent: bool) -> None:
    sim = simulation()

    async def run() -> None:
        async with sim.server() as server, Client(server.hosts, rng=Random(1)) as zk:
            server.populate({"/a": {str(number): "" for number in range(50)}})
            tasks = [
                asyncio.create_task(zk.create("/p-", protected=True)),
                asyncio.create_task(zk.delete("/a", recursive=True)),
            ]
            if sent:
                zk._core.flush()

            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await wait_until_idle(zk)

            assert len(server.tree()) == 51

    sim.run(run())


def test_protected_create_cancelled_after_reply_is_undone() -> None:
    sim = simulation()

    async def run() -> None:
        async with sim.server() as server, Client(server.hosts, rng=Random(1)) as zk:
            call = zk.create("/p-", protected=True)

            async def create() -> str:
                return await call

            call.add_done_callback(lambda _: task.cancel())  # registered before the callback that resumes the task
            task = asyncio.create_task(create())
            await asyncio.wait([task])
            await wait_until_idle(zk)

            assert task.cancelled()
            assert not server.tree()

    sim.run(run())


def test_completed_create_of_cancelled_task_is_undone() -> None:
    sim = simulation()

    async def run() -> None:
        async with sim.server() as server, Client(server.hosts, rng=Random(1)) as zk:
            call = zk.create("/p-", protected=True)
            await asyncio.sleep(1)
            assert call.done()

            task = asyncio.Task(call)  # starts later, even where create_task() starts tasks eagerly
            task.cancel()
            await asyncio.wait([task])
            await wait_until_idle(zk)

            assert not server.tree()

    sim.run(run())
