"""The listening socket for plain-text connections.

States and transitions::

    start --> listening --refuse--> refusing --accept--> listening
                  |                    |
                  +------close---------+----> closed

While refusing, nothing listens, so that the kernel refuses connections, but a bound socket keeps the port.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Container
from typing import Any

from zoolet.server.net.connections import Connections
from zoolet.server.net.protocol import ServerProtocol


class Acceptor:
    """Accepts connections on one port.

    Args:
        connections: The connections of the server, to which accepted ones are added.
        backlog: Connections that may wait to be accepted.
    """

    def __init__(self, connections: Connections, backlog: int = 128) -> None:
        self._connections = connections
        self._loop = connections.loop
        self._backlog = backlog
        self.context: ssl.SSLContext | None = None  # for zoolet.testing: all connections are over TLS
        self._server: asyncio.Server | None = None
        self._starting: asyncio.Task[None] | None = None  # gives the socket to the loop, which accepts then
        self._refused: tuple[int, Any] | None = None  # family and address, while connections are refused
        self._placeholder: socket.socket | None = None  # keeps the port while connections are refused
        self._resuming: asyncio.Task[None] | None = None
        self._refuse_again = False
        self._pending: socket.socket | None = None  # listens, and is given to the loop by _resuming
        self._bound: tuple[int, str] | None = None  # family and address, of a server with one
        self._next: socket.socket | None = None  # to listen on next, while the loop begins to listen on another

    async def start(self, host: str | None, port: int) -> int:
        """Start to listen.

        Args:
            host: An address or host name, or several with commas between them; None for all addresses of the machine.
            port: The port; 0 for a free one.

        Returns:
            The port number.

        Raises:
            OSError: The address is in use or is not this machine's.
        """
        hosts = split_hosts(host)
        port = port_for(hosts, port)
        if isinstance(hosts, list):
            for one in hosts:  # one after the other: the loop looks them up at once, and leaves others when one fails
                await self._loop.getaddrinfo(one, port, type=socket.SOCK_STREAM)
        self._server = await self._loop.create_server(self._protocol, hosts, port, **self._options())
        if None in self._server.sockets:  # uvloop says so of addresses that overlap
            self._server.close()
            self._server = None
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        bound: socket.socket = self._server.sockets[0]
        address = bound.getsockname()
        if len(self._server.sockets) == 1 and hasattr(bound, "family"):  # a simulated one has none
            self._bound = bound.family, address[0]
        return int(address[1])

    async def start_at_once(self, host: str, port: int) -> int:
        """Start to listen on one address, without waiting: this coroutine never suspends.

        Clients wait in the backlog until the loop accepts them; arguments, result and errors are those of
        :meth:`start`.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = _stream_socket(family)
        try:
            listening.bind((host, port))
        except OSError:
            listening.close()
            raise
        listening.listen(self._backlog)
        self._server = await self._loop.create_server(
            self._protocol, sock=listening, start_serving=False, **self._options()
        )
        self._starting = self._loop.create_task(self._server.start_serving())
        self._bound = family, host
        return int(listening.getsockname()[1])

    def _options(self) -> dict[str, Any]:
        return {"backlog": self._backlog, **({} if self.context is None else {"ssl": self.context})}

    def _protocol(self) -> ServerProtocol:
        return ServerProtocol(self._connections)

    def refuse(self) -> None:
        """Refuse new connections until :meth:`accept`; the port stays reserved.

        Right after :meth:`accept` and :meth:`move` the loop does not accept yet from the socket that listens already.
        Then that socket is shut down, and the rest is done when the loop has it.
        """
        if self._resuming is not None and not self._resuming.done():
            self._refuse_again = True
            for listening in (self._pending, self._next):
                if listening is not None:
                    _shut_down(listening)
            return
        if self._server is None or self._refused is not None:
            return
        self._end_starting()
        bound: socket.socket = self._server.sockets[0]
        self._refused = bound.family, bound.getsockname()
        _stop_listening(self._loop, self._server)
        self._keep_port()

    def _keep_port(self) -> None:
        if self._refused is None:
            return
        family, address = self._refused
        placeholder = _stream_socket(family)
        try:
            placeholder.bind(address)
        except OSError:  # uvloop closes the listening socket some rounds of the loop later
            placeholder.close()
            self._loop.call_soon(self._keep_port)
        else:
            self._placeholder = placeholder

    def accept(self) -> None:
        """Accept connections again, on the same port."""
        for listening in (self._pending, self._next) if self._refuse_again else ():
            if listening is not None:
                listening.listen(self._backlog)  # it was shut down
        self._refuse_again = False
        if self._refused is None:
            return
        family, address = self._refused
        self._refused = None
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None
        listening = _stream_socket(family)
        listening.bind(address)
        listening.listen(self._backlog)  # from now on clients wait in the backlog until the loop accepts them
        self._listen_on(listening)

    def _listen_on(self, listening: socket.socket) -> None:
        self._pending = listening
        self._resuming = self._loop.create_task(self._give_to_loop(listening))

    async def _give_to_loop(self, listening: socket.socket) -> None:
        while not self._refuse_again:
            self._server = await self._loop.create_server(self._protocol, sock=listening, **self._options())
            if self._next is None:
                break
            _stop_listening(self._loop, self._server)
            self._pending = listening = self._next
            self._next = None
        else:  # the loop does not have it: it only keeps the port
            self._refused = listening.family, listening.getsockname()
            self._placeholder = listening
        self._resuming = self._pending = None
        if self._refuse_again:
            self._refuse_again = False
            self.refuse()

    def move(self, used: Container[int]) -> int | None:
        """Listen on another free port from now on; return it, or None if that cannot be: not on several addresses.

        Args:
            used: Ports that it must not be.
        """
        if self._bound is None or self._refused is not None:
            return None
        family, host = self._bound
        rejected = []
        while True:
            listening = _stream_socket(family)
            listening.bind((host, 0))
            port = int(listening.getsockname()[1])
            if port not in used:
                break
            rejected.append(listening)  # until there is another one, or the same would be found again
        for other in rejected:
            other.close()
        listening.listen(self._backlog)
        if self._resuming is not None:
            if self._next is not None:
                self._next.close()
            self._next = listening
        else:
            self._end_starting()
            if self._server is not None:
                _stop_listening(self._loop, self._server)
            self._listen_on(listening)
        return port

    def _end_starting(self) -> None:
        if self._starting is not None:
            self._starting.cancel()  # the loop accepts nothing yet

    async def close(self) -> None:
        """Stop listening; open connections stay open."""
        if self._resuming is not None:
            await self._resuming
        self._end_starting()
        refused, self._refused = self._refused, None
        if self._placeholder is not None:
            self._placeholder.close()
        if self._server is not None and refused is None:
            _stop_listening(self._loop, self._server)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed; all connections must be closed before."""
        if self._server is not None:
            await self._server.wait_closed()

    def descriptors(self) -> list[int]:
        """Return the file descriptors of the listening sockets."""
        sockets: list[Any] = list(self._server.sockets) if self._server is not None else []
        if self._placeholder is not None:
            sockets.append(self._placeholder)
        return [listening.fileno() for listening in sockets]


class UnixAcceptor:
    """Accepts connections on a unix socket; who may connect is decided by the permissions of its file and folder.

    Args:
        connections: The connections of the server.
        backlog: Connections that may wait to be accepted.
    """

    def __init__(self, connections: Connections, backlog: int) -> None:
        self._connections = connections
        self._backlog = backlog
        self._path = ""
        self._file = (0, 0)
        self._server: asyncio.Server | None = None

    async def start(self, path: str) -> None:
        """Start to listen. What an earlier server has left there is replaced.

        Raises:
            OSError: Another server listens there, or no socket can be created there.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)  # the one that listens may not accept
            reason = probe.connect_ex(path)
        if reason not in (errno.ENOENT, errno.ECONNREFUSED):
            number = errno.EADDRINUSE if reason in (0, errno.EAGAIN, errno.EPROTOTYPE) else reason
            raise OSError(number, os.strerror(number))
        loop = self._connections.loop
        self._server = await loop.create_unix_server(self._protocol, path, backlog=self._backlog)
        self._path, self._file = path, _identity(path)

    def _protocol(self) -> ServerProtocol:
        return ServerProtocol(self._connections, is_local=True)

    def close(self) -> None:
        """Stop listening, and remove the file; open connections stay open."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):  # newer releases of Python remove it themselves
                if _identity(self._path) == self._file:  # otherwise somebody else listens there now
                    os.unlink(self._path)


def _identity(path: str) -> tuple[int, int]:
    """Return what tells a file from another one that has its name later."""
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _stop_listening(loop: asyncio.AbstractEventLoop, server: asyncio.Server) -> None:
    """Stop listening at once: uvloop closes a socket some rounds of the loop later, and until then it would accept
    connections.
    """
    is_selecting = isinstance(loop, asyncio.SelectorEventLoop)  # asyncio's own
    for listening in server.sockets:
        if hasattr(listening, "family"):  # a simulated one has none
            # Those of uvloop cannot be shut down, but their descriptors can.
            with socket.fromfd(listening.fileno(), listening.family, socket.SOCK_STREAM) as duplicate:
                with contextlib.suppress(OSError):  # as in _shut_down
                    duplicate.shutdown(socket.SHUT_RDWR)
            if is_selecting:
                loop.remove_reader(listening.fileno())
    if is_selecting:  # a connection that was accepted in this round would be lost, with its socket open for good
        loop.call_soon(loop.call_soon, server.close)
    else:
        server.close()


def _shut_down(listening: socket.socket) -> None:
    """Listen no more, and keep the port; the socket may listen again."""
    address = listening.getsockname()
    with contextlib.suppress(OSError):  # not every system shuts down what listens
        listening.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):  # Linux frees a port that it has chosen itself; any other one is bound still
        listening.bind(address)


def _stream_socket(family: int) -> socket.socket:
    created = socket.socket(family, socket.SOCK_STREAM)
    created.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return created


def split_hosts(host: str | None) -> str | list[str] | None:
    """Return the addresses of a list with commas, one address as it is, and None for all."""
    return host.split(",") if host is not None and "," in host else host


def port_for(hosts: str | list[str] | None, port: int) -> int:
    """Return the port for all of some addresses: with port 0 each socket would be given a different one."""
    if port != 0 or isinstance(hosts, str):
        return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
