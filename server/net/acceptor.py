"""The listening socket for plain-text connections.

States and transitions::

    start --> listening --refuse--> refusing --accept--> listening
                  |                    |
                  +------close---------+----> closed

While refusing, no socket listens, so the kernel refuses connections. A bound socket keeps the port reserved.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Container
from functools import partial
from typing import Any

from .connections import Connections
from .listening import listen_on_all, means_all, new_socket, port_for, split_hosts
from .protocol import ServerProtocol


class Acceptor:
    """The acceptor of connections on one port.

    Args:
        connections: The connections of the server. Accepted connections are added to them.
        backlog: Maximum number of connections that wait to be accepted.
    """

    def __init__(self, connections: Connections, backlog: int = 128) -> None:
        # The loop calls this function for each connection. A method of this class would make each call slower.
        self._protocol = partial(ServerProtocol, connections)
        self._loop = connections.loop
        self._backlog = backlog
        # While connections are accepted, the loop listens with _server. While they are refused, _refused is set and
        # _placeholder keeps the port. After accept() and move(), the task _resuming first passes a socket to the loop.
        self.context: ssl.SSLContext | None = None  # TLS context of all connections; set by zoolet.testing
        self._server: asyncio.Server | None = None
        self._starting: asyncio.Task[None] | None = None  # task that passes the socket to the accepting loop
        self._refused: tuple[int, Any] | None = None  # family and address while connections are refused
        self._placeholder: socket.socket | None = None  # a socket that keeps the port while connections are refused
        self._resuming: asyncio.Task[None] | None = None  # task that passes _pending and then _next to the loop
        self._is_refuse_pending = False  # whether refuse() was called while _resuming runs
        self._pending: socket.socket | None = None  # a listening socket that _resuming passes to the loop
        self._bound: tuple[int, str] | None = None  # family and address, if the server has only one address
        self._next: socket.socket | None = None  # the socket that the loop gets after the pending one

    async def start(self, host: str | None, port: int) -> int:
        """Start listening.

        Args:
            host: Comma-separated addresses or host names; None, ``0.0.0.0`` and ``::`` mean all addresses of the
                machine. In a list, ``0.0.0.0`` means only IPv4 and ``::`` only IPv6.
            port: Port number; 0 for a free port.

        Returns:
            The port number.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
        """
        if host is None or means_all(host):
            listening = self._bind(host, port)
            self._server = await self._create_server(sock=listening)
            return int(listening.getsockname()[1])
        hosts = split_hosts(host)
        port = port_for(hosts, port)
        if isinstance(hosts, list):
            # Host names are looked up in sequence first. The loop itself looks them up concurrently, and abandons all
            # other lookups if one fails.
            for one in hosts:
                await self._loop.getaddrinfo(one, port, type=socket.SOCK_STREAM)
        self._server = await self._create_server(hosts, port)
        if None in self._server.sockets:  # uvloop returns None for a socket if the addresses overlap
            self._server.close()
            self._server = None
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        bound: socket.socket = self._server.sockets[0]
        address = bound.getsockname()
        if len(self._server.sockets) == 1 and hasattr(bound, "family"):  # a simulated socket has no family
            self._bound = bound.family, address[0]
        return int(address[1])

    async def _create_server(self, *where: Any, **options: Any) -> asyncio.Server:
        """Return a listening server. A cancelled call closes it, whereas asyncio would leave it open."""
        create: Any = self._loop.create_server
        creating = self._loop.create_task(create(self._protocol, *where, **options, **self._options()))
        try:
            server: asyncio.Server = await asyncio.shield(creating)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                (await creating).close()
            raise
        return server

    async def start_without_waiting(self, host: str | None, port: int) -> int:
        """Start listening on one address, or on all addresses, without ever suspending.

        Clients wait in the backlog until the loop accepts them. The arguments, the result and the errors are the same
        as for :meth:`start`.
        """
        listening = self._bind(host, port)
        self._server = await self._loop.create_server(
            self._protocol, sock=listening, start_serving=False, **self._options()
        )
        self._starting = self._loop.create_task(self._server.start_serving())
        return int(listening.getsockname()[1])

    def _bind(self, host: str | None, port: int) -> socket.socket:
        """Return a listening socket for one numeric address, or for all addresses."""
        if means_all(host):
            listening = listen_on_all(port, self._backlog)
        else:
            assert host is not None
            listening = new_socket(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
            try:
                listening.bind((host, port))
                listening.listen(self._backlog)
            except OSError:
                listening.close()
                raise
        self._bound = listening.family, listening.getsockname()[0]
        return listening

    def _options(self) -> dict[str, Any]:
        return {"backlog": self._backlog, **({} if self.context is None else {"ssl": self.context})}

    def refuse(self) -> None:
        """Refuse new connections until :meth:`accept`. The port stays reserved.

        Right after :meth:`accept` and :meth:`move`, a socket is already listening, but the loop does not accept from it
        yet. In that case, this method only shuts down the socket. The rest is done when the loop has received it.
        """
        if self._resuming is not None and not self._resuming.done():
            self._is_refuse_pending = True
            for listening in (self._pending, self._next):
                if listening is not None:
                    _shut_down(listening)
            return
        if self._server is None or self._refused is not None:
            return
        self._cancel_starting()
        bound: socket.socket = self._server.sockets[0]
        self._refused = bound.family, bound.getsockname()
        _stop_listening(self._loop, self._server)
        self._keep_port()

    def _keep_port(self) -> None:
        if self._refused is None:
            return
        family, address = self._refused
        placeholder = new_socket(family, address[0])
        try:
            placeholder.bind(address)
        except OSError:  # the port is still in use, because uvloop closes the socket some iterations later
            placeholder.close()
            self._loop.call_soon(self._keep_port)
        else:
            self._placeholder = placeholder

    def accept(self) -> None:
        """Accept connections again, on the same port."""
        for listening in (self._pending, self._next) if self._is_refuse_pending else ():
            if listening is not None:
                listening.listen(self._backlog)  # refuse() has shut it down
        self._is_refuse_pending = False
        if self._refused is None:
            return
        family, address = self._refused
        self._refused = None
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None
        listening = new_socket(family, address[0])
        listening.bind(address)
        listening.listen(self._backlog)  # clients wait in the backlog until the loop accepts them
        self._listen_on(listening)

    def _listen_on(self, listening: socket.socket) -> None:
        self._pending = listening
        self._resuming = self._loop.create_task(self._pass_to_loop(listening))

    async def _pass_to_loop(self, listening: socket.socket) -> None:
        while not self._is_refuse_pending:
            self._server = await self._loop.create_server(self._protocol, sock=listening, **self._options())
            if self._next is None:
                break
            _stop_listening(self._loop, self._server)
            self._pending = listening = self._next
            self._next = None
        else:  # connections are refused again: keep the socket from the loop, only to reserve the port
            self._refused = listening.family, listening.getsockname()
            self._placeholder = listening
        self._resuming = self._pending = None
        if self._is_refuse_pending:
            self._is_refuse_pending = False
            self.refuse()

    def move(self, used: Container[int]) -> int | None:
        """Move to a different free port.

        Args:
            used: Ports that must not be chosen.

        Returns:
            The new port; None if the server cannot move, because it refuses connections or has several addresses.
        """
        if self._bound is None or self._refused is not None:
            return None
        family, host = self._bound
        rejected = []
        while True:
            listening = new_socket(family, host)
            listening.bind((host, 0))
            port = int(listening.getsockname()[1])
            if port not in used:
                break
            rejected.append(listening)  # a rejected socket stays open to keep its port from being chosen again
        for other in rejected:
            other.close()
        listening.listen(self._backlog)
        if self._resuming is not None:
            if self._next is not None:
                self._next.close()
            self._next = listening
        else:
            self._cancel_starting()
            if self._server is not None:
                _stop_listening(self._loop, self._server)
            self._listen_on(listening)
        return port

    def _cancel_starting(self) -> None:
        if self._starting is not None:
            self._starting.cancel()  # otherwise the loop would start to accept connections

    async def close(self) -> None:
        """Stop listening. Open connections stay open."""
        if self._resuming is not None:
            await self._resuming
        self._cancel_starting()
        refused, self._refused = self._refused, None
        if self._placeholder is not None:
            self._placeholder.close()
        if self._server is not None and refused is None:
            _stop_listening(self._loop, self._server)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed. All connections must be closed before the call."""
        if self._server is not None:
            await self._server.wait_closed()

    def descriptors(self) -> list[int]:
        """Return the file descriptors of the listening sockets."""
        sockets: list[Any] = list(self._server.sockets) if self._server is not None else []
        if self._placeholder is not None:
            sockets.append(self._placeholder)
        return [listening.fileno() for listening in sockets]


