"""Seeded fault schedules: clients at work against a server in virtual time, while what a seed says goes wrong.

A scenario says what the clients do and what must be true of it; :func:`play` lets it happen::

    @pytest.mark.parametrize("seed", seeds())
    def test_something(seed: int) -> None:
        async def scenario(story: Story) -> None:
            async def turn(client: Client, number: int) -> None:
                async with client.lock("/lock") as held:
                    await story.write(held, "/history")

            await story.everybody(turn)
            assert story.written("/history") == sorted(story.written("/history"))

        play(scenario, seed)

``ZOOLET_SCHEDULES`` is how many seeds are tried (16; 60 in a full run), ``ZOOLET_SCHEDULE`` the only one to try.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, suppress
from random import Random
from typing import Any, Final

from support.effort import effort

from zoolet.client import Backoff, Client
from zoolet.client.recipes import LockLostError
from zoolet.protocol.errors import ZooKeeperError
from zoolet.server import Server
from zoolet.server.testing import Simulation, close_after, delay, drop_request, lose_reply
from zoolet.server.testing.frames.requests import RecordedRequest
from zoolet.server.testing.sim import describe_pending_tasks

SESSION: Final = 6.0
"""Seconds of each client's session timeout."""
BOUND: Final = 120.0
"""Virtual seconds within which everybody gets its turn once nothing goes wrong any more."""
SETTLED: Final = 30.0
"""Virtual seconds within which all is cleaned up once everybody has had its turn."""
OPS: Final = (
    None,
    "create",
    "create2",
    "delete",
    "getData",
    "getChildren",
    "exists",
    "multi",
    "sync",
    "removeWatches",
    "connect",
    "setData",
)
ENDURED: Final = (ZooKeeperError, LockLostError, TimeoutError)
"""What a turn may fail with while things go wrong."""

Turn = Callable[[Client, int], Awaitable[None]]
Scenario = Callable[["Story"], Coroutine[Any, Any, None]]


def seeds(default: int = effort(16, 60), share: float = 1.0) -> list[int]:
    """Return the seeds to try.

    Args:
        default: How many, if the environment does not say.
        share: The part of the default for a test that is one of several.
    """
    if only := os.environ.get("ZOOLET_SCHEDULE"):
        return [int(only)]
    wanted = os.environ.get("ZOOLET_SCHEDULES")
    return list(range(int(wanted) if wanted else max(1, round(default * share))))


