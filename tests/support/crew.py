"""Masters and workers with a client each, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from support.leftovers import leftovers
from support.simulation import client_of, simulate

from zoolet.client import Client
from zoolet.client.recipes import Master, Worker
from zoolet.testing import Server, Simulation


async def double(task: str, value: Any) -> Any:
    """Do a simple task: double the value."""
    return value * 2


async def run_forever(task: str, value: Any) -> Any:
    """Do a task that never ends."""
    await asyncio.Event().wait()


class Crew:
    """Masters and workers, each with a client of its own.

    Args:
        server: The server they connect to.
        stack: The exit stack that closes them.
    """

    def __init__(self, server: Server, stack: AsyncExitStack) -> None:
        self.server = server
        self._stack = stack
        self._seed = 10

    async def client(self) -> Client:
        """Return a new client with its own seed."""
        self._seed += 1
        return await self._stack.enter_async_context(client_of(self.server, seed=self._seed))

    async def master(self, name: str = "m", **options: Any) -> tuple[Master, Client]:
        """Enter a master; return it with its client."""
        zk = await self.client()
        return await self._stack.enter_async_context(Master(zk, "/jobs", name, **options)), zk

    async def worker(self, name: str, do: Any = double, **options: Any) -> tuple[Worker, Client]:
        """Enter a worker; return it with its client."""
        zk = await self.client()
        return await self._stack.enter_async_context(Worker(zk, "/jobs", name, do, **options)), zk


def crewed(main: Callable[[Crew], Awaitable[None]]) -> None:
    """Run with a server in virtual time; at the end the clients are closed, and nothing may be left."""

    async def run(sim: Simulation, server: Server) -> None:
        async with AsyncExitStack() as stack:
            try:
                await main(Crew(server, stack))
            finally:
                await asyncio.sleep(1)  # by then background cleanup has finished
        await asyncio.sleep(30)
        assert not leftovers(server)
        assert not server.sessions()

    simulate(run)


async def echo(value: Any) -> Any:
    """Obey a command by returning its value."""
    return value
