"""Locks of the blocking client."""

from __future__ import annotations

import threading

import pytest
from support import kazoo_bugs
from support.leftovers import ephemerals
from support.waiting import DEADLINE_S

from zoolet.client.blocking import Client as BlockingClient
from zoolet.client.recipes import DeadlockError, LockLostError
from zoolet.testing import Server


def test_blocking_lock_excludes_threads(zoolet: Server) -> None:
    inside: list[int] = []
    tokens: list[int] = []

    def use(number: int) -> None:
        with BlockingClient(zoolet.hosts) as zk:
            for _ in range(5):
                with zk.lock("/lock") as held:
                    inside.append(number)
                    tokens.append(held.token)
                    assert inside == [number]
                    inside.remove(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(tokens) == 15
    assert tokens == sorted(set(tokens))
    assert ephemerals(zoolet) == []


def test_blocking_lock_raises_timeout_error_and_reports_loss(zoolet: Server) -> None:
    with BlockingClient(zoolet.hosts) as one, BlockingClient(zoolet.hosts) as two:
        with one.lock("/lock") as held:
            with pytest.raises(TimeoutError), two.lock("/lock", timeout=0.02):
                pass
            held.raise_if_lost()
            kazoo_bugs.lose_session(zoolet, one)
            zoolet.wait_for(held.lost.is_set)
            with pytest.raises(LockLostError):
                held.raise_if_lost()
        with pytest.raises(TypeError, match="tmeout"):
            two.lock("/lock", tmeout=1)
        with two.lock("/lock", timeout=DEADLINE_S):
            pass


def test_self_waiting_thread_gets_deadlock_error(zoolet: Server) -> None:
    with BlockingClient(zoolet.hosts) as zk, zk.lock("/lock"):
        for again in (zk.lock("/lock"), zk.lock("/lock", timeout=DEADLINE_S)):
            with pytest.raises(DeadlockError, match="this thread already holds"), again:
                pass
        with zk.lock("/other"):
            pass


def test_thread_acquiring_its_own_lock_gets_error(zoolet: Server) -> None:
    with BlockingClient(zoolet.hosts) as zk:
        lock = zk.lock("/lock")
        lease = lock.acquire()
        with pytest.raises(RuntimeError, match="this thread already holds"):
            zk.lock("/lock").acquire()
        with pytest.raises(RuntimeError, match="this thread already holds"), lock:
            pass
        lease.release()
        with lock:
            pass


def test_lock_object_is_reentered_by_its_thread(zoolet: Server) -> None:
    with BlockingClient(zoolet.hosts) as zk:
        with zk.lock("/lock", reentrant=True) as outer, zk.lock("/lock", reentrant=True) as inner:
            assert inner == outer
        zoolet.wait_for(lambda: ephemerals(zoolet) == [])


def test_end_of_block_raises_lock_lost_on_request(zoolet: Server) -> None:
    with BlockingClient(zoolet.hosts) as zk:
        with pytest.raises(LockLostError), zk.lock("/lock", on_lost="cancel") as held:  # noqa: PT012
            kazoo_bugs.lose_session(zoolet, zk)
            zoolet.wait_for(held.lost.is_set)
