"""The checker accepts the answers of real servers, alone and in an ensemble, and of every kind of zoolet server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from support.apache import ApacheZooKeeper
from support.ensemble import Ensemble
from support.histories import one

from zoolet.client import Client
from zoolet.protocol.errors import ZooKeeperError
from zoolet.testing import Cluster, Proxy, Server
from zoolet.testing.cluster.real import RealCluster

RELEASES = ["3.8", "3.9"]


async def run_operations(hosts: str, seed: int, count: int) -> None:
    """Run many operations and ignore failures."""
    rng = Random(seed)
    async with Client(hosts, timeout=8.0) as zk:
        for _ in range(count):
            try:
                await one(zk, rng)
            except ZooKeeperError:
                pass


def run(endpoint: Any, between: Callable[[], object] = lambda: None, count: int = 120) -> None:
    """Check the answers of an endpoint to three clients."""

    async def main() -> None:
        clients = [asyncio.create_task(run_operations(endpoint.hosts, seed, count)) for seed in range(3)]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(between)
        await asyncio.gather(*clients)

    with endpoint.check_history() as recording:
        asyncio.run(main())
    assert len(recording) > 2 * count


def test_history_of_embedded_server_is_accepted() -> None:
    with Server() as server:
        run(server, lambda: server.drop("all"))


def test_cluster_is_consistent_while_leaders_fail() -> None:
    def fail() -> None:
        cluster.stop_leader().start()

    with Cluster(3) as cluster:
        run(cluster, fail)


@pytest.mark.parametrize("release", RELEASES)
def test_real_server_is_consistent(release: str) -> None:
    with ApacheZooKeeper(release=release) as apache, Proxy(apache.hosts) as proxy:
        run(proxy, lambda: proxy.drop("all"))


@pytest.mark.skipif("ZOOLET_CLUSTERS" not in os.environ, reason="takes half a minute: `make clusters`")
@pytest.mark.parametrize("release", RELEASES)
def test_real_ensemble_is_consistent_under_failures(release: str) -> None:
    def fail() -> None:
        follower = cluster.followers[0]
        follower.stop()
        follower.start()
        ensemble.wait_for_leader(3).kill()

    with Ensemble(release, config={"extendedTypesEnabled": "true"}) as ensemble:
        with RealCluster(ensemble.hosts) as cluster:
            run(cluster, fail, 300)
