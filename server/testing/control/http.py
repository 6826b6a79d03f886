"""The control API: the commands of :mod:`.control` over HTTP and JSON, for tests in other languages.

``GET /commands`` lists them. ``POST /commands/NAME`` with a JSON object executes one, and answers ``{"result": ...}``
or, with a status of 400 or more, ``{"error": "..."}``. It listens on 127.0.0.1 only, and refuses requests from web
pages: those have an ``Origin``, or a ``Host`` that is not this machine's. Its URL has a random token as the first part
of the path: other users of the machine can connect, too.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
from typing import Any, Final

import h11

from zoolet.protocol.errors import ZooKeeperError
from zoolet.server.testing.control.control import Control

_log = logging.getLogger("zoolet.control")
MAX_BODY: Final = 1 << 26
"""The most bytes of a request, a large tree, and of all requests that are being received."""
MAX_CONNECTIONS: Final = 64
"""The most connections at a time."""
REFUSALS: Final = (ValueError, LookupError, ZooKeeperError, OSError)
"""Errors of a command that are the caller's mistakes."""
IDLE: Final = 60.0
"""Seconds that a connection may wait between requests, or within one."""
_LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")


class _Problem(Exception):
    """A request that cannot be executed."""

    def __init__(self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class ControlServer:
    """Serves the control API, for a server or proxy in the running event loop: ``async with ControlServer(control)``.

    Args:
        control: What executes the commands.
        port: The port; 0 for a free one.

    Attributes:
        url: The address, with the token, without a slash at its end.
    """

    def __init__(self, control: Control, port: int = 0) -> None:
        self.url = ""
        self._control = control
        self._port = port
        self._token = secrets.token_urlsafe(16)
        self._receiving = 0  # bytes of bodies
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ControlServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/{self._token}"
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 14)
        try:
            while await self._serve_one(connection, reader, writer):
                connection.start_next_cycle()
        except h11.RemoteProtocolError as error:
            _log.info("closing a connection: %s", error)
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                status = error.error_status_hint
                answer = h11.Response(status_code=status, headers=[("Content-Length", "0"), ("Connection", "close")])
                writer.write((connection.send(answer) or b"") + (connection.send(h11.EndOfMessage()) or b""))
        except (OSError, TimeoutError) as error:
            _log.info("closing a connection: %s", error)
        finally:
            writer.close()

    async def _serve_one(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; return whether another one may follow."""
        request = await _next_event(connection, reader)
        if not isinstance(request, h11.Request):
            return False
        headers: tuple[tuple[str, str], ...] = ()
        try:
            if connection.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                writer.write(connection.send(go_on) or b"")
            body = await self._body(connection, reader)
            status, answer = 200, await self._answer(request, body)
        except _Problem as problem:
            status, answer, headers = problem.status, {"error": str(problem)}, problem.headers
        data = json.dumps(answer).encode() + b"\n"
        length = ("Content-Length", str(len(data)))
        response = h11.Response(status_code=status, headers=[("Content-Type", "application/json"), length, *headers])
        content = () if request.method == b"HEAD" else (h11.Data(data=data),)
        for event in (response, *content, h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _body(self, connection: h11.Connection, reader: asyncio.StreamReader) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                event = await _next_event(connection, reader)
                if isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                    size += len(event.data)
                    self._receiving += len(event.data)
                    if size > MAX_BODY:
                        raise _Problem(413, f"the body has more than {MAX_BODY} bytes")
                    if self._receiving > MAX_BODY:
                        raise _Problem(503, f"all requests that are being received have more than {MAX_BODY} bytes")
                elif isinstance(event, h11.EndOfMessage):
                    return b"".join(parts)
                else:
                    raise ConnectionResetError("the client has gone in the middle of a request")
        finally:
            self._receiving -= size

    async def _answer(self, request: h11.Request, body: bytes) -> Any:
        _check_origin(request)
        path = request.target.decode("latin-1").partition("?")[0].rstrip("/")
        token, slash, rest = path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise _Problem(403, "the path does not begin with the token; ZOOLET_ADMIN is the whole URL")
        path = slash + rest
        first, _, name = path.removeprefix("/").partition("/")
        if first != "commands" and path:
            raise _Problem(404, f"there is nothing at {path}; GET /commands lists the commands")
        expected = b"POST" if name else b"GET"
        if request.method != expected:
            raise _Problem(
                405, f"{request.method.decode()} {path}: use {expected.decode()}", (("Allow", expected.decode()),)
            )
        if not name:
            return {"commands": self._control.index()}
        if name not in self._control.commands:
            raise _Problem(404, f"there is no command {name}; GET /commands lists them")
        try:
            parameters = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError) as error:
            raise _Problem(400, f"the body is not JSON: {error}") from None
        try:
            return {"result": await self._control.execute(name, parameters)}
        except TimeoutError as error:
            raise _Problem(504, str(error)) from None
        except REFUSALS as error:
            raise _Problem(400, f"{type(error).__name__}: {error}") from None
        except RecursionError:
            raise _Problem(400, "the body is nested too deeply") from None
        except Exception as error:  # a defect costs this request
            _log.exception("%s has failed", name)
            raise _Problem(500, f"{type(error).__name__}: {error}") from None


def _check_origin(request: h11.Request) -> None:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
    host = headers.get("host", "127.0.0.1").lower()
    if "origin" in headers or (host if host.endswith("]") else host.rpartition(":")[0] or host) not in _LOCAL:
        raise _Problem(403, "requests of web pages are refused")


async def _next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event
        connection.receive_data(await asyncio.wait_for(reader.read(1 << 16), IDLE))
