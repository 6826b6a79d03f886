"""Hundreds of short-lived clients in a bad network: every call ends in time, with a result or a meaningful error, and
nothing is left of any client.

A failing run is reduced, and can be repeated exactly with its seed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final

import pytest
from support import schedules
from support.effort import effort

from zoolet.client import (
    Client,
    ClosedError,
    ConnectionLossError,
    EventType,
    SessionExpiredError,
    State,
    WatchOverflowError,
    ZooKeeperError,
)
from zoolet.testing import Server, Simulation, zoolet_schedules
from zoolet.testing.sim.chaos import Chaos

SEEDS: Final = effort(200, 1000)
FOLLOW_SEEDS: Final = effort(12, 60)
CLIENTS: Final = 3
CALLS_PER_CLIENT: Final = 14
TIMEOUT_S: Final = 5.0
MAX_CALL_S: Final = 60.0  # virtual seconds; a call of several requests may wait for each of them
MAX_CLOSE_S: Final = 4.0
WRONG: Final = {
    **schedules.FAILURE_RATES,
    "expire_sessions": 0.02,
    "pause_sessions": 0.02,
    "outages": 0.01,
    "cancel_attempts": 0.0,
}
"""Failures with their probabilities; none of them cancels an attempt."""


async def _cause_failures(sim: Simulation, server: Server, restarts: bool) -> None:
    """Break the network, or restart the server without its data, every few seconds."""
    while True:
        await asyncio.sleep(sim.rng.expovariate(0.3))
        kind = sim.rng.choice(("drop", "pause", "restart" if restarts else "drop"))
        if kind == "drop":
            sim.network.drop()
        elif kind == "pause":
            sim.network.pause()
            await asyncio.sleep(sim.rng.choice((0.5, 2, 6, 12)))
            sim.network.resume()
        else:
            downtime = sim.rng.choice((0, 1, 8))
            server.restart(keep=False, downtime=downtime)
            await asyncio.sleep(downtime)


@asynccontextmanager
async def random_failures(sim: Simulation, server: Server, chaos: Chaos, *, restarts: bool) -> AsyncIterator[None]:
    """Break everything at random until the end of the block."""
    breaking = asyncio.create_task(_cause_failures(sim, server, restarts))
    try:
        with chaos:
            yield
    finally:
        breaking.cancel()
        await asyncio.wait([breaking])
        sim.network.resume()


# --- clients ---


async def _make_many_calls(zk: Client, path: str, rng: Random) -> None:
    await asyncio.gather(*[zk.exists("/") for _ in range(10)])


async def _make_cancelled_call(zk: Client, path: str, rng: Random) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(rng.random() * 0.01):
            await zk.children("/")


async def _watch(zk: Client, path: str, rng: Random) -> None:
    with suppress(TimeoutError, WatchOverflowError):
        async with zk.watch(path, recursive=rng.random() < 0.5, limit=5) as events, asyncio.timeout(1):
            await events.next()


async def _watch_once(zk: Client, path: str, rng: Random) -> None:
    make = rng.choice([zk.watch_exists, zk.watch_data, zk.watch_children])
    with suppress(TimeoutError):
        async with make(path) as watch, asyncio.timeout(0.2):
            await watch.next()


async def _transaction(zk: Client, path: str, rng: Random) -> None:
    async with zk.transaction() as t:
        t.check("/")
        t.create(path)


DO: Final[list[Callable[[Client, str, Random], Any]]] = [
    lambda zk, path, rng: zk.create(path + "/x", b"x", parents=True),
    lambda zk, path, rng: zk.create(path, ephemeral=True),
    lambda zk, path, rng: zk.create("/e/", ephemeral=True, sequential=True, parents=True, protected=True),
    lambda zk, path, rng: zk.get(path),
    lambda zk, path, rng: zk.set(path, b"y"),
    lambda zk, path, rng: zk.update(path, lambda old: old + b"z"),
    lambda zk, path, rng: zk.delete(path, recursive=True),
    lambda zk, path, rng: zk.multi_read(("get", path), ("children", "/")),
    lambda zk, path, rng: zk.add_auth("digest", b"bob:secret"),
    lambda zk, path, rng: zk.with_operation_timeout(0).set(path, b"w"),
    _make_many_calls,
    _make_cancelled_call,
    _watch,
    _watch_once,
    _transaction,
]


Outcome = tuple[float, int, str]
"""The time when a call ended, its index in DO, and its result or the name of its error."""


async def make_calls(zk: Client, rng: Random, outcomes: list[Outcome]) -> None:
    """Make calls, one after the other; each must end in time."""
    now = asyncio.get_running_loop().time
    for _ in range(CALLS_PER_CLIENT):
        number = rng.randrange(len(DO))
        began = now()
        try:
            await DO[number](zk, f"/n{rng.randrange(4)}", rng)
            outcome = "result"
        except (ConnectionLossError, SessionExpiredError, ClosedError) as error:
            outcome = type(error).__name__
        except ZooKeeperError:
            outcome = "answer"
        outcomes.append((now(), number, outcome))
        assert now() - began < MAX_CALL_S, (number, outcome, now() - began)
        await asyncio.sleep(rng.random() * 0.5)


async def run_client(hosts: str, name: str, outcomes: list[Outcome]) -> None:
    """Connect, retrying if necessary, make calls, and close the client within MAX_CLOSE_S seconds."""
    now = asyncio.get_running_loop().time
    while True:
        zk = Client(hosts, TIMEOUT_S, rng=Random(name), auth=(("digest", b"eve:secret"),))
        try:
            await zk.start()
            break
        except ConnectionLossError:
            outcomes.append((now(), -1, "no start"))
    try:
        await make_calls(zk, Random(name), outcomes)
    finally:
        began = now()
        await zk.aclose()
        assert now() - began < MAX_CLOSE_S, now() - began
    assert zk.state is State.CLOSED


def run_clients(seed: int, count: int = 1) -> list[Outcome]:
    """Run clients until they close. Return the outcomes of their calls."""
    outcomes: list[Outcome] = []

    @zoolet_schedules(count, seed=seed, limit=4000, **WRONG)
    async def run(sim: Simulation, server: Server, chaos: Chaos) -> None:
        sim.network.duplicates = 0.05
        before = asyncio.all_tasks()
        async with random_failures(sim, server, chaos, restarts=True), asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(run_client(server.hosts, f"{sim.seed} {number}", outcomes))
        await asyncio.sleep(6 * TIMEOUT_S)

        assert not server.sessions()
        assert not server.watches()
        assert not [node.path for node in server.tree().values() if node.ephemeral_owner]
        assert asyncio.all_tasks() <= before
        assert sim.network.connections == 0

    run()
    return outcomes


@pytest.mark.slow
def test_every_call_completes_under_faults() -> None:
    total = Counter(outcome for _, _, outcome in run_clients(0, SEEDS))

    assert min(total[kind] for kind in ("result", "answer", "ConnectionLossError", "SessionExpiredError")) > 0
    assert total["result"] > 0.3 * total.total()  # a good part of the calls must succeed


def test_same_seed_gives_same_simulation_run() -> None:
    assert run_clients(7) == run_clients(7) != run_clients(8)


# --- no event is lost ---


async def follow_names(zk: Client, names: set[str], following: set[str]) -> None:
    """Update *names* from the events of a recursive watch of ``/m`` alone, without reads."""
    async with zk.watch("/m", recursive=True) as events:
        following.add("names")
        async for event in events:
            if event.type is EventType.NODE_CREATED:
                names.add(event.path)
            elif event.type is EventType.NODE_DELETED:
                names.discard(event.path)


async def read(zk: Client) -> bytes:
    """Read the value of ``/v``, with as many attempts as necessary."""
    while True:
        with suppress(ConnectionLossError, SessionExpiredError):
            value: bytes = (await zk.get("/v"))[0]
            return value


async def follow_value(zk: Client, values: list[bytes], following: set[str]) -> None:
    """Follow a node's value by reading it after each event."""
    async with zk.watch("/v") as events:
        following.add("value")
        async for _ in events:
            values.append(await read(zk))  # noqa: PERF401 - other tasks read the list


