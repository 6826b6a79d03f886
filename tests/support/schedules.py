"""Recipes under ``@zoolet_schedules``, with failures of all kinds. A failing schedule is reduced to its essential part.

A scenario defines what the clients do and what must be true of the result; :func:`play` runs it::

    @pytest.mark.parametrize("seed", seeds())
    def test_something(seed: int) -> None:
        async def scenario(story: Story) -> None:
            async def turn(client: Client, number: int) -> None:
                async with client.lock("/lock") as held:
                    await story.write(held, "/history")

            await story.all_clients(turn)
            assert story.written("/history") == sorted(story.written("/history"))

        play(scenario, seed)

``ZOOLET_SCHEDULES`` sets the number of seeds (10; 60 in a full run; each test has a share of them),
``ZOOLET_SCHEDULE`` a single seed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

from support.effort import effort

from zoolet.client import Backoff, Client
from zoolet.client.recipes import LockLostError
from zoolet.protocol.errors import ZooKeeperError
from zoolet.testing import Server, Simulation, zoolet_schedules
from zoolet.testing.frames.requests import RecordedRequest
from zoolet.testing.sim import describe_pending_tasks
from zoolet.testing.sim.chaos import AttemptCancelledError, Chaos

SESSION_S: Final = 6.0
"""Seconds of each client's session timeout."""
TURN_LIMIT_S: Final = 120.0
"""Limit, in virtual seconds, for every client to complete a turn after the failures have stopped."""
CLEANUP_LIMIT_S: Final = 30.0
"""Limit, in virtual seconds, for cleanup after the last turn."""
FAILURE_RATES: Final = {
    "lose_replies": 0.02,
    "drop_requests": 0.02,
    "close_connections": 0.01,
    "expire_sessions": 0.004,
    "pause_sessions": 0.01,
    "outages": 0.002,
    "cancel_attempts": 0.15,
}
"""Failures in a run, with their probabilities."""
TOLERATED_ERRORS: Final = (ZooKeeperError, LockLostError, TimeoutError, AttemptCancelledError)
"""Errors that a turn may raise during failures."""

Turn = Callable[[Client, int], Coroutine[Any, Any, None]]
Scenario = Callable[["Story"], Coroutine[Any, Any, None]]


def seeds(default: int = effort(10, 60), share: float = 1.0, *, also: tuple[int, ...] = ()) -> list[int]:
    """Return the seeds to try.

    Args:
        default: Number of seeds, unless the environment sets it.
        share: Fraction of the default, for a test that is one of several.
        also: Further seeds, which have found a defect.
    """
    if only := os.environ.get("ZOOLET_SCHEDULE"):
        return [int(only)]
    wanted = os.environ.get("ZOOLET_SCHEDULES")
    return sorted({*range(int(wanted) if wanted else max(1, round(default * share))), *also})


