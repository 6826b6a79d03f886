"""A server in the running event loop that listens only for TLS."""

from __future__ import annotations

from support.engine import assemble_daemon

from zoolet.server.config import ServerConfig
from zoolet.server.net import tls
from zoolet.server.net.tls_settings import TlsSettings


class TlsServer:
    """A server that listens only for TLS, as a context manager.

    Args:
        settings: Its TLS settings.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings

    async def __aenter__(self) -> int:
        self._daemon = assemble_daemon(ServerConfig())
        return await self._daemon.start_secure("127.0.0.1", 0, tls.context(self._settings))

    async def __aexit__(self, *ignored: object) -> None:
        await self._daemon.stop(gracefully=False)
