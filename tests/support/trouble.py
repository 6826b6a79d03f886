"""Trouble of all kinds from one seed, and clients that must have left nothing after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final

from support.effort import effort
from support.simulation import client_of

from zoolet.client import Client
from zoolet.server import Server
from zoolet.server.testing import Simulation, close_after, delay, drop_request, lose_reply
from zoolet.server.testing.sim import Network

SCHEDULES: Final = int(os.environ.get("ZOOLET_SCHEDULES") or effort(8, 40))
"""Seeds that each recipe is run with; maintainers run a thousand."""
SESSION_S: Final = 4.0
"""The session timeout of clients in trouble."""
KINDS: Final = (
    "lost",
    "dropped",
    "closed",
    "late",
    "drop",
    "short network pause",
    "long network pause",
    "pause",
    "long pause",
    "expiry",
)


async def _request_fault(server: Server, rng: Random, kind: str) -> None:
    actions: dict[str, Callable[[], Any]] = {
        "lost": lose_reply,
        "dropped": drop_request,
        "closed": close_after,
        "late": lambda: delay(rng.uniform(0.1, 1.0)),
    }
    with server.fault(actions[kind](), times=rng.randint(1, 3), probability=0.5):
        await asyncio.sleep(rng.uniform(0.05, 1.0))


async def _pause(server: Server, client: Client, seconds: float) -> None:
    whose = client.session_id
    if whose not in server.sessions():
        return
    server.pause(whose)
    await asyncio.sleep(seconds)
    with suppress(LookupError):
        server.resume(whose)


async def happen(sim: Simulation, server: Server, clients: Sequence[Client], kind: str) -> None:
    """Cause one kind of trouble."""
    rng = sim.rng
    short, long = rng.uniform(0.1, 0.5) * SESSION_S, rng.uniform(1.2, 1.6) * SESSION_S
    if kind in ("lost", "dropped", "closed", "late"):
        await _request_fault(server, rng, kind)
    elif kind == "drop":
        sim.network.drop()
    elif kind in ("short network pause", "long network pause"):
        sim.network.pause()
        try:
            await asyncio.sleep(short if kind == "short network pause" else long)
        finally:
            sim.network.resume()
    elif kind in ("pause", "long pause"):
        await _pause(server, rng.choice(clients), short if kind == "pause" else long)
    else:
        with suppress(LookupError, ValueError):
            server.expire(rng.choice(clients))


@asynccontextmanager
async def trouble(
    sim: Simulation, server: Server, clients: Sequence[Client], kinds: Sequence[str] = KINDS
) -> AsyncIterator[None]:
    """Cause trouble repeatedly until the block ends; then everything works again."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(sim.rng.uniform(0.02, 1.5))
            await happen(sim, server, clients, sim.rng.choice(kinds))

    job = asyncio.ensure_future(go_on())
    try:
        yield
    finally:
        job.cancel()
        await asyncio.wait((job,))
        server.resume("all")
        sim.network.resume()
    if not job.cancelled():
        job.result()


@asynccontextmanager
async def clients_in(server: Server, number: int, **options: Any) -> AsyncIterator[list[Client]]:
    """Return clients with different randomness; afterwards they have left no session, ephemeral node, watch, task or
    link.
    """
    clients = [client_of(server, SESSION_S, seed, **{"operation_timeout": 60.0, **options}) for seed in range(number)]
    before = asyncio.all_tasks()
    try:
        for client in clients:
            await client.start()
        yield clients
    finally:
        for client in clients:
            await client.aclose()
    await asyncio.sleep(3 * SESSION_S)
    assert not [view.path for view in server.tree().values() if view.ephemeral_owner]
    assert not server.watches()
    assert not server.sessions()
    assert asyncio.all_tasks() <= before, asyncio.all_tasks() - before
    network: Network = asyncio.get_running_loop().network  # type: ignore[attr-defined]
    assert network.connections == 0