class Story:
    """One run of a scenario.

    Attributes:
        sim: The simulation.
        server: The server.
        clients: The clients, all started.
        rng: The scenario's own source of randomness.
        over: Event that is set when the failures stop.
        turns: Number of successful turns of each client.
    """

    def __init__(self, sim: Simulation, server: Server, chaos: Chaos, clients: list[Client]) -> None:
        self.sim = sim
        self.server = server
        self.chaos = chaos
        self.clients = clients
        self.rng = Random(f"story {sim.seed}")
        self.over = asyncio.Event()
        self.turns = [0] * len(clients)
        self._broken: list[str] = []

    def end(self) -> None:
        """Stop the failures, and let the clients run their last turns."""
        self.chaos.stop()
        self.over.set()

    # --- for scenarios ---

    async def all_clients(self, turn: Turn) -> None:
        """Run turns of every client until the failures stop. After that, one more turn of each must succeed in time."""
        try:
            async with asyncio.TaskGroup() as group:
                for number, client in enumerate(self.clients):
                    group.create_task(self._worker(turn, client, number), name=f"worker {number}")
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        assert not self._broken, self._broken[0]

    async def _worker(self, turn: Turn, client: Client, number: int) -> None:
        while not self.over.is_set():
            if await self._one(turn, client, number):
                self.turns[number] += 1
            await asyncio.sleep(self.rng.uniform(0, 0.3))
        began = self.sim.time()
        while not await self._one(turn, client, number):
            await asyncio.sleep(0.05)
            assert self.sim.time() - began < TURN_LIMIT_S, f"client {number} starves"
        assert self.sim.time() - began < TURN_LIMIT_S, f"client {number} had to wait {self.sim.time() - began:.1f} s"
        self.turns[number] += 1

    async def _one(self, turn: Turn, client: Client, number: int) -> bool:
        task = asyncio.create_task(self.chaos.attempt(turn(client, number), by=number), name=f"turn of {number}")
        try:
            await asyncio.wait([task], timeout=4 * TURN_LIMIT_S)
            assert task.done(), (
                f"client {number} starves; these tasks wait:{describe_pending_tasks(asyncio.get_running_loop())}"
            )
        finally:
            task.cancel()
        error = task.exception()
        if error is not None and not isinstance(error, TOLERATED_ERRORS):
            raise error
        return error is None

    async def write(self, held: Any, path: str, *, times: int = 3, token: int | None = None) -> None:
        """Write the holder's token several times, but only while the lease is held; :meth:`written` reads them."""
        for _ in range(times):
            async with held.transaction() as t:
                t.create(f"{path}/w-", str(held.token if token is None else token).encode(), sequential=True)
            await asyncio.sleep(self.rng.choice((0, 0.001, 0.02, 0.3)))

    def written(self, path: str) -> list[int]:
        """Return the tokens that were written, in the server's order."""
        found = self.server.tree(path)
        views = sorted((view for at, view in found.items() if at != path), key=lambda view: view.czxid)
        return [int(view.data or b"0") for view in views]

    def always(self, holds: Callable[[], object]) -> None:
        """Check a condition after each operation of the server."""
        record = self.server._interceptor.record

        def recorded(request: RecordedRequest) -> None:
            record(request)
            if not self._broken and not holds():
                what = (holds.__doc__ or holds.__name__).strip()
                self._broken.append(f"not true any more at {self.sim.time():.3f} s: {what}")

        self.server._interceptor.record = recorded  # type: ignore[method-assign]


async def _wait_until_settled(story: Story) -> None:
    """Wait until no ephemeral node and no watch is left, although all sessions are alive."""

    def left() -> list[str]:
        nodes = [f"{path} of 0x{view.ephemeral_owner:x}" for path, view in story.server.tree().items()
                 if view.ephemeral_owner]  # fmt: skip
        return [*nodes, *map(str, story.server.watches())]

    deadline = story.sim.time() + CLEANUP_LIMIT_S
    while left():
        assert story.sim.time() < deadline, f"left {CLEANUP_LIMIT_S} s after all clients were done: {left()}"
        await asyncio.sleep(0.2)


@asynccontextmanager
async def running_clients(sim: Simulation, server: Server, number: int, **options: Any) -> AsyncIterator[list[Client]]:
    """Yield started clients with different seeds. At the end no session, node, watch, task or connection may exist."""
    before = asyncio.all_tasks()
    connections = sim.network.connections
    options = {"timeout": SESSION_S, "backoff": Backoff(longest=1.0), **options}
    clients = [Client(server.hosts, rng=Random(f"client {sim.seed} {who}"), **options) for who in range(number)]
    try:
        for client in clients:
            await client.start()
        yield clients
        # Closing waits only briefly for a server that has not answered an earlier request, and leaves the session.
        await asyncio.gather(*(client.exists("/") for client in clients))
    finally:
        for client in clients:
            await client.aclose()
    assert not [client for client in clients if client.session_id in server.sessions()], "sessions are left"
    await asyncio.sleep(2 * SESSION_S)  # wait for the expiry of sessions whose connect response was lost
    assert not [view.path for view in server.tree().values() if view.ephemeral_owner], "ephemeral nodes are left"
    assert asyncio.all_tasks() <= before, "tasks are left"
    assert sim.network.connections == connections, "connections are left"
    assert not server.sessions(), "sessions are left"
    assert not server.watches(), "watches are left"


def play(scenario: Scenario, seed: int, *, clients: int = 3, seconds: float = 25.0, **options: Any) -> None:
    """Run a scenario during failures.

    Args:
        scenario: The scenario.
        seed: Seed of the schedule and its failures.
        clients: Number of clients.
        seconds: Duration of the failures, in virtual seconds.
        **options: Options of the clients.
    """

    async def run(sim: Simulation, server: Server, chaos: Chaos) -> None:
        chaos.stop()  # there are no failures while the clients connect
        async with running_clients(sim, server, clients, **options) as made:
            story = Story(sim, server, chaos, made)
            asyncio.get_running_loop().call_later(seconds, story.end)
            with chaos:
                await scenario(story)
            await _wait_until_settled(story)

    zoolet_schedules(1, seed=seed, limit=36_000, **FAILURE_RATES)(run)()
