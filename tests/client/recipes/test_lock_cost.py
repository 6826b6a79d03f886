"""The cost of a lock that no other client wants: the client's function calls, and the requests of the first lock."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest

from zoolet.client import Client
from zoolet.client.recipes import Lock
from zoolet.testing import Server

CALLS: Final = 200
"""Ceiling for the function calls of an acquire and its release, of Python and C functions together."""
TURNS: Final = 200


LOOP: Final = re.compile(r"/(asyncio/\w+|selectors|test_lock_cost)\.py$")
"""Modules whose calls do not count: those of the event loop, and this one."""


class CallCounter:
    """Counts calls of Python functions, and the C functions that they call, outside asyncio and this module."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Receive an event of ``sys.setprofile``."""
        if event in ("call", "c_call") and LOOP.search(frame.f_code.co_filename) is None:
            self.count += 1


async def acquire_repeatedly(zk: Client, turns: int) -> None:
    """Acquire and release a lock several times."""
    for _ in range(turns):
        async with zk.lock("/lock"):
            pass


@pytest.mark.skipif(sys.flags.dev_mode, reason="the debug mode of asyncio makes other calls")
def test_lock_makes_few_calls() -> None:
    async def main(hosts: str) -> float:
        async with Client(hosts) as zk:
            await acquire_repeatedly(zk, 10)
            counter, before = CallCounter(), sys.getprofile()
            sys.setprofile(counter)
            try:
                await acquire_repeatedly(zk, TURNS)
            finally:
                sys.setprofile(before)
            return counter.count / TURNS

    with Server() as server:  # in a thread, whose calls do not count
        assert asyncio.run(main(server.hosts)) < CALLS


async def enter(recipe: Any) -> None:
    """Enter a recipe and leave it."""
    async with recipe:
        pass


async def attempt(lock: Lock) -> None:
    """Acquire a lock that is free, and release it."""
    lease = await lock.attempt()
    assert lease is not None
    await lease.release()


@pytest.mark.parametrize(
    ("use", "path", "requests"),
    [
        pytest.param(enter, "/lock", 3, id="missing"),
        pytest.param(enter, "/locks/a", 5, id="parent missing"),
        pytest.param(attempt, "/attempt", 2, id="attempt"),
    ],
)
async def test_first_lock_makes_container_and_node_together(
    use: Callable[[Lock], Any], path: str, requests: int, any_hosts: str
) -> None:
    async with Client(any_hosts) as zk:
        await use(Lock(zk, path))
        release = 1
        assert zk.statistics().requests_sent == requests + release

        await enter(Lock(zk, path))
        assert zk.statistics().requests_sent == requests + release + 3
        await zk.delete(path)
