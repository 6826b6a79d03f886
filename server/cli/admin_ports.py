"""The ports for operators of ``zoolet serve``: the admin port, and the one for metrics alone."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from zoolet.server.admin.http import LOCAL, HttpError, Request, Response, check_browser
from zoolet.server.admin.observed import Observed
from zoolet.server.admin.pages import AdminPages, Console, metrics_page
from zoolet.server.admin.state_pages import Transfer
from zoolet.server.cli.addresses import shown, why_not
from zoolet.server.config import ConfigError
from zoolet.server.config.config import AdminSettings

if TYPE_CHECKING:  # it needs h11, which most servers do not
    from zoolet.server.net.http import HttpServer


class AdminPorts:
    """The ports, as an asynchronous context manager; it listens on none unless the settings say so.

    They are open before the server is: until :meth:`serve`, and from
    :meth:`end` on, it is alive and not ready, and nothing else is known of it.

    Args:
        settings: Which ports.

    Attributes:
        lines: What to print once the server is ready: where they are, and the token if one was made.
        starting: What the server does while it is not ready, for ``/readyz``.
    """

    def __init__(self, settings: AdminSettings) -> None:
        self.lines: list[str] = []
        self._settings = settings
        self.starting = "starting"
        self._observed: Observed | None = None
        self._pages: AdminPages | None = None
        self._token = settings.token or secrets.token_urlsafe(24)
        self._servers: list[HttpServer] = []
        self._names: frozenset[str] = LOCAL

    async def __aenter__(self) -> AdminPorts:
        settings = self._settings
        if settings.port is None and not settings.metrics:
            return self
        from zoolet.server.net.http import HttpServer, Limits

        own = await asyncio.to_thread(lambda: (socket.gethostname(), socket.getfqdn()))  # it may ask the DNS
        self._names = LOCAL | {name.lower() for name in own} | {name.lower() for name in settings.hosts}
        limits = Limits(idle=settings.idle_timeout / 1000)
        if settings.port is not None:
            server = HttpServer(self._answer, limits, self._admit)
            where = await self._listen(server, settings.host, settings.port)
            self.lines.append(f"zoolet admin on http://{where}/")
            if settings.token is None:
                self.lines.append(f"zoolet admin token {self._token}")
        if settings.metrics:
            server = HttpServer(self._metrics, limits)
            where = await self._listen(server, settings.metrics_host, settings.metrics_port)
            self.lines.append(f"zoolet metrics on http://{where}/metrics")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            await server.close()

    def serve(
        self,
        observed: Observed,
        transfer: Transfer | None = None,
        console: Callable[[str, bool], Console] | None = None,
    ) -> None:
        """Answer all requests from now on.

        Args:
            observed: The server.
            transfer: What ``snapshot`` and ``restore`` do.
            console: Returns the console for the token of this port.
        """
        settings = self._settings
        self._observed = observed
        is_local = _is_local(settings.host)
        self._pages = AdminPages(
            observed,
            self._token,
            self._names,
            is_local=is_local,
            prefix=settings.prefix,
            transfer=transfer,
            console=console(self._token, is_local) if console is not None else None,
        )

    def end(self) -> None:
        """Answer from now on that the server stops."""
        self.starting, self._pages, self._observed = "stopping", None, None

    def _admit(self, request: Request) -> int | None:
        return self._pages.admit(request) if self._pages is not None else None

    async def _answer(self, request: Request) -> Response:
        if self._pages is not None:
            return await self._pages.answer(request)
        check_browser(request, self._names, is_local=_is_local(self._settings.host))
        if request.path == "/healthz":
            return Response(b"ok\n")
        if request.path == "/readyz":
            return Response(f"{self.starting}\n".encode(), status=503)
        raise self._not_yet()

    def _not_yet(self) -> HttpError:
        return HttpError(503, f"not ready: {self.starting}", ("Retry-After", "1"))

    async def _listen(self, server: HttpServer, host: str | None, port: int) -> str:
        """Listen on a port; return where.

        Raises:
            ConfigError: It cannot be listened on.
        """
        try:
            bound = await server.start(host, port)
        except (OSError, UnicodeError) as error:
            await self.__aexit__(None, None, None)
            where = shown(host or "*", port)
            raise ConfigError(f"cannot listen on {where}, for operators: {why_not(error)}.") from None
        self._servers.append(server)
        return shown(host or "0.0.0.0", bound)

    async def _metrics(self, request: Request) -> Response:
        check_browser(request, self._names, is_local=_is_local(self._settings.metrics_host))
        if request.path != "/metrics":
            raise HttpError(404, "there is nothing but /metrics")
        if self._observed is None:
            raise self._not_yet()
        return metrics_page(self._observed, request)


def check_installed(settings: AdminSettings) -> None:
    """Check that what the ports need is installed, before anything else is done.

    Raises:
        ConfigError: h11 is not.
    """
    if settings.port is not None or settings.metrics:
        try:
            import h11  # noqa: F401
        except ModuleNotFoundError:
            keys = "admin.serverPort" if settings.port is not None else "metricsProvider.className"
            raise ConfigError(f"{keys} needs h11, the extra 'admin': install it, or leave the key out.") from None


def _is_local(host: str | None) -> bool:
    """Return whether an address is that of this machine for itself."""
    return host is not None and (host in LOCAL or host.startswith("127."))
