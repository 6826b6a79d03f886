"""One run from one seed: a server, clients, a network and a disk in which everything goes wrong, in virtual time, and
checked.

A seed that fails is reduced by its schedule, and the message says how to repeat it; its number stays in ``seeds.txt``.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from checking.histories import one
from support.effort import effort
from support.machine import Machine

from zoolet.client import Client
from zoolet.client.recipes import LockLostError
from zoolet.protocol.errors import SessionExpiredError, ZooKeeperError
from zoolet.server.testing.endpoint import Endpoint
from zoolet.server.testing.sim.network import Network
from zoolet.server.testing.sim.schedule import Schedule
from zoolet.testing import Cluster, Recording, Server, Simulation, Trouble, zoolet_schedules

TROUBLE: Final = {
    "lose_replies": 0.02,
    "drop_requests": 0.02,
    "close_connections": 0.02,
    "expire_sessions": 0.01,
    "pause_sessions": 0.01,
    "outages": 0.003,
}
TROUBLE_OF_A_PROXY: Final = {name: rate for name, rate in TROUBLE.items() if name != "expire_sessions"}
CLIENTS: Final = 4
ACTIONS: Final = 60
EVERY_S: Final = 0.7
"""Virtual seconds between two decisions of :func:`disturb`."""
Act = Callable[[Random], Awaitable[object]]
SEEDS: Final = re.findall(r"^(\w+) (\d+)", Path(__file__).with_name("seeds.txt").read_text(), re.MULTILINE)


async def in_memory(server: Server, trouble: Trouble, sim: Simulation) -> None:
    """Four clients in trouble: what they are answered is in order, and everything goes on at the end."""

    async def set_clock(rng: Random) -> None:
        server.skew_clock(rng.choice([-3600.0, -1.0, 0.0, 5.0, 86_400.0]))

    acts = {**acts_of_the_network(sim, server), "the clock is set": (0.1, set_clock)}
    with server.checked() as recording:
        async with disturbed(sim, acts):
            await live_all(server.hosts, sim)
        trouble.end()
        await check_usable(server.hosts)
    check_size(recording)


async def in_a_cluster(cluster: Cluster, trouble: Trouble, sim: Simulation) -> None:
    """The same with three members, of which the leader is killed, others reach nobody or are late."""
    await in_memory(cluster, trouble, sim)


async def on_a_machine(sim: Simulation, *, fsync: str = "always") -> None:
    """The same with a data directory, behind a proxy that records: the disk is full or broken now and then, and the
    power is lost with what was not synced.
    """
    with TemporaryDirectory() as folder:
        rng = Random(f"disk {sim.seed}")
        async with (
            Machine(sim, Path(folder), rng, fsync) as machine,
            sim.proxy(f"127.0.0.1:{machine.port}") as proxy,
        ):
            trouble = Trouble(proxy, schedule_of(sim.network))
            acts = {**acts_of_the_network(sim, proxy), **acts_of_a_machine(machine)}
            with proxy.checked() as recording:
                async with disturbed(sim, acts):
                    await live_all(proxy.hosts, sim)
                trouble.end()
                await check_usable(proxy.hosts)
    check_size(recording)


STORIES: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "memory": (in_memory, TROUBLE),
    "machine": (on_a_machine, TROUBLE_OF_A_PROXY),
    "cluster": (in_a_cluster, TROUBLE | {"members": 3, "kill_leaders": 0.01, "partitions": 0.01, "lags": 0.01}),
}


def schedule_of(network: Network) -> Schedule:
    """Return what decides in a run."""
    assert network.schedule is not None
    return network.schedule


# --- what goes wrong ---


def acts_of_the_network(sim: Simulation, endpoint: Endpoint) -> dict[str, tuple[float, Act]]:
    """Return what happens to connections and to the process, and how often."""

    async def pause(rng: Random) -> None:
        sim.network.pause()  # connections are half open
        await asyncio.sleep(rng.choice([0.1, 2.0, 8.0]))
        sim.network.resume()

    async def stall(rng: Random) -> None:
        sim.pass_time(rng.choice([0.2, 3.0, 30.0]))

    async def reset(rng: Random) -> None:
        sim.network.drop()

    async def refuse(rng: Random) -> None:
        endpoint.refuse_connections()
        await asyncio.sleep(rng.uniform(0.0, 1.0))
        endpoint.accept_connections()

    return {
        "the network is stopped": (0.05, pause),
        "the process stands still": (0.05, stall),
        "all connections are reset": (0.05, reset),
        "connections are refused": (0.05, refuse),
    }


def acts_of_a_machine(machine: Machine) -> dict[str, tuple[float, Act]]:
    """Return what happens to a machine, and how often."""

    async def set_clock(rng: Random) -> None:
        machine.set_clock(rng.choice([-3600.0, -1.0, 0.0, 5.0, 86_400.0]))

    async def fill(rng: Random) -> None:
        machine.disk.full = True
        await asyncio.sleep(rng.choice([0.1, 1.0, 5.0]))
        machine.disk.full = False

    async def fail_syncs(rng: Random) -> None:
        machine.disk.syncs = False
        await asyncio.sleep(rng.choice([0.1, 1.0, 5.0]))
        machine.disk.syncs = True

    async def lose_power(rng: Random) -> None:
        while machine.is_failing():  # until then reads show what may be lost: docs/operations.md
            await asyncio.sleep(0.1)
        await machine.lose_power()
        await asyncio.sleep(rng.choice([0.0, 1.0, 12.0]))
        await machine.start()

    return {
        "the clock is set": (0.1, set_clock),
        "the disk is full": (0.06, fill),
        "syncs fail": (0.06, fail_syncs),
        "the power is lost": (0.12, lose_power),
    }


@asynccontextmanager
async def disturbed(sim: Simulation, acts: dict[str, tuple[float, Act]]) -> Any:
    """Make things happen, one at a time, as the schedule decides; what has begun at the end of the block ends."""
    schedule, ending = schedule_of(sim.network), asyncio.Event()

    async def disturb() -> None:
        while not ending.is_set():
            await asyncio.sleep(EVERY_S)
            for name, (probability, act) in acts.items():
                chosen = schedule.chosen(name, "", probability)
                if chosen is not None:
                    schedule.note(chosen[0], 0, name)
                    await act(chosen[1])

    async with asyncio.TaskGroup() as group:
        group.create_task(disturb())
        yield
        ending.set()


# --- what clients do ---


async def live_all(hosts: str, sim: Simulation) -> None:
    """Run the clients until each has done what it does."""
    await asyncio.gather(*(live(hosts, Random(f"{sim.seed} {number}")) for number in range(CLIENTS)))


async def live(hosts: str, rng: Random) -> None:
    """Do many things, in as many sessions as that takes."""
    left = ACTIONS
    while left:
        with suppress(ZooKeeperError):
            async with Client(hosts, timeout=6.0, operation_timeout=3.0, rng=rng) as zk:
                for _ in range(min(left, rng.randrange(5, 40))):
                    left -= 1
                    await asyncio.sleep(rng.uniform(0.0, 0.5))
                    try:
                        await one(zk, rng)
                    except SessionExpiredError:
                        break
                    except (ZooKeeperError, LockLostError):
                        continue


async def check_usable(hosts: str) -> None:
    """Check that a client is served, once nothing goes wrong any more."""
    async with Client(hosts, timeout=6.0) as zk:
        await zk.create("/end")
        assert (await zk.get("/end"))[0] == b""


def check_size(recording: Recording) -> None:
    """Check that something was tried."""
    assert len(recording) > CLIENTS * ACTIONS // 2


def run(kind: str, count: int, seed: int = 0) -> None:
    """Run a story under so many schedules."""
    story, rates = STORIES[kind]
    zoolet_schedules(count, seed=seed, **rates)(story)()


@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_what_has_failed_once_is_in_order(kind: str, seed: str) -> None:
    run(kind, 1, int(seed))


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORIES)
def test_histories_are_in_order_whatever_happens(kind: str) -> None:
    run(kind, effort(6, 20))


def test_a_server_that_answers_before_the_disk_has_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(sim: Simulation) -> None:
        await on_a_machine(sim, fsync="never")

    monkeypatch.setattr("zoolet.server.testing.sim.schedules.reduce", lambda keys, _: keys)  # the shortest takes long
    with pytest.raises(AssertionError, match=r"misses a write|was deleted before"):
        zoolet_schedules(20)(story)()


@pytest.mark.parametrize("kind", STORIES)
def test_a_seed_is_the_same_run_each_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    story, rates = STORIES[kind]

    @wraps(story)
    async def observed(**ours: Any) -> None:
        await story(**ours)
        seen.append(list(schedule_of(ours["sim"].network).deviations.items()))

    zoolet_schedules(1, seed=3, **rates)(observed)()
    slow_down(monkeypatch, 300)
    zoolet_schedules(1, seed=3, **rates)(observed)()

    assert len(seen[0]) > 20
    assert seen[0] == seen[1]


def slow_down(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Make all that measures how long something takes believe that the machine is so many times as slow."""
    fast = time.perf_counter
    for module in [time, *(module for name, module in sys.modules.items() if name.startswith("zoolet."))]:
        if getattr(module, "perf_counter", None) is fast:
            monkeypatch.setattr(module, "perf_counter", lambda: fast() * times)
