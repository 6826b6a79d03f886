"""The asyncio client in a thread without its event loop: each use is refused before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.simulation import Connect
from support.waiting import DEADLINE_S

from zoolet.client import Client
from zoolet.testing import Server

USES: Final[dict[str, Callable[[Client], Any]]] = {
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
@pytest.mark.parametrize("use", USES)
async def test_other_thread_is_refused_before_anything_is_sent(
    server: Server, connect: Connect, use: str, debug: bool
) -> None:
    asyncio.get_running_loop().set_debug(debug)
    zk = await connect(server.hosts)
    sent = zk.statistics().requests_sent

    reason = r"was called outside the thread of its event loop; .*run_coroutine_threadsafe"
    with pytest.raises(RuntimeError, match=reason) as refused:
        await asyncio.to_thread(USES[use], zk)

    assert "\n" not in str(refused.value)
    assert zk.statistics().requests_sent == sent
    async with asyncio.timeout(DEADLINE_S):
        assert await zk.children("/") == ["zookeeper"]


async def test_coroutine_that_makes_the_call_in_the_loop_works(server: Server, connect: Connect) -> None:
    zk, loop = await connect(server.hosts), asyncio.get_running_loop()

    async def make() -> str:
        return await zk.create("/a/b", parents=True)

    made = await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(make(), loop).result())

    assert made == "/a/b"


def test_call_between_two_runs_of_the_loop_is_sent(zoolet: Server) -> None:
    with asyncio.Runner() as runner:
        zk = Client(zoolet.hosts)
        runner.run(zk.start())
        call = zk.exists("/")

        async def wait() -> Any:
            return await call

        assert runner.run(wait()) is not None
        runner.run(zk.aclose())
