"""Locks on an Apache ensemble while leaders are killed: never two holders at the same time, and tokens in order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pytest
from support.effort import effort
from support.ensemble import Ensemble
from support.waiting import DEADLINE_S

from zoolet.client import Backoff, Client, ConnectionLossError, SessionExpiredError
from zoolet.client.recipes import Lock, LockLostError, MultiLock, ReadWriteLock

DURATION_S: Final = float(os.environ.get("ZOOLET_ENSEMBLE_SECONDS") or effort(3, 6))
"""Duration of the test, in seconds; ``make ensemble`` runs it for five minutes."""
CONTENDERS: Final[list[Callable[[Client], Any]]] = [
    lambda zk: Lock(zk, "/l"),
    lambda zk: Lock(zk, "/l"),
    lambda zk: Lock(zk, "/l", naming="both"),
    lambda zk: MultiLock(zk, ["/k", "/l"]),
    lambda zk: ReadWriteLock(zk, "/l").write(),
]


class Hold(NamedTuple):
    """The time during which a client believed that it held the lock."""

    begin: float
    end: float
    token: int


async def contend(zk: Client, lock: Any, holds: list[Hold], stop: asyncio.Event) -> None:
    """Acquire and release the lock until *stop* is set. Append the time and token of each hold to *holds*."""
    while not stop.is_set():
        lease = None
        begin = 0.0
        try:
            async with asyncio.timeout(DEADLINE_S), lock as lease:
                begin = time.monotonic()
                await asyncio.sleep(0.005)
                lease.raise_if_lost()
        except (LockLostError, ConnectionLossError, SessionExpiredError, TimeoutError):
            pass
        finally:
            if lease is not None:
                holds.append(Hold(begin, time.monotonic(), lease.token))
        await asyncio.sleep(0.001)


async def kill_leaders(ensemble: Ensemble, seconds: float) -> int:
    """Repeatedly kill the leader, wait for a new one, and restart the member. Return the number of kills."""
    killed, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        leader = await asyncio.to_thread(ensemble.wait_for_leader, 3)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(leader.kill)
        killed += 1
        await asyncio.to_thread(ensemble.wait_for_leader, 2)
        await asyncio.sleep(0.5)
        leader.start()
    await asyncio.to_thread(ensemble.wait_for_leader, 3)
    return killed


@pytest.mark.slow
async def test_locks_stay_exclusive_over_leader_kills() -> None:
    holds: list[Hold] = []
    stop = asyncio.Event()
    with Ensemble() as ensemble:
        clients = [Client(ensemble.hosts, 4.0, backoff=Backoff(first=0.01, longest=0.2)) for _ in CONTENDERS]
        for zk in clients:
            await zk.start()
        jobs = [
            asyncio.ensure_future(contend(zk, make(zk), holds, stop))
            for zk, make in zip(clients, CONTENDERS, strict=True)
        ]
        killed = await kill_leaders(ensemble, DURATION_S)
        before = len(holds)
        async with asyncio.timeout(DEADLINE_S):
            while len(holds) < before + 50:
                await asyncio.sleep(0.01)
        stop.set()
        await asyncio.wait(jobs)
        for job in jobs:
            job.result()
        async with asyncio.timeout(DEADLINE_S):
            while [name for path in ("/l", "/k") for name in await clients[0].children(path)]:
                await asyncio.sleep(0.1)
        for zk in clients:
            await zk.aclose()

    print(f"{killed} leaders killed, {len(holds)} holds, {len(holds) - before} of them after the last")
    assert killed >= max(1, DURATION_S // 20)  # elections take longer on a busy machine
    in_order = sorted(holds)
    for earlier, later in pairwise(in_order):
        assert earlier.end <= later.begin, "two held it at once"
        assert earlier.token < later.token
