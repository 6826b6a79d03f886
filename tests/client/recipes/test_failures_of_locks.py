"""The table "What happens on failures" in docs/locks.md, row by row, in virtual time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from support.kazoo_bugs import children
from support.leftovers import wait_for_queue
from support.simulation import SESSION_S, Connect, eventually, simulate_clients

from zoolet.client import Client, SessionExpiredError, State
from zoolet.client.recipes import Lease, LockLostError
from zoolet.testing import Server, Simulation, lose_reply

TICK_S: Final = 2.0
PAGE: Final = Path(__file__).parents[3] / "docs/locks.md"


class Scene(NamedTuple):
    """A client that holds a lock, a second client, and a function that simulates a suspension."""

    sim: Simulation
    server: Server
    zk: Client
    lease: Lease
    other: Client
    suspend: Callable[[float], None]

    async def check_free(self, within: float = 0.5) -> None:
        """Check that the other client can acquire the lock."""
        await (await self.other.lock("/lock").acquire(timeout=within)).release()

    async def check_held(self) -> None:
        """Check that the other client cannot acquire the lock."""
        assert await self.other.lock("/lock").attempt() is None


async def connection_lost(scene: Scene) -> None:
    before = scene.lease.valid_for()
    scene.server.pause(scene.zk)
    await asyncio.sleep(SESSION_S / 2)
    assert scene.lease.valid_for() < before
    await scene.check_held()
    scene.server.resume("all")
    await asyncio.sleep(SESSION_S)
    assert (scene.lease.lost.is_set(), scene.lease.valid_for() > 0) == (False, True)
    await scene.check_held()


async def no_answer(scene: Scene) -> None:
    scene.server.pause(scene.zk)
    left = scene.lease.valid_for()
    await asyncio.sleep(left - 0.001)
    assert not scene.lease.lost.is_set()
    await asyncio.sleep(0.002)
    assert scene.lease.lost.is_set()
    await scene.check_free(within=TICK_S)


async def late_answer(scene: Scene) -> None:
    session_id = scene.zk.session_id
    await asyncio.sleep(SESSION_S * 0.3)
    scene.server.restart(downtime=SESSION_S * 0.9)
    await asyncio.sleep(SESSION_S)
    assert (scene.zk.session_id, scene.lease.lost.is_set()) == (session_id, True)
    await scene.check_free()


async def session_over(scene: Scene) -> None:
    session_id = scene.zk.session_id
    scene.server.restart(downtime=2 * SESSION_S)
    await scene.zk.wait_for(State.LOST)
    assert scene.lease.lost.is_set()
    await scene.zk.wait_for(State.CONNECTED)
    assert session_id not in scene.server.sessions()
    await scene.other.wait_for(State.CONNECTED)
    await scene.check_free()


async def expired(scene: Scene) -> None:
    scene.server.expire(scene.zk)
    await scene.check_free()
    await scene.zk.wait_for(State.LOST)
    assert scene.lease.lost.is_set()


async def deleted(scene: Scene) -> None:
    await asyncio.sleep(0.06)
    await scene.other.delete(scene.lease.path)
    async with asyncio.timeout(0.1):
        await scene.lease.lost
    await scene.check_free()


async def suspended(scene: Scene) -> None:
    await asyncio.sleep(1)
    scene.suspend(2 * SESSION_S)
    with pytest.raises(LockLostError):
        scene.lease.raise_if_lost()
    await scene.check_free()


async def paused(scene: Scene) -> None:
    scene.sim.pass_time(2 * SESSION_S)
    with pytest.raises(LockLostError):
        scene.lease.raise_if_lost()
    await asyncio.sleep(0.1)
    assert scene.lease.lost.is_set()
    await scene.other.wait_for(State.CONNECTED)
    await scene.check_free(within=SESSION_S)


async def forked(scene: Scene) -> None:
    core, error = scene.zk._core, scene.zk._core.session.terminal_error
    core.invalidate_after_fork()
    with pytest.raises(RuntimeError, match="forked"):
        scene.zk.get("/")
    core._forked, core.session.terminal_error = False, error  # back to the state of the parent process
    await scene.check_held()
    assert not scene.lease.lost.is_set()


async def expired_waiting(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.other.lock("/lock").acquire())
    await wait_for_queue(scene.server, "/lock", 2)
    scene.server.expire(scene.other)
    with pytest.raises(SessionExpiredError):
        await waiting
    assert len(children(scene.server, "/lock")) == 1


async def cancelled_inside(scene: Scene) -> None:
    await scene.lease.release()

    async def hold() -> None:
        async with scene.zk.lock("/lock"):
            await asyncio.sleep(1000)

    holding = asyncio.create_task(hold())
    await eventually(lambda: len(children(scene.server, "/lock")) == 1)
    holding.cancel()
    await asyncio.wait([holding])
    await scene.check_free()


async def cancelled_waiting(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.other.lock("/lock").acquire())
    await wait_for_queue(scene.server, "/lock", 2)
    waiting.cancel()
    await eventually(lambda: len(children(scene.server, "/lock")) == 1)


async def release_lost(scene: Scene) -> None:
    with scene.server.fault(lose_reply(), "delete", times=1, strict=True):
        scene.lease.release_nowait()
        await scene.check_free(within=SESSION_S)


async def closed(scene: Scene) -> None:
    await scene.zk.aclose()
    assert scene.lease.lost.is_set()
    await scene.check_free()


FAILURE_SCENES: Final[dict[str, Callable[[Scene], Awaitable[None]]]] = {
    "the connection is lost (`State.SUSPENDED`)": connection_lost,
    "the last answered request was sent more than one session timeout ago": no_answer,
    "a server answers before `State.LOST`, and still knows the session, for example after a restart": late_answer,
    "the client has heard from no server for the whole timeout, and gives the session up (`State.LOST`)": session_over,
    "a server reports that the session has expired (`State.LOST`)": expired,
    "another client deletes the node": deleted,
    "the machine is suspended for longer than the timeout": suspended,
    "the process is paused (SIGSTOP, GC, VM) for longer than the timeout": paused,
    "the process forks": forked,
    "the session expires while a task waits": expired_waiting,
    "the task is cancelled inside the block": cancelled_inside,
    "the task is cancelled while it waits": cancelled_waiting,
    "the release fails because the connection is lost": release_lost,
    "`aclose()` is called": closed,
}


def test_every_row_of_documented_failures_table_has_scene() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## What happens on failures")[2].partition("**Choose")[0]

    rows = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[1:]

    assert rows == list(FAILURE_SCENES)


@pytest.mark.parametrize("row", FAILURE_SCENES)
def test_documented_failure_has_documented_effect(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    away = 0.0
    monkeypatch.setattr("zoolet.client.aio.suspension.Suspensions.total", lambda self: away)

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        def suspend(seconds: float) -> None:
            nonlocal away
            away = seconds

        zk, other = await connect(), await connect()
        lease = await zk.lock("/lock").acquire()
        await FAILURE_SCENES[row](Scene(sim, server, zk, lease, other, suspend))
        await lease.release()

    simulate_clients(main)


def test_scene_check_free_fails_while_lock_is_held() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        scene = Scene(sim, server, zk, await zk.lock("/lock").acquire(), other, lambda seconds: None)

        with pytest.raises(TimeoutError):
            await scene.check_free()
        await scene.check_held()

        await scene.lease.release()

    simulate_clients(main)