class UnixAcceptor:
    """The acceptor of connections on a Unix socket. The permissions of its file and folder determine who may connect.

    Args:
        connections: The connections of the server.
        backlog: Maximum number of connections that wait to be accepted.
    """

    def __init__(self, connections: Connections, backlog: int) -> None:
        self._connections = connections
        self._backlog = backlog
        self._path = ""
        self._file_identity = (0, 0)
        self._server: asyncio.Server | None = None

    async def start(self, path: str) -> None:
        """Start listening. The abandoned socket of an earlier server is replaced.

        Raises:
            OSError: A different server is listening at *path*, or the socket cannot be created.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)  # connecting would block if the server listens, but does not accept
            reason = probe.connect_ex(path)
        if reason not in (errno.ENOENT, errno.ECONNREFUSED):
            number = errno.EADDRINUSE if reason in (0, errno.EAGAIN, errno.EPROTOTYPE) else reason
            raise OSError(number, os.strerror(number))
        loop = self._connections.loop
        self._server = await loop.create_unix_server(self._protocol, path, backlog=self._backlog)
        self._path, self._file_identity = path, _identity(path)

    def _protocol(self) -> ServerProtocol:
        return ServerProtocol(self._connections, is_local=True)

    def close(self) -> None:
        """Stop listening, and remove the file. Open connections stay open."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):  # newer releases of Python remove the file themselves
                if _identity(self._path) == self._file_identity:  # a file with another identity belongs to a new server
                    os.unlink(self._path)


