"""Waiting for the states of a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from support.waiting import DEADLINE_S

from zoolet.client import State


async def until(states: AsyncIterator[State], *wanted: State) -> list[State]:
    """Read states up to and including one of *wanted*; return them."""
    seen = []
    async with asyncio.timeout(DEADLINE_S):
        async for state in states:
            seen.append(state)
            if state in wanted:
                break
    return seen
