"""A server that executes every request in its general form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zoolet.server.core.ops.dispatch import PARTS, RUNS


@contextmanager
def general_forms() -> Iterator[None]:
    """Hide the straight forms from engines that are made, and from transactions that are executed, in the block."""
    runs, parts = dict(RUNS), dict(PARTS)
    RUNS.clear()
    PARTS.clear()
    try:
        yield
    finally:
        RUNS.update(runs)
        PARTS.update(parts)
