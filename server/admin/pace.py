"""The time slices of long work, such as reports and the console: clients are served between two slices."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

SLICE: Final = 0.001
"""Seconds of work between two pauses."""


class Pace:
    """The pace of one task, which works in time slices with pauses in between.

    Args:
        turn: Lock that all work of a server shares, so that its slices and pauses follow each other.
    """

    def __init__(self, turn: asyncio.Lock) -> None:
        self._turn = turn
        self._until = perf_counter() + SLICE

    async def rest(self) -> bool:
        """Pause if the time slice is over. Return whether the task was paused."""
        if perf_counter() < self._until:
            return False
        async with self._turn:
            await asyncio.sleep(SLICE)
        self._until = perf_counter() + SLICE
        return True
