"""What an engine keeps of watches, so that tests can tell whether anything was left behind."""

from __future__ import annotations

from typing import Final

from zoolet.server.core.engine import Engine

NOTHING: Final = (0, 0, 0, False, 0)
"""What :func:`left` returns when nothing is left."""


def kept(engine: Engine) -> int:
    """Return how many watches the tables hold, those that are to be removed included."""
    return sum(len(clients) for store in engine.watches._stores for clients in store.values())


def left(engine: Engine) -> tuple[int, int, int, bool, int]:
    """Return what is kept of watches and unfinished requests, of all connections."""
    watches = engine.watches
    return watches.active, watches._weight, sum(map(len, watches._stores)), watches.unswept, engine.partial_requests
