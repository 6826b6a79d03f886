"""The number of watches and unfinished requests in an engine, to test that nothing is left."""

from __future__ import annotations

from typing import Final

from zoolet.server.core.engine import Engine

NOTHING: Final = (0, 0, 0, False, 0)
"""What :func:`left` returns when nothing is left."""


def kept(engine: Engine) -> int:
    """Return the number of watches in the tables, including watches that are due for removal."""
    return sum(len(clients) for store in engine.watches._stores for clients in store.values())


def left(engine: Engine) -> tuple[int, int, int, bool, int]:
    """Return the counters of watches and unfinished requests of all connections."""
    watches = engine.watches
    return watches.active, watches._weight, sum(map(len, watches._stores)), watches.unswept, engine.partial_requests