class Story:
    """One run of a scenario.

    Attributes:
        sim: Where it happens.
        server: The server.
        clients: The clients, all started.
        random: The scenario's own source of randomness.
        over: Set when nothing goes wrong any more.
        turns: How many turns each client has ended well.
        history: What went wrong, and when.
    """

    def __init__(self, sim: Simulation, server: Server, clients: list[Client]) -> None:
        self.sim = sim
        self.server = server
        self.clients = clients
        self.rng = Random(f"story {sim.seed}")
        self.over = asyncio.Event()
        self.turns = [0] * len(clients)
        self.history: list[str] = []
        self._cancellable: list[asyncio.Task[None]] = []
        self._broken: list[str] = []

    # --- what scenarios say ---

    async def everybody(self, turn: Turn) -> None:
        """Run turns of every client until the trouble is over, and then one more, which must succeed in time."""
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
            assert self.sim.time() - began < BOUND, f"client {number} starves"
        assert self.sim.time() - began < BOUND, f"client {number} had to wait {self.sim.time() - began:.1f} s"
        self.turns[number] += 1

    async def _one(self, turn: Turn, client: Client, number: int) -> bool:
        async def run() -> None:
            await turn(client, number)

        task = asyncio.create_task(run(), name=f"turn of {number}")
        self._cancellable.append(task)
        try:
            await asyncio.wait([task], timeout=4 * BOUND)
            assert task.done(), (
                f"client {number} starves; these tasks wait:{describe_pending_tasks(asyncio.get_running_loop())}"
            )
        finally:
            self._cancellable.remove(task)
            if not task.done():
                task.cancel()
        if task.cancelled():
            assert task in self._victims, f"the turn of client {number} was cancelled, and nobody did it"
            return False
        error = task.exception()
        if error is not None and not isinstance(error, ENDURED):
            raise error
        return error is None

    async def write(self, held: Any, path: str, *, times: int = 3, token: int | None = None) -> None:
        """Write down who holds it, several times, each only if it is still held; :meth:`written` reads it."""
        for _ in range(times):
            async with held.transaction() as t:
                t.create(f"{path}/w-", str(held.token if token is None else token).encode(), sequential=True)
            await asyncio.sleep(self.rng.choice((0, 0.001, 0.02, 0.3)))

    def written(self, path: str) -> list[int]:
        """Return the tokens that the server took, in its order."""
        found = self.server.tree(path)
        views = sorted((view for at, view in found.items() if at != path), key=lambda view: view.czxid)
        return [int(view.data or b"0") for view in views]

    def always(self, holds: Callable[[], object]) -> None:
        """Ask after each operation of the server whether something is true."""
        record = self.server._interceptor.record

        def recorded(request: RecordedRequest) -> None:
            record(request)
            if not self._broken and not holds():
                what = (holds.__doc__ or holds.__name__).strip()
                self._broken.append(f"not true any more at {self.sim.time():.3f} s: {what}")

        self.server._interceptor.record = recorded  # type: ignore[method-assign]

    # --- what goes wrong ---

    _victims: set[asyncio.Task[None]]

    async def trouble(self, seconds: float) -> None:
        """Cause trouble for so long."""
        rng = Random(f"trouble {self.sim.seed}")
        self._victims = set()
        kinds = (
            [self._fault] * 8
            + [self._drop] * 2
            + [self._pause_network] * 2
            + [self._pause] * 2
            + [self._expire, self._refuse]
        )
        kinds += [self._cancel] * 4

        async def go_wrong() -> None:
            while True:
                await asyncio.sleep(rng.choice((0, 0.001, 0.003, 0.01, 0.05, 0.3, 2.0)))
                with ExitStack() as stack, suppress(LookupError):
                    await rng.choice(kinds)(rng, stack)

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(go_wrong())
        self.sim.network.resume()
        self.server.resume("all")
        self.server.accept_connections()
        self.over.set()

    def _tell(self, what: str) -> None:
        self.history.append(f"{self.sim.time():9.3f} s  {what}")

    def _someone(self, rng: Random) -> Client:
        return rng.choice(self.clients)

    async def _fault(self, rng: Random, stack: ExitStack) -> None:
        op, client = rng.choice(OPS), self._someone(rng)
        action = rng.choice(
            [
                lose_reply(),
                lose_reply(),
                drop_request(),
                close_after(),
                delay(rng.uniform(0, 0.5)),
                delay(rng.uniform(SESSION / 2, SESSION * 1.5)),
            ]
        )
        fault = stack.enter_context(self.server.fault(action, op, client=client, times=1))
        until = self.sim.time() + 3.0
        while not fault.hits and self.sim.time() < until:
            await asyncio.sleep(0.05)
        self._tell(f"{action} for {op} of client {self.clients.index(client)}: {fault.hits} hits")

    async def _drop(self, rng: Random, stack: ExitStack) -> None:
        if rng.random() < 0.5:
            self.sim.network.drop()
            self._tell("all connections dropped")
        else:
            client = self._someone(rng)
            self.server.drop(client)
            self._tell(f"client {self.clients.index(client)} dropped")

    async def _pause_network(self, rng: Random, stack: ExitStack) -> None:
        self._tell("the network pauses")
        self.sim.network.pause()
        stack.callback(self.sim.network.resume)
        await asyncio.sleep(rng.choice((rng.uniform(0, 1), SESSION * rng.uniform(0.5, 1.5))))
        self._tell("the network resumes")

    async def _pause(self, rng: Random, stack: ExitStack) -> None:
        client = self._someone(rng)
        self.server.pause(client)
        self._tell(f"client {self.clients.index(client)} pauses")
        await asyncio.sleep(rng.choice((rng.uniform(0, 1), SESSION * rng.uniform(0.5, 1.5))))
        self.server.resume("all")
        self._tell(f"client {self.clients.index(client)} goes on")

    async def _expire(self, rng: Random, stack: ExitStack) -> None:
        client = self._someone(rng)
        self.server.expire(client)
        self._tell(f"client {self.clients.index(client)}'s session ended")

    async def _refuse(self, rng: Random, stack: ExitStack) -> None:
        self._tell("connections are refused")
        self.server.refuse_connections()
        stack.callback(self.server.accept_connections)
        if rng.random() < 0.7:
            self.sim.network.drop()
        await asyncio.sleep(rng.choice((rng.uniform(0, 2), rng.uniform(0, SESSION * 1.5))))
        self._tell("connections are accepted")

    async def _cancel(self, rng: Random, stack: ExitStack) -> None:
        running = [task for task in self._cancellable if not task.done()]
        if not running:
            return
        victim = rng.choice(running)
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)
        if not victim.done():
            self._victims.add(victim)
            victim.cancel()
            self._tell(f"the {victim.get_name()} cancelled")


