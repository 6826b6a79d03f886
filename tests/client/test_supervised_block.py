"""A block is cancelled by the failure of one of its background tasks, and raises that error in place of the
cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from support.simulation import with_client

from zoolet.client import Client
from zoolet.client.reliable import SupervisedBlock, create_protected
from zoolet.server import Server


class Block:
    """An ``async with`` block with one supervised task."""

    def __init__(self, zk: Client, job: Callable[[], Awaitable[None]]) -> None:
        self.supervised = SupervisedBlock(zk)
        self._job = job

    async def __aenter__(self) -> Block:
        async def run() -> None:
            await self._job()

        self.supervised.spawn(run())
        self.supervised.enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.supervised.exit(kind)


async def fail_soon() -> None:
    """Fail after a second."""
    await asyncio.sleep(1)
    raise KeyError("background")


async def forever() -> None:
    """Wait for something that never happens."""
    await asyncio.Event().wait()


def test_a_failure_cancels_the_block_which_raises_it() -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(KeyError, match="background"):
            async with Block(zk, fail_soon):
                await forever()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    with_client(main)


def test_an_error_of_the_block_itself_is_not_replaced() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def use() -> None:
            async with Block(zk, fail_soon):
                try:
                    await forever()
                except asyncio.CancelledError:
                    raise ValueError("block") from None

        with pytest.raises(ValueError, match="block"):
            await use()

    with_client(main)


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def enter() -> None:
            async with Block(zk, fail_soon):
                await asyncio.sleep(1)
                await forever()

        task = asyncio.ensure_future(enter())
        asyncio.get_running_loop().call_later(1, task.cancel)
        await asyncio.wait([task])

        assert task.cancelled()

    with_client(main)


def test_a_block_that_another_task_leaves_raises_the_failure_at_its_end() -> None:
    async def main(server: Server, zk: Client) -> None:
        block = Block(zk, fail_soon)
        await asyncio.create_task(block.__aenter__())
        await asyncio.sleep(2)

        with pytest.raises(KeyError, match="background"):
            await block.__aexit__(None, None, None)

    with_client(main)


def test_a_failure_before_the_block_begins_cancels_it_when_it_does() -> None:
    async def main(server: Server, zk: Client) -> None:
        block = SupervisedBlock(zk)
        block.fail(KeyError("early"))
        block.enter()

        with pytest.raises(asyncio.CancelledError) as caught:
            await asyncio.sleep(100)
        with pytest.raises(KeyError, match="early"):
            block.exit(caught.type)

    with_client(main)


def test_the_end_of_a_block_cancels_its_tasks() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Block(zk, forever):
            assert zk.statistics().background_tasks == 1
        await asyncio.sleep(1)
        assert zk.statistics().background_tasks == 0

    with_client(main)


def test_a_protected_create_accepts_the_node_of_its_own_earlier_try() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/id-1")

        path = await create_protected(zk, "/", "id-1", lambda: zk.create("/id-1", ephemeral=True))

        assert path == "/id-1"

    with_client(main)
