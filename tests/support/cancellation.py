"""Cancel a coroutine at each place where it waits, and look at what is left afterwards."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

from support.leftovers import leftovers
from support.simulation import client_of, simulate

from zoolet.client import Client
from zoolet.server import Server
from zoolet.server.testing import Simulation

IN_FLIGHT_S: Final = 0.0015
"""About as long as a message travels in the simulated network."""


@types.coroutine
def stepped(job: Coroutine[Any, Any, Any], at: int, cut: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Run a coroutine, and call *cut* when it waits for the time with that number, counted from 1."""
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


async def cancelled_at(job: Coroutine[Any, Any, Any], at: int, later: float = 0.0) -> bool:
    """Cancel a coroutine at the place where it waits for the time with that number, at once or a bit later.

    Returns:
        Whether it was cancelled; it may have ended before.
    """
    task: asyncio.Task[Any]

    def cut() -> None:
        if later:
            asyncio.get_running_loop().call_later(later, task.cancel)
        else:
            task.cancel()

    async def run() -> Any:
        return await stepped(job, at, cut)

    task = asyncio.ensure_future(run())
    await asyncio.wait((task,))
    if task.cancelled():
        return True
    task.result()
    return False


Check = Callable[[Server, Client], Awaitable[None]]


def cancel_everywhere(
    operation: Callable[[Client], Coroutine[Any, Any, Any]],
    *,
    before: Callable[[Client], Awaitable[Any]] | None = None,
    after: Check | None = None,
    nodes: dict[str, bytes] | None = None,
) -> None:
    """Cancel an operation at each place where it waits, once before anything goes out and once while it travels; each
    time no ephemeral node, watch or job may be left while the client lives on.

    Args:
        operation: What is cancelled; it leaves nothing if it is not.
        before: What is done first, by the same client.
        after: What must be true then too.
        nodes: What there is first.
    """
    problems: list[str] = []

    def one(at: int, later: float) -> bool:
        async def main(sim: Simulation, server: Server) -> bool:
            server.populate(nodes or {})
            async with client_of(server, 1000.0) as zk:
                if before is not None:
                    await before(zk)
                was = set(leftovers(server, zk))
                was_cancelled = await cancelled_at(operation(zk), at, later)
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
        while missed < 6 and at < 60:  # in flight, a wait may be over too soon, and there may be more
            missed = 1 if one(at, later) else missed + 1
            at += 1
    assert not problems, "\n".join(problems)
