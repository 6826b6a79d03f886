"""Waiting for a condition in the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

DEADLINE_S: Final = 10.0
"""The timeout in seconds; reached only on failure."""


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)
