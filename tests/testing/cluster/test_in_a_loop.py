"""A cluster in a running event loop, and in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from support.effort import effort

from zoolet.client import Client
from zoolet.testing import Cluster, Simulation

# --- a cluster in asyncio code and in virtual time ---


async def test_cluster_calls_work_in_running_loop() -> None:
    async with Cluster(3) as cluster, Client(cluster.hosts) as zk:
        await zk.create("/a", b"1")
        cluster.stop_leader()
        assert (await zk.get("/a"))[0] == b"1"
        cluster.add()
        await cluster.until_node("/a")


@pytest.mark.parametrize("seed", range(effort(8, 100)))
def test_lock_has_one_holder_while_leaders_die(seed: int) -> None:
    sim = Simulation(seed)
    held: list[tuple[str, int]] = []

    async def contend(name: str, hosts: str, until: float) -> None:
        holder: list[str] = []
        async with Client(hosts, timeout=8.0) as zk:
            while sim.time() < until:
                async with zk.lock("/lock", on_lost="flag") as lease:
                    held.append((name, lease.token))
                    await asyncio.sleep(sim.rng.uniform(0.01, 0.5))
        assert holder == []

    async def main() -> None:
        async with sim.cluster(3) as cluster:
            tasks = [asyncio.create_task(contend(name, cluster.hosts, 40.0)) for name in "abc"]
            for _ in range(8):
                await asyncio.sleep(sim.rng.uniform(0.5, 4.0))
                old = cluster.kill_leader()
                await asyncio.sleep(sim.rng.uniform(0.0, 1.0))
                old.start()
            await asyncio.gather(*tasks)

    sim.run(main())
    tokens = [token for _, token in held]
    assert len(held) > 20
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == len(tokens)
