"""One run from one seed: a server, clients and a network in which everything goes wrong, in virtual time, and checked.

A seed that fails is reduced by its schedule, and the message says how to repeat it; its number stays in ``seeds.txt``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from checking.histories import one
from support.effort import effort

from zoolet.client.recipes import LockLostError
from zoolet.protocol.errors import ZooKeeperError
from zoolet.testing import Server, Simulation, Trouble, zoolet_schedules

TROUBLE: Final = {
    "lose_replies": 0.02,
    "drop_requests": 0.02,
    "close_connections": 0.02,
    "expire_sessions": 0.01,
    "pause_sessions": 0.01,
    "outages": 0.003,
}
CLIENTS: Final = 4
ENDS_S: Final = 60.0
ACTIONS: Final = 60
SEEDS: Final = [
    int(line.partition("#")[0])
    for line in Path(__file__).with_name("seeds.txt").read_text().splitlines()
    if line.partition("#")[0].strip()
]


async def story(server: Server, connect: Any, trouble: Trouble, sim: Simulation) -> None:
    """Four clients in trouble: what they are answered is in order, and everything goes on at the end."""
    with server.checked() as recording:
        async with asyncio.TaskGroup() as group:
            disturbing = group.create_task(disturb(server, sim))
            clients = [group.create_task(live(connect, Random(sim.rng.random()))) for _ in range(CLIENTS)]
            await asyncio.wait(clients)
            disturbing.cancel()
        sim.network.resume()
        sim.network.accept_connections(server.port)
        trouble.end()
        zk = await connect()
        await zk.create("/end")
        assert (await zk.get("/end"))[0] == b""
    assert len(recording) > CLIENTS * ACTIONS // 2


async def live(connect: Any, rng: Random) -> None:
    """Do many things, in as many sessions as that takes."""
    left = ACTIONS
    while left:
        with suppress(ZooKeeperError, LockLostError, OSError):
            zk = await connect(timeout=6.0, operation_timeout=3.0)
            while left:
                left -= 1
                await asyncio.sleep(rng.uniform(0.0, 0.5))
                async with asyncio.timeout(20):
                    await one(zk, rng)
        await asyncio.sleep(0.1)


async def disturb(server: Server, sim: Simulation) -> None:
    """Stop the network, so that connections are half open; set the wall clock; stand still for seconds; reset."""
    while True:
        await asyncio.sleep(sim.rng.uniform(0.0, 4.0))
        match sim.rng.randrange(5):
            case 0:
                sim.network.pause()
                await asyncio.sleep(sim.rng.choice([0.1, 2.0, 8.0]))
                sim.network.resume()
            case 1:
                server.skew_clock(sim.rng.choice([-3600.0, -1.0, 0.0, 5.0, 86_400.0]))
            case 2:
                sim.pass_time(sim.rng.choice([0.2, 3.0, 30.0]))
            case 3:
                sim.network.drop()
            case _:
                sim.network.refuse_connections(server.port)
                await asyncio.sleep(sim.rng.uniform(0.0, 1.0))
                sim.network.accept_connections(server.port)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_has_failed_once_is_in_order(seed: int) -> None:
    zoolet_schedules(1, seed=seed, **TROUBLE)(story)()


def test_histories_are_in_order_whatever_happens() -> None:
    zoolet_schedules(effort(8, 40), **TROUBLE)(story)()
