"""The control API: the commands of :mod:`.control` over HTTP and JSON, for tests in other languages.

``GET /commands`` lists the commands. ``POST /commands/NAME`` with a JSON object executes one, and answers
``{"result": ...}`` or, with a status of 400 or more, ``{"error": "..."}``. By default it listens on 127.0.0.1 only.
Requests from web pages, which have an ``Origin`` or the ``Host`` of a different machine, are refused. The first part of
the URL's path is a random token, because other users of the machine can also connect. The same token protects the
console of a server or a cluster.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterator
from functools import partial
from typing import Final

from ...protocol.addresses import host_and_port
from ...protocol.errors import ZooKeeperError
from ...server.admin.http import (
    GET,
    POST,
    HttpError,
    HttpRequest,
    Response,
    Route,
    Router,
    is_loopback,
    json_response,
    no_page,
)
from ...server.net.http import HttpServer, Limits
from .console import TestConsole
from .control import Control

LIMITS: Final = Limits(body=1 << 26, seconds=60.0, idle=60.0, paced=False)
"""The limits of requests: a body may be a large tree, and a command may wait. The token keeps other callers out."""
CALLER_ERRORS: Final = (ValueError, LookupError, ZooKeeperError, OSError, RuntimeError)
"""Errors of a command that are the caller's mistakes. A RuntimeError means, for example, a cluster without a leader."""


class ControlServer:
    """The HTTP server of the control API, in the running event loop: ``async with ControlServer(control) as server``.

    Args:
        control: The commands.
        host: The address to listen on.
        port: The port, or 0 for a free port.

    Attributes:
        url: The URL with the token, without a slash at its end.
    """

    def __init__(self, control: Control, port: int = 0, host: str = "127.0.0.1") -> None:
        self.url = ""
        self._control = control
        self._host = host
        self._port = port
        self._token = secrets.token_urlsafe(16)
        self._http: HttpServer
        self._console: TestConsole | None = None

    async def __aenter__(self) -> ControlServer:
        if self._control.endpoint.console_views():
            self._console = TestConsole(self._control.endpoint)
        missing = no_page("GET /commands lists the commands")
        router = Router(self._routes(), missing, is_local=is_loopback(self._host), enter=self._check_token)
        self._http = HttpServer(router.find_route, LIMITS)
        try:
            port = await self._http.start(self._host, self._port)
        except BaseException:
            await self.__aexit__()
            raise
        self.url = f"http://{host_and_port(self._host, port)}/{self._token}"
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._console is not None:
            self._console.stop()
        await self._http.close()

    def _routes(self) -> Iterator[Route]:
        """Yield the routes below the token. The root is the console's page if there is a console."""
        yield Route(GET, "/commands", self._index)
        yield Route(POST, "/commands/*", self._execute)
        for route in self._console.routes() if self._console is not None else ():
            yield route if route.path != "/" else route._replace(answer=partial(self._answer_root, route))
        yield Route(GET, "/", self._index)

    def _check_token(self, request: HttpRequest) -> HttpRequest:
        path, query = request.path_and_query()
        token, slash, rest = path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise HttpError(403, "the path does not start with the token; use the whole URL in ZOOLET_ADMIN")
        return request._replace(target=f"{slash}{rest}?{query}")

    async def _answer_root(self, page: Route, request: HttpRequest) -> Response:
        """Redirect to a path with a slash at its end, or answer with the page, whose links are relative."""
        if not request.target.startswith("/"):
            return Response(status=308, headers=(("Location", f"/{self._token}/"),))
        return await page.answer(request)

    async def _index(self, request: HttpRequest) -> Response:
        return json_response({"commands": self._control.index()})

    async def _execute(self, request: HttpRequest) -> Response:
        name = request.path.removeprefix("/commands/")
        if name not in self._control.commands:
            raise HttpError(404, f"unknown command {name!r}; GET /commands lists the commands")
        try:
            parameters = json.loads(request.body) if request.body.strip() else {}
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"the request body is not JSON: {error}") from None
        try:
            return json_response({"result": await self._control.execute(name, parameters)})
        except TimeoutError as error:
            raise HttpError(504, str(error)) from None
        except RecursionError:
            raise HttpError(400, "the request body is nested too deeply") from None
        except CALLER_ERRORS as error:
            raise HttpError(400, f"{type(error).__name__}: {error}") from None
