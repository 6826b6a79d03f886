"""Each unique number is returned only once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.simulation import with_client

from zoolet.client import Client
from zoolet.client.recipes import UniqueId
from zoolet.testing import Server, drop_request, lose_reply


def test_numbers_start_at_one_and_grow() -> None:
    async def main(server: Server, zk: Client) -> None:
        ids = UniqueId(zk, "/up/ids")
        assert [await ids.next() for _ in range(3)] == [1, 2, 3]
        assert await UniqueId(zk, "/up/ids").next() == 4
        assert server.tree()["/up/ids"].data == b""

    with_client(main)


@pytest.mark.parametrize("block", [0, -1, 1.5, "2", None])
def test_block_size_below_one_is_refused(block: Any) -> None:
    with pytest.raises(ValueError, match="block"):
        UniqueId(Client("127.0.0.1:1"), "/ids", block=block)


def test_number_blocks_do_not_overlap_and_cost_one_write_each() -> None:
    async def main(server: Server, zk: Client) -> None:
        one, two = UniqueId(zk, "/ids", block=10), UniqueId(zk, "/ids", block=10)
        numbers = [await (one if turn % 2 else two).next() for turn in range(60)]
        assert len(set(numbers)) == 60
        assert min(numbers) == 10
        assert sum(op.op == "setData" and not op.error for op in server.ops()) == 6

    with_client(main)


def test_concurrent_requests_get_different_numbers() -> None:
    async def main(server: Server, zk: Client) -> None:
        ids = UniqueId(zk, "/ids", block=3)
        numbers = await asyncio.gather(*[ids.next() for _ in range(50)])
        assert len(set(numbers)) == 50

    with_client(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
@pytest.mark.parametrize("op", [pytest.param("create"), "setData"])
def test_number_reserved_with_lost_reply_is_not_reused(op: str, action: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        ids = UniqueId(zk, "/ids")
        before = [] if op == "create" else [await ids.next()]
        with server.fault(action(), op, times=1, strict=True):
            numbers = [*before, await ids.next(), await ids.next()]
        assert numbers == sorted(set(numbers))

    with_client(main)


def test_cancelled_id_request_uses_at_most_one_number() -> None:
    async def ask(zk: Client) -> None:
        await UniqueId(zk, "/up/ids").next()

    async def check(server: Server, zk: Client) -> None:
        assert await UniqueId(zk, "/up/ids").next() in (1, 2)

    cancel_everywhere(ask, after=check)
