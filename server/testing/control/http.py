"""The control API: the commands of :mod:`.control` over HTTP and JSON, for tests in other languages.

``GET /commands`` lists them. ``POST /commands/NAME`` with a JSON object executes one, and answers ``{"result": ...}``
or, with a status of 400 or more, ``{"error": "..."}``. It listens on 127.0.0.1 only, and refuses requests from web
pages: those have an ``Origin``, or a ``Host`` that is not this machine's. Its URL has a random token as the first part
of the path: other users of the machine can connect, too. Below that token there is the console of a server or a
cluster, too.
"""

from __future__ import annotations

import hmac
import json
import secrets
from typing import Final

from zoolet.protocol.errors import ZooKeeperError
from zoolet.server.admin.http import LOCAL, HttpError, Request, Response, check_browser, json_response
from zoolet.server.net.http import HttpServer, Limits
from zoolet.server.testing.control.console import ClusterConsole, ServerConsole, console_of
from zoolet.server.testing.control.control import Control
from zoolet.server.testing.server import Server

LIMITS: Final = Limits(body=1 << 26, seconds=60.0, idle=60.0, paced=False)
"""A body may be a large tree; commands wait, and nobody else may call them."""
REFUSALS: Final = (ValueError, LookupError, ZooKeeperError, OSError, RuntimeError)
"""Errors of a command that are the caller's mistakes; a RuntimeError: the cluster has no leader, say."""


class ControlServer:
    """Serves the control API, for a server or proxy in the running event loop: ``async with ControlServer(control)``.

    Args:
        control: The commands.
        host: The address to listen on.
        port: The port; 0 for a free one.

    Attributes:
        url: The address, with the token, without a slash at its end.
    """

    def __init__(self, control: Control, port: int = 0, host: str = "127.0.0.1") -> None:
        self.url = ""
        self._control = control
        self._host = host
        self._port = port
        self._token = secrets.token_urlsafe(16)
        self._http = HttpServer(self._answer, LIMITS)
        self._console: ServerConsole | ClusterConsole | None = None

    async def __aenter__(self) -> ControlServer:
        port = await self._http.start(self._host, self._port)
        self.url = f"http://{self._host}:{port}/{self._token}"
        endpoint = self._control.endpoint
        if isinstance(endpoint, Server):
            self._console = console_of(endpoint)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._console is not None:
            self._console.stop()
        await self._http.close()

    async def _answer(self, request: Request) -> Response:
        check_browser(request, LOCAL, is_local=self._host in LOCAL)
        token, slash, rest = request.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise HttpError(403, "the path does not begin with the token; ZOOLET_ADMIN is the whole URL")
        path = slash + rest
        if self._console is not None and (path == "" or path.startswith("/console/")):
            if path == "" and not request.target.partition("?")[0].endswith("/"):
                return Response(status=308, headers=(("Location", f"/{token}/"),))
            if (response := await self._console.answer(request, path)) is not None:
                return response
        first, _, name = path.removeprefix("/").partition("/")
        if first != "commands" and path:
            raise HttpError(404, f"there is nothing at {path}; GET /commands lists the commands")
        expected = "POST" if name else "GET"
        if request.method != expected:
            raise HttpError(405, f"{request.method} {path}: use {expected}", ("Allow", expected))
        if not name:
            return json_response({"commands": self._control.index()})
        if name not in self._control.commands:
            raise HttpError(404, f"there is no command {name}; GET /commands lists them")
        try:
            parameters = json.loads(request.body) if request.body.strip() else {}
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"the body is not JSON: {error}") from None
        try:
            return json_response({"result": await self._control.execute(name, parameters)})
        except TimeoutError as error:
            raise HttpError(504, str(error)) from None
        except RecursionError:
            raise HttpError(400, "the body is nested too deeply") from None
        except REFUSALS as error:
            raise HttpError(400, f"{type(error).__name__}: {error}") from None
