"""A proxy in front of a real ZooKeeper, with the faults and recordings of the embedded server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import SystemRandom
from typing import Final

from ..client.aio.dial import open_failure
from ..protocol.addresses import host_and_port
from ..server.core.client_connection import ClientConnection
from ..server.net.daemon import Daemon
from .endpoint import Endpoint
from .frames.frame_queue import FrameQueue
from .frames.interceptor import Interceptor
from .frames.requests import MAX_FRAME
from .frames.upstream import Upstream
from .run import arguments, clients
from .run.runner import make_daemon
from .state import report
from .state.real_time import RealTimeClock

_log = logging.getLogger("zoolet.proxy")
CONNECT_TIMEOUT_SECONDS: Final = 5.0
"""Seconds that a server may take to accept a connection before the proxy tries the next server."""


class Proxy(Endpoint):
    """A proxy that clients connect to instead of a ZooKeeper: ``with Proxy("zk1:2181,zk2:2181") as proxy:``.

    It supports the calls of :class:`~zoolet.testing.Server` that do not need the server's state: faults, pauses,
    recordings, ``ops()`` and waiting. It forwards TLS connections unchanged. For TLS, only refusing connections and
    ``pause``, ``resume`` and ``drop`` of ``"all"`` have an effect.

    Args:
        servers: The servers: ``host:port``, or several joined with commas. Each connection goes to the first server
            that accepts it.
        host: The address to listen on.
        port: The port, or 0 for a free port.
        seed: The seed of all randomness, by default a random seed.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(self, servers: str, host: str = "127.0.0.1", port: int = 0, *, seed: int | None = None) -> None:
        arguments.check_numbers(seed, None)
        super().__init__(host, port, SystemRandom().getrandbits(32) if seed is None else seed, RealTimeClock())
        self._addresses = arguments.read_servers(servers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unreachable = ""  # the reason logged last; empty once a server was reached

    def _assemble(self) -> Daemon | None:
        clock = self._clock.inner
        self._intercept(Interceptor(asyncio.get_running_loop().call_later, lambda: clock.read()[0] / 1000))
        return make_daemon(self._connect, clock, self._place.turn)

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
                async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                    await loop.create_connection(lambda: protocol, host, port)
            except (OSError, ValueError) as error:  # a host name that cannot be encoded raises a ValueError
                errors.append(f"{host_and_port(host, port)}: {open_failure(error, CONNECT_TIMEOUT_SECONDS, tls=False)}")
            else:
                self._unreachable = ""
                return
        reason = "; ".join(errors)
        if reason != self._unreachable:  # log a reason only once, until it changes
            self._unreachable = reason
            _log.warning("closing the connections of clients: cannot connect to any server: %s", reason)
        protocol.connection_lost(None)

    def _session_ids(self, who: object) -> set[int]:
        served = {client.session.id for client in self._interceptor.connections if client.session is not None}
        if clients.is_all(who):
            return served
        session_id = clients.session_id_of(who)
        if session_id not in served:
            hint = "; it cannot see the sessions of TLS connections, so use 'all'" if self._has_tls() else ""
            raise LookupError(f"{clients.client_label(who)} has no connection through this proxy{hint}")
        return {session_id}

    def _has_tls(self) -> bool:
        return any(each.executor.is_raw for each in self._interceptor.connections.values())

    def report(self) -> str:
        """Return the state as human-readable text: connections, faults and the last operations."""
        return report.as_text(self._shown_seed, self._runner.call(lambda: report.interceptor_report(self._interceptor)))

    def leaks(self) -> list[str]:
        """Return an empty list, because leaks are on the servers."""
        return []
