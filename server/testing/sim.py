"""Servers and clients in one loop whose time is virtual and whose network is memory; all chance comes from one seed.

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

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from random import Random
from typing import Any, Final, TypeVar

from zoolet.server.testing.clock import MANUAL_CLOCK_START
from zoolet.server.testing.server import Server

T = TypeVar("T")
_FIRST_PORT: Final = 40_000
_HIGH: Final = 1 << 16


class StuckError(RuntimeError):
    """Nothing will ever happen again, and somebody still waits."""


class TooLongError(RuntimeError):
    """More virtual time went by than was allowed."""


def waiting(loop: asyncio.AbstractEventLoop) -> str:
    """Return the tasks that are not done, and where each waits."""
    lines = []
    for task in asyncio.all_tasks(loop):
        at: Any = task.get_coro()
        where = []
        while (frame := getattr(at, "cr_frame", None)) is not None:
            where.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
            at = at.cr_await
        lines.append(f"\n  {task.get_name()}: {' > '.join(where)}")
    return "".join(sorted(lines))


class _Selector:
    """What the loop calls when nothing is ready: it lets time jump instead of waiting for descriptors."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Let *timeout* seconds pass at once."""
        if timeout is None:
            now = self._loop.time()
            raise StuckError(f"nothing will ever happen again at {now:.3f} s, and there wait: {waiting(self._loop)}")
        self._loop.pass_time(timeout)
        return []

    def close(self) -> None:
        """Nothing is open."""


class SimLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time, whose connections go through a :class:`Network`.

    Args:
        random: Where the network's chance comes from.
        limit: Virtual seconds after which a run is given up.
    """

    def __init__(self, rng: Random, limit: float) -> None:
        super().__init__()
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        self._now = 0.0
        self._limit = limit
        self.network = Network(self, rng)

    def __del__(self) -> None:
        if not self.is_closed():  # it was never run, and holds nothing that could leak
            self.close()

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Let time jump.

        Raises:
            TooLongError: It would jump beyond the limit.
        """
        self._now += seconds
        if self._now > self._limit:
            limit, self._limit = self._limit, float("inf")  # what is cancelled now may take some time
            raise TooLongError(f"the run has taken more than {limit} virtual seconds, and there wait: {waiting(self)}")

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no descriptors, so there are no events."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody need be woken."""

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Listen in the simulated network; only ``host`` and ``port`` count."""
        return self.network.listen(protocol_factory, host, port)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect in the simulated network.

        Raises:
            ConnectionRefusedError: Nobody listens there.
        """
        return await self.network.connect(protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Resolve every name to itself."""
        return [(0, 0, 0, "", (host, port))]


class Network:
    """All links between clients and servers of a simulation.

    What is sent arrives complete and in order, some milliseconds later, in pieces of any size; or not at all, once its
    connection is cut.

    Args:
        loop: The loop it belongs to.
        random: Where chance comes from.

    Attributes:
        latency: The least and the most seconds that a piece travels.
        duplicates: The chance that a new connection reaches the server twice, the second time as an echo that repeats
            the client's first bytes and whose answers are lost.
    """

    def __init__(self, loop: SimLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self.latency = (0.0002, 0.003)
        self.duplicates = 0.0
        self._listening: dict[int, Callable[[], Any]] = {}
        self._ports = _FIRST_PORT
        self._ends: dict[_End, None] = {}
        self._refused: set[int] = set()
        self._paused = False
        self._moved: list[Callable[[], None]] = []

    # --- what goes wrong ---

    def drop(self, port: int | None = None) -> int:
        """Reset all connections, or those to one server; return how many."""
        ends = [end for end in self._ends if end.serves and port in (None, end.port)]
        for end in ends:
            self._loop.call_soon(end.reset)
            self.soon(0, end.peer.reset)
        return len(ends)

    def refuse_connections(self, port: int) -> None:
        """Let nobody connect to a server until :meth:`admit`."""
        self._refused.add(port)

    def accept_connections(self, port: int) -> None:
        """Let everybody connect again."""
        self._refused.discard(port)

    def pause(self) -> None:
        """Deliver nothing, and complete no connection, until :meth:`flow`; nothing is lost."""
        self._paused = True

    def resume(self) -> None:
        """End a stall."""
        self._paused = False
        moved, self._moved = self._moved, []
        for move in moved:
            move()

    # --- what links do ---

    def soon(self, after: float, do: Callable[[], None]) -> float:
        """Do something once a piece has travelled, but not before *after*; give the moment."""
        # A moment later at the least: timers of the same moment are called in any order.
        at = max(after + 1e-6, self._loop.time() + self._rng.uniform(*self.latency))
        self._loop.call_at(at, self._arrive, do)
        return at

    def _arrive(self, do: Callable[[], None]) -> None:
        if self._paused:
            self._moved.append(do)
        else:
            do()

    def pieces(self, data: bytes) -> list[bytes]:
        """Cut what is sent at random places, as networks do now and then."""
        if len(data) < 2 or self._rng.random() < 0.7:
            return [data]
        at = self._rng.randrange(1, len(data))
        return [data[:at], data[at:]]

    def listen(self, factory: Callable[[], Any], host: str | None, port: int | None) -> _Listening:
        """Listen on a port, a free one if it is 0."""
        if not port:
            self._ports += 1
            port = self._ports
        if port in self._listening:
            raise OSError(98, f"port {port} is in use in this simulation")
        self._listening[port] = factory
        return _Listening(self, host or "sim", port)

    def close(self, port: int) -> None:
        """Listen there no more."""
        self._listening.pop(port, None)

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[_End, Any]:
        """Connect to whoever listens on the port by the time the request gets there."""
        done: asyncio.Future[Callable[[], Any] | None] = self._loop.create_future()

        def arrived() -> None:
            if not done.done():
                done.set_result(self._listening.get(port) if port not in self._refused else None)

        self.soon(0, arrived)
        served = await done
        if served is None:
            raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
        mine, its = _End(self._loop, self, port, False), _End(self._loop, self, port, True)
        mine.peer, its.peer = its, mine
        self._ends[mine] = self._ends[its] = None
        its.begin(served())
        if self._rng.random() < self.duplicates:
            mine.echo = _End(self._loop, self, port, True)
            mine.echo.peer = _End(self._loop, self, port, False)
            mine.echo.peer.peer = mine.echo
            mine.echo.peer.begin(asyncio.Protocol())  # which reads and says nothing
            self._ends[mine.echo] = None
            mine.echo.begin(served())
        protocol = factory()
        mine.begin(protocol)
        return mine, protocol

    def forget(self, end: _End) -> None:
        """An end is closed."""
        self._ends.pop(end, None)


class _Listening:
    """What ``create_server`` gives."""

    def __init__(self, network: Network, host: str, port: int) -> None:
        self._network = network
        self._port = port
        self.sockets = [_Bound(host, port)]

    def close(self) -> None:
        self._network.close(self._port)

    async def wait_closed(self) -> None:
        """It is closed already."""


class _Bound:
    """As much of a socket as is asked of one that listens."""

    def __init__(self, host: str, port: int) -> None:
        self._name = host, port

    def getsockname(self) -> tuple[str, int]:
        return self._name


class _End(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, loop: SimLoop, network: Network, port: int, serves: bool) -> None:
        super().__init__()
        self._loop = loop
        self._network = network
        self.port = port
        self.serves = serves
        self.peer: _End
        self.echo: _End | None = None
        self._protocol: Any = None
        self._after = 0.0  # nothing that is sent now may arrive before
        self._closing = self._lost = self._ended = False
        self._reading = True
        self._inbox: deque[bytes | None] = deque()  # None is the end
        self._on_its_way = 0
        self._high = _HIGH
        self._write_paused = False

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    # --- asyncio.Transport ---

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", self.port) if name in ("peername", "sockname") else default

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._on_its_way

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.call_soon(self._read)

    def write(self, data: Any) -> None:
        if self._closing or self._ended:
            return
        if self.echo is not None and not self.serves:
            echo, self.echo = self.echo, None
            self._network.soon(self._after, partial(echo.arrive, bytes(data)))
        for piece in self._network.pieces(bytes(data)):
            self._on_its_way += len(piece)
            self._after = self._network.soon(self._after, partial(self._hand_over, piece))
        if self._on_its_way > self._high and not self._write_paused:
            self._write_paused = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        if not self._ended and not self._closing:
            self._ended = True
            self._after = self._network.soon(self._after, partial(self._hand_over, None))

    def close(self) -> None:
        if self._closing:
            return
        self.write_eof()
        self._closing = True
        self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if self._lost:
            return
        self._closing = True
        self._loop.call_soon(self._lose, None)
        peer = self.peer
        self._network.soon(0, partial(peer.reset))

    # --- between the ends ---

    def _hand_over(self, piece: bytes | None) -> None:
        self.peer.arrive(piece)

    def arrive(self, piece: bytes | None) -> None:
        """Take what has travelled here."""
        if not self._lost:
            self._inbox.append(piece)
            self._read()

    def reset(self) -> None:
        """Record that the other end was aborted."""
        if not self._lost:
            self._closing = True
            self._lose(ConnectionResetError(104, "the simulated connection was reset"))

    def _read(self) -> None:
        while self._inbox and self._reading and not self._lost and not self._closing:
            piece = self._inbox.popleft()
            if piece is None:
                if not self._protocol.eof_received():
                    self.close()
            else:
                self.peer.arrived(len(piece))
                self._protocol.data_received(piece)

    def arrived(self, size: int) -> None:
        """Record that the other end has read so much."""
        self._on_its_way -= size
        if self._write_paused and self._on_its_way <= self._high // 4:
            self._write_paused = False
            self._protocol.resume_writing()

    def _lose(self, why: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(why)


class _LoopClock:
    """The virtual time as a server sees it."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def read(self) -> tuple[int, int]:
        """Return milliseconds since the epoch, and milliseconds since the loop was made."""
        monotonic_ms = int(self._loop.time() * 1000)
        return MANUAL_CLOCK_START + monotonic_ms, monotonic_ms

    def forgive(self, milliseconds: int) -> None:
        """Change nothing: a loop in virtual time is never late."""


class _SimServer(Server):
    """A server in a simulation."""

    def __init__(self, loop: SimLoop, port: int, seed: int, config: Any) -> None:
        super().__init__(port=port, seed=seed, config=config)
        self._network = loop.network
        self.use_clock(_LoopClock(loop))
        self._turn = inf  # a turn that ended by the real clock would end elsewhere in the next run

    def _refuse(self) -> None:
        self._network.refuse_connections(self.port)

    def _accept(self) -> None:
        self._network.accept_connections(self.port)


class Simulation:
    """One run.

    Args:
        seed: Where all chance comes from.
        limit: Virtual seconds after which the run is given up with a :class:`TooLongError`.

    Attributes:
        random: The source of chance for the test itself.
        network: What connects clients and servers.
    """

    def __init__(self, seed: int = 0, *, limit: float = 86_400.0) -> None:
        self.seed = seed
        self.rng = Random(f"test {seed}")
        self._loop = SimLoop(Random(f"network {seed}"), limit)
        self.network = self._loop.network
        self._servers = 0

    def server(self, port: int = 0, config: Any = None) -> Server:
        """Make a server of this simulation; serve with ``async with``. All its faults can be had here too.

        Args:
            port: A port of the simulated network; 0 for a free one.
            config: As for :class:`Server`.
        """
        self._servers += 1
        return _SimServer(self._loop, port, hash((self.seed, self._servers)), config)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and give what it returns; a simulation runs once.

        Raises:
            StuckError: Nothing will ever happen again.
            TooLongError: It takes more virtual time than allowed.
        """
        if self._loop.is_closed():
            main.close()
            raise RuntimeError("this simulation has run, and runs once; make another one")
        failures: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda loop, context: failures.append(context))
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            result = runner.run(main)
        if failures:  # in a callback, where nobody awaits it
            raise RuntimeError(f"seed {self.seed}: {failures[0]['message']}") from failures[0].get("exception")
        return result

    def time(self) -> float:
        """Return the virtual seconds since the beginning."""
        return self._loop.time()
