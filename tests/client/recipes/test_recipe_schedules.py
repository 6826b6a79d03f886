"""Each recipe keeps its guarantees during random failures, in virtual time, and leaves nothing at the end.

The failures are lost messages, dropped connections, pauses, expiries and cancellations. ``ZOOLET_SCHEDULES`` sets the
number of seeds.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Multiset
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from support import schedules
from support.leftovers import nodes_below
from support.schedules import FAILURE_RATES, running_clients
from support.simulation import eventually

from zoolet.client import Backoff, Client, ConnectionLossError, SessionExpiredError, serializers
from zoolet.client.recipes import (
    Barrier,
    ChildrenCache,
    Config,
    Counter,
    Discovery,
    DoubleBarrier,
    Instance,
    LockingQueue,
    LockLostError,
    Master,
    NodeCache,
    Party,
    PersistentEphemeral,
    Queue,
    TreeCache,
    TwoPhaseCommit,
    UniqueId,
    Worker,
)
from zoolet.client.recipes._queue_entry import QueueEntry
from zoolet.protocol.errors import NodeExistsError, NoNodeError, ZooKeeperError
from zoolet.testing import Server, Simulation, zoolet_schedules
from zoolet.testing.sim.chaos import Chaos

SESSION_S = 4.0
seeds = pytest.mark.parametrize("seed", schedules.seeds(share=0.5))
UNKNOWN_OUTCOME_ERRORS = (ConnectionLossError, SessionExpiredError)
Scenario = Callable[[Simulation, Server, list[Client], Chaos], Awaitable[None]]


def run_schedules(seed: int, number: int, do: Scenario) -> None:
    """Run *do* with *number* clients, and check that they leave nothing."""

    async def main(sim: Simulation, server: Server, chaos: Chaos) -> None:
        chaos.stop()  # no failures until the test starts them
        async with running_clients(sim, server, number, timeout=SESSION_S, operation_timeout=60.0) as clients:
            await do(sim, server, clients, chaos)
            await asyncio.sleep(SESSION_S)  # time to reconnect, so closing can end all sessions

    zoolet_schedules(1, seed=seed, limit=20_000.0, **FAILURE_RATES)(main)()


async def repeat_until_answered(do: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat an idempotent call until it is answered."""
    while True:
        try:
            return await do()
        except UNKNOWN_OUTCOME_ERRORS:
            await asyncio.sleep(0.1)


@asynccontextmanager
async def background_jobs(*jobs: Any) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run jobs until the block ends, and raise their errors."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def change_tree_randomly(sim: Simulation, zk: Client, writes: int = 40) -> None:
    """Change the tree below /t at random."""
    names = ["/t", "/t/a", "/t/b", "/t/a/x", "/t/a/y", "/t/b/x"]
    for number in range(writes):
        await asyncio.sleep(sim.rng.uniform(0.01, 0.6))
        path, what = sim.rng.choice(names), sim.rng.random()
        with suppress(ZooKeeperError):
            if what < 0.45:
                await zk.create(path, str(number).encode(), parents=True)
            elif what < 0.75:
                await zk.set(path, str(number).encode())
            else:
                await zk.delete(path, recursive=True)


