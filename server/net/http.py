"""The HTTP server for the admin port and for the control API of the test toolkit. It needs h11.

Everything that a peer sends is bounded: headers, bodies, all bodies together, connections, and the time for a request
or its response. At the maximum number of connections, a new connection replaces the one that has been idle longest, so
slow clients cannot lock out a health check. Connections with a request in progress are not replaced. A connection
counts until its socket is closed.

The same event loop serves HTTP and ZooKeeper clients. With :attr:`Limits.paced`, requests are therefore answered one at
a time, and each answer is followed by a pause of the same length. The pause is at least a millisecond, which is the
time for reading a request and sending the response, and at most a second. Regardless of the number of requests, half of
the time remains for ZooKeeper clients. Health checks have a separate queue: they are quick, and orchestrators kill the
process if they are slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from time import perf_counter, thread_time
from typing import Any, Final, NamedTuple

import h11

from ..admin.http import HttpError, HttpRequest, Response, Route, Stream, json_response
from .listening import listen_on_all, means_all, peer_host

_log = logging.getLogger("zoolet.http")
BACKLOG: Final = 1024
"""Number of connections that may wait to be accepted."""
MAX_HEADERS: Final = 1 << 14
"""Maximum size of a request's headers in bytes."""
HEALTH_CHECK_PATHS: Final = ("/healthz", "/readyz")
"""The paths of the health checks of orchestrators, which kill the process if the response is late."""
HEALTH_CHECK_CONNECTIONS: Final = 8
"""Number of additional connections for health checks, while all regular connections have a request in progress."""
MIN_PAUSE: Final = 0.001
"""Minimum pause after a response, in seconds."""
MAX_PAUSE: Final = 1.0
"""Maximum pause after a response, in seconds."""
MAX_DISCARDED: Final = 1 << 26
"""Maximum number of bytes that are read and discarded after an error.

Closing the connection while the client is still sending could discard the response.
"""
MAX_LINGER: Final = 2.0
"""Maximum time for discarding data after an error, in seconds."""
MAX_FULL_BODIES: Final = 4
"""Number of bodies of the maximum size that may be received at the same time."""

FindRoute = Callable[[HttpRequest], tuple[Route, HttpRequest]]
"""A function that is called before the body of a request is received. It returns the route, and the request in the form
for the route, or raises :class:`HttpError` to reject the request. See
:meth:`~zoolet.server.admin.http.Router.find_route`.
"""


class Limits(NamedTuple):
    """Limits of one HTTP connection: sizes, times and requests.

    Args:
        body: Maximum size of a body in bytes. All bodies in progress may have :data:`MAX_FULL_BODIES` times this size.
        connections: Maximum number of connections at the same time.
        seconds: Maximum time in seconds for each step: reading a request, waiting for a turn, sending the response.
        idle: Maximum time in seconds that a connection may wait for the next request and its headers.
        paced: Whether requests are answered one at a time, with pauses.
    """

    body: int = 1 << 16
    connections: int = 64
    seconds: float = 10.0
    idle: float = 30.0
    paced: bool = True


class _HttpConnection(NamedTuple):
    """The connection of one client: its task, its protocol state and its streams."""

    task: asyncio.Task[None]
    connection: h11.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def host(self) -> str:
        """The host of the client; empty for a unix socket."""
        return peer_host(self.writer.get_extra_info("peername") or ("",))

    async def next_event(self, seconds: float) -> Any:
        """Return the next event from the client.

        Raises:
            TimeoutError: The client sent nothing for *seconds*.
        """
        async with asyncio.timeout(seconds):
            while True:
                event = self.connection.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self.connection.receive_data(await self.reader.read(MAX_HEADERS))

    def send(self, *events: Any) -> None:
        """Send events in one write.

        Raises:
            ConnectionResetError: The client has disconnected.
        """
        if self.writer.is_closing():  # uvloop would raise a different error
            raise ConnectionResetError("the client disconnected")
        self.writer.write(b"".join(self.connection.send(event) or b"" for event in events))


