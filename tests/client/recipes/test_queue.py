"""Queues return each entry in order to one consumer; these are the common tests of all three kinds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.kazoo_clients import kazoo_client
from support.leftovers import leftovers, nodes_below
from support.simulation import make_client, with_client
from support.waiting import DEADLINE_S

from zoolet.client import Client, ConnectionLossError, serializers
from zoolet.client.recipes import LockingQueue, PriorityQueue, Queue
from zoolet.testing import Server, delay, lose_reply

QUEUE_CLASSES = [Queue, PriorityQueue, LockingQueue]


# --- order ---


@pytest.mark.parametrize("kind", QUEUE_CLASSES)
def test_entries_are_returned_in_order_of_puts(kind: type[Queue]) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = kind(zk, "/q")
        for value in (b"1", b"2", b"3"):
            await queue.put(value)
        assert await queue.size() == 3
        assert [await queue.get() for _ in range(3)] == [b"1", b"2", b"3"]
        assert await queue.size() == 0

    with_client(main)


@pytest.mark.parametrize("kind", QUEUE_CLASSES)
def test_get_nowait_returns_first_entry(kind: type[Queue]) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = kind(zk, "/q")
        for value in (b"1", b"2"):
            await queue.put(value)
        assert [await queue.get_nowait() for _ in range(2)] == [b"1", b"2"]

    with_client(main)


@pytest.mark.parametrize("kind", [PriorityQueue, LockingQueue])
def test_lowest_priority_value_is_returned_first(kind: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = kind(zk, "/q")
        for priority in (999, 0, 100, 7):
            await queue.put(str(priority).encode(), priority)
        assert [await queue.get() for _ in range(4)] == [b"0", b"7", b"100", b"999"]

    with_client(main)


def test_queue_order_survives_wrap_of_sequence_numbers() -> None:
    async def main(server: Server, zk: Client) -> None:
        numbers = ["2147483646", "2147483647", "-2147483648", "-2147483647"]
        server.populate({"/q": {f"entry-100-{number}": number for number in numbers}})
        queue = Queue(zk, "/q")
        assert [await queue.get() for _ in range(4)] == [number.encode() for number in numbers]

    with_client(main)


@pytest.mark.parametrize("kind", QUEUE_CLASSES)
def test_queue_skips_foreign_children_of_its_node(kind: type[Queue]) -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/q": {"other": "x", "entry-": "y", "entries": {"other": "x"}}})
        queue = kind(zk, "/q")
        assert await queue.size() == 0
        with pytest.raises(TimeoutError):
            await queue.get(timeout=1)

    with_client(main)


# --- arguments ---


@pytest.mark.parametrize("kind", [PriorityQueue, LockingQueue])
@pytest.mark.parametrize("priority", [-1, 1000, 1.5, "1", None])
def test_priority_out_of_range_is_refused(kind: Any, priority: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(ValueError, match="from 0 to 999"):
            await kind(zk, "/q").put(b"x", priority)
        assert not server.tree()

    with_client(main)


@pytest.mark.parametrize("kind", QUEUE_CLASSES)
def test_queue_uses_client_serializer(kind: type[Queue]) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = kind(zk.with_serializer(serializers.json), "/q")
        await queue.put({"n": 1})
        assert await queue.get() == {"n": 1}

    with_client(main)


# --- nodes of kazoo ---


def test_queue_entry_names_match_kazoo() -> None:
    async def main(server: Server, zk: Client) -> None:
        assert await Queue(zk, "/q").put(b"a") == "entry-100-0000000000"
        assert await PriorityQueue(zk, "/q").put(b"b", 7) == "entry-007-0000000001"
        await LockingQueue(zk, "/l").put(b"c", 5)
        entry = await LockingQueue(zk, "/l").acquire()
        assert nodes_below(server, "/q") == {"entry-100-0000000000": b"a", "entry-007-0000000001": b"b"}
        found = nodes_below(server, "/l")
        assert found["entries/entry-005-0000000000"] == b"c"
        assert server.tree()["/l/taken/entry-005-0000000000"].ephemeral_owner == zk.session_id
        await entry.acknowledge()
        assert set(nodes_below(server, "/l")) == {"entries", "taken"}

    with_client(main)


async def test_queue_interoperates_with_kazoo() -> None:
    async with Server() as server, make_client(server) as zk, kazoo_client(server) as kazoo:
        theirs, ours = kazoo.Queue("/q"), PriorityQueue(zk, "/q")
        await asyncio.to_thread(theirs.put, b"k1", 7)
        await ours.put(b"z1")
        await asyncio.to_thread(theirs.put, b"k2")
        await ours.put(b"z0", 3)
        assert await ours.get() == b"z0"
        assert await asyncio.to_thread(theirs.get) == b"k1"
        assert await asyncio.to_thread(theirs.get) == b"z1"
        assert await ours.get() == b"k2"


# --- waiting ---


@pytest.mark.parametrize("kind", QUEUE_CLASSES)
def test_waiting_consumers_get_new_entries(kind: type[Queue]) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = kind(zk, "/q")
        takers = [asyncio.ensure_future(queue.get()) for _ in range(3)]
        await asyncio.sleep(5)
        for value in (b"1", b"2", b"3"):
            await queue.put(value)
        assert sorted(await asyncio.gather(*takers)) == [b"1", b"2", b"3"]
        assert not leftovers(server, zk)

    with_client(main)


@pytest.mark.parametrize("kind", QUEUE_CLASSES)
def test_timed_out_queue_get_cleans_up(kind: type[Queue]) -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(TimeoutError):
            await kind(zk, "/q").get(timeout=3)
        await asyncio.sleep(1)
        assert not leftovers(server, zk)
        with pytest.raises(LookupError):
            await kind(zk, "/q").get_nowait()
        with pytest.raises(LookupError):
            await kind(zk, "/nothing").get_nowait()

    with_client(main)


@pytest.mark.parametrize("kind", QUEUE_CLASSES)
def test_queue_wait_survives_session_loss(kind: type[Queue]) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            taker = asyncio.ensure_future(kind(zk, "/q").get())
            await asyncio.sleep(1)
            server.expire(zk)
            await asyncio.sleep(5)
            await kind(other, "/q").put(b"x")
            assert await asyncio.wait_for(taker, 30) == b"x"

    with_client(main)


def test_timeout_during_delete_of_entry_does_not_lose_entry() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = Queue(zk, "/q")
        await queue.put(b"x")
        with server.fault(delay(2), "delete", times=1, strict=True):
            try:
                got = await queue.get(timeout=1)
            except TimeoutError:  # the delayed delete was not answered in time
                got = None
            await asyncio.sleep(5)
        assert (got == b"x") != (await queue.size() == 1)

    with_client(main)


# --- lost replies ---


def test_put_without_reply_raises_maybe_done() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = Queue(zk, "/q")
        await queue.put(b"0")
        with (
            server.fault(lose_reply(), "create", times=1, strict=True),
            pytest.raises(ConnectionLossError) as caught,
        ):
            await queue.put(b"1")
        assert caught.value.maybe_applied
        assert await queue.size() == 2

    with_client(main)


@pytest.mark.parametrize("kind", QUEUE_CLASSES)
def test_repeated_put_with_key_adds_one_entry(kind: type[Queue], monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = kind(zk, "/q")
        with (
            server.fault(lose_reply(), "multi", times=1, nth=2, strict=True),
            pytest.raises(ConnectionLossError),
        ):
            await queue.put(b"x", key="order-7")
        assert await queue.put(b"x", key="order-7") == ""
        assert (await queue.put(b"y", key="order-8")).startswith("entry-100-")
        assert [await queue.get(timeout=1), await queue.get(timeout=1)] == [b"x", b"y"]
        assert await queue.put(b"x", key="order-7") == ""
        assert await queue.size() == 0
        monkeypatch.setattr("zoolet.client.recipes.queue.KEY_LIFETIME_SECONDS", 60.0)
        await queue.put(b"z", key="order-9")
        await asyncio.sleep(200)
        assert await queue.put(b"z", key="order-9")

    with_client(main)


async def test_put_with_key_adds_one_entry_on_each_server(any_hosts: str) -> None:
    async with Client(any_hosts) as zk:
        queue = Queue(zk.with_serializer(serializers.json), f"/{zk._core.new_uuid()}/q")
        assert [bool(await queue.put({"n": 1}, key="a")) for _ in range(3)] == [True, False, False]
        assert await queue.get(timeout=DEADLINE_S) == {"n": 1}


async def test_queue_keys_are_persistent_nodes_without_ttl_support() -> None:
    async with Server(config={"zookeeper.extendedTypesEnabled": "false"}) as server, make_client(server) as zk:
        assert [bool(await Queue(zk, "/q").put(b"1", key="a")) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("key", ["a/b", "..", "a\0", ""])
def test_queue_key_that_is_not_a_valid_name_is_refused(key: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(ValueError, match="name"):
            await Queue(zk, "/q").put(b"", key=key)

    with_client(main)


def test_get_with_lost_delete_reply_reports_possible_loss() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = Queue(zk, "/q")
        await queue.put(b"0")
        with (
            server.fault(lose_reply(), "delete", times=1, strict=True),
            pytest.raises(ConnectionLossError) as e,
        ):
            await queue.get()
        assert "may have been consumed" in "".join(e.value.__notes__)
        assert await queue.size() == 0

    with_client(main)


# --- cancellation ---


def test_cancelled_queue_wait_cleans_up() -> None:
    async def get(zk: Client) -> None:
        with pytest.raises(TimeoutError):
            await Queue(zk, "/q").get(timeout=1)
        with pytest.raises(TimeoutError):
            await LockingQueue(zk, "/l").acquire(timeout=1)

    cancel_everywhere(get)
