"""What recipes are tried with: runs in virtual time, trouble of all kinds from one seed, cancellation at every place
where a coroutine waits, and a look at what is left afterwards.
"""

from __future__ import annotations

import asyncio
import os
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final

from zoolet.client import Backoff, Client
from zoolet.server import Server
from zoolet.server.testing import Simulation, close_after, delay, drop_request, lose_reply

SCHEDULES: Final = int(os.environ.get("ZOOLET_SCHEDULES", "40"))
"""Seeds that each recipe is run with; maintainers run a thousand."""
SESSION_S: Final = 4.0
"""The session timeout of clients in trouble."""
IN_FLIGHT_S: Final = 0.0015
"""About as long as a message travels in the simulated network."""
KINDS: Final = (
    "lost",
    "dropped",
    "closed",
    "late",
    "cut",
    "short stall",
    "long stall",
    "pause",
    "long pause",
    "expiry",
)

Run = Callable[[Simulation, Server], Coroutine[Any, Any, Any]]


def simulate(main: Run, seed: int = 1, limit: float = 3600.0) -> Any:
    """Run with a server in virtual time."""
    sim = Simulation(seed, limit=limit)

    async def run() -> Any:
        async with sim.server() as server:
            return await main(sim, server)

    return sim.run(run())


def client_of(server: Server, timeout: float = 10.0, seed: int = 5, **options: Any) -> Client:
    """Return a client whose chance is always the same, and that comes back soon."""
    options = {"rng": Random(seed), "backoff": Backoff(first=0.01, longest=0.2), **options}
    return Client(server.hosts, timeout, **options)


def below(server: Server, path: str) -> dict[str, bytes]:
    """Return the names and data of all nodes below a path."""
    found = server.tree().items()
    return {node.removeprefix(path + "/"): view.data or b"" for node, view in found if node.startswith(path + "/")}


# --- what is left ---


def jobs_of(client: Client) -> set[asyncio.Task[Any]]:
    """Return what runs in the background of a client."""
    return {job for job in client._tasks if not job.done()}


def leftovers(server: Server, *clients: Client) -> list[str]:
    """Return what is left of recipes that are done with: ephemeral nodes, watches, jobs."""
    left = [f"node {view.path}" for view in server.tree().values() if view.ephemeral_owner]
    left += [f"watch {watch.kind} {watch.path}" for watch in server.watches()]
    return left + [f"job {job!r}" for client in clients for job in jobs_of(client)]


# --- cancellation ---


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


# --- trouble ---


async def _request_fault(server: Server, rng: Random, kind: str) -> None:
    actions: dict[str, Callable[[], Any]] = {
        "lost": lose_reply,
        "dropped": drop_request,
        "closed": close_after,
        "late": lambda: delay(rng.uniform(0.1, 1.0)),
    }
    with server.fault(times=rng.randint(1, 3), probability=0.5, action=actions[kind]()):
        await asyncio.sleep(rng.uniform(0.05, 1.0))


async def _pause(server: Server, client: Client, seconds: float) -> None:
    whose = client.session_id
    if whose not in server.sessions():
        return
    server.pause(whose)
    await asyncio.sleep(seconds)
    with suppress(LookupError):
        server.resume(whose)


async def happen(sim: Simulation, server: Server, clients: Sequence[Client], kind: str) -> None:
    """Let one kind of trouble happen."""
    rng = sim.rng
    short, long = rng.uniform(0.1, 0.5) * SESSION_S, rng.uniform(1.2, 1.6) * SESSION_S
    if kind in ("lost", "dropped", "closed", "late"):
        await _request_fault(server, rng, kind)
    elif kind == "cut":
        sim.network.drop()
    elif kind in ("short stall", "long stall"):
        sim.network.pause()
        try:
            await asyncio.sleep(short if kind == "short stall" else long)
        finally:
            sim.network.resume()
    elif kind in ("pause", "long pause"):
        await _pause(server, rng.choice(clients), short if kind == "pause" else long)
    else:
        with suppress(LookupError, ValueError):
            server.expire(rng.choice(clients))


@asynccontextmanager
async def trouble(
    sim: Simulation, server: Server, clients: Sequence[Client], kinds: Sequence[str] = KINDS
) -> AsyncIterator[None]:
    """Let something go wrong again and again until the block ends; everything is well again then."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(sim.rng.uniform(0.02, 1.5))
            await happen(sim, server, clients, sim.rng.choice(kinds))

    job = asyncio.ensure_future(go_on())
    try:
        yield
    finally:
        job.cancel()
        await asyncio.wait((job,))
        server.resume("all")
        sim.network.resume()
    if not job.cancelled():
        job.result()


@asynccontextmanager
async def clients_in(server: Server, number: int, **options: Any) -> AsyncIterator[list[Client]]:
    """Return clients with different chance; afterwards they have left no session, ephemeral node, watch, task or
    link.
    """
    clients = [client_of(server, SESSION_S, seed, **{"operation_timeout": 60.0, **options}) for seed in range(number)]
    before = asyncio.all_tasks()
    try:
        for client in clients:
            await client.start()
        yield clients
    finally:
        for client in clients:
            await client.aclose()
    await asyncio.sleep(3 * SESSION_S)
    assert not [view.path for view in server.tree().values() if view.ephemeral_owner]
    assert not server.watches()
    assert not server.sessions()
    assert asyncio.all_tasks() <= before, asyncio.all_tasks() - before
    network: Any = asyncio.get_running_loop().network  # type: ignore[attr-defined]
    assert not network._ends


async def eventually(what: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait, in virtual time, until something is true and stays so for a moment."""
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.05)
