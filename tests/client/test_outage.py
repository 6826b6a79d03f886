"""Calls while the server is away: their cost, their timeouts, and the removal of cancelled calls."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from functools import partial
from types import FrameType
from typing import Any, Final

import pytest
from support.simulation import client_of, simulate

from zoolet.client import Client, ConnectionLossError
from zoolet.client.wire.parked import ParkedCalls
from zoolet.testing import Server, Simulation

MANY: Final = 2_000


class Lines:
    """Counts the lines of the client that are executed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Receive an event of ``sys.settrace``."""
        if event == "line" and "/client/" in frame.f_code.co_filename:
            self.count += 1
        return self


def away(main: Any) -> None:
    """Run a function with a client whose server is away."""

    async def run(sim: Simulation, server: Server) -> None:
        async with client_of(server, timeout=1000.0) as zk:
            server.refuse_connections()
            server.drop("all")
            await asyncio.sleep(0.01)
            await main(zk)

    simulate(run, limit=10_000.0)


async def lines_of(zk: Client, step: Any) -> int:
    """Return how many lines of the client a step executes."""
    lines, before = Lines(), sys.gettrace()
    sys.settrace(lines)
    try:
        step()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        sys.settrace(before)
    return lines.count


def _make(zk: Client, calls: list[Any]) -> None:
    calls.append(zk.get("/a"))


@pytest.mark.parametrize("step", ["make", "cancel"])
def test_cost_of_call_is_independent_of_waiting_calls(step: str) -> None:
    async def main(zk: Client) -> None:
        costs: list[int] = []
        waiting: list[Any] = []
        for _ in range(2):
            call = zk.get("/a")
            await asyncio.sleep(0)
            made = partial(_make, zk, waiting)
            costs.append(await lines_of(zk, call.cancel if step == "cancel" else made))
            waiting += [call] + [zk.get("/a") for _ in range(MANY)]
            await asyncio.sleep(0)
        assert costs[1] <= costs[0] + 5
        for call in waiting:
            call.cancel()

    away(main)


def test_many_timeouts_do_not_block_the_loop() -> None:
    async def main(zk: Client) -> None:
        calls = [zk.with_operation_timeout(1.0).get("/a") for _ in range(MANY)]
        done = []
        while not done or done[-1] < MANY:
            await asyncio.sleep(0 if done else 1.0)
            done.append(sum(call.done() for call in calls))
        assert len({count for count in done if count}) > 2
        for call in calls:
            with pytest.raises(ConnectionLossError, match="the request was not applied"):
                await call

    away(main)


def test_cancelled_call_is_removed_immediately() -> None:
    async def main(zk: Client) -> None:
        calls = [zk.get("/a") for _ in range(10)]
        await asyncio.sleep(0)
        refs = [weakref.ref(call) for call in calls]
        assert zk.statistics().waiting == 10

        for call in calls:
            call.cancel()
        del calls, call
        await asyncio.sleep(0)

        assert zk.statistics().waiting == 0
        gc.collect()
        assert [ref for ref in refs if ref() is not None] == []

    away(main)


def test_calls_fail_in_the_order_of_their_deadlines() -> None:
    async def main(zk: Client) -> None:
        failed: list[int] = []
        for number, seconds in enumerate((3.0, 1.0, 2.0, 1.0, 0.0)):
            call = zk.with_operation_timeout(seconds).get("/a")
            call.add_done_callback(lambda call, number=number: (call.exception(), failed.append(number)))
        await asyncio.sleep(4.0)
        assert failed == [4, 1, 3, 2, 0]

    away(main)


def test_removed_parked_calls_leave_few_entries() -> None:
    async def main() -> None:
        loop, parked = asyncio.get_running_loop(), ParkedCalls()
        for number in range(MANY):
            call: Any = loop.create_future()
            call.deadline, call.then = float(number), None
            parked.add(call)
            call.cancel()
            await asyncio.sleep(0)
        assert len(parked) == 0
        assert len(parked._heap) < 100

    asyncio.run(main())


def test_call_cancelled_at_deadline_delays_no_other() -> None:
    async def main(zk: Client) -> None:
        soon = zk.with_operation_timeout(0.5)

        async def limited() -> None:
            async with asyncio.timeout(0.5):
                await soon.get("/a")

        with_limit = asyncio.create_task(limited())
        await asyncio.sleep(0)
        plain = [soon.get("/a") for _ in range(3)]
        assert isinstance(await _outcome(with_limit), TimeoutError | ConnectionLossError)
        for call in plain:
            assert isinstance(await _outcome(call), ConnectionLossError)

    away(main)


async def _outcome(call: Any) -> BaseException | None:
    (outcome,) = await asyncio.gather(call, return_exceptions=True)
    return outcome
