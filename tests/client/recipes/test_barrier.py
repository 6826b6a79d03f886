"""A barrier blocks all waiters while it exists."""

from __future__ import annotations

import asyncio

import pytest
from support.cancellation import cancel_everywhere
from support.kazoo_clients import kazoo_client
from support.leftovers import leftovers
from support.simulation import make_client, with_client
from support.waiting import DEADLINE_S

from zoolet.client import Client
from zoolet.client.recipes import Barrier
from zoolet.testing import Server


def test_waiter_passes_when_barrier_is_removed() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            barrier = Barrier(zk, "/up/b")
            assert await barrier.create()
            assert not await barrier.create()
            assert server.tree()["/up/b"].data == b""
            waits = [asyncio.ensure_future(Barrier(one, "/up/b").wait()) for one in (zk, other, zk)]
            await asyncio.sleep(20)
            assert not any(wait.done() for wait in waits)
            assert await barrier.remove()
            await asyncio.gather(*waits)
            assert not await barrier.remove()
            await barrier.wait()
            assert not leftovers(server, zk, other)

    with_client(main)


def test_wait_timeout_leaves_no_watch() -> None:
    async def main(server: Server, zk: Client) -> None:
        await Barrier(zk, "/b").create()
        with pytest.raises(TimeoutError):
            await Barrier(zk, "/b").wait(timeout=5)
        assert not leftovers(server, zk)

    with_client(main)


def test_barrier_wait_survives_drops_and_session_loss() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            await Barrier(zk, "/b").create()
            wait = asyncio.ensure_future(Barrier(zk, "/b").wait())
            await asyncio.sleep(1)
            server.drop(zk)
            await asyncio.sleep(1)
            server.expire(zk)
            await asyncio.sleep(1)
            assert not wait.done()
            await Barrier(other, "/b").remove()
            await asyncio.wait_for(wait, 20)

    with_client(main)


def test_cancelled_barrier_wait_cleans_up() -> None:
    async def wait(zk: Client) -> None:
        with pytest.raises(TimeoutError):
            await Barrier(zk, "/b").wait(timeout=5)

    cancel_everywhere(wait, before=lambda zk: Barrier(zk, "/b").create())


async def test_barrier_interoperates_with_kazoo() -> None:
    async with Server() as server, make_client(server) as zk, kazoo_client(server) as kazoo:
        theirs, ours = kazoo.Barrier("/b"), Barrier(zk, "/b")
        await asyncio.to_thread(theirs.create)
        assert not await ours.create()
        wait = asyncio.ensure_future(ours.wait(timeout=DEADLINE_S))
        await asyncio.to_thread(theirs.remove)
        await wait
        await ours.create()
        waiting = asyncio.ensure_future(asyncio.to_thread(theirs.wait, 10))
        await ours.remove()
        assert await waiting
