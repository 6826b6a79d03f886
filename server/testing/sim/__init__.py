"""Servers and clients in one event loop with virtual time and an in-memory network; all randomness is from one seed.

A day passes in milliseconds: when nothing is ready, the time jumps to the next timer. Code under test needs no change
if it gets its time from ``loop.time()`` and its connections from ``loop.create_connection``::

    def test_something():
        sim = Simulation(seed=7)

        async def main() -> None:
            async with sim.server() as server, Client(server.hosts) as zk:
                sim.network.drop()
                ...

        sim.run(main())

A failing run can be repeated exactly with its seed.
"""

from __future__ import annotations

from zoolet.server.testing.sim.loop import StuckError, TooLongError, describe_pending_tasks
from zoolet.server.testing.sim.network import Network
from zoolet.server.testing.sim.simulation import Simulation

__all__ = ["Network", "Simulation", "StuckError", "TooLongError", "describe_pending_tasks"]
