"""The console of a test server, beside its control API."""

from __future__ import annotations

from typing import Final

from zoolet.server.console.attach import EngineConsole
from zoolet.server.testing.server import Server

HISTORY: Final = 10_000
"""The transactions that are kept for it."""


def console_of(server: Server) -> EngineConsole:
    """Return the console of a server that runs in this event loop."""
    return EngineConsole(server.daemon, history=HISTORY, name=server.hosts, kind="test")
