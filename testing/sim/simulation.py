"""A run of servers and clients in virtual time, over a simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from math import inf
from random import Random
from typing import Any, TypeVar

from ..cluster.cluster import Cluster
from ..endpoint import Endpoint
from ..proxy import Proxy
from ..run import arguments
from ..run.place import Place
from ..server import Server
from ..signatures import CompatName
from .loop import LoopClock, SimLoop

T = TypeVar("T")
E = TypeVar("E", bound=Endpoint)


class Simulation:
    """A run of servers and clients in virtual time.

    Args:
        seed: The seed of all randomness.
        limit: Virtual seconds after which the run fails with a :class:`TooLongError`.

    Attributes:
        seed: The seed.
        rng: The source of randomness for the test itself.
        network: The network between clients and servers.
    """

    def __init__(self, seed: int = 0, *, limit: float = 86_400.0) -> None:
        arguments.check_numbers(seed, None)
        self.seed = seed
        self.rng = Random(f"test {seed}")
        self._loop = SimLoop(Random(f"network {seed}"), limit)
        self._loop.client_rng = Random(f"clients {seed}")
        self.network = network = self._loop.network
        self._place = Place(
            inf,  # no limit for turns, because the real clock would make runs differ
            lambda daemon: network.refuse_connections(daemon.port),
            lambda daemon: network.accept_connections(daemon.port),
            without_waiting=False,  # the network never waits
            clock=LoopClock(self._loop),
            seed=seed,
        )
        self._server_count = 0

    def _move(self, endpoint: E) -> E:
        endpoint.move_to(self._place)
        return endpoint

    def server(
        self, port: int = 0, config: Any = None, *, compat: CompatName | None = None, initial_zxid: int = 0
    ) -> Server:
        """Return a server in this simulation, for use with ``async with``. All faults are available.

        Args:
            port: A port of the simulated network, or 0 for a free port.
            config: Configuration, as for :class:`Server`.
            compat: ZooKeeper release, as for :class:`Server`.
            initial_zxid: The last zxid of the server that this server replaces.
        """
        self._server_count += 1
        seed = hash((self.seed, self._server_count))
        return self._move(Server(port=port, seed=seed, config=config, compat=compat, initial_zxid=initial_zxid))

    def cluster(self, members: int = 3, **options: Any) -> Cluster:
        """Return a cluster in this simulation, for use with ``async with``.

        Args:
            members: Number of voting members.
            **options: Further arguments of :class:`Cluster`.
        """
        self._server_count += 1
        options.setdefault("seed", hash((self.seed, self._server_count)))
        return self._move(Cluster(members, **options))

    def proxy(self, servers: str, port: int = 0) -> Proxy:
        """Return a proxy in this simulation, for use with ``async with``. Failing servers do not affect its recordings.

        Args:
            servers: The servers, as for :class:`Proxy`.
            port: A port of the simulated network, or 0 for a free port.
        """
        self._server_count += 1
        return self._move(Proxy(servers, port=port, seed=hash((self.seed, self._server_count))))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine until it is done and return its result. A simulation can be run only once.

        Raises:
            RuntimeError: The simulation was run before, or a callback of the loop failed.
            StuckError: No timer is pending, but the coroutine is not done.
            TooLongError: The run exceeded its limit of virtual time.
        """
        if self._loop.is_closed():
            main.close()
            raise RuntimeError("a Simulation can be run only once; create a new one")
        failures: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda loop, context: failures.append(context))
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            result = runner.run(main)
        if failures:  # no task awaits callbacks, so their errors are raised here
            raise RuntimeError(f"seed {self.seed}: {failures[0]['message']}") from failures[0].get("exception")
        return result

    def time(self) -> float:
        """Return the virtual seconds since the start."""
        return self._loop.time()

    def pass_time(self, seconds: float) -> None:
        """Advance the time immediately, as if the process was paused: no callback runs in these seconds.

        Raises:
            TooLongError: The run exceeded its limit of virtual time.
        """
        self._loop.pass_time(seconds)
