"""The asyncio client in a thread without its event loop: each use is refused before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.lock_kinds import KINDS, acquire
from support.simulation import Connect
from support.waiting import DEADLINE_S

from zoolet.client import Client, State
from zoolet.client.recipes import LockLostError
from zoolet.testing import Server

WRONG_THREAD_MESSAGE: Final = r"was called outside the thread of its event loop; .*run_coroutine_threadsafe"
CLIENT_USES: Final[dict[str, Callable[[Client], Any]]] = {
    "get": lambda zk: zk.get("/a"),
    "create with parents": lambda zk: zk.create("/a/b", parents=True),
    "protected create": lambda zk: zk.create("/a", protected=True),
    "ensure_path": lambda zk: zk.ensure_path("/a/b"),
    "recursive delete": lambda zk: zk.delete("/a", recursive=True),
    "update": lambda zk: zk.update("/a", lambda value: value),
    "add_auth": lambda zk: zk.add_auth("digest", b"a:b"),
    "aclose": lambda zk: asyncio.run(zk.aclose()),
    "lock": lambda zk: asyncio.run(zk.lock("/lock").acquire()),
    "watch": lambda zk: asyncio.run(zk.watch("/a").__aenter__()),
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("use", CLIENT_USES)
async def test_call_in_wrong_thread_is_refused_unsent(server: Server, connect: Connect, use: str, debug: bool) -> None:
    asyncio.get_running_loop().set_debug(debug)
    zk = await connect(server.hosts)
    sent = zk.statistics().requests_sent

    with pytest.raises(RuntimeError, match=WRONG_THREAD_MESSAGE) as refused:
        await asyncio.to_thread(CLIENT_USES[use], zk)

    assert "\n" not in str(refused.value)
    assert zk.statistics().requests_sent == sent
    assert not zk._core.session.watches._expected
    async with asyncio.timeout(DEADLINE_S):
        assert await zk.children("/") == ["zookeeper"]


async def test_call_submitted_to_loop_from_thread_succeeds(server: Server, connect: Connect) -> None:
    zk, loop = await connect(server.hosts), asyncio.get_running_loop()

    async def make() -> str:
        return await zk.create("/a/b", parents=True)

    made = await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(make(), loop).result())

    assert made == "/a/b"


def test_call_made_between_two_loop_runs_is_sent_in_second_run(zoolet: Server) -> None:
    with asyncio.Runner() as runner:
        zk = Client(zoolet.hosts)
        runner.run(zk.start())
        call = zk.exists("/")

        async def wait() -> Any:
            return await call

        assert runner.run(wait()) is not None
        runner.run(zk.aclose())


WAITS: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "watch": lambda zk, lease, watch: watch.next(),
    "lost": lambda zk, lease, watch: lease.lost.wait(),
    "revoked": lambda zk, lease, watch: lease.revoked.wait(),
    "lease": lambda zk, lease, watch: lease.__aenter__(),
}


@pytest.mark.parametrize("wait", WAITS)
async def test_wait_in_wrong_thread_is_refused(server: Server, connect: Connect, wait: str) -> None:
    zk = await connect(server.hosts)
    async with zk.lock("/l", revocable=True) as lease, zk.watch("/a") as watch:

        async def use() -> None:
            await WAITS[wait](zk, lease, watch)

        with pytest.raises(RuntimeError, match=WRONG_THREAD_MESSAGE):
            await asyncio.to_thread(lambda: asyncio.run(use(), debug=True))
        await zk.create("/a")
        assert (await watch.next()).path == "/a"
        lease.raise_if_lost()


async def test_iterating_states_in_wrong_thread_is_refused(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    states = zk.states()
    assert await anext(states) is State.CONNECTED

    async def use() -> None:
        await anext(states)

    with pytest.raises(RuntimeError, match=WRONG_THREAD_MESSAGE):
        await asyncio.to_thread(lambda: asyncio.run(use()))


@pytest.mark.parametrize("kind", KINDS)
async def test_release_in_wrong_thread_keeps_lease(server: Server, connect: Connect, kind: str) -> None:
    zk = await connect(server.hosts)
    lease = await acquire(kind, zk)
    for release in (lease.release_nowait, lambda: asyncio.run(lease.release())):
        with pytest.raises(RuntimeError, match=WRONG_THREAD_MESSAGE):
            await asyncio.to_thread(release)
        assert not lease.released
        lease.raise_if_lost()

    await lease.release()

    await (await acquire(kind, zk, DEADLINE_S)).release()


async def test_block_can_exit_after_exit_in_wrong_thread(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    for manager in (zk.lock("/l"), zk.watch("/a")):
        await manager.__aenter__()
        with pytest.raises(RuntimeError, match=WRONG_THREAD_MESSAGE):
            await asyncio.to_thread(lambda manager=manager: asyncio.run(manager.__aexit__(None, None, None)))
        await manager.__aexit__(None, None, None)
    assert not server.watches()
    assert await zk.children("/l") == []


async def test_loss_found_in_wrong_thread_cancels_block(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)

    def check(lease: Any) -> None:
        lease._time_left = lambda: 0.0
        with pytest.raises(LockLostError, match="the server may have expired the session"):
            lease.raise_if_lost()

    with pytest.raises(LockLostError):  # noqa: PT012
        async with zk.lock("/l") as lease:
            while not lease._monitors:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(check, lease)
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.Event().wait()
    assert lease.lost.reason == "the server may have expired the session"
    assert await zk.children("/l") == []


def test_lease_loss_is_raised_after_event_loop_ended(zoolet: Server) -> None:
    with asyncio.Runner() as runner:
        zk = Client(zoolet.hosts)
        runner.run(zk.start())
        lease = runner.run(zk.lock("/l").acquire())
        lease._time_left = lambda: 0.0  # type: ignore[method-assign]
        with pytest.raises(LockLostError):
            lease.raise_if_lost()
        runner.run(zk.aclose())
