"""Recipes in virtual time on a cluster whose members die, lag and are isolated keep their guarantees with each seed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from support.effort import effort

from zoolet.client import Client
from zoolet.client.recipes import Counter, Election, Lock, LockLostError, ReadWriteLock, Semaphore
from zoolet.protocol.errors import ZooKeeperError
from zoolet.testing import Cluster, Simulation

SECONDS = 25.0
SEEDS = int(os.environ.get("ZOOLET_SCHEDULES") or effort(16, 60))
"""Number of seeds; ``make clusters`` tries 1,000."""


class Holders:
    """A counter of the clients that believe at the same time that they hold a lease.

    Args:
        most: Maximum number of holders.
    """

    def __init__(self, most: int = 1) -> None:
        self.most = most
        self.now = self.times = 0

    async def hold(self, lease: object, seconds: float) -> None:
        """Hold a lease, and fail if there are too many holders."""
        self.now += 1
        self.times += 1
        try:
            assert self.now <= self.most, f"{self.now} hold what {self.most} may"
            async with asyncio.timeout(seconds):
                await lease.lost.wait()  # type: ignore[attr-defined]
        except TimeoutError:
            pass
        finally:
            self.now -= 1


async def lock(zk: Client, held: Holders, rng: Random) -> None:
    async with Lock(zk, "/lock", on_lost="flag") as lease:
        await held.hold(lease, rng.uniform(0.0, 0.5))


async def write_lock(zk: Client, held: Holders, rng: Random) -> None:
    async with ReadWriteLock(zk, "/rw", on_lost="flag").write() as lease:
        await held.hold(lease, rng.uniform(0.0, 0.5))


async def semaphore(zk: Client, held: Holders, rng: Random) -> None:
    held.most = 2
    async with Semaphore(zk, "/s", 2, on_lost="flag") as lease:
        await held.hold(lease, rng.uniform(0.0, 0.5))


async def election(zk: Client, held: Holders, rng: Random) -> None:
    async with Election(zk, "/e", on_lost="flag") as lease:
        await held.hold(lease, rng.uniform(0.0, 0.5))


RECIPES: list[Callable[[Client, Holders, Random], Awaitable[None]]] = [lock, write_lock, semaphore, election]


async def chaos(cluster: Cluster, rng: Random) -> None:
    """Cause a random failure in a cluster for a while."""
    number = rng.randrange(3)
    kind = rng.randrange(5)
    if kind == 0:
        cluster[number].kill()
    elif kind == 1:
        cluster.partition([number], noticed_after=rng.choice([0.0, 0.5, 3.0]))
    elif kind == 2:
        cluster.lag(number, rng.uniform(0.0, 2.0))
    elif kind == 3:
        cluster[number].pause()
    elif cluster.leader is not None:
        cluster.kill_leader()
    await asyncio.sleep(rng.uniform(0.0, 3.0))
    cluster.heal()
    for member in cluster:
        member.start()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_recipe_keeps_its_guarantee_through_chaos(seed: int) -> None:
    sim, recipe, held = Simulation(seed), RECIPES[seed % len(RECIPES)], Holders()

    async def contend(cluster: Cluster, rng: Random) -> None:
        async with Client(cluster.hosts, timeout=6.0) as zk:
            while sim.time() < SECONDS:
                try:
                    await recipe(zk, held, rng)
                except (LockLostError, ZooKeeperError):
                    await asyncio.sleep(0.1)

    async def main() -> None:
        async with sim.cluster(3) as cluster, asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(contend(cluster, Random(f"{seed} {number}")))
            while sim.time() < SECONDS - 2:
                await asyncio.sleep(sim.rng.uniform(0.2, 3.0))
                await chaos(cluster, sim.rng)

    sim.run(main())
    assert held.times > 10


def test_counter_loses_no_addition_through_failovers() -> None:
    sim = Simulation(3)
    done = []

    async def add(cluster: Cluster) -> None:
        async with Client(cluster.hosts) as zk:
            counter = Counter(zk, "/c")
            for _ in range(20):
                try:
                    await counter.add(1)
                    done.append(1)
                except ZooKeeperError:
                    done.append(0)  # an unknown outcome: the increment may have been applied
                await asyncio.sleep(0.1)

    async def main() -> int:
        async with sim.cluster(3) as cluster:
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(add(cluster))
                for _ in range(4):
                    await asyncio.sleep(0.4)
                    old = cluster.kill_leader()
                    await asyncio.sleep(0.1)
                    old.start()
            async with Client(cluster.hosts) as zk:
                return await Counter(zk, "/c").value()

    value = sim.run(main())
    assert sum(done) <= value <= len(done)
