"""The one HTTP server of zoolet, for the admin port and for the control API of the test toolkit. It needs h11.

Everything that a peer sends is bounded: headers, bodies, all bodies together, connections, and the seconds that a
request or its response may take. When there are as many connections as there may be, the one that has been quiet for
the longest is closed for the next, so that slow clients cannot lock out a health check; one that is being answered
stays. A connection counts until its
socket is closed.

One event loop serves this and ZooKeeper's clients. So requests that are answered without waiting are paced: one at a
time, and the next after a pause as long as it has taken, of a millisecond at least, which is what reading it and
sending the answer take, and of a second at most. However many are asked for, half of the time is the clients'. Health
checks have a queue of their own: they are quick, and those who ask end the process if they wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from time import perf_counter, thread_time
from typing import Any, Final, NamedTuple

import h11

from zoolet.server.admin.http import HttpError, Request, Response, Stream, json_response
from zoolet.server.net.acceptor import port_for

_log = logging.getLogger("zoolet.http")
MAX_HEADERS: Final = 1 << 14
"""The most bytes of the headers of a request."""
HEALTH: Final = ("/healthz", "/readyz")
"""Pages that cost nothing, and whose callers end the process if they wait."""
SPARE: Final = 8
"""Connections beside all others, for health checks while the others are being answered."""
MIN_PAUSE: Final = 0.001
"""Seconds of the shortest pause after an answer."""
MAX_PAUSE: Final = 1.0
"""Seconds of the longest pause after an answer."""
BODIES: Final = 4
"""How many bodies of the greatest size may be received at a time."""

Answer = Callable[[Request], Awaitable[Response]]
"""Answers a request; raises :class:`HttpError` to refuse it."""
Admit = Callable[[Request], int | None]
"""Looks at a request whose body is not received yet. It returns the most bytes that the body may have, None for the
limit of all others; it raises :class:`HttpError` to refuse the request.
"""


class Limits(NamedTuple):
    """The limits of what clients use.

    Args:
        body: The most bytes of a body; all that are being received may have :data:`BODIES` times as many.
        connections: The most connections at a time.
        seconds: Time for reading a request, for its turn, and for sending the response, each.
        idle: Seconds for which a connection may wait for the next request, and for which its headers may take.
        paced: Requests are answered one at a time, with pauses.
    """

    body: int = 1 << 16
    connections: int = 64
    seconds: float = 10.0
    idle: float = 30.0
    paced: bool = True


class _Queue:
    """Requests that are answered one at a time.

    Attributes:
        turn: Who has it is the next one.
        free_at: When the pause after the last answer is over.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.free_at = 0.0


