"""A proxy in front of a real ZooKeeper, with the faults and recordings of the embedded server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import SystemRandom
from typing import ClassVar, Final

from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.net.clock import Clock, RealClock
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.turns import TURN
from zoolet.server.testing.endpoint import Endpoint
from zoolet.server.testing.frames.frame_queue import FrameQueue
from zoolet.server.testing.frames.interceptor import Interceptor
from zoolet.server.testing.frames.requests import MAX_FRAME
from zoolet.server.testing.frames.upstream import Upstream
from zoolet.server.testing.run import arguments, clients
from zoolet.server.testing.run.runner import daemon_of
from zoolet.server.testing.state import report

_log = logging.getLogger("zoolet.proxy")
CONNECT_TIMEOUT: Final = 5.0
"""Seconds that a server may take to accept a connection; then the next one is tried."""


class Proxy(Endpoint):
    """A proxy that clients connect to in place of a ZooKeeper: ``with Proxy("zk1:2181,zk2:2181") as proxy:``.

    It has the calls of :class:`~zoolet.server.testing.Server` that need no look into the server: faults, pauses,
    recordings, ``ops()`` and waiting. TLS passes as it is, to servers that speak it: then only ``pause``,
    ``resume`` and ``drop`` of ``"all"``, and refusing connections, have an effect.

    Args:
        servers: The servers: ``host:port`` joined with commas; a connection goes to the first one that accepts it.
        host: The address to listen on.
        port: The port; 0 for a free one.
        seed: The seed of all randomness; by default a random one.

    Raises:
        ValueError: An argument is invalid.
    """

    turn: ClassVar[float] = TURN
    """Seconds for which one connection is served before the others get their turn."""

    def __init__(self, servers: str, host: str = "127.0.0.1", port: int = 0, *, seed: int | None = None) -> None:
        arguments.check_numbers(seed, None)
        super().__init__(host, port, SystemRandom().getrandbits(32) if seed is None else seed)
        self._addresses = arguments.read_servers(servers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock: Clock = RealClock()
        self._unreachable = ""  # why no server could be reached, the last time

    def _assemble(self) -> Daemon:
        loop = asyncio.get_running_loop()
        self._intercept(Interceptor(loop.call_later, self._time))
        return daemon_of(self._connect, self._clock, self.turn)

    def _time(self) -> float:
        return self._clock.read()[0] / 1000

    def _connect(self, client: ClientConnection, resume: Callable[[], None]) -> FrameQueue:
        def begin(protocol: asyncio.Protocol) -> asyncio.Task[None]:
            task = asyncio.get_running_loop().create_task(self._connect_to_first(protocol))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return task

        def unread() -> int:
            socket = self._runner.daemon.connections.open.get(client)
            return 0 if socket is None else socket.write_buffer_size()

        return FrameQueue(
            self._interceptor, client, resume, lambda queue: Upstream(queue, begin, unread), max_frame=MAX_FRAME
        )

    async def _connect_to_first(self, protocol: asyncio.Protocol) -> None:
        loop = asyncio.get_running_loop()
        errors = []
        for host, port in self._addresses:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    await loop.create_connection(lambda: protocol, host, port)
            except (OSError, ValueError) as error:  # a ValueError: the name cannot be encoded
                errors.append(f"{host}:{port}: {str(error) or f'no connection within {CONNECT_TIMEOUT:g} s'}")
            else:
                self._unreachable = ""
                return
        reason = "; ".join(errors)
        if reason != self._unreachable:  # said once, until something changes
            self._unreachable = reason
            _log.warning("closing a connection: no server can be reached: %s", reason)
        protocol.connection_lost(None)

    def _sessions_of(self, who: object) -> set[int]:
        served = {client.session.id for client in self._interceptor.connections if client.session is not None}
        if clients.is_all(who):
            return served
        session_id = clients.session_id_of(who)
        if session_id not in served:
            hint = "; of TLS it sees no sessions, only 'all' can be named" if self._has_tls() else ""
            raise LookupError(f"{clients.name_of(who)} has no connection through this proxy{hint}")
        return {session_id}

    def _has_tls(self) -> bool:
        return any(
            isinstance(each, FrameQueue) and each.executor.is_raw for each in self._interceptor.connections.values()
        )

    def report(self) -> str:
        """Return the state as text, for people: connections, faults and the last operations."""
        return report.as_text(self._shown_seed, self._runner.call(lambda: report.of_interceptor(self._interceptor)))

    def leaks(self) -> list[str]:
        """Return nothing: what clients leave, they leave at the servers."""
        return []
