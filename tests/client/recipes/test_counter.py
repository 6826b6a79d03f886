"""Counters apply every addition exactly once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.kazoo_clients import kazoo_client
from support.simulation import make_client, with_client

from zoolet.client import Client, ConnectionLossError, serializers
from zoolet.client.recipes import Counter, UniqueId
from zoolet.testing import Server, drop_request, lose_reply


def test_counter_returns_sum_of_additions() -> None:
    async def main(server: Server, zk: Client) -> None:
        counter = Counter(zk, "/up/n", 10)
        assert await counter.value() == 10
        assert await counter.add() == 11
        assert await counter.add(-20) == -9
        assert await counter.change(lambda number: number * 2) == -18
        assert await counter.value() == -18
        assert server.tree()["/up/n"].data == b"-18"

    with_client(main)


@pytest.mark.parametrize(
    ("encoding", "number", "data"),
    [
        ("text", 5, b"5"),
        ("text", -5, b"-5"),
        ("text", 10**30, b"1" + b"0" * 30),
        ("int", 5, b"\0\0\0\x05"),
        ("int", -2, b"\xff\xff\xff\xfe"),
        ("int", 2**31 - 1, b"\x7f\xff\xff\xff"),
        ("long", 5, b"\0\0\0\0\0\0\0\x05"),
        ("long", -(2**63), b"\x80\0\0\0\0\0\0\0"),
    ],
)
def test_counter_node_stores_number_in_given_encoding(encoding: str, number: int, data: bytes) -> None:
    async def main(server: Server, zk: Client) -> None:
        assert await Counter(zk, "/n", encoding=encoding).add(number) == number
        assert server.tree()["/n"].data == data
        assert await Counter(zk, "/n", encoding=encoding).value() == number

    with_client(main)


@pytest.mark.parametrize(("encoding", "most"), [("int", 2**31 - 1), ("long", 2**63 - 1)])
def test_number_too_large_for_encoding_is_refused(encoding: str, most: int) -> None:
    async def main(server: Server, zk: Client) -> None:
        counter = Counter(zk, "/n", most, encoding=encoding)
        with pytest.raises(ValueError, match="does not fit"):
            await counter.add()
        assert not server.tree()

    with_client(main)


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("text", b"x"),
        ("text", b"1.5"),
        pytest.param("int", b"12345"),
        pytest.param("int", b"123"),
        pytest.param("long", b"\0\0\0\x05"),
        pytest.param("long", b"123456789"),
    ],
)
def test_counter_rejects_node_without_number(encoding: str, data: bytes) -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/n", data)
        with pytest.raises(ValueError, match="does not contain a number"):
            await Counter(zk, "/n", encoding=encoding).value()
        with pytest.raises(ValueError, match="does not contain a number"):
            await Counter(zk, "/n", encoding=encoding).add()

    with_client(main)


def test_unknown_encoding_is_refused() -> None:
    with pytest.raises(ValueError, match="one of text, int, long"):
        Counter(Client("127.0.0.1:1"), "/n", encoding="short")


@pytest.mark.parametrize("amount", [1.5, "1", None])
def test_non_integer_amount_is_refused(amount: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(TypeError):
            await Counter(zk, "/n").add(amount)

    with_client(main)


def test_change_requires_function() -> None:
    async def main(server: Server, zk: Client) -> None:
        how: Any = 5
        with pytest.raises(TypeError, match=r"^how must be a function, not 5$"):
            await Counter(zk, "/n").change(how)

    with_client(main)


def test_counter_ignores_client_serializer() -> None:
    async def main(server: Server, zk: Client) -> None:
        await Counter(zk.with_serializer(serializers.json), "/n", encoding="int").add(3)
        assert server.tree()["/n"].data == b"\0\0\0\x03"
        assert await UniqueId(zk.with_serializer(serializers.json), "/id").next() == 1

    with_client(main)


def test_concurrent_additions_are_all_applied() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            sums = await asyncio.gather(*[Counter(one, "/n").add() for one in (zk, other) for _ in range(10)])
        assert sorted(sums) == list(range(1, 21))

    with_client(main)


@pytest.mark.parametrize("op", ["create", "setData"])
@pytest.mark.parametrize(("action", "done"), [(lose_reply, 1), (drop_request, 0)])
def test_addition_without_reply_is_not_repeated(op: str, action: Any, done: int) -> None:
    async def main(server: Server, zk: Client) -> None:
        counter = Counter(zk, "/n")
        base = 0 if op == "create" else await counter.add(5)
        with server.fault(action(), op, times=1, strict=True), pytest.raises(ConnectionLossError):
            await counter.add()
        assert await counter.value() == base + done

    with_client(main)


def test_counter_repeats_read_with_lost_reply() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/n", b"5")
        with server.fault(lose_reply(), "getData", times=1, strict=True):
            assert await Counter(zk, "/n").add() == 6

    with_client(main)


def test_counter_works_after_session_expiry() -> None:
    async def main(server: Server, zk: Client) -> None:
        counter = Counter(zk, "/n")
        await counter.add()
        server.expire(zk)
        await asyncio.sleep(1)
        assert await counter.add() == 2

    with_client(main)


def test_cancelled_counter_addition_is_applied_at_most_once() -> None:
    async def add(zk: Client) -> None:
        await Counter(zk, "/up/n").add()

    async def check(server: Server, zk: Client) -> None:
        assert await Counter(zk, "/up/n").value() in (0, 1)

    cancel_everywhere(add, after=check)


async def test_counter_interoperates_with_kazoo_and_curator() -> None:
    async with Server() as server, make_client(server) as zk, kazoo_client(server) as kazoo:
        theirs, ours = kazoo.Counter("/n"), Counter(zk, "/n")
        await asyncio.to_thread(theirs.__add__, 5)
        assert await ours.add(2) == 7
        assert await asyncio.to_thread(lambda: theirs.value) == 7
        await asyncio.to_thread(theirs.__sub__, 1)
        assert await ours.value() == 6
        curator, ours = kazoo.Counter("/c", support_curator=True), Counter(zk, "/c", encoding="int")
        await ours.add(-3)
        assert await asyncio.to_thread(lambda: curator.value) == -3
        await asyncio.to_thread(curator.__add__, 10)
        assert await ours.value() == 7