class HttpServer:
    """Answers HTTP requests in the running event loop.

    Args:
        answer: Answers one.
        limits: What clients may use.
        admit: Looks at each request before its body is received.
    """

    def __init__(
        self,
        answer: Answer,
        limits: Limits = Limits(),  # noqa: B008 - a constant
        admit: Admit = lambda request: None,
    ) -> None:
        self._answer = answer
        self._admit = admit
        self._limits = limits
        self._receiving = 0  # bytes of bodies
        self._queue, self._health_queue = _Queue(), _Queue()
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # the one that was quiet longest is first
        self._spare: set[asyncio.Task[None]] = set()  # those that may only ask for the health
        self._busy: set[asyncio.Task[None]] = set()  # those that are being answered, or send what was admitted

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    async def start(self, host: str | None, port: int) -> int:
        """Listen; return the port.

        Raises:
            OSError: The address is in use or is not this machine's.
        """
        port = port_for(host, port)
        self._server = await asyncio.start_server(self._serve, host, port, limit=1 << 14, backlog=1024)
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
            elif len(self._open) < self._limits.connections + SPARE:
                self._spare.add(task)
            else:
                writer.transport.abort()
                return
        self._open[task] = writer
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADERS)
        try:
            while await self._serve_one(task, connection, reader, writer):
                connection.start_next_cycle()
            writer.close()
            async with asyncio.timeout(self._limits.seconds):
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            _log.debug("closing a connection: %r", error)
        finally:
            writer.transport.abort()  # also with output that nobody reads
            self._open.pop(task, None)
            self._busy.discard(task)
            self._spare.discard(task)

    async def _serve_one(
        self,
        task: asyncio.Task[None],
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; return whether another one may follow."""
        try:
            first = await self._next_event(connection, reader, self._limits.idle)
        except h11.RemoteProtocolError as error:
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                refusal = json_response({"error": str(error)}, error.error_status_hint)
                self._send(connection, writer, refusal, closes=True)
            return False
        if not isinstance(first, h11.Request):
            return False
        if self._open.pop(task, None) is None:  # it had to make room
            return False
        self._open[task] = writer  # the one that was quiet shortest
        try:
            head = _request(first, b"")
            if task in self._spare and head.path not in HEALTH:
                raise HttpError(503, "too many requests are being answered", ("Retry-After", "1"))
            if limit := self._admit(head):
                self._busy.add(task)
            async with asyncio.timeout(None if limit else self._limits.seconds):
                if connection.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    writer.write(connection.send(go_on) or b"")
                body = await self._body(connection, reader, limit)
            self._busy.add(task)
            response = await self._response(_request(first, body))
        except HttpError as error:
            response = json_response({"error": str(error)}, error.status, *error.headers)
        except h11.RemoteProtocolError as error:
            response = json_response({"error": str(error)}, error.error_status_hint)
        is_whole = connection.their_state is h11.DONE
        is_head = first.method == b"HEAD"
        try:
            if response.stream is None:
                self._busy.discard(task)
            self._send(connection, writer, response, is_head=is_head, closes=not is_whole)
            async with asyncio.timeout(self._limits.seconds):
                await writer.drain()
            if response.stream is not None and not is_head:
                await self._send_stream(connection, writer, response.stream)
        finally:
            self._busy.discard(task)
            if response.stream is not None:
                await response.stream.aclose()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _response(self, request: Request) -> Response:
        if not self._limits.paced:
            return await self._answered(request)
        queue = self._health_queue if request.path in HEALTH else self._queue
        try:
            async with asyncio.timeout(self._limits.seconds), queue.turn:
                await asyncio.sleep(queue.free_at - perf_counter())
                queue.free_at = perf_counter() + MIN_PAUSE
        except TimeoutError:
            reason = f"other requests take so long that this was not begun within {self._limits.seconds:g} s"
            raise HttpError(503, reason, ("Retry-After", "1")) from None
        started = thread_time()  # nothing has waited since the turn: the answer begins now
        try:
            return await self._answered(request)
        finally:
            queue.free_at = perf_counter() + min(max(thread_time() - started, MIN_PAUSE), MAX_PAUSE)

    async def _answered(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except HttpError:
            raise
        except Exception as error:  # a defect costs this request
            name = request.path.rpartition("/")[2]  # the first part may be a token
            _log.exception("%s .../%.200s has failed", request.method, name)
            raise HttpError(500, f"{type(error).__name__}: {error}") from None

    async def _body(self, connection: h11.Connection, reader: asyncio.StreamReader, greater: int | None) -> bytes:
        parts: list[bytes] = []
        size, counted, limit = 0, 0, greater or self._limits.body
        try:
            while True:
                event = await self._next_event(connection, reader, self._limits.seconds)
                if isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                    size += len(event.data)
                    if size > limit:
                        raise HttpError(413, f"the body has more than {limit} bytes")
                    if greater is not None:  # it was admitted, and is not held against the others
                        continue
                    counted += len(event.data)
                    self._receiving += len(event.data)
                    if self._receiving > BODIES * limit:
                        raise HttpError(503, f"the bodies that are being received have over {BODIES * limit} bytes")
                elif isinstance(event, h11.EndOfMessage):
                    return b"".join(parts)
                else:
                    raise ConnectionResetError("the client has gone in the middle of a request")
        finally:
            self._receiving -= counted

    def _send(
        self,
        connection: h11.Connection,
        writer: asyncio.StreamWriter,
        response: Response,
        *,
        is_head: bool = False,
        closes: bool = False,
    ) -> None:
        headers = [("Content-Type", response.content_type), ("X-Content-Type-Options", "nosniff")]
        if response.stream is None:
            headers.append(("Content-Length", str(len(response.body))))
        if closes:
            headers.append(("Connection", "close"))
        phrase = HTTPStatus(response.status).phrase.encode()
        head = h11.Response(status_code=response.status, headers=[*headers, *response.headers], reason=phrase)
        events: list[Any] = [head]
        if response.stream is None and not is_head:
            events.append(h11.Data(data=response.body))
        if response.stream is None or is_head:
            events.append(h11.EndOfMessage())
        _write(writer, b"".join(connection.send(event) or b"" for event in events))

    async def _send_stream(
        self,
        connection: h11.Connection,
        writer: asyncio.StreamWriter,
        stream: Stream,
    ) -> None:
        """Send a body as it comes; a client that reads too slowly is disconnected, and so is one whose body fails."""
        async for piece in stream:
            _write(writer, connection.send(h11.Data(data=piece)) or b"")
            async with asyncio.timeout(self._limits.seconds):
                await writer.drain()
        _write(writer, connection.send(h11.EndOfMessage()) or b"")

    async def _next_event(self, connection: h11.Connection, reader: asyncio.StreamReader, seconds: float) -> Any:
        async with asyncio.timeout(seconds):
            while True:
                event = connection.next_event()
                if event is not h11.NEED_DATA:
                    return event
                connection.receive_data(await reader.read(MAX_HEADERS))


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if writer.is_closing():  # uvloop raises another error then
        raise ConnectionResetError("the client has gone")
    writer.write(data)


def _request(head: h11.Request, body: bytes) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(head.method.decode("latin-1"), head.target.decode("latin-1"), headers, body)
