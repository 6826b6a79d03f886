"""The HTTP ports of ``zoolet serve``: the admin port and the metrics port."""

from __future__ import annotations

import asyncio
import secrets
import socket
from types import TracebackType
from typing import TYPE_CHECKING

from ..server.admin.http import (
    LOCAL_NAMES,
    READS,
    HttpError,
    HttpRequest,
    Response,
    Route,
    Router,
    is_loopback,
    no_page,
)
from ..server.admin.observed import MonitoredServer
from ..server.admin.pages import AdminPages, Console, healthz, metrics_page
from ..server.admin.state_pages import Transfer
from ..server.config.config import AdminSettings
from .addresses import format_address
from .options import cannot_listen_error, require_h11

if TYPE_CHECKING:  # the module requires h11, which most servers do not need
    from ..server.net.http import HttpServer


class AdminPorts:
    """The HTTP ports of a daemon, as an asynchronous context manager.

    The HTTP ports open before the ports for clients. Before :meth:`serve` and after :meth:`end`, they report only that
    the server is alive but not ready.

    Args:
        settings: The ports to listen on, at least one.

    Raises:
        OptionError: h11 is not installed.

    Attributes:
        lines: Lines to print once the server is ready: the URLs, and the token if one was generated.
        activity: The text of ``/readyz`` while the server is not ready, such as ``starting``.
    """

    def __init__(self, settings: AdminSettings) -> None:
        require_h11("admin.serverPort" if settings.port is not None else "metricsProvider.className")
        self.lines: list[str] = []
        self._settings = settings
        self.activity = "starting"
        self._observed: MonitoredServer | None = None
        self._router: Router
        self._token = settings.token or secrets.token_urlsafe(24)
        self._servers: list[HttpServer] = []
        self._names: frozenset[str] = LOCAL_NAMES

    async def __aenter__(self) -> AdminPorts:
        settings = self._settings
        from ..server.net.http import HttpServer, Limits

        own = await asyncio.to_thread(lambda: (socket.gethostname(), socket.getfqdn()))  # getfqdn() may query DNS
        self._names = LOCAL_NAMES | {name.lower() for name in own} | {name.lower() for name in settings.hosts}
        limits = Limits(idle=settings.idle_timeout / 1000)
        if settings.port is not None:
            self._serve_health_only()
            server = HttpServer(lambda request: self._router.find_route(request), limits)
            where = await self._listen(server, settings.host, settings.port)
            self.lines.append(f"zoolet admin on http://{where}/")
            if settings.token is None:
                self.lines.append(f"zoolet admin token {self._token}")
        if settings.metrics:
            router = Router(
                [Route(READS, "/metrics", self._metrics)],
                no_page("this port serves only /metrics"),
                self._names,
                is_local=is_loopback(settings.metrics_host),
            )
            server = HttpServer(router.find_route, limits)
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
        observed: MonitoredServer,
        transfer: Transfer | None = None,
        console: Console | None = None,
    ) -> None:
        """Start answering all requests.

        Args:
            observed: The server to report on.
            transfer: Implementation of ``snapshot`` and ``restore``.
            console: Function that returns the routes of the console.
        """
        settings = self._settings
        self._observed = observed
        self._router = AdminPages(
            observed,
            self._token,
            self._names,
            is_local=is_loopback(settings.host),
            prefix=settings.prefix,
            transfer=transfer,
            console=console,
        ).router

    def end(self) -> None:
        """Report from now on that the server is stopping."""
        self.activity, self._observed = "stopping", None
        self._serve_health_only()

    def _serve_health_only(self) -> None:
        """Report only that the server is alive, and why it is not ready."""
        routes = [Route(READS, "/healthz", healthz), Route(READS, "/readyz", self._readyz)]
        is_local = is_loopback(self._settings.host)
        self._router = Router(routes, lambda request: self._not_ready_error(), self._names, is_local=is_local)

    async def _readyz(self, request: HttpRequest) -> Response:
        return Response(f"{self.activity}\n".encode(), status=503)

    def _not_ready_error(self) -> HttpError:
        return HttpError(503, f"not ready: {self.activity}", ("Retry-After", "1"))

    async def _listen(self, server: HttpServer, host: str | None, port: int) -> str:
        """Listen on a port, and add the server to those that are closed at exit. Return the address.

        Raises:
            CommandError: The address cannot be listened on.
        """
        try:
            bound = await server.start(host, port)
        except (OSError, UnicodeError) as error:
            await self.__aexit__(None, None, None)
            raise cannot_listen_error(f"{format_address(host or '*', port)} for HTTP", error) from None
        self._servers.append(server)
        return format_address(host or "0.0.0.0", bound)

    async def _metrics(self, request: HttpRequest) -> Response:
        if self._observed is None:
            raise self._not_ready_error()
        return await metrics_page(self._observed, request)
