"""kazoo's locks, semaphores and leases."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import LockTimeout
from support.kazoo_clients import drop_connection, record_states
from support.waiting import DEADLINE_S, wait_until

Connect = Callable[..., KazooClient]
Background = Callable[..., Future[Any]]


def test_lock_excludes_second_client(kazoo: Connect, base: str) -> None:
    one, two = kazoo().Lock(f"{base}/lock", "one"), kazoo().Lock(f"{base}/lock", "two")

    one.acquire()

    assert two.acquire(blocking=False) is False
    one.release()
    assert two.acquire(blocking=False) is True


def test_lock_passes_in_order_of_arrival(kazoo: Connect, base: str, background: Background) -> None:
    locks = [kazoo().Lock(f"{base}/lock", name) for name in ("one", "two", "three")]
    locks[0].acquire()
    second = background(locks[1].acquire)
    wait_until(lambda: locks[0].contenders() == ["one", "two"])
    third = background(locks[2].acquire)
    wait_until(lambda: locks[0].contenders() == ["one", "two", "three"])

    locks[0].release()

    assert second.result(DEADLINE_S) is True
    assert not third.done()
    locks[1].release()
    assert third.result(DEADLINE_S) is True


def test_lock_timeout_leaves_no_contender(kazoo: Connect, base: str) -> None:
    one, two = kazoo().Lock(f"{base}/lock", "one"), kazoo().Lock(f"{base}/lock", "two")
    one.acquire()

    with pytest.raises(LockTimeout):
        two.acquire(timeout=0.05)

    assert one.contenders() == ["one"]


def test_lock_passes_to_waiter_when_holder_stops(kazoo: Connect, base: str, background: Background) -> None:
    holder = kazoo()
    holder.Lock(f"{base}/lock", "one").acquire()
    lock = kazoo().Lock(f"{base}/lock", "two")
    waiting = background(lock.acquire)
    wait_until(lambda: lock.contenders() == ["one", "two"])

    holder.stop()

    assert waiting.result(DEADLINE_S) is True


def test_held_lock_survives_dropped_connection(kazoo: Connect, base: str) -> None:
    holder = kazoo()
    lock = holder.Lock(f"{base}/lock", "one")
    lock.acquire()
    states = record_states(holder)

    drop_connection(holder)
    observed = [states.get(timeout=DEADLINE_S) for _ in range(2)]

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert kazoo().Lock(f"{base}/lock", "two").acquire(blocking=False) is False
    assert lock.release() is True


def test_waiting_for_lock_survives_dropped_connection(kazoo: Connect, base: str, background: Background) -> None:
    one, client = kazoo().Lock(f"{base}/lock", "one"), kazoo()
    one.acquire()
    states = record_states(client)
    waiting = background(client.Lock(f"{base}/lock", "two").acquire)
    wait_until(lambda: one.contenders() == ["one", "two"])

    drop_connection(client)
    observed = [states.get(timeout=DEADLINE_S) for _ in range(2)]
    one.release()

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert waiting.result(DEADLINE_S) is True


def test_readers_share_lock_and_exclude_writer(kazoo: Connect, base: str) -> None:
    readers = [kazoo().ReadLock(f"{base}/lock") for _ in range(2)]
    writer = kazoo().WriteLock(f"{base}/lock")

    shared = [reader.acquire(blocking=False) for reader in readers]

    assert shared == [True, True]
    assert writer.acquire(blocking=False) is False


def test_writer_enters_after_last_reader(kazoo: Connect, base: str, background: Background) -> None:
    readers = [kazoo().ReadLock(f"{base}/lock", "reader") for _ in range(2)]
    writer = kazoo().WriteLock(f"{base}/lock", "writer")
    readers[0].acquire()
    readers[1].acquire()
    waiting = background(writer.acquire)
    wait_until(lambda: writer.contenders() == ["reader", "reader", "writer"])

    readers[1].release()
    readers[0].release()

    assert waiting.result(DEADLINE_S) is True


def test_writer_excludes_readers_and_writers(kazoo: Connect, base: str) -> None:
    writer, reader, other = (
        kazoo().WriteLock(f"{base}/lock"),
        kazoo().ReadLock(f"{base}/lock"),
        kazoo().WriteLock(f"{base}/lock"),
    )

    writer.acquire()

    assert reader.acquire(blocking=False) is False
    assert other.acquire(blocking=False) is False
    writer.release()
    assert reader.acquire(blocking=False) is True


def test_semaphore_admits_one_client_per_lease(kazoo: Connect, base: str) -> None:
    one, two, three = (kazoo().Semaphore(f"{base}/semaphore", name, max_leases=2) for name in ("one", "two", "three"))

    one.acquire()
    two.acquire()

    assert three.acquire(blocking=False) is False
    assert sorted(three.lease_holders()) == ["one", "two"]


def test_semaphore_wakes_waiter_when_lease_is_free(kazoo: Connect, base: str, background: Background) -> None:
    one, two = (kazoo().Semaphore(f"{base}/semaphore", name, max_leases=1) for name in ("one", "two"))
    client = kazoo()
    one.acquire()
    waiting = background(two.acquire)
    wait_until(lambda: client.get_children(f"{base}/semaphore-__lock__"))

    one.release()

    assert waiting.result(DEADLINE_S) is True
    assert one.lease_holders() == ["two"]


def test_semaphore_refuses_different_number_of_leases(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.Semaphore(f"{base}/semaphore", max_leases=2).acquire()

    with pytest.raises(ValueError, match="Inconsistent max leases: 2, expected: 3"):
        client.Semaphore(f"{base}/semaphore", max_leases=3).acquire()


def utc_now() -> datetime.datetime:
    """Return the time in the format of kazoo's leases. By default they call utcnow(), which Python 3.12 deprecates."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def test_unexpired_lease_is_refused_to_second_client(kazoo: Connect, base: str) -> None:
    one, two = kazoo(), kazoo()
    hour = datetime.timedelta(hours=1)

    first = bool(one.NonBlockingLease(f"{base}/lease", hour, identifier="one", utcnow=utc_now))
    second = bool(two.NonBlockingLease(f"{base}/lease", hour, identifier="two", utcnow=utc_now))

    assert (first, second) == (True, False)
