"""Waits for a condition, and the limit of all waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

DEADLINE_S: Final = 60.0
"""The limit, in seconds, of every wait in a test, because it is reached only on failure: a test that passes waits for
an event, and does not care how busy the machine is. ``architecture/test_deadlines.py`` finds waits with a limit of
their own. A test measures CPU time or counts, not time.
"""
PROMPT_S: Final = 4.0
"""The limit, in seconds, of a call that must not wait: far above the duration of such a call on a busy machine, and
below every time-out in the code.
"""


def repeat_until_fast(took: list[float], limit: float) -> Iterator[None]:
    """Repeat a measurement until one result in *took* is within the limit, 300 times and for a minute at most.

    A measurement of time can only be too long, because other programs run at the same time. So one result that is
    within the limit shows that the code is fast enough.
    """
    yield
    while min(took) > limit and len(took) < 300 and sum(took) < DEADLINE_S:
        yield


def wait_until(
    condition: Callable[[], T], state: Callable[[], object] = lambda: "not in time", limit_s: float = DEADLINE_S
) -> T:
    """Block until a condition holds, and return its value. *state* is shown if it does not hold in time."""
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline, state()
        time.sleep(0.005)
    return value


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, in the running event loop."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)
