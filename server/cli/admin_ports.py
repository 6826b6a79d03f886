"""The ports for operators of ``zoolet serve``: the admin port, and the one for metrics alone."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from types import TracebackType
from typing import TYPE_CHECKING

from zoolet.server.admin.http import LOCAL, HttpError, Request, Response, check_browser
from zoolet.server.admin.observed import Observed
from zoolet.server.admin.pages import AdminPages, metrics_page
from zoolet.server.config import ConfigError
from zoolet.server.config.config import AdminSettings

if TYPE_CHECKING:  # it needs h11, which most servers do not
    from zoolet.server.net.http import HttpServer


class AdminPorts:
    """The ports, as an asynchronous context manager; it listens on none unless the settings say so.

    Args:
        settings: Which ports.
        observed: The server.

    Attributes:
        lines: What to print once they are open: where they are, and the token if one was made.

    Raises:
        ConfigError: h11 is not installed.
    """

    def __init__(self, settings: AdminSettings, observed: Observed) -> None:
        self.lines: list[str] = []
        self._settings = settings
        self._observed = observed
        self._servers: list[HttpServer] = []
        self._names: frozenset[str] = LOCAL

    async def __aenter__(self) -> AdminPorts:
        settings = self._settings
        if settings.port is None and not settings.metrics:
            return self
        try:
            from zoolet.server.net.http import HttpServer, Limits
        except ModuleNotFoundError as error:
            if error.name != "h11":
                raise
            reason = "the admin port and the port for metrics need h11, the extra 'admin'"
            raise ConfigError(f"{reason}: install it, or set admin.enableServer=false.") from None
        own = await asyncio.to_thread(
            lambda: {socket.gethostname().lower(), socket.getfqdn().lower()}
        )  # may ask the DNS
        self._names = LOCAL | own | {name.lower() for name in settings.hosts}
        limits = Limits(idle=settings.idle_timeout / 1000)
        if settings.port is not None:
            token = settings.token or secrets.token_urlsafe(24)
            pages = AdminPages(
                self._observed,
                token,
                self._names,
                is_local=_is_local(settings.host),
                prefix=settings.prefix,
            )
            server = HttpServer(pages.answer, limits)
            where = await self._listen(server, settings.host, settings.port)
            self.lines.append(f"zoolet admin on http://{where}/")
            if settings.token is None:
                self.lines.append(f"zoolet admin token {token}")
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

    async def _listen(self, server: HttpServer, host: str | None, port: int) -> str:
        """Listen on a port; return where.

        Raises:
            ConfigError: It cannot be listened on.
        """
        try:
            bound = await server.start(host, port)
        except (OSError, UnicodeError) as error:
            await self.__aexit__(None, None, None)
            number = getattr(error, "errno", None) or 0
            reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot listen on {host or '*'}:{port}, for operators: {reason}.") from None
        self._servers.append(server)
        return f"[{host}]:{bound}" if host and ":" in host else f"{host or '0.0.0.0'}:{bound}"

    async def _metrics(self, request: Request) -> Response:
        check_browser(request, self._names, is_local=_is_local(self._settings.metrics_host))
        if request.path != "/metrics":
            raise HttpError(404, "there is nothing but /metrics")
        return metrics_page(self._observed, request)


def _is_local(host: str | None) -> bool:
    """Return whether an address is that of this machine for itself."""
    return host is not None and (host in LOCAL or host.startswith("127."))
