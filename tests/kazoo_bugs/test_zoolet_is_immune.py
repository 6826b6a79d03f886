"""The schedules of ``test_reproductions.py`` again, with zoolet's own client: each test shows what is right.

The numbers are those of https://github.com/python-zk/kazoo/issues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest
from support import kazoo_bugs
from support.leftovers import ephemerals

from zoolet.client import Backoff, Client, ConnectionLossError
from zoolet.client.recipes import Barrier, Counter, LockLostError, Party, PersistentEphemeral, Queue
from zoolet.server import Server

SOON: Final = Backoff(first=0.001, longest=0.01)
Connect = Callable[[], Awaitable[Client]]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server in the test's own loop."""
    async with Server() as running:
        yield running


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Connect]:
    """A function that gives a client which does not wait long before it connects again."""
    made: list[Client] = []

    async def start() -> Client:
        made.append(Client(server.hosts, backoff=SOON))
        await made[-1].start()
        return made[-1]

    yield start
    for client in made:
        await client.aclose()


@pytest.fixture
async def first(connect: Connect) -> Client:
    """A client."""
    return await connect()


@pytest.fixture
async def second(connect: Connect) -> Client:
    """Another."""
    return await connect()


async def none_waits(server: Server, path: str, number: int = 0) -> None:
    """Wait until so many contenders are left."""
    await server.until(lambda: len(kazoo_bugs.children(server, path)) == number)


# --- sessions that end ---


async def test_282_a_lock_says_that_it_is_lost_when_its_session_has_ended(
    server: Server, first: Client, second: Client
) -> None:
    lost = await first.lock("/lock").acquire()

    await kazoo_bugs.lose_session(server, first)

    assert lost.lost.is_set()
    with pytest.raises(LockLostError):
        lost.raise_if_lost()
    async with second.lock("/lock", timeout=5.0) as taken:
        taken.raise_if_lost()
        assert taken.token > lost.token


async def test_282_a_lock_whose_session_has_ended_can_be_had_again(server: Server, first: Client) -> None:
    lock = first.lock("/lock", timeout=5.0)
    with pytest.raises(LockLostError):  # noqa: PT012
        async with lock:
            await kazoo_bugs.lose_session(server, first)
            await asyncio.sleep(5)

    async with lock as held:
        held.raise_if_lost()


async def test_491_a_registration_comes_back_with_the_next_session(server: Server, first: Client) -> None:
    async with PersistentEphemeral(first, "/here", b"me"):
        await server.until(lambda: "/here" in server.tree())

        await kazoo_bugs.lose_session(server, first)
        await server.until(lambda: "/here" in server.tree())

        assert server.tree()["/here"].ephemeral_owner == first.session_id


async def test_491_a_party_s_member_joins_again_in_its_next_session(
    server: Server, first: Client, second: Client
) -> None:
    async with Party(first, "/party", b"me"):
        await kazoo_bugs.lose_session(server, first)
        await server.until(lambda: kazoo_bugs.children(server, "/party"))

        assert [server.tree()[path].data for path in ephemerals(server)] == [b"me"]


# --- sequence numbers that wrap ---


async def test_606_one_holds_a_lock_when_the_sequence_turns_negative(
    server: Server, first: Client, second: Client
) -> None:
    kazoo_bugs.count_from(server, "/lock", kazoo_bugs.LAST_NUMBER)

    async with first.lock("/lock", timeout=5.0) as held:
        waiting = asyncio.create_task(second.lock("/lock").acquire())
        await none_waits(server, "/lock", 2)
        assert [name[-11:] for name in kazoo_bugs.children(server, "/lock")] == ["_2147483647", "-2147483648"]
        await asyncio.sleep(0.05)
        assert not waiting.done()
    async with asyncio.timeout(5):
        async with await waiting as lease:
            assert lease.token > held.token


async def test_730_newcomers_wait_for_a_lock_whose_sequence_is_negative(server: Server, connect: Connect) -> None:
    kazoo_bugs.count_from(server, "/lock", kazoo_bugs.FIRST_NEGATIVE)

    async with (await connect()).lock("/lock", timeout=5.0):
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await (await connect()).lock("/lock").acquire(0.05)