async def _settled(story: Story) -> None:
    """Wait until nothing is left of what everybody did, though all sessions live on."""

    def left() -> list[str]:
        nodes = [f"{path} of 0x{view.ephemeral_owner:x}" for path, view in story.server.tree().items()
                 if view.ephemeral_owner]  # fmt: skip
        return [*nodes, *map(str, story.server.watches())]

    deadline = story.sim.time() + SETTLED
    while left():
        assert story.sim.time() < deadline, f"left {SETTLED} s after everybody was done: {left()}"
        await asyncio.sleep(0.2)


async def _run(sim: Simulation, scenario: Scenario, clients: int, seconds: float, options: dict[str, Any]) -> None:
    async with sim.server() as server:
        before = asyncio.all_tasks()
        connections = sim.network.connections
        made = [
            Client(
                server.hosts,
                SESSION,
                rng=Random(f"client {sim.seed} {number}"),
                backoff=Backoff(longest=1.0),
                **options,
            )
            for number in range(clients)
        ]
        for client in made:
            await client.start()
        story = Story(sim, server, made)
        trouble = asyncio.create_task(story.trouble(seconds))
        try:
            try:
                await scenario(story)
                await trouble
                await _settled(story)
            finally:
                trouble.cancel()
                for client in made:
                    await client.aclose()
            assert not [client for client in made if client.session_id in server.sessions()], "sessions are left"
            await asyncio.sleep(2 * SESSION)  # sessions whose connect response was lost expire by themselves
            assert not asyncio.all_tasks() - before, "tasks are left"
            assert sim.network.connections == connections, "connections are left"
            assert not server.sessions(), "sessions are left"
            assert not server.watches(), "watches are left"
        except BaseException as error:
            repeat = f"ZOOLET_SCHEDULE={sim.seed} pytest ... repeats it"
            error.add_note("\n".join([f"seed {sim.seed}; {repeat}; what went wrong:", *story.history[-40:]]))
            raise


def play(scenario: Scenario, seed: int, *, clients: int = 3, seconds: float = 25.0, **options: Any) -> None:
    """Run a scenario while things go wrong.

    Args:
        scenario: What happens.
        seed: What goes wrong.
        clients: How many clients there are.
        seconds: Virtual seconds for which things go wrong.
        **options: For the clients.
    """
    sim = Simulation(seed, limit=36_000)
    sim.run(_run(sim, scenario, clients, seconds, options))
