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

MAX_CALLS: Final = 200
"""Ceiling for the function calls of an acquire and its release, of Python and C functions together."""
ROUNDS: Final = 200


UNCOUNTED_MODULES: Final = re.compile(r"/(asyncio/\w+|selectors|test_lock_cost)\.py$")
"""Modules whose calls do not count: those of the event loop, and this one."""


class CallCounter:
    """A profile function that counts the calls of Python and C functions outside asyncio and this module."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Receive an event of ``sys.setprofile``."""
        if event in ("call", "c_call") and UNCOUNTED_MODULES.search(frame.f_code.co_filename) is None:
            self.count += 1


async def acquire_repeatedly(zk: Client, turns: int) -> None:
    """Acquire and release a lock several times."""
    for _ in range(turns):
        async with zk.lock("/lock"):
            pass


@pytest.mark.skipif(sys.flags.dev_mode, reason="the debug mode of asyncio makes other calls")
def test_free_lock_costs_few_function_calls() -> None:
    async def main(hosts: str) -> float:
        async with Client(hosts) as zk:
            await acquire_repeatedly(zk, 10)
            counter, before = CallCounter(), sys.getprofile()
            sys.setprofile(counter)
            try:
                await acquire_repeatedly(zk, ROUNDS)
            finally:
                sys.setprofile(before)
            return counter.count / ROUNDS

    with Server() as server:  # the server runs in its own thread, whose calls are not counted
        assert asyncio.run(main(server.hosts)) < MAX_CALLS


async def enter_and_leave(recipe: Any) -> None:
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
        pytest.param(enter_and_leave, "/lock", 3, id="missing"),
        pytest.param(enter_and_leave, "/locks/a", 5, id="parent missing"),
        pytest.param(attempt, "/attempt", 2, id="attempt"),
    ],
)
async def test_first_lock_creates_container_and_node_in_one_request(
    use: Callable[[Lock], Any], path: str, requests: int, any_hosts: str
) -> None:
    async with Client(any_hosts) as zk:
        await use(Lock(zk, path))
        release = 1
        assert zk.statistics().requests_sent == requests + release

        await enter_and_leave(Lock(zk, path))
        assert zk.statistics().requests_sent == requests + release + 3
        await zk.delete(path)
