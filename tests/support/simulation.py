"""Runs in virtual time, the one way in which tests make them: a test says only what happens.

==========================  ==============================================================================
:func:`run_simulation`      ``main(sim)``: no server yet
:func:`simulate`            ``main(sim, server)``
:func:`simulate_clients`    ``main(sim, server, connect)``: clients are closed at the end, and leave no task
:func:`with_client`         ``main(server, zk)``
==========================  ==============================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Final

from zoolet.client import Backoff, Client
from zoolet.server import Server
from zoolet.server.testing import Simulation

SESSION_S: Final = 6.0
"""The session timeout of the clients of :func:`simulate_clients`."""

Connect = Callable[..., Awaitable[Client]]
"""Return a started client of the simulated server: ``await connect()``, ``await connect("/chroot", timeout=2.0)``."""


def run_simulation(main: Callable[[Simulation], Coroutine[Any, Any, Any]], seed: int = 1, **options: Any) -> Any:
    """Run a coroutine in a simulation of its own; return what it returns.

    Args:
        main: What happens.
        seed: Where randomness comes from.
        **options: For :class:`~zoolet.server.testing.Simulation`.
    """
    sim = Simulation(seed, **options)
    return sim.run(main(sim))


def simulate(
    main: Callable[[Simulation, Server], Coroutine[Any, Any, Any]], seed: int = 1, limit: float = 3600.0
) -> Any:
    """Run a coroutine with a server in virtual time; return what it returns.

    Args:
        main: What happens.
        seed: Where randomness comes from.
        limit: The virtual seconds after which the run fails.
    """

    async def run(sim: Simulation) -> Any:
        async with sim.server() as server:
            return await main(sim, server)

    return run_simulation(run, seed, limit=limit)


def simulate_clients(main: Callable[[Simulation, Server, Connect], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    """Run with a server, and a function that starts clients; they are closed at the end, and must leave no task."""

    async def run(sim: Simulation, server: Server) -> None:
        before = asyncio.all_tasks()
        made: list[Client] = []

        async def connect(chroot: str = "", **options: Any) -> Client:
            rng = Random(f"client {seed} {len(made)}")
            made.append(Client(server.hosts + chroot, **{"timeout": SESSION_S, "rng": rng, **options}))
            await made[-1].start()
            return made[-1]

        try:
            await main(sim, server, connect)
        finally:
            for client in made:
                await client.aclose()
        await asyncio.sleep(1)
        assert not asyncio.all_tasks() - before, "tasks are left"

    simulate(run, seed, 36_000.0)


def with_client(main: Callable[[Server, Client], Any], seed: int = 1, **options: Any) -> None:
    """Run with a server and a client that is connected; the options are :func:`client_of`'s."""

    async def run(sim: Simulation, server: Server) -> None:
        async with client_of(server, **options) as zk:
            await main(server, zk)

    simulate(run, seed)


def client_of(server: Server, timeout: float = 10.0, seed: int = 5, **options: Any) -> Client:
    """Return a client, not started, whose randomness is always the same and that soon connects again."""
    options = {"rng": Random(seed), "backoff": Backoff(first=0.01, longest=0.2), **options}
    return Client(server.hosts, timeout, **options)


async def eventually(what: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until something is true; a TimeoutError says that it has not become true in time."""
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.05)
