"""The server: a deterministic core, a thin asyncio shell around it, and the ``zoolet`` command.

``from zoolet.server import Server`` imports the server for tests; see :mod:`zoolet.server.testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if __name__ != "zoolet.server":
    raise ImportError("import zoolet.server, not server")

if TYPE_CHECKING:
    from zoolet.server.testing.server import Server

__all__ = ["Server"]


def __getattr__(name: str) -> Any:
    if name != "Server":  # imported on first use: the daemon does not need it
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zoolet.server.testing.server import Server

    return Server
