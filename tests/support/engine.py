"""An engine for tests, whose randomness is repeatable."""

from __future__ import annotations

from random import Random
from typing import Any

from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import Settings


def make_engine(
    settings: Settings | None = None, *, now: int = 0, monotonic_ms: int = 0, rng: Random | None = None, **options: Any
) -> Engine:
    """Return an engine; by default its randomness follows from *now*."""
    return Engine(settings, now=now, monotonic_ms=monotonic_ms, rng=rng or Random(now), **options)
