"""The pages of the admin port: ZooKeeper's commands, metrics for Prometheus, and whether the server is alive and ready.

========================  ==============================================================================
``/commands``             the names of the commands
``/commands/NAME``        the answer of one, as JSON
``/metrics``              all figures for Prometheus; ``?name[]=X`` chooses
``/healthz``              200 while the process answers: its event loop runs
``/``                     the console
``/readyz``               200 while clients can read and write; otherwise 503, and the reason in one line
========================  ==============================================================================

What changes something or shows all data needs ``Authorization: Bearer TOKEN``.

Source: JettyAdminServer; CommandResponse.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from zoolet.server.admin import prometheus
from zoolet.server.admin.commands import BY_NAME, COMMANDS, execute
from zoolet.server.admin.http import LOCAL, HttpError, Request, Response, check_browser, check_method, shows_token
from zoolet.server.admin.java import pretty_json
from zoolet.server.admin.observed import Observed
from zoolet.server.admin.state_pages import MAX_BODY, StatePages, Transfer

READS: Final = ("GET", "HEAD")
CHANGES: Final = ("GET", "HEAD", "POST")
POST: Final = ("POST",)
MAX_CHANGE: Final = 4 << 20
"""Bytes of a change in the console: the data of a node in base64."""


class Console(Protocol):
    """Answers the requests of the console: a ``ConsolePages``."""

    async def answer(self, request: Request, path: str) -> Response | None:
        """Answer a request; None if there is nothing of the console at this path."""
        ...


def ready(observed: Observed) -> str:
    """Return why clients cannot work with the server as they expect, in one line; empty if they can."""
    return f"writes are refused: {refusal}" if (refusal := observed.refusal()) else ""


def metrics_page(observed: Observed, request: Request) -> Response:
    """Answer ``/metrics``."""
    check_method(request, *READS)
    names = {value for name, value in request.parameters() if name == "name[]"}
    return Response(prometheus.text(observed, names).encode(), prometheus.CONTENT_TYPE)


class AdminPages:
    """Answers the requests of the admin port.

    Args:
        observed: The server.
        token: What a request has to show for a guarded command.
        hosts: As for :func:`~zoolet.server.admin.http.check_browser`.
        is_local: Likewise.
        prefix: The path of the commands.
        transfer: What ``snapshot`` and ``restore`` do; None if they are not offered.
        console: Answers ``/`` and what is below ``/console``.
    """

    def __init__(
        self,
        observed: Observed,
        token: str,
        hosts: Collection[str] = LOCAL,
        *,
        is_local: bool = True,
        prefix: str = "/commands",
        transfer: Transfer | None = None,
        console: Console | None = None,
    ) -> None:
        self._console = console
        self._state = StatePages(transfer)
        self._observed = observed
        self._token = token
        self._hosts = hosts
        self._is_local = is_local
        self._prefix = "/" + prefix.strip("/")

    def admit(self, request: Request) -> int | None:
        """Return how long the body of a request may be, None for the limit of all others.

        Raises:
            HttpError: It would be refused with any body.
        """
        check_browser(request, self._hosts, is_local=self._is_local)
        if self._console is not None and request.path.startswith("/console/api/change/"):
            self._check_token(request)
            return MAX_CHANGE
        command = BY_NAME.get(request.path.removeprefix(self._prefix + "/"))
        if command is None or command.name != "restore":
            return None
        check_method(request, *POST)
        self._check_token(request)
        return MAX_BODY

    async def answer(self, request: Request) -> Response:
        """Answer a request.

        Raises:
            HttpError: It is refused.
        """
        check_browser(request, self._hosts, is_local=self._is_local)
        path, prefix = request.path, self._prefix
        if path == prefix:
            check_method(request, *READS)
            return Response(self._links().encode(), "text/html; charset=utf-8")
        if path.startswith(prefix + "/"):
            return await self._command(request, path[len(prefix) + 1 :])
        if path == "/metrics":
            return metrics_page(self._observed, request)
        if path in ("/healthz", "/readyz"):
            check_method(request, *READS)
        if path == "/healthz":
            return Response(b"ok\n")
        if path == "/readyz":
            reason = ready(self._observed)
            return Response(f"{reason or 'ok'}\n".encode(), status=503 if reason else 200)
        if self._console is not None and (response := await self._console.answer(request, path)) is not None:
            return response
        raise HttpError(404, f"there is nothing at {path[:80]}; {prefix}, /metrics, /healthz and /readyz are here")

    async def _command(self, request: Request, name: str) -> Response:
        command = BY_NAME.get(name)
        if command is None:
            facts = {"command": name[:80], "error": f"Unknown command: {name[:80]}"}
            return Response(pretty_json(facts).encode(), "application/json")
        check_method(request, *(POST if command.name == "restore" else CHANGES if command.guarded else READS))
        if command.guarded:
            self._check_token(request)
        if command.answer is None:
            return await self._state.answer(command.name, request)
        parameters: dict[str, str] = {}
        for key, value in request.parameters():
            parameters.setdefault(key, value)  # the first one wins, as in ZooKeeper
        facts = execute(command, self._observed, parameters)
        if facts["error"] and command.name == "log_level":  # ours; ZooKeeper's commands answer 200 with an error
            raise HttpError(400, facts["error"])
        return Response(pretty_json(facts).encode(), "application/json")

    def _check_token(self, request: Request) -> None:
        shown = shows_token(request, self._token)
        if not shown:
            warn = self._observed.engine.warnings.warn
            warn("admin token", "refusing %s on the admin port: it has no token, or a wrong one", request.path)
            reason = (
                "the token is wrong" if shown is False else "it needs the token: send 'Authorization: Bearer TOKEN'"
            )
            reason += ", with the token of --admin-token-file, or the one that was printed at the start"
            raise HttpError(401, reason, ("WWW-Authenticate", "Bearer"))

    def _links(self) -> str:
        """Return a link for each command, as ZooKeeper does."""
        return "".join(
            f'<a href="{self._prefix}/{each.name}">{each.name}</a>\n<br/>\n'
            for each in sorted(COMMANDS, key=lambda command: command.name)
        )
