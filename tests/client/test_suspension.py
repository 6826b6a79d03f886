"""Suspension of the machine, measured with two clocks, only one of which advances during the suspension."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.simulation import Connect, simulate_clients

from zoolet.client import State
from zoolet.client.aio.suspension import Suspensions
from zoolet.testing import Server, Simulation


def test_suspension_is_difference_of_both_clocks() -> None:
    clocks = {1: 100.0, 2: 50.0}
    suspensions = Suspensions((1, 2), clocks.__getitem__)

    totals = []
    for going, standing in ((160.0, 110.0), (160.005, 110.0), (260.0, 110.0), (320.0, 170.0), (500.0, 180.0)):
        clocks.update({1: going, 2: standing})
        totals.append(suspensions.total())

    assert totals == [0.0, 0.0, 100.0, 100.0, 270.0]


def test_suspension_time_is_0_without_suspension_clocks() -> None:
    assert Suspensions(None).total() == 0.0


def test_suspension_time_is_0_while_machine_runs() -> None:
    suspensions = Suspensions()

    assert {suspensions.total() for _ in range(1_000)} == {0.0}


def test_reading_suspension_time_takes_microseconds() -> None:
    suspensions = Suspensions()
    started = time.process_time()
    for _ in range(10_000):
        suspensions.total()

    assert time.process_time() - started < 0.1  # takes about 4 ms for 10,000 calls


def test_reply_after_machine_suspension_keeps_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended = 0.0

    def total(suspensions: Suspensions) -> float:
        suspensions.known = suspended
        return suspended

    monkeypatch.setattr(Suspensions, "total", total)
    seen: list[State] = []

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        nonlocal suspended
        zk = await connect(timeout=12.0)
        states = zk.states()
        suspended = 6.0  # a silent connection is abandoned after 8 seconds
        await zk.exists("/")
        await asyncio.sleep(5)  # long enough for a ping, which is due after 4 seconds
        await zk.aclose()
        seen.extend([state async for state in states])

    simulate_clients(main)

    assert seen == [State.CONNECTED, State.CLOSED]
