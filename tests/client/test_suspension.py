"""Time for which the machine was suspended: by two clocks, of which only one counts it."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.simulation import Connect, simulate_clients

from zoolet.client import State
from zoolet.client.aio.suspension import Suspensions
from zoolet.server import Server
from zoolet.server.testing import Simulation


def test_what_one_clock_has_counted_and_the_other_has_not_is_the_time_of_suspension() -> None:
    clocks = {1: 100.0, 2: 50.0}
    suspensions = Suspensions((1, 2), clocks.__getitem__)

    totals = []
    for going, standing in ((160.0, 110.0), (160.005, 110.0), (260.0, 110.0), (320.0, 170.0), (500.0, 180.0)):
        clocks.update({1: going, 2: standing})
        totals.append(suspensions.total())

    assert totals == [0.0, 0.0, 100.0, 100.0, 270.0]


def test_where_there_are_no_such_clocks_the_total_is_0() -> None:
    assert Suspensions(None).total() == 0.0


def test_on_this_machine_the_total_is_0_while_it_runs() -> None:
    suspensions = Suspensions()

    assert {suspensions.total() for _ in range(1_000)} == {0.0}


def test_the_total_costs_less_than_what_it_is_added_to() -> None:
    suspensions = Suspensions()
    started = time.process_time()
    for _ in range(10_000):
        suspensions.total()

    assert time.process_time() - started < 0.1  # 4 ms


def test_an_answer_after_a_suspension_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended = 0.0
    monkeypatch.setattr("zoolet.client.aio.suspension.Suspensions.total", lambda self: suspended)
    seen: list[State] = []

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        nonlocal suspended
        zk = await connect(timeout=12.0)
        states = zk.states()
        suspended = 6.0  # of the 8 after which a silent connection is given up
        await zk.exists("/")
        await asyncio.sleep(5)  # a ping is due after 4
        await zk.aclose()
        seen.extend([state async for state in states])

    simulate_clients(main)

    assert seen == [State.CONNECTED, State.CLOSED]
