"""An observer of a real ensemble of three members. ``make observer`` runs all of it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.apache import RELEASES
from support.effort import FULL
from support.ensemble import Ensemble
from support.waiting import DEADLINE_S, until

from zoolet.client import Client
from zoolet.client.acl import READ_ONLY, digest
from zoolet.protocol.errors import ZooKeeperError
from zoolet.server import Observer

KILLS = int(os.environ.get("ZOOLET_OBSERVER_KILLS", "2" if FULL else "1"))


@pytest.fixture(scope="module", params=RELEASES)
def ensemble(request: pytest.FixtureRequest) -> Iterator[Ensemble]:
    """Three members."""
    with Ensemble(request.param) as ensemble:
        yield ensemble


async def change(client: Client, rng: random.Random, number: int) -> None:
    """Make a random change, which may fail."""
    path = f"/load/n{rng.randrange(40)}"
    with suppress(ZooKeeperError):
        match rng.randrange(5):
            case 0:
                await client.delete(path)
            case 1:
                await client.set(path, b"%d" % number)
            case 2:
                await client.create(path, b"", ephemeral=True, acl=READ_ONLY + digest("u", f"{rng.randrange(5)}"))
            case 3:
                async with client.transaction() as t:
                    t.create(f"{path}-", b"", sequential=True)
                    t.delete(path)
            case _:
                await client.create(path, b"%d" % number)


async def read_all(client: Client) -> dict[str, tuple[bytes | None, object]]:
    """Return the data and Stat of all nodes of the load, from a client."""
    await client.sync("/load")
    names = await client.children("/load")
    return {f"/load/{name}": await client.get(f"/load/{name}") for name in names}


async def test_replica_equals_leader_under_load_and_kills(ensemble: Ensemble) -> None:
    rng = random.Random(1)
    async with Client(ensemble.hosts, timeout=20.0) as client:
        await client.create("/load", b"")
        for number in range(200):
            await change(client, rng, number)
        async with Observer(ensemble.quorum) as replica:
            for number in range(300):  # the member sends its snapshot during these creates
                await change(client, rng, number)
            await replica.caught_up(30)
            assert ensemble.figures()["zk_synced_observers"] == "1"
            metrics = replica._replica.learning
            for _ in range(KILLS):
                # in a thread, because the client and the observer run in this loop
                leader, followed = await asyncio.to_thread(ensemble.wait_for_leader), metrics.connections
                leader.kill()
                await asyncio.to_thread(ensemble.wait_for_leader)
                leader.start()
                async with asyncio.timeout(DEADLINE_S):  # the observer tries again after up to half a minute
                    while metrics.connections == followed:
                        await asyncio.sleep(0.05)
                for number in range(100):
                    await change(client, rng, number)
            await client.set("/load", b"last")
            expected = await read_all(client)
            await replica.caught_up(30)
            await until(lambda: replica.tree()["/load"].data == b"last")

            nodes = {path: (node.data, node.stat) for path, node in replica.tree("/load").items() if path != "/load"}
            assert nodes == expected
            assert metrics.digest_mismatches == 0
            assert metrics.digests_compared > 100
            assert metrics.connections >= KILLS + 1


async def test_member_counts_an_observer_only_while_it_runs(ensemble: Ensemble) -> None:
    async with Observer(ensemble.quorum, sid=101) as replica:
        await replica.caught_up(30)
        await until(lambda: ensemble.figures()["zk_synced_observers"] == "1")
        await until(lambda: ensemble.figures()["zk_synced_followers"] == "2")
    await until(lambda: ensemble.figures()["zk_synced_observers"] == "0")


async def test_sid_of_participant_is_refused(ensemble: Ensemble) -> None:
    async with Observer(ensemble.quorum, sid=3) as replica:
        with pytest.raises(Exception, match="sid 3 is the number of a voting member"):
            await replica.caught_up(30)


async def test_observer_reports_client_port_as_wrong_port(ensemble: Ensemble) -> None:
    async with Observer(ensemble.hosts) as replica:
        await until(lambda: "not a quorum port" in replica._link.problem)
