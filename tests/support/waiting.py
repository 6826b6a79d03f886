"""How tests wait for what another part of the same loop does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

DEADLINE_S: Final = 10.0
"""Seconds that anything may take; only ever reached on failure."""


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)
