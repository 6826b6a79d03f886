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
from support.simulation import make_client, simulate

from zoolet.client import Client, ConnectionLossError
from zoolet.client.wire.parked import ParkedCalls
from zoolet.testing import Server, Simulation

NUMBER_OF_CALLS: Final = 2_000


class LineCounter:
    """A counter for the executed lines of the client."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Receive an event of ``sys.settrace``."""
        if event == "line" and "/client/" in frame.f_code.co_filename:
            self.count += 1
        return self


def run_offline(main: Any) -> None:
    """Run a function with a client that cannot connect to its server."""

    async def run(sim: Simulation, server: Server) -> None:
        async with make_client(server, timeout=1000.0) as zk:
            server.refuse_connections()
            server.drop("all")
            await asyncio.sleep(0.01)
            await main(zk)

    simulate(run, limit=10_000.0)


async def count_lines(zk: Client, step: Any) -> int:
    """Return the number of lines of client code that a step executes, with the two loop iterations after it."""
    lines, before = LineCounter(), sys.gettrace()
    sys.settrace(lines)
    try:
        step()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        sys.settrace(before)
    return lines.count


def _make_calls(zk: Client, calls: list[Any]) -> None:
    calls.append(zk.get("/a"))


@pytest.mark.parametrize("step", ["make", "cancel"])
def test_cost_of_call_is_independent_of_waiting_calls(step: str) -> None:
    async def main(zk: Client) -> None:
        costs: list[int] = []
        waiting: list[Any] = []
        for _ in range(2):
            call = zk.get("/a")
            await asyncio.sleep(0)
            made = partial(_make_calls, zk, waiting)
            costs.append(await count_lines(zk, call.cancel if step == "cancel" else made))
            waiting += [call] + [zk.get("/a") for _ in range(NUMBER_OF_CALLS)]
            await asyncio.sleep(0)
        assert costs[1] <= costs[0] + 5
        for call in waiting:
            call.cancel()

    run_offline(main)


def test_many_operation_timeouts_do_not_block_event_loop() -> None:
    async def main(zk: Client) -> None:
        calls = [zk.with_operation_timeout(1.0).get("/a") for _ in range(NUMBER_OF_CALLS)]
        done = []
        while not done or done[-1] < NUMBER_OF_CALLS:
            await asyncio.sleep(0 if done else 1.0)
            done.append(sum(call.done() for call in calls))
        assert len({count for count in done if count}) > 2
        for call in calls:
            with pytest.raises(ConnectionLossError, match="the request was not applied"):
                await call

    run_offline(main)


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

    run_offline(main)


def test_calls_fail_in_the_order_of_their_deadlines() -> None:
    async def main(zk: Client) -> None:
        failed: list[int] = []
        for number, seconds in enumerate((3.0, 1.0, 2.0, 1.0, 0.0)):
            call = zk.with_operation_timeout(seconds).get("/a")
            call.add_done_callback(lambda call, number=number: (call.exception(), failed.append(number)))
        await asyncio.sleep(4.0)
        assert failed == [4, 1, 3, 2, 0]

    run_offline(main)


def test_heap_of_waiting_calls_shrinks_when_calls_are_cancelled() -> None:
    async def main() -> None:
        loop, parked = asyncio.get_running_loop(), ParkedCalls()
        for number in range(NUMBER_OF_CALLS):
            call: Any = loop.create_future()
            call.deadline, call.then = float(number), None
            parked.add(call)
            call.cancel()
            await asyncio.sleep(0)
        assert len(parked) == 0
        assert len(parked._heap) < 100

    asyncio.run(main())


def test_call_cancelled_at_its_deadline_delays_no_other_call() -> None:
    async def main(zk: Client) -> None:
        soon = zk.with_operation_timeout(0.5)

        async def limited() -> None:
            async with asyncio.timeout(0.5):
                await soon.get("/a")

        with_limit = asyncio.create_task(limited())
        await asyncio.sleep(0)
        plain = [soon.get("/a") for _ in range(3)]
        assert isinstance(await _call_outcome(with_limit), TimeoutError | ConnectionLossError)
        for call in plain:
            assert isinstance(await _call_outcome(call), ConnectionLossError)

    run_offline(main)


async def _call_outcome(call: Any) -> BaseException | None:
    (outcome,) = await asyncio.gather(call, return_exceptions=True)
    return outcome
