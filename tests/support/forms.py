"""A switch that makes servers execute every request in its general form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zoolet.server.core.ops.dispatch import STRAIGHT_OPERATIONS, STRAIGHT_REQUESTS


@contextmanager
def general_forms() -> Iterator[None]:
    """Disable the straight forms for engines that are created, and transactions that are executed, in the block."""
    runs, parts = dict(STRAIGHT_REQUESTS), dict(STRAIGHT_OPERATIONS)
    STRAIGHT_REQUESTS.clear()
    STRAIGHT_OPERATIONS.clear()
    try:
        yield
    finally:
        STRAIGHT_REQUESTS.update(runs)
        STRAIGHT_OPERATIONS.update(parts)
