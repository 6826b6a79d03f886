"""A run of servers and clients in virtual time, over a simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from math import inf
from random import Random
from typing import Any, ClassVar, TypeVar

from zoolet.server.testing.cluster.cluster import Cluster
from zoolet.server.testing.cluster.member import Member, Role
from zoolet.server.testing.cluster.shared import Shared
from zoolet.server.testing.proxy import Proxy
from zoolet.server.testing.server import Server
from zoolet.server.testing.sim.loop import LoopClock, SimLoop
from zoolet.server.testing.sim.network import Network
from zoolet.server.testing.state.clock import SkewedClock

T = TypeVar("T")


class _SimServer(Server):
    """A server in a simulation; the options are those of :class:`Server`."""

    turn: ClassVar[float] = inf  # turns that depended on the real clock would make runs differ

    def __init__(self, loop: SimLoop, shown_seed: int, **options: Any) -> None:
        super().__init__(**options)
        self._shown_seed = shown_seed
        self._clock = SkewedClock(LoopClock(loop))
        self._network = loop.network

    def _refuse_connections(self) -> None:
        self._network.refuse_connections(self.port)

    def _accept_connections(self) -> None:
        self._network.accept_connections(self.port)


class _SimMember(Member):
    """A member of a cluster in a simulation."""

    turn: ClassVar[float] = inf

    def __init__(self, network: Network, shared: Shared, number: int, role: Role, host: str, port: int) -> None:
        super().__init__(shared, number, role, host, port)
        self._runner.at_once = False  # its network never waits
        self._network = network

    def _refuse_connections(self) -> None:
        self._network.refuse_connections(self.port)

    def _accept_connections(self) -> None:
        self._network.accept_connections(self.port)


class _SimCluster(Cluster):
    """A cluster in a simulation; the options are those of :class:`Cluster`."""

    def __init__(self, loop: SimLoop, shown_seed: int, size: int, **options: Any) -> None:
        self._network = loop.network
        super().__init__(size, **options)
        self._shown_seed = shown_seed
        self._clock.inner = LoopClock(loop)

    def _make_member(self, number: int, role: Role, host: str, port: int) -> Member:
        return _SimMember(self._network, self._shared, number, role, host, port)


class _SimProxy(Proxy):
    """A proxy in a simulation; the options are those of :class:`Proxy`."""

    turn: ClassVar[float] = inf

    def __init__(self, loop: SimLoop, servers: str, shown_seed: int, **options: Any) -> None:
        super().__init__(servers, **options)
        self._shown_seed = shown_seed
        self._clock = LoopClock(loop)
        self._network = loop.network

    def _refuse_connections(self) -> None:
        self._network.refuse_connections(self.port)

    def _accept_connections(self) -> None:
        self._network.accept_connections(self.port)


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
        self.seed = seed
        self.rng = Random(f"test {seed}")
        self._loop = SimLoop(Random(f"network {seed}"), limit)
        self._loop.client_rng = Random(f"clients {seed}")
        self.network = self._loop.network
        self._servers = 0

    def server(self, port: int = 0, config: Any = None, *, compat: str | None = None, initial_zxid: int = 0) -> Server:
        """Return a server in this simulation, to be used with ``async with``; all its faults are available.

        Args:
            port: A port of the simulated network; 0 for a free one.
            config: As for :class:`Server`.
            compat: As for :class:`Server`.
            initial_zxid: The last zxid of a server that this one replaces.
        """
        self._servers += 1
        seed = hash((self.seed, self._servers))
        return _SimServer(
            self._loop, self.seed, port=port, seed=seed, config=config, compat=compat, initial_zxid=initial_zxid
        )

    def cluster(self, size: int = 3, **options: Any) -> Cluster:
        """Return a cluster in this simulation, to be used with ``async with``.

        Args:
            size: How many members vote.
            **options: Further arguments of :class:`Cluster`.
        """
        self._servers += 1
        options.setdefault("seed", hash((self.seed, self._servers)))
        return _SimCluster(self._loop, self.seed, size, **options)

    def proxy(self, servers: str, port: int = 0) -> Proxy:
        """Return a proxy in this simulation, to be used with ``async with``: it records what its clients are answered
        whatever becomes of the servers behind it.

        Args:
            servers: The servers, as for :class:`Proxy`.
            port: A port of the simulated network; 0 for a free one.
        """
        self._servers += 1
        return _SimProxy(self._loop, servers, self.seed, port=port, seed=hash((self.seed, self._servers)))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine until it is done, and return its result; a simulation runs once.

        Raises:
            RuntimeError: The simulation has run already, or a callback of the loop has failed.
            StuckError: No timer is pending, and the coroutine is not done.
            TooLongError: The run has exceeded its limit of virtual time.
        """
        if self._loop.is_closed():
            main.close()
            raise RuntimeError("this simulation has run, and a simulation runs once; make another one")
        failures: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda loop, context: failures.append(context))
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            result = runner.run(main)
        if failures:  # errors in callbacks, which nothing awaits
            raise RuntimeError(f"seed {self.seed}: {failures[0]['message']}") from failures[0].get("exception")
        return result

    def time(self) -> float:
        """Return the virtual seconds since the beginning."""
        return self._loop.time()

    def pass_time(self, seconds: float) -> None:
        """Advance the time at once, as if the process was paused: nothing happens in these seconds.

        Raises:
            TooLongError: The run has exceeded its limit of virtual time.
        """
        self._loop.pass_time(seconds)
