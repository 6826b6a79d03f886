"""The entries of a LockingQueue are processed by one consumer at a time, and return to the queue if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.kazoo_clients import kazoo_client
from support.leftovers import leftovers, nodes_below
from support.simulation import make_client, with_client
from support.waiting import DEADLINE_S

from zoolet.client import (
    Backoff,
    Client,
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    UndecodableError,
    serializers,
)
from zoolet.client.recipes import LockingQueue, LockLostError, Queue
from zoolet.protocol.acl import READ_ACL_UNSAFE
from zoolet.testing import Server, drop_request, hold, lose_reply

# --- nodes of kazoo ---


async def test_locking_queue_interoperates_with_kazoo() -> None:
    async with Server() as server, make_client(server) as zk, kazoo_client(server) as kazoo:
        theirs, ours = kazoo.LockingQueue("/q"), LockingQueue(zk, "/q")
        await asyncio.to_thread(theirs.put, b"1", 7)
        await ours.put(b"2", 8)
        assert await asyncio.to_thread(theirs.get, DEADLINE_S) == b"1"
        entry = await ours.acquire(timeout=DEADLINE_S)
        assert entry.value == b"2"
        with pytest.raises(TimeoutError):
            await ours.acquire(timeout=0.05)
        await asyncio.to_thread(theirs.consume)
        await entry.release()
        assert await asyncio.to_thread(theirs.get, DEADLINE_S) == b"2"
        await asyncio.to_thread(theirs.release)
        assert await ours.get(timeout=DEADLINE_S) == b"2"
        assert set(nodes_below(server, "/q")) == {"entries", "taken"}


# --- lost replies ---


def test_claim_with_lost_reply_is_recognised() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q")
        await queue.put(b"0")
        with server.fault(lose_reply(), "multi", "/q/taken/*", nth=1, strict=True):
            async with await queue.acquire() as entry:
                assert entry.value == b"0"
        assert await queue.size() == 0
        await asyncio.sleep(5)
        assert not leftovers(server, zk)

    with_client(main)


@pytest.mark.parametrize("how", ["get", "get_nowait", "with"])
def test_entry_with_dropped_acknowledgement_returns_to_queue(how: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            queue = LockingQueue(zk, "/q")
            await queue.put(b"x")
            await zk.ensure_path("/q/taken")

            async def use() -> None:
                if how == "with":
                    async with await queue.acquire():
                        pass
                else:
                    await getattr(queue, how)()

            with server.fault(drop_request(), "multi", "/q/entries/*", nth=3, strict=True):
                with pytest.raises(ConnectionLossError):
                    await use()
            assert await LockingQueue(other, "/q").get(timeout=60) == b"x"

    with_client(main)


# --- consumers and acknowledgements ---


def test_entry_has_one_consumer_at_a_time() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            await LockingQueue(zk, "/q").put(b"x")
            async with await LockingQueue(zk, "/q").acquire() as entry:
                assert entry.value == b"x"
                with pytest.raises(TimeoutError):
                    await LockingQueue(other, "/q").acquire(timeout=5)
                with pytest.raises(LookupError):
                    await LockingQueue(other, "/q").get_nowait()
            with pytest.raises(TimeoutError):
                await LockingQueue(other, "/q").acquire(timeout=5)

    with_client(main)


def test_queue_entry_of_failed_block_goes_to_next_consumer() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q")
        await queue.put(b"x")
        taken = await queue.acquire()
        waiting = asyncio.ensure_future(queue.acquire())

        async def fail() -> None:
            async with taken:
                await asyncio.sleep(1)
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        async with await waiting as entry:
            assert entry.value == b"x"
        assert not leftovers(server, zk)

    with_client(main)


def test_acknowledge_fails_after_session_loss() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            await LockingQueue(zk, "/q").put(b"x")
            entry = await LockingQueue(zk, "/q").acquire()
            server.expire(zk)
            again = await LockingQueue(other, "/q").acquire(timeout=5)
            assert again.value == b"x"
            with pytest.raises(LockLostError):
                await entry.acknowledge()
            assert entry.lease.lost.is_set()
            await again.acknowledge()

    with_client(main)


def test_entry_is_acknowledged_only_once() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q")
        await queue.put(b"x")
        entry = await queue.acquire()
        await entry.acknowledge()
        with pytest.raises(LockLostError):
            await entry.acknowledge()

    with_client(main)


def test_each_consumer_of_queue_gets_higher_token() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q")
        await queue.put(b"x")
        tokens = []
        for _ in range(3):
            entry = await queue.acquire()
            tokens.append(entry.lease.token)
            await entry.release()
        assert tokens == sorted(set(tokens))

    with_client(main)


# --- cancellation ---


async def _check_entry_can_be_taken(server: Server, zk: Client) -> None:
    async with make_client(server, seed=6) as other:
        assert await LockingQueue(other, "/q").get(timeout=60) == b"x"


def test_cancelled_acquire_returns_entry_to_queue() -> None:
    async def work(zk: Client) -> None:
        entry = await LockingQueue(zk, "/q").acquire()
        await entry.release()

    cancel_everywhere(work, before=lambda zk: LockingQueue(zk, "/q").put(b"x"), after=_check_entry_can_be_taken)


def test_cancelled_get_takes_entry_or_leaves_it_in_queue() -> None:
    async def get(zk: Client) -> None:
        await LockingQueue(zk, "/q").get()

    cancel_everywhere(get, before=lambda zk: LockingQueue(zk, "/q").put(b"x"))


def test_take_timing_out_last_moment_leaves_entry() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q")
        await queue.put(b"x")
        with server.fault(hold(), "removeWatches", strict=True) as held:
            try:
                entry = await queue.acquire(timeout=1)
            except TimeoutError:
                entry = None
            held.release()
        await asyncio.sleep(5)
        if entry is not None:
            await entry.release()
        await _check_entry_can_be_taken(server, zk)

    with_client(main)


# --- entries that cannot be read ---


def test_undecodable_entry_does_not_block_queue() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk.with_serializer(serializers.json), "/q")
        server.populate({"/q/entries/entry-100-0000000000": b"{broken"})
        await queue.put({"fine": 1})

        async with await queue.acquire() as entry:
            assert entry.value is None
            assert isinstance(entry.error, UndecodableError)
            assert entry.error.data == b"{broken"
            second = await queue.acquire()
            assert (second.value, second.error) == ({"fine": 1}, None)
            await second.release()
        assert await queue.size() == 1

        server.populate({"/q/entries/entry-000-0000000009": b"{broken"})
        with pytest.raises(UndecodableError):
            await queue.get(timeout=5)
        assert await queue.get(timeout=5) == {"fine": 1}

    with_client(main)


# --- attempts ---


async def _fail_next_entry(queue: LockingQueue) -> int:
    entry = await queue.acquire()
    await entry.release()
    return entry.attempts


@pytest.mark.parametrize("work", [0.0, 3.0])
def test_entry_attempts_are_counted_and_retry_delays_grow(work: float) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q", retry=Backoff(first=1.0, longest=5.0, jitter=0.0))
        await queue.put(b"x")
        clock = asyncio.get_running_loop().time
        begun, ended, attempts = [], [], []
        for _ in range(5):
            entry = await queue.acquire()
            begun.append(clock())
            attempts.append(entry.attempts)
            await asyncio.sleep(work)
            ended.append(clock())
            await entry.release()
        assert attempts == [1, 2, 3, 4, 5]
        delays = [after - before for before, after in zip(ended, begun[1:], strict=False)]
        assert delays == pytest.approx([1.0, 2.0, 4.0, 5.0], abs=0.05)

    with_client(main)


@pytest.mark.parametrize("end", ["acknowledge", "release", "last"])
def test_long_running_entry_is_not_lost_on_acknowledge(end: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q", retry=Backoff(first=0.1, tries=1 if end == "last" else None))
        await queue.put(b"x")
        entry = await queue.acquire()
        await asyncio.sleep(1)
        await (entry.acknowledge() if end == "acknowledge" else entry.release())
        await asyncio.sleep(1)
        assert entry.lease.released
        assert not entry.lease.lost

    with_client(main)
    assert [line for line in caplog.messages if "lost the lock" in line and "the client was closed" not in line] == []


async def test_server_clock_jump_does_not_extend_delay() -> None:
    retry = Backoff(first=0.1, longest=0.1, jitter=0.0)
    async with Server(clock="manual") as server, make_client(server) as one, make_client(server, seed=6) as two:
        queue, other = LockingQueue(one, "/q", retry=retry), LockingQueue(two, "/q", retry=Backoff(first=0.0))
        await queue.put(b"x")
        await _fail_next_entry(queue)
        await _fail_next_entry(queue)  # after two failures the queue knows the server's clock
        server.advance(1000)
        for zk in (one, two):
            with suppress(SessionExpiredError):
                await zk.exists("/")
        await _fail_next_entry(other)
        async with asyncio.timeout(DEADLINE_S):
            assert await _fail_next_entry(queue) == 4


def test_entry_attempts_and_retry_delay_apply_to_next_consumer() -> None:
    async def main(server: Server, zk: Client) -> None:
        retry = Backoff(first=10.0, jitter=0.0, longest=10.0)
        await LockingQueue(zk, "/q").put(b"x")
        await _fail_next_entry(LockingQueue(zk, "/q", retry=retry))
        await asyncio.sleep(7.0)
        async with make_client(server, seed=6) as other:
            queue = LockingQueue(other, "/q", retry=retry)
            with pytest.raises(LookupError):
                await queue.get_nowait()
            with pytest.raises(TimeoutError):
                await queue.acquire(timeout=2.5)
            async with await queue.acquire(timeout=1.0) as entry:
                assert entry.attempts == 2

    with_client(main)


def test_delayed_entry_does_not_block_others() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q", retry=Backoff(first=10.0, longest=10.0))
        for value in (b"bad", b"fine", b"better"):
            await queue.put(value)
        await _fail_next_entry(queue)
        assert [await queue.get(timeout=1), await queue.get(timeout=1), await queue.get(timeout=20)] == [
            b"fine",
            b"better",
            b"bad",
        ]

    with_client(main)


def test_entry_moves_to_dead_queue_after_last_failed_attempt() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q", retry=Backoff(first=0.0, jitter=0.0, tries=3))
        await queue.put(b"bad", 7)
        await queue.put(b"fine", 8)
        assert [await _fail_next_entry(queue) for _ in range(3)] == [1, 2, 3]
        assert await queue.size() == 1
        dead = Queue(zk, "/q/dead")
        assert await dead.size() == 1
        assert await queue.get(timeout=1) == b"fine"
        assert await dead.get(timeout=1) == b"bad"
        assert not leftovers(server, zk)

    with_client(main)


def test_entry_moves_to_dead_queue_after_consumers_lost_sessions() -> None:
    async def main(server: Server, zk: Client) -> None:
        await LockingQueue(zk, "/q").put(b"poison")
        retry = Backoff(first=0.0, jitter=0.0, tries=2)
        for _ in range(2):
            entry = await LockingQueue(zk, "/q", retry=retry).acquire()
            server.expire(zk)
            await entry.lease.lost
        with pytest.raises(TimeoutError):
            await LockingQueue(zk, "/q", retry=retry).acquire(timeout=1)
        assert await Queue(zk, "/q/dead").get(timeout=1) == b"poison"

    with_client(main)


def test_entry_in_last_attempt_is_not_given_to_other_consumer() -> None:
    async def main(server: Server, zk: Client) -> None:
        retry = Backoff(first=0.0, jitter=0.0, tries=1)
        queue = LockingQueue(zk, "/q", retry=retry)
        await queue.put(b"x")
        async with make_client(server, seed=6) as other, await queue.acquire() as entry:
            with pytest.raises(TimeoutError):
                await LockingQueue(other, "/q", retry=retry).acquire(timeout=2)
            assert entry.value == b"x"
        assert await queue.size() == await Queue(zk, "/q/dead").size() == 0

    with_client(main)


def test_cancelled_last_attempt_keeps_exactly_one_entry() -> None:
    retry = Backoff(first=0.0, jitter=0.0, tries=1)

    async def work(zk: Client) -> None:
        await (await LockingQueue(zk, "/q", retry=retry).acquire()).release()

    async def after(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            queue, dead = LockingQueue(other, "/q", retry=retry), Queue(other, "/q/dead")
            try:
                assert await queue.get(timeout=60 if not await dead.size() else 0) == b"x"
            except TimeoutError:
                assert await dead.get(timeout=0) == b"x"
            assert await queue.size() == await dead.size() == 0

    cancel_everywhere(work, before=lambda zk: LockingQueue(zk, "/q").put(b"x"), after=after)


# --- dead entries ---

ONE_ATTEMPT = Backoff(first=0.1, tries=1)


def test_requeued_entry_keeps_priority_and_restarts_attempts() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk.with_serializer(serializers.json), "/q", retry=ONE_ATTEMPT)
        await queue.put({"n": 1}, 7)
        await _fail_next_entry(queue)
        [(name, value)] = (await queue.dead()).items()
        assert value == {"n": 1}
        await queue.requeue(name)
        assert await queue.dead() == {}
        async with await queue.acquire(timeout=1) as entry:
            assert (entry.value, entry.attempts) == ({"n": 1}, 1)
            assert entry.path.startswith("/q/entries/entry-007-")
        with pytest.raises(NoNodeError):
            await queue.requeue(name)

    with_client(main)


def test_warning_about_dead_entry_names_path_in_dead_queue(caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q", retry=ONE_ATTEMPT)
        await queue.put(b"bad")
        await _fail_next_entry(queue)

    with_client(main)

    assert "has failed 1 times and was moved to /q/dead/" in caplog.text


def test_dead_entries_with_same_number_do_not_conflict() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q", retry=ONE_ATTEMPT)
        await Queue(zk, "/q/dead").put(b"another")
        for value in (b"1", b"2"):
            await queue.put(value)
            await _fail_next_entry(queue)
            await zk.delete("/q/entries", recursive=True)  # a new container restarts the sequence numbers
        assert sorted((await queue.dead()).values()) == [b"1", b"2", b"another"]

    with_client(main)


@pytest.mark.parametrize("why", ["child", "ACL"])
def test_unmovable_dead_entry_does_not_block_others(why: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q", retry=ONE_ATTEMPT)
        await queue.put(b"bad")
        entry = await queue.acquire()
        if why == "child":
            await zk.create(f"{entry.path}/child")
        else:
            await zk.create("/q/dead", acl=READ_ACL_UNSAFE)
        await entry.release()
        for _ in range(2):
            await queue.put(b"fine")
            assert await queue.get(timeout=5) == b"fine"

    with_client(main)
    assert caplog.text.count("cannot be moved") == 1


def test_entry_with_negative_number_can_become_dead() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q", retry=ONE_ATTEMPT)
        server.populate({"/q/entries/entry-100--2147483648": b"x"})
        await _fail_next_entry(queue)
        assert list((await queue.dead()).values()) == [b"x"]

    with_client(main)


# --- a deleted container, which restarts the names ---


async def run_after_name_is_reused(
    server: Server, other: Client, zk: Client, work: Callable[[], Awaitable[object]]
) -> Any:
    """Start an operation, but hold it until its entry is deleted and a new entry has the same name."""
    with server.fault(hold(limit=1000), "multi", client=zk, times=1) as fault:
        going = asyncio.ensure_future(work())
        await server.until(lambda: fault.hits, timeout=DEADLINE_S)
        await LockingQueue(other, "/q").get(5)
        server.delete("/q/entries")  # the server deletes an empty container in this way
        await LockingQueue(other, "/q").put(b"second")
        fault.release()
        return await going


def test_entry_with_reused_name_has_its_own_value() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            await LockingQueue(other, "/q").put(b"first")
            entry = await run_after_name_is_reused(server, other, zk, lambda: LockingQueue(zk, "/q").acquire(600))
            assert entry.value == b"second"
            assert server.tree()[entry.path].data == b"second"
            await entry.acknowledge()

    with_client(main)