def _identity(path: str) -> tuple[int, int]:
    """Return the device and the inode of a file, which differ from those of a later file with the same name."""
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _stop_listening(loop: asyncio.AbstractEventLoop, server: asyncio.Server) -> None:
    """Stop listening immediately.

    The sockets are shut down first: uvloop closes them some iterations later, and would accept connections until then.
    """
    is_selecting = isinstance(loop, asyncio.SelectorEventLoop)  # false for uvloop and for simulations
    for listening in server.sockets:
        if hasattr(listening, "family"):  # a simulated socket has no family
            # The sockets of uvloop cannot be shut down, but their descriptors can.
            with socket.fromfd(listening.fileno(), listening.family, socket.SOCK_STREAM) as duplicate:
                with contextlib.suppress(OSError):  # not every system can shut down a listening socket
                    duplicate.shutdown(socket.SHUT_RDWR)
            if is_selecting:
                loop.remove_reader(listening.fileno())
    if is_selecting:  # an immediate close would leak the socket of a connection accepted in this iteration
        loop.call_soon(loop.call_soon, server.close)
    else:
        server.close()


def _shut_down(listening: socket.socket) -> None:
    """Stop listening, but keep the port. The socket may listen again."""
    address = listening.getsockname()
    with contextlib.suppress(OSError):  # not every system can shut down a listening socket
        listening.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):  # fails if the port is still bound; Linux frees only a port that it has chosen
        listening.bind(address)
