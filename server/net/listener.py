"""Accept connections, and let time pass."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zoolet.server.core.caller import Caller
from zoolet.server.core.connection import Connection, Word
from zoolet.server.core.engine import Engine
from zoolet.server.net.clock import Clock
from zoolet.server.net.collector import Collector
from zoolet.server.net.transport import Transport

if TYPE_CHECKING:
    import ssl  # 10 ms of start that most servers can do without


class Listener:
    """A listening socket in the running loop, its connections and the tick.

    Args:
        engine: What answers.
        clock: What time it is.
        words: The four-letter words that are answered.
        max_per_host: Connections that one address may have; 0 for no limit.
        max_connections: Connections in all; 0 for no limit.
        backlog: Connections that may wait to be accepted.
        collector: Told of the size of the tree at each tick, if given.
        connection: Makes what answers on a transport; by default a plain :class:`Connection`.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        words: dict[bytes, Word],
        *,
        max_per_host: int = 60,
        max_connections: int = 0,
        backlog: int = 128,
        collector: Collector | None = None,
        connection: Callable[[Transport, Caller], Connection] | None = None,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.words = words
        self.connection = connection or (lambda transport, caller: Connection(engine, caller, words))
        self.loop = asyncio.get_running_loop()
        self.open: dict[Transport, str] = {}
        """The open connections and the host of each."""
        self._per_host: Counter[str] = Counter()
        self._max_per_host = max_per_host
        self._max_connections = max_connections
        self._backlog = backlog
        self._collector = collector
        self._server: asyncio.Server | None = None
        self._secure: asyncio.Server | None = None
        self._refused: tuple[int, Any] | None = None  # family and address that connections are refused at
        self._placeholder: socket.socket | None = None  # keeps the port meanwhile
        self._resuming: asyncio.Task[None] | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()

    async def start(self, host: str | None, port: int) -> int:
        """Listen.

        Args:
            host: An address or name; None for all addresses of the machine.
            port: 0 for a free one.

        Returns:
            The port.

        Raises:
            OSError: The address is in use or is not this machine's.
        """
        if host is None and port == 0:
            port = _port_of_all_addresses()
        self._server = await self.loop.create_server(lambda: Transport(self), host, port, backlog=self._backlog)
        self.wake()
        bound: socket.socket = self._server.sockets[0]
        return int(bound.getsockname()[1])

    async def start_secure(self, host: str | None, port: int, context: ssl.SSLContext) -> int:
        """Listen for connections over TLS too.

        Args:
            host: As for :meth:`start`.
            port: As for :meth:`start`.
            context: What the server needs for it.

        Returns:
            The port.

        Raises:
            OSError: The address is in use or is not this machine's.
        """
        if host is None and port == 0:
            port = _port_of_all_addresses()
        self._secure = await self.loop.create_server(
            lambda: Transport(self), host, port, backlog=self._backlog, ssl=context
        )
        bound: socket.socket = self._secure.sockets[0]
        return int(bound.getsockname()[1])

    def refuse(self) -> None:
        """Accept no more, so that clients are refused, until :meth:`accept`; the port stays taken."""
        if self._server is None or self._refused is not None:
            return
        bound: socket.socket = self._server.sockets[0]
        self._refused = bound.family, bound.getsockname()
        self._server.close()
        self._keep_port()

    def _keep_port(self) -> None:
        if self._refused is None:
            return
        family, address = self._refused
        placeholder = _socket(family)
        try:
            placeholder.bind(address)
        except OSError:  # uvloop closes what listened some turns later
            placeholder.close()
            self.loop.call_soon(self._keep_port)
        else:
            self._placeholder = placeholder

    def accept(self) -> None:
        """Accept connections again, on the same port."""
        if self._refused is None:
            return
        family, address = self._refused
        self._refused = None
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None
        listening = _socket(family)
        listening.bind(address)
        listening.listen(self._backlog)  # whoever comes from now on waits until the loop listens too
        self._resuming = self.loop.create_task(self._listen_on(listening))

    async def _listen_on(self, listening: socket.socket) -> None:
        self._server = await self.loop.create_server(lambda: Transport(self), sock=listening, backlog=self._backlog)

    async def stop(self, *, patient: bool = True) -> None:
        """Accept no more, send what there is to send, and close all connections; sessions are left as they are.

        Args:
            patient: Wait for the clients to read what is on its way; otherwise cut them off.
        """
        if self._tick is not None:
            self._tick.cancel()
        if self._resuming is not None:
            await self._resuming
        refused, self._refused = self._refused, None
        if self._placeholder is not None:
            self._placeholder.close()
        if self._server is not None and refused is None:
            self._server.close()
        if self._secure is not None:
            self._secure.close()
        for transport in list(self.open):
            if patient:
                transport.flush()
                transport.close()
            else:
                transport.abort()
        if self.open:
            self._all_closed.clear()
            await self._all_closed.wait()
        if self._server is not None:
            await self._server.wait_closed()

    def read_only(self, on: bool) -> None:
        """Switch read-only mode on or off: all clients are cut off, and those that accept the mode come back."""
        self.engine.at(*self.clock.read())
        self.engine.read_only = on
        self.deliver()

    def descriptors(self) -> list[int]:
        """Give the file descriptors of all sockets, for a fork to let go of."""
        listening = [one.fileno() for one in self._server.sockets] if self._server is not None else []
        placeholder = [self._placeholder.fileno()] if self._placeholder is not None else []
        served = [transport.descriptor() for transport in self.open]
        return [number for number in (*listening, *placeholder, *served) if number >= 0]

    # --- called by transports ---

    def admits(self, host: str) -> bool:
        """Count a new connection, or say that there are too many."""
        if self._max_per_host and self._per_host[host] >= self._max_per_host:
            return False
        if self._max_connections and len(self.open) >= self._max_connections:
            return False
        self._per_host[host] += 1
        if self._tick is None:
            self._schedule()
        return True

    def closed(self, transport: Transport) -> None:
        """Take note that a connection is gone."""
        host = self.open.pop(transport, None)
        if host is not None:
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]
        if not self.open:
            self._all_closed.set()

    def deliver(self) -> None:
        """Send what connections have got by what others did."""
        dirty = self.engine.watches.dirty
        while dirty:
            callers = list(dirty)
            dirty.clear()
            for caller in callers:
                caller.flush()

    # --- time ---

    def tick(self) -> None:
        """Do what is due now."""
        self.engine.at(*self.clock.read())
        self.engine.tick()
        self.deliver()
        if self._collector is not None:
            self._collector.grown(self.engine.tree.size)

    def _schedule(self) -> None:
        interval = min(self.engine.settings.tick_time, 1000)
        self._tick = self.loop.call_later((interval - self.clock.read()[1] % interval) / 1000, self._ticked)

    def _ticked(self) -> None:
        self.tick()
        self._tick = None
        self.wake()

    def wake(self) -> None:
        """Let time pass, unless there is nothing that it could change: a server that nobody uses sleeps."""
        if self._tick is None and not (self.engine.idle() and not self.open):
            self._schedule()


def _socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


def _port_of_all_addresses() -> int:
    """Find a free port: left to themselves, the IPv4 and the IPv6 socket would each take one of their own."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
