"""Runs in virtual time. A test defines only its main coroutine; these functions do the rest.

==========================  ==============================================================================
:func:`run_simulation`      ``main(sim)``: without a server
:func:`simulate`            ``main(sim, server)``
:func:`simulate_clients`    ``main(sim, server, connect)``: closes clients at the end; no task may be left
:func:`with_client`         ``main(server, zk)``
==========================  ==============================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Final

from zoolet.client import Backoff, Client
from zoolet.testing import Server, Simulation

SESSION_S: Final = 6.0
"""The session timeout of the clients of :func:`simulate_clients`."""

Connect = Callable[..., Awaitable[Client]]
"""A function that returns a started client of the server: ``await connect("/chroot", timeout=2.0)``."""


def run_simulation(main: Callable[[Simulation], Coroutine[Any, Any, Any]], seed: int = 1, **options: Any) -> Any:
    """Run a coroutine in a new simulation; return its result.

    Args:
        main: The main coroutine function.
        seed: Seed of the simulation.
        **options: Options of :class:`~zoolet.testing.Simulation`.
    """
    sim = Simulation(seed, **options)
    return sim.run(main(sim))


def simulate(
    main: Callable[[Simulation, Server], Coroutine[Any, Any, Any]], seed: int = 1, limit: float = 3600.0
) -> Any:
    """Run a coroutine with a server in virtual time; return its result.

    Args:
        main: The main coroutine function.
        seed: Seed of the simulation.
        limit: Time limit of the run, in virtual seconds.
    """

    async def run(sim: Simulation) -> Any:
        async with sim.server() as server:
            return await main(sim, server)

    return run_simulation(run, seed, limit=limit)


def simulate_clients(main: Callable[[Simulation, Server, Connect], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    """Run *main* with a server and a function that starts clients. At the end no task may be left."""

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
    """Run with a server and a connected client; the options are passed to :func:`make_client`."""

    async def run(sim: Simulation, server: Server) -> None:
        async with make_client(server, **options) as zk:
            await main(server, zk)

    simulate(run, seed)


def make_client(server: Server, timeout: float = 10.0, seed: int = 5, **options: Any) -> Client:
    """Return an unstarted client with a fixed seed and short reconnect delays."""
    options = {"rng": Random(seed), "backoff": Backoff(first=0.01, longest=0.2), **options}
    return Client(server.hosts, timeout, **options)


async def eventually(what: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until a condition is true, or raise TimeoutError after *seconds*."""
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.05)