class _Queue:
    """Requests that are answered one at a time.

    Attributes:
        turn: Lock of the request whose turn it is.
        free_at: End of the pause after the last response, in seconds of ``perf_counter``.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.free_at = 0.0


class HttpServer:
    """An HTTP server in the running event loop.

    Args:
        find_route: A function that returns the route of each request.
        limits: The limits for clients.
    """

    def __init__(self, find_route: FindRoute, limits: Limits = Limits()) -> None:  # noqa: B008 - the default is a constant
        self._route_of = find_route
        self._limits = limits
        self._receiving = 0  # number of bytes in bodies that are being received
        self._queue, self._health_queue = _Queue(), _Queue()
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # ordered by the latest request, oldest first
        self._health_only: set[asyncio.Task[None]] = set()  # connections that may only request health checks
        self._busy: set[asyncio.Task[None]] = set()  # connections with a request in progress or a large body

    @property
    def open_connections(self) -> int:
        """The number of open connections."""
        return len(self._open)

    async def start(self, host: str | None, port: int) -> int:
        """Start listening, and return the port. ``0.0.0.0``, ``::`` and None mean all addresses of the machine.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
        """
        place: dict[str, Any] = {"host": host, "port": port}
        if means_all(host):
            place = {"sock": listen_on_all(port, BACKLOG)}
        self._server = await asyncio.start_server(self._serve, **place, limit=1 << 14, backlog=BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= self._limits.connections:
            quiet = next((each for each in self._open if each not in self._busy), None)
            if quiet is not None:
                self._open.pop(quiet).transport.abort()
                quiet.cancel()
            elif len(self._open) < self._limits.connections + HEALTH_CHECK_CONNECTIONS:
                self._health_only.add(task)
            else:
                writer.transport.abort()
                return
        self._open[task] = writer
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADERS)
        peer = _HttpConnection(task, connection, reader, writer)
        try:
            while await self._serve_request(peer):
                connection.start_next_cycle()
            if connection.their_state in (h11.SEND_BODY, h11.ERROR) and not writer.is_closing():
                await _discard(reader, writer)
            writer.close()
            async with asyncio.timeout(self._limits.seconds):
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            _log.debug("closing the HTTP connection of %s: %r", peer.host, error)
        except Exception:  # a defect; early releases of Python 3.11 would not log it
            _log.exception("closing the HTTP connection of %s after an internal error", peer.host)
        finally:
            writer.transport.abort()  # the abort also discards output that the client has not read
            self._open.pop(task, None)
            self._busy.discard(task)
            self._health_only.discard(task)

    async def _serve_request(self, peer: _HttpConnection) -> bool:
        """Answer one request, and return whether the connection can serve more requests."""
        task, connection, writer = peer.task, peer.connection, peer.writer
        try:
            first = await peer.next_event(self._limits.idle)
        except h11.RemoteProtocolError as error:
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                refusal = json_response({"error": str(error)}, error.error_status_hint)
                _send(peer, refusal, closes=True)
            return False
        if not isinstance(first, h11.Request):
            return False
        if self._open.pop(task, None) is None:  # a new connection has replaced this one
            return False
        self._open[task] = writer  # the connection is now the most recently active one
        try:
            head = _request(first, peer.host)
            if task in self._health_only and head.path not in HEALTH_CHECK_PATHS:
                raise HttpError(503, "too many requests in progress; try again in 1 s", ("Retry-After", "1"))
            if {b"content-length", b"transfer-encoding"} <= dict(first.headers).keys():  # RFC 9112, 6.1
                raise HttpError(400, "Content-Length and Transfer-Encoding must not be used together")
            response = await self._response(peer, head)
        except HttpError as error:
            response = json_response({"error": str(error)}, error.status, *error.headers)
        except h11.RemoteProtocolError as error:
            response = json_response({"error": str(error)}, error.error_status_hint)
        is_whole = connection.their_state is h11.DONE
        is_head = first.method == b"HEAD"
        try:
            if response.stream is None:
                self._busy.discard(task)
            _send(peer, response, is_head=is_head, closes=not is_whole)
            async with asyncio.timeout(self._limits.seconds):
                await writer.drain()
            if response.stream is not None and not is_head:
                await self._send_stream(peer, response.stream)
        finally:
            self._busy.discard(task)
            if response.stream is not None:
                await response.stream.aclose()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _response(self, peer: _HttpConnection, head: HttpRequest) -> Response:
        """Answer a request. Receive its body only if its route accepts one."""
        try:
            route, head = self._route_of(head)
        except HttpError:
            peer.connection.next_event()  # consume the end of a request without a body, so more requests can follow
            async with self._turn(head):
                raise
        with route.hold():
            if route.body is not None:
                self._busy.add(peer.task)
            async with asyncio.timeout(None if route.body is not None else self._limits.seconds):
                if peer.connection.they_are_waiting_for_100_continue:
                    peer.send(h11.InformationalResponse(status_code=100, headers=[]))
                body = await self._read_body(peer, route.body)
            self._busy.add(peer.task)
            async with self._turn(head):
                return await self._answer_or_fail(route, head._replace(body=body))

    @asynccontextmanager
    async def _turn(self, request: HttpRequest) -> AsyncIterator[None]:
        """Wait for the turn of a request. After its answer, make the next request wait for the same time.

        Raises:
            HttpError: The request could not be started in time.
        """
        if not self._limits.paced:
            yield
            return
        queue = self._health_queue if request.path in HEALTH_CHECK_PATHS else self._queue
        try:
            async with asyncio.timeout(self._limits.seconds), queue.turn:
                await asyncio.sleep(queue.free_at - perf_counter())
                queue.free_at = perf_counter() + MIN_PAUSE
        except TimeoutError:
            reason = f"the server is busy: this request could not be started within {self._limits.seconds:g} s"
            raise HttpError(503, reason, ("Retry-After", "1")) from None
        started = thread_time()  # excludes the time that the request waited
        try:
            yield
        finally:
            queue.free_at = perf_counter() + min(max(thread_time() - started, MIN_PAUSE), MAX_PAUSE)

    async def _answer_or_fail(self, route: Route, request: HttpRequest) -> Response:
        try:
            return await route.answer(request)
        except HttpError:
            raise
        except Exception as error:  # a defect affects only this request
            name = request.path.rpartition("/")[2]  # the first part may be a token
            _log.exception("HTTP request %s .../%.200s from %s failed", request.method, name, request.host)
            raise HttpError(500, f"{type(error).__name__}: {error}") from None

    async def _read_body(self, peer: _HttpConnection, larger_limit: int | None) -> bytes:
        parts: list[bytes] = []
        size, counted, limit = 0, 0, max(larger_limit or 0, self._limits.body)
        try:
            while True:
                event = await peer.next_event(self._limits.seconds)
                if isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                    size += len(event.data)
                    if size > limit:
                        raise HttpError(413, f"the body has more than {limit} bytes")
                    if larger_limit is not None:  # such bodies do not count towards the total of all bodies
                        continue
                    counted += len(event.data)
                    self._receiving += len(event.data)
                    if self._receiving > MAX_FULL_BODIES * limit:
                        raise HttpError(
                            503, f"the request bodies in progress have more than {MAX_FULL_BODIES * limit} bytes"
                        )
                elif isinstance(event, h11.EndOfMessage):
                    return b"".join(parts)
                else:
                    raise ConnectionResetError("the client disconnected during a request")
        finally:
            self._receiving -= counted

    async def _send_stream(self, peer: _HttpConnection, stream: Stream) -> None:
        """Send the pieces of a body while they are produced. An error of the producer disconnects the client.

        Raises:
            TimeoutError: The client is too slow.
            ConnectionResetError: The client has disconnected.
        """
        async for piece in stream:
            peer.send(h11.Data(data=piece))
            async with asyncio.timeout(self._limits.seconds):
                await peer.writer.drain()
        peer.send(h11.EndOfMessage())


def _send(peer: _HttpConnection, response: Response, *, is_head: bool = False, closes: bool = False) -> None:
    headers = [("Content-Type", response.content_type), ("X-Content-Type-Options", "nosniff")]
    if response.stream is None:
        headers.append(("Content-Length", str(len(response.body))))
    if closes:
        headers.append(("Connection", "close"))
    phrase = HTTPStatus(response.status).phrase.encode()
    events: list[Any] = [
        h11.Response(status_code=response.status, headers=[*headers, *response.headers], reason=phrase)
    ]
    if response.stream is None and not is_head:
        events.append(h11.Data(data=response.body))
    if response.stream is None or is_head:
        events.append(h11.EndOfMessage())
    peer.send(*events)


async def _discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read and discard the remaining data of a rejected request, so the client can read the response.

    Raises:
        TimeoutError: The client is still sending after :data:`MAX_LINGER` seconds.
    """
    writer.write_eof()
    room = MAX_DISCARDED
    async with asyncio.timeout(MAX_LINGER):
        while room > 0 and (data := await reader.read(room)):
            room -= len(data)


def _request(head: h11.Request, host: str) -> HttpRequest:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return HttpRequest(head.method.decode("latin-1"), head.target.decode("latin-1"), headers, host=host)
