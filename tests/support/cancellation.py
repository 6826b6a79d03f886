"""Cancel a coroutine at each place where it waits, and check what is left afterwards."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

from support.leftovers import leftovers
from support.simulation import make_client, simulate

from zoolet.client import Client
from zoolet.testing import Server, Simulation

IN_FLIGHT_S: Final = 0.0015
"""Approximate latency of the simulated network, in seconds."""


@types.coroutine
def call_at_wait(job: Coroutine[Any, Any, Any], at: int, cut: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Run a coroutine, and call *cut* at its wait number *at*, counted from 1."""
    value: Any = None
    error: BaseException | None = None
    waits = 0
    while True:
        try:
            awaited = job.throw(error) if error is not None else job.send(value)
        except StopIteration as end:
            return end.value
        waits += 1
        if waits == at:
            cut()
        value = error = None
        try:
            value = yield awaited
        except BaseException as raised:
            error = raised


async def cancel_at_wait(job: Coroutine[Any, Any, Any], at: int, later: float = 0.0) -> bool:
    """Cancel a coroutine at its wait number *at*, immediately or *later* seconds later.

    Returns:
        Whether it was cancelled; False if it finished first.
    """

    async def run() -> Any:
        task = asyncio.current_task()
        assert task is not None

        def cut() -> None:
            if later:
                asyncio.get_running_loop().call_later(later, task.cancel)
            else:
                task.cancel()

        return await call_at_wait(job, at, cut)

    task = asyncio.ensure_future(run())
    await asyncio.wait((task,))
    if task.cancelled():
        return True
    task.result()
    return False


AfterCheck = Callable[[Server, Client], Awaitable[None]]


def cancel_everywhere(
    operation: Callable[[Client], Coroutine[Any, Any, Any]],
    *,
    before: Callable[[Client], Awaitable[Any]] | None = None,
    after: AfterCheck | None = None,
    nodes: dict[str, bytes] | None = None,
) -> None:
    """Cancel an operation at each place where it waits: once before the request is sent and once while it is in flight.
    Each time the client stays connected, and no ephemeral node, watch or job may be left.

    Args:
        operation: The operation to cancel; if it is not cancelled, it leaves nothing either.
        before: Preparation by the same client.
        after: Further checks after each cancellation.
        nodes: Initial nodes.
    """
    problems: list[str] = []

    def one(at: int, later: float) -> bool:
        async def main(sim: Simulation, server: Server) -> bool:
            server.populate(nodes or {})
            async with make_client(server, 1000.0) as zk:
                if before is not None:
                    await before(zk)
                was = set(leftovers(server, zk))
                was_cancelled = await cancel_at_wait(operation(zk), at, later)
                await asyncio.sleep(20)
                left = [what for what in leftovers(server, zk) if was_cancelled and what not in was]
                if left:
                    problems.append(f"cancelled at wait {at}{' in flight' if later else ''}: {left}")
                if after is not None and was_cancelled:
                    try:
                        await after(server, zk)
                    except (AssertionError, TimeoutError) as error:
                        problems.append(f"cancelled at wait {at}{' in flight' if later else ''}: {error!r}")
                return was_cancelled

        return bool(simulate(main, limit=5000.0))

    for later in (0.0, IN_FLIGHT_S):
        at = missed = 1
        while missed < 6 and at < 60:  # after a miss, later waits may still be cancellable
            missed = 1 if one(at, later) else missed + 1
            at += 1
    assert not problems, "\n".join(problems)