async def test_606_a_queue_keeps_its_order_when_the_sequence_turns_negative(server: Server, first: Client) -> None:
    kazoo_bugs.count_from(server, "/queue", kazoo_bugs.LAST_NUMBER - 1)
    queue = Queue(first, "/queue")
    for entry in (b"1", b"2", b"3", b"4"):
        await queue.put(entry)

    assert [await queue.get() for _ in range(4)] == [b"1", b"2", b"3", b"4"]


# --- what a recipe leaves when it gives up ---


async def test_732_a_failed_lock_leaves_no_contender_though_its_cleanup_is_lost(
    server: Server, first: Client, second: Client
) -> None:
    async with first.lock("/lock"):
        with kazoo_bugs.cleanup_lost(server, "/lock"):
            with pytest.raises(TimeoutError):
                await second.lock("/lock").acquire(0.05)
            await none_waits(server, "/lock", 1)

    await none_waits(server, "/lock")


async def test_732_a_lock_that_times_out_leaves_no_contender_whose_reply_was_lost(
    server: Server, first: Client, second: Client
) -> None:
    server.populate({"/lock": b""})
    with kazoo_bugs.reply_to_create_lost(server, "/lock/"), kazoo_bugs.blind(server, second, "/lock"):
        with pytest.raises(TimeoutError):
            await second.lock("/lock").acquire(0.05)
        assert len(kazoo_bugs.children(server, "/lock")) == 1

    async with first.lock("/lock", timeout=5.0):
        await none_waits(server, "/lock", 1)


async def test_732_a_lock_that_is_cancelled_leaves_no_contender_though_its_cleanup_is_lost(
    server: Server, first: Client, second: Client
) -> None:
    async with first.lock("/lock"):
        with kazoo_bugs.cleanup_lost(server, "/lock"):
            cancelled = asyncio.create_task(second.lock("/lock").acquire())
            await server.until(lambda: kazoo_bugs.watches_of(server, second))
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await none_waits(server, "/lock", 1)


async def test_733_a_lock_that_times_out_leaves_no_watch(server: Server, first: Client, second: Client) -> None:
    async with first.lock("/lock"):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await second.lock("/lock").acquire(0.02)

        await server.until(lambda: not kazoo_bugs.watches_of(server, second))
        assert not second.statistics().registrations


async def test_733_a_barrier_that_times_out_leaves_no_watch(server: Server, first: Client) -> None:
    server.populate({"/barrier": b""})

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Barrier(first, "/barrier").wait()

    await server.until(lambda: not kazoo_bugs.watches_of(server, first))


# --- changes that were done, and nobody heard ---


async def test_a_create_whose_reply_is_lost_is_in_doubt_and_a_protected_one_is_found(
    server: Server, first: Client
) -> None:
    with kazoo_bugs.reply_to_create_lost(server, "/mine"), pytest.raises(ConnectionLossError) as raised:
        await first.create("/mine", b"mine")
    assert raised.value.maybe_applied

    with kazoo_bugs.reply_to_create_lost(server, "/"):
        path = await first.create("/ours", b"ours", protected=True)
    assert (await first.get(path))[0] == b"ours"


async def test_a_sequential_create_that_is_protected_makes_one_node(server: Server, first: Client) -> None:
    server.populate({"/queue": b""})

    with kazoo_bugs.reply_to_create_lost(server, "/queue/"):
        path = await first.create("/queue/n-", sequential=True, protected=True)

    assert [f"/queue/{name}" for name in kazoo_bugs.children(server, "/queue")] == [path]


async def test_a_counter_counts_no_step_twice(server: Server, first: Client) -> None:
    counter = Counter(first, "/count")
    await counter.add(0)

    with kazoo_bugs.reply_to_set_lost(server, "/count"):
        try:
            await counter.add(1)
        except ConnectionLossError as error:
            assert error.maybe_applied  # it says that it does not know  # noqa: PT017

    assert await counter.value() == 1
