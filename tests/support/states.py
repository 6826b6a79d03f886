"""A helper that waits for a state of a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from support.waiting import DEADLINE_S

from zoolet.client import State


async def read_until(states: AsyncIterator[State], *wanted: State) -> list[State]:
    """Wait for one of the states *wanted*. Return all states up to and including it."""
    seen = []
    async with asyncio.timeout(DEADLINE_S):
        async for state in states:
            seen.append(state)
            if state in wanted:
                break
    return seen
