"""Masters and workers in virtual time, each with its own client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from support.leftovers import leftovers
from support.simulation import make_client, simulate

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
    """The masters and workers of a test, each with its own client.

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
        return await self._stack.enter_async_context(make_client(self.server, seed=self._seed))

    async def master(self, name: str = "m", **options: Any) -> tuple[Master, Client]:
        """Enter a new Master. Return it with its client."""
        zk = await self.client()
        return await self._stack.enter_async_context(Master(zk, "/jobs", name, **options)), zk

    async def worker(self, name: str, do: Any = double, **options: Any) -> tuple[Worker, Client]:
        """Enter a new Worker, which does tasks with the function *do*. Return it with its client."""
        zk = await self.client()
        return await self._stack.enter_async_context(Worker(zk, "/jobs", name, do, **options)), zk


def run_with_crew(main: Callable[[Crew], Awaitable[None]]) -> None:
    """Run a test with a crew and a server in virtual time. At the end, check that no session, node or watch is left."""

    async def run(sim: Simulation, server: Server) -> None:
        async with AsyncExitStack() as stack:
            try:
                await main(Crew(server, stack))
            finally:
                await asyncio.sleep(1)  # wait for background cleanup
        await asyncio.sleep(30)
        assert not leftovers(server)
        assert not server.sessions()

    simulate(run)


async def echo(value: Any) -> Any:
    """Obey a command by returning its value."""
    return value