async def follow_once(zk: Client, values: list[bytes], following: set[str]) -> None:
    """Follow a node's value with one-shot watches."""
    while True:
        with suppress(ConnectionLossError, SessionExpiredError):
            async with zk.watch_data("/v") as watch:
                values.append(watch.initial[0])
                following.add("once")
                await watch.next()


async def change_nodes(zk: Client, rng: Random) -> None:
    """Change the followed nodes; failures do not matter."""
    for _ in range(25):
        path = f"/m/{rng.randrange(3)}"
        do: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda path=path: zk.create(path),
            lambda path=path: zk.create(path + "/x", parents=True),
            lambda path=path: zk.delete(path, recursive=True),
            lambda path=path: zk.set(path, b""),
            lambda: zk.set("/v", b"%d" % rng.getrandbits(30)),
            lambda: zk.set("/v", b"%d" % rng.getrandbits(30)),
        ]
        with suppress(ZooKeeperError):
            await rng.choice(do)()
        await asyncio.sleep(rng.random())


def follow(seed: int, release: str, *, together: bool, count: int = 1) -> None:
    """Follow nodes through failures, and compare the final state of each follower with the tree.

    Args:
        seed: Seed of the first schedule.
        release: Release that the server imitates.
        together: Whether one client has both kinds of watch on the same node.
        count: Number of schedules.
    """

    @zoolet_schedules(count, seed=seed, limit=4000, compat=release, **WRONG)
    async def run(sim: Simulation, server: Server, chaos: Chaos) -> None:
        chaos.stop()  # no faults until all clients follow
        server.populate({"/m": b"", "/v": b"0"})
        names: set[str] = set()
        following: set[str] = set()
        values, once = [b"0"], [b"0"]
        clients = [Client(server.hosts, TIMEOUT_S, rng=Random(f"{sim.seed} {number}")) for number in range(3)]
        async with clients[0] as one, clients[1] as two, clients[2] as writer:
            jobs = [
                asyncio.create_task(follow_names(one, names, following)),
                asyncio.create_task(follow_value(one, values, following)),
                asyncio.create_task(follow_once(one if together else two, once, following)),
            ]
            while len(following) < len(jobs):
                await asyncio.sleep(0.1)
            # Without restarts, because a restart would lose the tree.
            async with random_failures(sim, server, chaos, restarts=False):
                await change_nodes(writer, Random(sim.seed))
            await asyncio.sleep(30)

            tree = server.tree()
            assert not [job for job in jobs if job.done()]
            assert names == {path for path in tree if path.startswith("/m/")}
            assert values[-1] == once[-1] == tree["/v"].data
            for job in jobs:
                job.cancel()
            await asyncio.wait(jobs)

    run()


@pytest.mark.parametrize(("seed", "release"), [(717, "3.9"), (38, "3.8"), (78, "3.8"), (324, "3.8"), (404, "3.8")])
def test_seeds_of_past_failures_show_no_missed_event(seed: int, release: str) -> None:
    follow(seed, release, together=release == "3.8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "together"),
    [("3.9", False), ("3.9", True), ("3.8", False), ("3.8", True)],
    ids=["two clients", "one client", "3.8", "3.8, one client"],
)
def test_event_follower_converges_under_faults(release: str, together: bool) -> None:
    follow(0, release, together=together, count=FOLLOW_SEEDS)
