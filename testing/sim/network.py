"""An in-memory network with asyncio transports: latency, fragmentation, back-pressure and resets, without sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from .schedule import BASELINE_LATENCY_S, Schedule

_FIRST_PORT: Final = 40_000
_HIGH_WATER_BYTES: Final = 1 << 16


class SimNetwork:
    """All connections between the clients and servers of a simulation.

    Sent bytes arrive complete and in order, some milliseconds later, in fragments of any size. Bytes of a dropped
    connection may be lost.

    Args:
        loop: The simulation's loop.
        rng: The source of randomness.

    Attributes:
        latency: The minimum and maximum latency of a fragment, in seconds.
        schedule: The schedule that determines the latency of each message, or None for random latencies.
        duplicates: The probability that a new connection is duplicated. The duplicate, an echo, repeats the client's
            first bytes at the server, and the answers to it are lost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self.latency = (0.0002, 0.003)
        self.schedule: Schedule | None = None
        self.duplicates = 0.0
        self._connection_counts: dict[int, int] = {}  # number of connections made to each port
        self._listening: dict[int, Callable[[], Any]] = {}
        self._last_port = _FIRST_PORT
        self._ends: dict[_SimTransport, None] = {}
        self._refused: set[int] = set()
        self._paused = False
        self._delayed: list[Callable[[], None]] = []  # calls that a pause delays

    # --- fault injection ---

    def drop(self, port: int | None = None) -> int:
        """Reset all connections, or only connections to *port*, and return their number."""
        ends = [end for end in self._ends if end.serves and port in (None, end.port)]
        for end in ends:
            self._loop.call_soon(end.reset)
            self.call_after_latency(0, end.peer.reset)
        return len(ends)

    def refuse_connections(self, port: int) -> None:
        """Refuse new connections to one server until :meth:`accept_connections`."""
        self._refused.add(port)

    def accept_connections(self, port: int) -> None:
        """Accept connections to a server again."""
        self._refused.discard(port)

    def pause(self) -> None:
        """Delay all messages and new connections until :meth:`resume`, without losing any."""
        self._paused = True

    def resume(self) -> None:
        """End a pause and deliver the delayed messages."""
        self._paused = False
        delayed, self._delayed = self._delayed, []
        for arrive in delayed:
            arrive()

    @property
    def connections(self) -> int:
        """The number of open connections, including connections that only one side has closed."""
        return sum(not end.serves or end.peer not in self._ends for end in self._ends)

    # --- for the loop ---

    def listen(self, factory: Callable[[], Any], host: str | None, port: int | None) -> ListeningServer:
        """Listen on a port. 0 or None stands for a free port.

        Raises:
            OSError: The port is in use.
        """
        if not port:
            self._last_port += 1
            port = self._last_port
        if port in self._listening:
            raise OSError(98, f"port {port} is already in use in this simulation")
        self._listening[port] = factory
        return ListeningServer(self, host or "sim", port)

    def close(self, port: int) -> None:
        """Stop listening on a port."""
        self._listening.pop(port, None)

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[_SimTransport, Any]:
        """Connect to the server that listens on the port when the connection request arrives.

        Raises:
            ConnectionRefusedError: No server listens on the port, or connections are refused.
        """
        arrived: asyncio.Future[Callable[[], Any] | None] = self._loop.create_future()

        def arrive() -> None:
            if not arrived.done():
                arrived.set_result(self._listening.get(port) if port not in self._refused else None)

        self.call_after_latency(0, arrive)
        server_factory = await arrived
        if server_factory is None:
            raise ConnectionRefusedError(111, f"no server accepts connections on {host}:{port}")
        client_end, server_end = self._make_ends(port)
        self._ends[client_end] = self._ends[server_end] = None
        server_end.connect_protocol(server_factory())
        if self._rng.random() < self.duplicates:
            client_end.echo = self._make_echo(port, server_factory)
        protocol = factory()
        client_end.connect_protocol(protocol)
        return client_end, protocol

    def _make_ends(self, port: int) -> tuple[_SimTransport, _SimTransport]:
        client_end, server_end = (
            _SimTransport(self._loop, self, port, False),
            _SimTransport(self._loop, self, port, True),
        )
        client_end.number = server_end.number = self._connection_counts[port] = self._connection_counts.get(port, 0) + 1
        client_end.peer, server_end.peer = server_end, client_end
        return client_end, server_end

    def _make_echo(self, port: int, server_factory: Callable[[], Any]) -> _SimTransport:
        """Connect a silent client that ignores all input, and return the server's end, to receive an echo."""
        client_end, server_end = self._make_ends(port)
        client_end.connect_protocol(asyncio.Protocol())
        self._ends[server_end] = None
        server_end.connect_protocol(server_factory())
        return server_end

    # --- for the ends of connections ---

    def call_after_latency(
        self, earliest: float, callback: Callable[[], None], sender: _SimTransport | None = None
    ) -> float:
        """Call *callback* after a random latency, but later than *earliest*. Return the time of the call.

        Args:
            earliest: The time in the loop before which the callback must not run.
            callback: The function to call.
            sender: The end that sends a message, or None for other calls.
        """
        if self.schedule is None:
            latency = self._rng.uniform(*self.latency)
        elif sender is None:
            latency = BASELINE_LATENCY_S
        else:
            latency = self.schedule.latency(sender.number, not sender.serves)
        # The arrival is strictly later, because the order of timers with equal times is not defined.
        when = max(earliest + 1e-6, self._loop.time() + latency)
        self._loop.call_at(when, self._arrive, callback)
        return when

    def _arrive(self, callback: Callable[[], None]) -> None:
        if self._paused:
            self._delayed.append(callback)
        else:
            callback()

    def fragment(self, data: bytes) -> list[bytes]:
        """Return the data in one or two fragments, split at a random offset."""
        if len(data) < 2 or self.schedule is not None or self._rng.random() < 0.7:
            return [data]
        offset = self._rng.randrange(1, len(data))
        return [data[:offset], data[offset:]]

    def forget(self, end: _SimTransport) -> None:
        """Remove a closed end."""
        self._ends.pop(end, None)


