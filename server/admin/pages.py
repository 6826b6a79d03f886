"""The pages of the admin port: ZooKeeper's commands, metrics for Prometheus, and health checks.

========================  ==============================================================================
``/commands``             the names of the commands
``/commands/NAME``        the answer of a command, as JSON
``/metrics``              all metrics in Prometheus format, or only those selected by ``?name[]=X``
``/healthz``              200 while the event loop of the process is running
``/``                     the console
``/readyz``               200 while clients can read and write, otherwise 503 with the reason in one line
========================  ==============================================================================

Requests that change something or show all data need ``Authorization: Bearer TOKEN``.

Source: JettyAdminServer, CommandResponse.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final

from ..core.client_connection import ClientConnection
from . import prometheus
from .audit import audit_line
from .commands import BY_NAME, COMMANDS, Command, execute
from .facts import Facts
from .http import (
    LOCAL_NAMES,
    POST,
    READS,
    SECURITY_HEADERS,
    HttpError,
    HttpRequest,
    Response,
    Route,
    Router,
    Token,
    no_page,
)
from .java_json import json_pieces, pretty_json
from .observed import MonitoredServer, ready
from .pace import Pace
from .state_pages import MAX_BODY, StatePages, Transfer

_log = logging.getLogger("zoolet.server")
_audit = logging.getLogger("zoolet.audit")
_zoolet = logging.getLogger("zoolet")
MAX_ANSWER: Final = 8 << 20
"""Maximum size of the answer of a command in bytes."""
CHANGE_METHODS: Final = ("GET", "HEAD", "POST")
MISSING_TOKEN: Final = "this request requires the admin token: send 'Authorization: Bearer TOKEN'"
TOKEN_HINT: Final = "; the token is in the file of --admin-token-file, or was printed at the start"

Console = Callable[[Token], Iterable[Route]]
"""A function that returns the routes of the console."""


async def healthz(request: HttpRequest) -> Response:
    """Answer ``/healthz``, which shows that the event loop is running."""
    return Response(b"ok\n")


async def metrics_page(observed: MonitoredServer, request: HttpRequest) -> Response:
    """Answer ``/metrics`` with all metrics, or with those that ``name[]`` selects."""
    names = {value for name, value in request.parameters() if name == "name[]"}
    return Response((await prometheus.text(observed, names)).encode(), prometheus.CONTENT_TYPE)


class AdminPages:
    """The pages of the admin port.

    Args:
        observed: The view of the server.
        token: Token that is required for guarded commands.
        hosts: Names of this server that clients may use, in addition to IP addresses.
        is_local: Whether the server listens only for this machine.
        prefix: The path of the commands.
        transfer: Implementation of ``snapshot`` and ``restore``; None if they are not supported.
        console: A function that returns the routes of the console.

    Attributes:
        router: The routes of the pages.
    """

    def __init__(
        self,
        observed: MonitoredServer,
        token: str,
        hosts: Collection[str] = LOCAL_NAMES,
        *,
        is_local: bool = True,
        prefix: str = "/commands",
        transfer: Transfer | None = None,
        console: Console | None = None,
    ) -> None:
        self._state = StatePages(transfer)
        self._observed = observed
        self._prefix = "/" + prefix.strip("/")
        guard = Token(token, is_local, MISSING_TOKEN, TOKEN_HINT, self._warn)
        routes = [*self._routes(guard), *(console(guard) if console is not None else ())]
        paths = f"{'/ (the console), ' if console is not None else ''}{self._prefix}, /metrics, /healthz or /readyz"
        self.router: Final = Router(routes, no_page(f"use {paths}"), hosts, is_local=is_local)

    def _routes(self, token: Token) -> Iterator[Route]:
        """Yield the routes, except the routes of the console."""
        prefix = self._prefix
        yield Route(READS, prefix, self._links)
        for name, command in BY_NAME.items():
            path, audited = f"{prefix}/{name}", partial(self._execute_audited, command)
            if command.name == "restore":
                yield Route(POST, path, audited, token.required, MAX_BODY, self._state.reserve_restore)
            elif command.guarded:
                yield Route(CHANGE_METHODS, path, audited, token.required)
            else:
                yield Route(READS, path, partial(self._execute, command))
        yield Route((), f"{prefix}/*", self._unknown)
        yield Route(READS, "/metrics", partial(metrics_page, self._observed))
        yield Route(READS, "/healthz", healthz)
        yield Route(READS, "/readyz", self._readyz)

    def _warn(self, request: HttpRequest) -> None:
        reason = "refusing a request from %s for %s on the admin port: the token is missing or wrong"
        self._observed.engine.warnings.warn("admin token", reason, request.host, request.path)

    async def _links(self, request: HttpRequest) -> Response:
        """Answer with a link for each command, as in ZooKeeper."""
        names = sorted(command.name for command in COMMANDS)
        links = "".join(f'<a href="{self._prefix}/{name}">{name}</a>\n<br/>\n' for name in names)
        return Response(links.encode(), "text/html; charset=utf-8", headers=SECURITY_HEADERS)

    async def _readyz(self, request: HttpRequest) -> Response:
        reason = ready(self._observed)
        return Response(f"{reason or 'ok'}\n".encode(), status=503 if reason else 200)

    async def _unknown(self, request: HttpRequest) -> Response:
        name = request.path.removeprefix(f"{self._prefix}/")[:80]
        return Response(
            pretty_json({"command": name, "error": f"Unknown command: {name}"}).encode(), "application/json"
        )

    async def _execute_audited(self, command: Command, request: HttpRequest) -> Response:
        result = "failure"
        try:
            response = await self._execute(command, request)
            result = "success"
        finally:
            if _audit.level:  # only audit.enable sets the level of this logger
                client = ClientConnection(request.host)
                client.add_id("super", "admin")
                _audit.info("%s", audit_line(client, {"operation": command.name, "result": result}))
        return response

    async def _execute(self, command: Command, request: HttpRequest) -> Response:
        if command.answer is None:
            return await self._state.answer(command.name, request)
        parameters: dict[str, str] = {}
        for key, value in request.parameters():
            parameters.setdefault(key, value)  # the first value wins, as in ZooKeeper
        facts = execute(command, self._observed, parameters)
        if command.name == "log_level":
            if facts["error"]:  # unlike ZooKeeper's commands, which report errors with status 200
                raise HttpError(400, facts["error"])
            level = max(logging.WARNING, _zoolet.level)  # high enough to be logged in any case
            _log.log(level, "the log level was set to %s on the admin port by %s", facts["level"], request.host)
        return Response(await _json_in_slices(facts), "application/json")


async def _json_in_slices(facts: Facts) -> bytes:
    """Encode facts as JSON, in time slices.

    Raises:
        HttpError: The text has more than MAX_ANSWER bytes.
    """
    text, pace = bytearray(), Pace(asyncio.Lock())
    for piece in json_pieces(facts):
        text += piece.encode()
        if len(text) > MAX_ANSWER:
            raise HttpError(503, f"the answer has more than {MAX_ANSWER >> 20} MB; use the console or zoolet shell")
        await pace.rest()
    return bytes(text)