@seeds
def test_caches_converge_to_tree_under_faults(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        zk, *others = clients
        async with AsyncExitStack() as stack:
            tree = await stack.enter_async_context(TreeCache(zk, "/t"))
            children = await stack.enter_async_context(ChildrenCache(zk, "/t/a"))
            node = await stack.enter_async_context(NodeCache(zk, "/t/a/x"))
            with chaos:
                await asyncio.gather(*[change_tree_randomly(sim, other) for other in others])
            await asyncio.sleep(60)
            there = server.tree()
            wanted = {path: view.data for path, view in there.items() if path == "/t" or path.startswith("/t/")}
            assert {path: cached.value for path, cached in tree.nodes.items()} == wanted
            direct = {path[5:]: data for path, data in wanted.items() if path.startswith("/t/a/")}
            assert children.values == direct
            assert node.value == wanted.get("/t/a/x")

    run_schedules(seed, 3, do)


@seeds
def test_queue_delivers_no_entry_twice_under_faults(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        put: list[bytes] = []
        maybe: list[bytes] = []
        got: list[bytes] = []
        unsure = 0

        async def producer(zk: Client, who: int) -> None:
            for number in range(15):
                value = f"{who}-{number}".encode()
                try:
                    await Queue(zk, "/q").put(value)
                    put.append(value)
                except UNKNOWN_OUTCOME_ERRORS:
                    maybe.append(value)
                await asyncio.sleep(sim.rng.uniform(0, 0.5))

        async def consumer(zk: Client) -> None:
            nonlocal unsure
            while True:
                try:
                    got.append(await Queue(zk, "/q").get())
                except UNKNOWN_OUTCOME_ERRORS:
                    unsure += 1

        async with background_jobs(*[consumer(zk) for zk in clients[2:]]):
            with chaos:
                await asyncio.gather(*[producer(zk, who) for who, zk in enumerate(clients[:2])])
            await eventually(lambda: not nodes_below(server, "/q"), 100)
            await asyncio.sleep(5)
        assert max(Multiset(got).values()) == 1
        assert set(got) <= {*put, *maybe}
        assert len(set(put) - set(got)) <= unsure

    run_schedules(seed, 4, do)


async def process_entry(entry: QueueEntry, work: Callable[[bytes], Awaitable[None]], how: str) -> None:
    """Process an entry and acknowledge it, in a block or explicitly. If processing fails, release the entry."""
    if how == "with":
        async with entry:
            await work(entry.value)
        return
    try:
        await work(entry.value)
        await entry.acknowledge()
    except BaseException:
        await entry.release()
        raise


@seeds
@pytest.mark.parametrize("how", ["with", "by hand"])
def test_locking_queue_acknowledges_each_entry_once(how: str, seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        put: list[bytes] = []
        maybe: list[bytes] = []
        processed: list[bytes] = []
        acknowledged: list[bytes] = []

        async def producer(zk: Client, who: int) -> None:
            for number in range(10):
                value = f"{who}-{number}".encode()
                try:
                    await LockingQueue(zk, "/q").put(value)
                    put.append(value)
                except UNKNOWN_OUTCOME_ERRORS:
                    maybe.append(value)
                await asyncio.sleep(sim.rng.uniform(0, 0.8))

        async def work(value: bytes) -> None:
            await asyncio.sleep(sim.rng.uniform(0, 0.5))
            if sim.rng.random() < 0.1:
                raise KeyError
            processed.append(value)

        async def consumer(zk: Client) -> None:
            queue = LockingQueue(zk, "/q")
            while True:
                with suppress(*UNKNOWN_OUTCOME_ERRORS, LockLostError, KeyError):
                    entry = await queue.acquire()
                    await process_entry(entry, work, how)
                    acknowledged.append(entry.value)

        async with background_jobs(*[consumer(zk) for zk in clients[2:]]):
            with chaos:
                await asyncio.gather(*[producer(zk, who) for who, zk in enumerate(clients[:2])])
            await eventually(lambda: set(nodes_below(server, "/q")) <= {"entries", "taken"}, 200)
            await asyncio.sleep(5)
        assert set(put) <= set(processed) <= {*put, *maybe}
        assert max(Multiset(acknowledged).values()) == 1

    run_schedules(seed, 4, do)


@seeds
@pytest.mark.parametrize("kind", [Queue, LockingQueue])
def test_repeated_put_with_key_adds_one_entry(kind: type[Queue], seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        async def producer(zk: Client, who: int) -> None:
            for number in range(15):
                name = f"{who}-{number}"
                await repeat_until_answered(lambda name=name: kind(zk, "/q").put(name.encode(), key=name))

        with chaos:
            await asyncio.gather(*[producer(zk, who) for who, zk in enumerate(clients)])
        await asyncio.sleep(60)
        got = list(nodes_below(server, "/q" if kind is Queue else "/q/entries").values())
        assert sorted(got) == sorted(f"{who}-{number}".encode() for who in range(3) for number in range(15))

    run_schedules(seed, 3, do)


@seeds
def test_entry_failing_every_time_moves_to_dead_queue(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        retry = Backoff(first=0.1, longest=1.0, tries=4)
        tried: list[int] = []

        async def consumer(zk: Client) -> None:
            queue = LockingQueue(zk, "/q", retry=retry)
            while True:
                with suppress(*UNKNOWN_OUTCOME_ERRORS, LockLostError, KeyError):
                    async with await queue.acquire() as entry:
                        tried.append(entry.attempts)
                        await asyncio.sleep(sim.rng.uniform(0, 0.5))
                        raise KeyError

        await repeat_until_answered(lambda: LockingQueue(clients[0], "/q").put(b"poison", key="poison"))
        async with background_jobs(*[consumer(zk) for zk in clients]):
            with chaos:
                await asyncio.sleep(20)
            await eventually(lambda: "/q/dead" in server.tree() and nodes_below(server, "/q/dead"), 300)
            assert list(nodes_below(server, "/q/dead").values()) == [b"poison"]
            assert not nodes_below(server, "/q/entries")
        assert len(tried) == len(set(tried)) <= 4

    run_schedules(seed, 3, do)


@seeds
def test_two_phase_commit_sites_agree_on_outcome_under_faults(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        names = ["a", "b", "c"]
        votes = {name: sim.rng.random() < 0.8 for name in names}
        silent = sim.rng.choice([*names, "", ""])

        async def site(zk: Client, name: str) -> bool:
            transaction = TwoPhaseCommit(zk, "/tx/1")
            await repeat_until_answered(lambda: transaction.proposal())
            await asyncio.sleep(sim.rng.uniform(0, 10))
            if name != silent:
                await repeat_until_answered(lambda: transaction.vote(name, commit=votes[name]))
            if sim.rng.random() < 0.3:
                await repeat_until_answered(transaction.abort)
            outcome = await repeat_until_answered(lambda: transaction.outcome())
            with suppress(NoNodeError):  # repeated after the first call was recorded and the transaction finished
                await repeat_until_answered(lambda: transaction.mark_done(name))
            return bool(outcome)

        with chaos:
            sites = [asyncio.ensure_future(site(zk, name)) for zk, name in zip(clients[1:], names, strict=True)]
            transaction = TwoPhaseCommit(clients[0], "/tx/1")
            with suppress(NodeExistsError):  # proposed by an earlier call whose reply was lost
                await repeat_until_answered(lambda: transaction.propose(5, names))
            await asyncio.sleep(15)
            if silent:
                await repeat_until_answered(transaction.abort)
            outcome = await repeat_until_answered(lambda: transaction.finish(timeout=300))
            assert await asyncio.gather(*sites) == [outcome] * 3
        assert not outcome or (all(votes.values()) and not silent)
        await eventually(lambda: "/tx/1" not in server.tree())

    run_schedules(seed, 4, do)


@seeds
@pytest.mark.parametrize("naming", ["text", "long"])
def test_counters_apply_acknowledged_additions_once(seed: int, naming: str) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        sure = unsure = 0
        sums: list[int] = []

        async def add(zk: Client) -> None:
            nonlocal sure, unsure
            for _ in range(15):
                task = asyncio.ensure_future(Counter(zk, "/n", encoding=naming).add())
                if sim.rng.random() < 0.1:
                    asyncio.get_running_loop().call_later(sim.rng.uniform(0, 0.01), task.cancel)
                try:
                    sums.append(await task)
                    sure += 1
                except (*UNKNOWN_OUTCOME_ERRORS, asyncio.CancelledError):
                    unsure += 1
                await asyncio.sleep(sim.rng.uniform(0, 0.5))

        with chaos:
            await asyncio.gather(*[add(zk) for zk in clients])
        total = await repeat_until_answered(lambda: Counter(clients[0], "/n", encoding=naming).value())
        assert sure <= total <= sure + unsure
        assert len(set(sums)) == len(sums)

    run_schedules(seed, 3, do)


@seeds
def test_unique_ids_are_unique_and_grow(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        given: list[int] = []

        async def work(zk: Client, block: int) -> None:
            ids = UniqueId(zk, f"/ids-{block}", block=block)
            last = 0
            for _ in range(20):
                with suppress(*UNKNOWN_OUTCOME_ERRORS):
                    number = await ids.next()
                    assert number > last
                    last = number
                    given.append(block * 1_000_000 + number)
                await asyncio.sleep(sim.rng.uniform(0, 0.5))

        with chaos:
            await asyncio.gather(*[work(zk, block) for zk in clients for block in (1, 3)])
        assert len(set(given)) == len(given)

    run_schedules(seed, 3, do)


@seeds
def test_double_barrier_opens_when_all_arrived(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        for turn in range(4):
            came = 0
            failed = 0

            async def member(zk: Client, path: str) -> None:
                nonlocal came, failed
                await asyncio.sleep(sim.rng.uniform(0, 3))
                came += 1
                barrier = DoubleBarrier(zk, path, len(clients), timeout=60)
                try:
                    await barrier.enter()
                except (*UNKNOWN_OUTCOME_ERRORS, TimeoutError):
                    failed += 1
                    return
                assert came == len(clients)
                await asyncio.sleep(sim.rng.uniform(0, 2))
                with suppress(*UNKNOWN_OUTCOME_ERRORS, TimeoutError):
                    await barrier.leave()

            with chaos:
                await asyncio.gather(*[member(zk, f"/b{turn}") for zk in clients])
            await asyncio.sleep(20)
            assert set(nodes_below(server, f"/b{turn}")) <= {"ready"}, failed

    run_schedules(seed, 3, do)


@seeds
def test_waiters_pass_when_barrier_is_removed_under_faults(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        with chaos:
            await repeat_until_answered(lambda: Barrier(clients[0], "/b").create())
            waits = [
                asyncio.ensure_future(repeat_until_answered(lambda zk=zk: Barrier(zk, "/b").wait())) for zk in clients
            ]
            await asyncio.sleep(sim.rng.uniform(5, 15))
            assert not any(wait.done() for wait in waits)
            await repeat_until_answered(lambda: Barrier(clients[0], "/b").remove())
        await asyncio.wait_for(asyncio.gather(*waits), 60)

    run_schedules(seed, 3, do)


@seeds
def test_party_members_and_ephemerals_return_after_faults(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        async with AsyncExitStack() as stack:
            for number, zk in enumerate(clients):
                await stack.enter_async_context(Party(zk, "/p", b"%d" % number))
                await stack.enter_async_context(Party(zk, "/c", b"%d" % number, naming="curator"))
                await stack.enter_async_context(PersistentEphemeral(zk, f"/e/{number}", b"v"))
            with chaos:
                await asyncio.sleep(40)
            await asyncio.sleep(30)
            for path in ("/p", "/c"):
                assert sorted(nodes_below(server, path).values()) == [b"0", b"1", b"2"]
            assert nodes_below(server, "/e") == {"0": b"v", "1": b"v", "2": b"v"}
            owners = {view.ephemeral_owner for view in server.tree().values() if view.ephemeral_owner}
            assert owners == {zk.session_id for zk in clients}
        await asyncio.sleep(5)
        assert not [path for path, view in server.tree().items() if view.ephemeral_owner]

    run_schedules(seed, 3, do)


@seeds
def test_persistent_ephemeral_ended_under_faults_leaves_no_node(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        async def visit(zk: Client, who: int) -> None:
            for number in range(8):
                job = asyncio.ensure_future(stay(zk, f"/e/{who}-{number}"))
                await asyncio.wait((job,), timeout=sim.rng.uniform(0, 2))
                job.cancel()
                await asyncio.wait((job,))

        async def stay(zk: Client, path: str) -> None:
            async with PersistentEphemeral(zk, path):
                await asyncio.sleep(sim.rng.uniform(0, 2))

        with chaos:
            await asyncio.gather(*[visit(zk, who) for who, zk in enumerate(clients)])
        await asyncio.sleep(60)
        assert not [path for path, view in server.tree().items() if view.ephemeral_owner]

    run_schedules(seed, 3, do)


@seeds
def test_configs_converge_to_stored_value_after_faults(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        async with AsyncExitStack() as stack:
            configs = [await stack.enter_async_context(Config(zk, "/c")) for zk in clients]
            with chaos:
                for number in range(30):
                    with suppress(*UNKNOWN_OUTCOME_ERRORS, NodeExistsError, NoNodeError):
                        await sim.rng.choice(configs).publish(number)
                    await asyncio.sleep(sim.rng.uniform(0, 1))
            await asyncio.sleep(30)
            assert {config.value for config in configs} == {serializers.json.decode(server.tree()["/c"].data or b"")}
            assert {config.version for config in configs} == {server.tree()["/c"].version}

    run_schedules(seed, 3, do)


@seeds
def test_registered_instances_are_found_after_faults(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        async with AsyncExitStack() as stack:
            found = [await stack.enter_async_context(Discovery(zk, "/s")) for zk in clients]
            for discovery in found:
                await discovery.instances("web")
            for number, discovery in enumerate(found):
                await discovery.register(Instance("web", f"w-{number}"))
            with chaos:
                await asyncio.sleep(30)
            await asyncio.sleep(60)
            for discovery in found:
                assert [one.id for one in await discovery.instances("web")] == ["w-0", "w-1", "w-2"]

    run_schedules(seed, 3, do)


@seeds
def test_every_submitted_task_gets_result_under_faults(seed: int) -> None:
    async def do(sim: Simulation, server: Server, clients: list[Client], chaos: Chaos) -> None:
        submitted: list[str] = []
        done: Multiset[str] = Multiset()

        async def work(task: str, value: Any) -> Any:
            await asyncio.sleep(sim.rng.uniform(0, 2))
            done[task] += 1
            return value * 2

        seeker = Master(clients[0], "/jobs")
        async with AsyncExitStack() as stack:
            for number in (1, 2):
                await stack.enter_async_context(Master(clients[number], "/jobs", f"m-{number}"))
            for number in (3, 4):
                await stack.enter_async_context(Worker(clients[number], "/jobs", f"w-{number}", work))
            with chaos:
                for number in range(10):
                    with suppress(*UNKNOWN_OUTCOME_ERRORS):
                        submitted.append(await seeker.submit(number))
                    await asyncio.sleep(sim.rng.uniform(0, 1))
            for task in submitted:
                result = await repeat_until_answered(lambda task=task: seeker.result(task, timeout=300))
                assert "result" in result, result
            await eventually(lambda: not nodes_below(server, "/jobs/tasks"))
        await asyncio.sleep(5)
        assert set(submitted) <= set(done)

    run_schedules(seed, 5, do)
