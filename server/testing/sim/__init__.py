"""Servers and clients in one loop whose time is virtual and whose network is memory; all randomness is from one seed.

A day passes in milliseconds: when nothing is ready, the time jumps to the next timer. Code under test needs no change
as long as it gets its time from ``loop.time()`` and its connections from ``loop.create_connection``::

    def test_something():
        sim = Simulation(seed=7)

        async def main() -> None:
            async with sim.server() as server, Client(server.hosts) as zk:
                sim.network.drop()
                ...

        sim.run(main())

A run that fails can be repeated exactly: same seed, same run.
"""

from __future__ import annotations

from zoolet.server.testing.sim.loop import StuckError, TooLongError, describe_pending_tasks
from zoolet.server.testing.sim.network import Network
from zoolet.server.testing.sim.simulation import Simulation

__all__ = ["Network", "Simulation", "StuckError", "TooLongError", "describe_pending_tasks"]
