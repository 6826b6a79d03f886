"""The schedules of ``test_reproductions.py`` with zoolet's own client: each test shows the correct behaviour.

The numbers refer to https://github.com/python-zk/kazoo/issues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest
from support import kazoo_bugs
from support.leftovers import ephemerals
from support.waiting import DEADLINE_S

from zoolet.client import Backoff, Client, ConnectionLossError
from zoolet.client.recipes import Barrier, Counter, LockLostError, Party, PersistentEphemeral, Queue
from zoolet.testing import Server

SHORT_BACKOFF: Final = Backoff(first=0.001, longest=0.01)
Connect = Callable[[], Awaitable[Client]]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server in the event loop of the test."""
    async with Server() as running:
        yield running


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Connect]:
    """A function that returns a client with short reconnect delays."""
    made: list[Client] = []

    async def start() -> Client:
        made.append(Client(server.hosts, backoff=SHORT_BACKOFF))
        await made[-1].start()
        return made[-1]

    yield start
    for client in made:
        await client.aclose()


@pytest.fixture
async def first(connect: Connect) -> Client:
    """The first client."""
    return await connect()


@pytest.fixture
async def second(connect: Connect) -> Client:
    """The second client."""
    return await connect()


async def wait_for_contenders(server: Server, path: str, number: int = 0) -> None:
    """Wait until *number* contenders are left."""
    await server.until(lambda: len(kazoo_bugs.children(server, path)) == number)


# --- sessions that end ---


async def test_282_lock_reports_loss_after_session_end(server: Server, first: Client, second: Client) -> None:
    lost = await first.lock("/lock").acquire()

    await kazoo_bugs.lose_session(server, first)

    assert lost.lost.is_set()
    with pytest.raises(LockLostError):
        lost.raise_if_lost()
    async with second.lock("/lock", timeout=DEADLINE_S) as taken:
        taken.raise_if_lost()
        assert taken.token > lost.token


async def test_282_lock_of_ended_session_is_reacquired(server: Server, first: Client) -> None:
    lock = first.lock("/lock", timeout=DEADLINE_S)
    with pytest.raises(LockLostError):  # noqa: PT012
        async with lock:
            await kazoo_bugs.lose_session(server, first)
            await asyncio.sleep(5)

    async with lock as held:
        held.raise_if_lost()


async def test_491_ephemeral_is_recreated_in_next_session(server: Server, first: Client) -> None:
    async with PersistentEphemeral(first, "/here", b"me"):
        await server.until(lambda: "/here" in server.tree())

        await kazoo_bugs.lose_session(server, first)
        await server.until(lambda: "/here" in server.tree())

        assert server.tree()["/here"].ephemeral_owner == first.session_id


async def test_491_party_member_rejoins_in_next_session(server: Server, first: Client, second: Client) -> None:
    async with Party(first, "/party", b"me"):
        await kazoo_bugs.lose_session(server, first)
        await server.until(lambda: kazoo_bugs.children(server, "/party"))

        assert [server.tree()[path].data for path in ephemerals(server)] == [b"me"]


# --- sequence numbers that wrap ---


async def test_606_one_client_holds_lock_at_negative_number(server: Server, first: Client, second: Client) -> None:
    kazoo_bugs.create_with_next_sequence(server, "/lock", kazoo_bugs.LAST_SEQUENCE)

    async with first.lock("/lock", timeout=DEADLINE_S) as held:
        waiting = asyncio.create_task(second.lock("/lock").acquire())
        await wait_for_contenders(server, "/lock", 2)
        assert [name[-11:] for name in kazoo_bugs.children(server, "/lock")] == ["_2147483647", "-2147483648"]
        await asyncio.sleep(0.05)
        assert not waiting.done()
    async with asyncio.timeout(DEADLINE_S):
        async with await waiting as lease:
            assert lease.token > held.token


