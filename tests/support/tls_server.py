"""A server in the running loop that listens for TLS alone."""

from __future__ import annotations

from support.engine import assemble_daemon

from zoolet.server.config import Config
from zoolet.server.net import tls
from zoolet.server.net.tls_settings import TlsSettings


class Served:
    """A TLS port in this loop that answers every connection with a session.

    Args:
        settings: Its TLS settings.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings

    async def __aenter__(self) -> int:
        self._listener = assemble_daemon(Config())
        return await self._listener.start_secure("127.0.0.1", 0, tls.context(self._settings))

    async def __aexit__(self, *ignored: object) -> None:
        await self._listener.stop(gracefully=False)
