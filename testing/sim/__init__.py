"""Simulations: servers and clients in one event loop with virtual time, an in-memory network, and one seed.

A virtual day passes in milliseconds, because the time jumps to the next timer when no callback is ready. Code under
test needs no change if it uses ``loop.time()`` and ``loop.create_connection``::

    def test_something():
        sim = Simulation(seed=7)

        async def main() -> None:
            async with sim.server() as server, Client(server.hosts) as zk:
                sim.network.drop()
                ...

        sim.run(main())

You can repeat a failing run exactly with its seed.
"""

from __future__ import annotations

from .loop import StuckError, TooLongError, describe_pending_tasks
from .network import SimNetwork
from .simulation import Simulation

__all__ = ["SimNetwork", "Simulation", "StuckError", "TooLongError", "describe_pending_tasks"]