class ListeningServer:
    """The result of ``create_server``, instead of an ``asyncio.Server``."""

    def __init__(self, network: SimNetwork, host: str, port: int) -> None:
        self._network = network
        self._port = port
        self.sockets = [_BoundSocket(host, port)]

    def close(self) -> None:
        """Stop listening."""
        self._network.close(self._port)

    async def wait_closed(self) -> None:
        """Return immediately, because closing takes no time."""


class _BoundSocket:
    """A listening socket, reduced to the methods that a server uses."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port

    def getsockname(self) -> tuple[str, int]:
        return self._address


class _SimTransport(asyncio.Transport):
    """One end of a connection.

    Args:
        loop: The simulation's loop.
        network: The network, which carries fragments to the other end.
        port: The server's port.
        serves: Whether this is the server's end.

    Attributes:
        number: The number of the connection to this port, starting at 1.
        peer: The other end.
        echo: The server's end of a duplicate, which also receives the first bytes written here.
    """

    peer: _SimTransport

    def __init__(self, loop: asyncio.AbstractEventLoop, network: SimNetwork, port: int, serves: bool) -> None:
        super().__init__()
        self._loop = loop
        self._network = network
        self.port = port
        self.serves = serves
        self.number = 0
        self.echo: _SimTransport | None = None
        self._protocol: Any = None
        self._last_arrival = 0.0  # the arrival time of the last fragment; later fragments arrive after it
        self._closing = self._lost = self._eof_sent = False
        self._reading = True
        self._inbox: deque[bytes | None] = deque()  # received data; None marks the end of the stream
        self._in_flight = 0  # bytes that the other end has not read
        self._high_water = _HIGH_WATER_BYTES
        self._write_paused = False

    def connect_protocol(self, protocol: Any) -> None:
        """Connect a protocol to this end."""
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
        self._high_water = _HIGH_WATER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._in_flight

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.call_soon(self._read)

    def write(self, data: Any) -> None:
        if self._closing or self._eof_sent:
            return
        if self.echo is not None and not self.serves:
            echo, self.echo = self.echo, None
            self._network.call_after_latency(self._last_arrival, partial(echo.receive, bytes(data)))
        for piece in self._network.fragment(bytes(data)):
            self._in_flight += len(piece)
            self._send(piece)
        if self._in_flight > self._high_water and not self._write_paused:
            self._write_paused = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        if not self._eof_sent and not self._closing:
            self._eof_sent = True
            self._send(None)

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
        self._network.call_after_latency(0, self.peer.reset)

    # --- messages between the ends ---

    def _send(self, piece: bytes | None) -> None:
        arrive = partial(self.peer.receive, piece)
        self._last_arrival = self._network.call_after_latency(self._last_arrival, arrive, self)

    def receive(self, piece: bytes | None) -> None:
        """Receive a fragment, or None for the end of the stream."""
        if not self._lost:
            self._inbox.append(piece)
            self._read()

    def reset(self) -> None:
        """Lose the connection, because the other end was aborted."""
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
                self.peer.acknowledge(len(piece))
                self._protocol.data_received(piece)

    def acknowledge(self, size: int) -> None:
        """Count *size* bytes as read by the other end, and resume writing if enough bytes were read."""
        self._in_flight -= size
        if self._write_paused and self._in_flight <= self._high_water // 4:
            self._write_paused = False
            self._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)