async def test_730_newcomers_await_lock_at_negative_number(server: Server, connect: Connect) -> None:
    kazoo_bugs.create_with_next_sequence(server, "/lock", kazoo_bugs.FIRST_NEGATIVE_SEQUENCE)

    async with (await connect()).lock("/lock", timeout=DEADLINE_S):
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await (await connect()).lock("/lock").acquire(0.05)


async def test_606_queue_keeps_order_at_negative_number(server: Server, first: Client) -> None:
    kazoo_bugs.create_with_next_sequence(server, "/queue", kazoo_bugs.LAST_SEQUENCE - 1)
    queue = Queue(first, "/queue")
    for entry in (b"1", b"2", b"3", b"4"):
        await queue.put(entry)

    assert [await queue.get() for _ in range(4)] == [b"1", b"2", b"3", b"4"]


# --- leftovers of a recipe that gives up ---


async def test_732_lost_cleanup_leaves_no_contender(server: Server, first: Client, second: Client) -> None:
    async with first.lock("/lock"):
        with kazoo_bugs.drop_delete(server, "/lock"):
            with pytest.raises(TimeoutError):
                await second.lock("/lock").acquire(0.05)
            await wait_for_contenders(server, "/lock", 1)

    await wait_for_contenders(server, "/lock")


async def test_732_lock_timeout_leaves_no_contender(server: Server, first: Client, second: Client) -> None:
    server.populate({"/lock": b""})
    with kazoo_bugs.lose_create_reply(server, "/lock/"), kazoo_bugs.fail_child_lists(server, second, "/lock"):
        with pytest.raises(TimeoutError):
            await second.lock("/lock").acquire(0.05)
        assert len(kazoo_bugs.children(server, "/lock")) == 1

    async with first.lock("/lock", timeout=DEADLINE_S):
        await wait_for_contenders(server, "/lock", 1)


async def test_732_cancelled_lock_leaves_no_contender(server: Server, first: Client, second: Client) -> None:
    async with first.lock("/lock"):
        with kazoo_bugs.drop_delete(server, "/lock"):
            cancelled = asyncio.create_task(second.lock("/lock").acquire())
            await server.until(lambda: kazoo_bugs.client_watches(server, second))
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await wait_for_contenders(server, "/lock", 1)


async def test_733_lock_timeout_leaves_no_watch(server: Server, first: Client, second: Client) -> None:
    async with first.lock("/lock"):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await second.lock("/lock").acquire(0.02)

        await server.until(lambda: not kazoo_bugs.client_watches(server, second))
        assert not second.statistics().registrations


async def test_733_barrier_timeout_leaves_no_watch(server: Server, first: Client) -> None:
    server.populate({"/barrier": b""})

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Barrier(first, "/barrier").wait()

    await server.until(lambda: not kazoo_bugs.client_watches(server, first))


# --- applied changes with a lost reply ---


async def test_unprotected_create_without_reply_is_maybe_applied(server: Server, first: Client) -> None:
    with kazoo_bugs.lose_create_reply(server, "/mine"), pytest.raises(ConnectionLossError) as raised:
        await first.create("/mine", b"mine")
    assert raised.value.maybe_applied

    with kazoo_bugs.lose_create_reply(server, "/"):
        path = await first.create("/ours", b"ours", protected=True)
    assert (await first.get(path))[0] == b"ours"


async def test_protected_sequential_create_creates_one_node(server: Server, first: Client) -> None:
    server.populate({"/queue": b""})

    with kazoo_bugs.lose_create_reply(server, "/queue/"):
        path = await first.create("/queue/n-", sequential=True, protected=True)

    assert [f"/queue/{name}" for name in kazoo_bugs.children(server, "/queue")] == [path]


async def test_counter_applies_addition_with_lost_reply_at_most_once(server: Server, first: Client) -> None:
    counter = Counter(first, "/count")
    await counter.add(0)

    with kazoo_bugs.lose_set_reply(server, "/count"):
        try:
            await counter.add(1)
        except ConnectionLossError as error:
            assert error.maybe_applied  # the error reports an unknown outcome  # noqa: PT017

    assert await counter.value() == 1
