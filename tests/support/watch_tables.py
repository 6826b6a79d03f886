"""Counts of the watches and unfinished requests in an engine, to test that lost clients leave none."""

from __future__ import annotations

from typing import Final

from zoolet.server.core.engine import Engine

NO_LEFTOVERS: Final = (0, 0, 0, False, 0)
"""The result of :func:`count_leftovers` for an engine without watches and unfinished requests."""


def count_watches(engine: Engine) -> int:
    """Return the number of watches in the tables, including watches that are due for removal."""
    return sum(len(clients) for store in engine.watches._stores for clients in store.values())


def count_leftovers(engine: Engine) -> tuple[int, int, int, bool, int]:
    """Return the counters of watches and unfinished requests of all connections."""
    watches = engine.watches
    return watches.active, watches._weight, sum(map(len, watches._stores)), watches.unswept, engine.partial_requests
