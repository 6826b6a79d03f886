"""kazoo's elections and barriers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kazoo.client import KazooClient
from support.waiting import DEADLINE_S, wait_until

Connect = Callable[..., KazooClient]
Background = Callable[..., Future[Any]]


def test_election_has_one_leader_at_a_time(kazoo: Connect, base: str, background: Background) -> None:
    one, two = kazoo().Election(f"{base}/election", "one"), kazoo().Election(f"{base}/election", "two")
    leads, resign, leads_too = threading.Event(), threading.Event(), threading.Event()

    first = background(one.run, lambda: (leads.set(), resign.wait(DEADLINE_S)))
    assert leads.wait(DEADLINE_S)
    second = background(two.run, leads_too.set)
    wait_until(lambda: one.contenders() == ["one", "two"])
    early = leads_too.is_set()
    resign.set()

    first.result(DEADLINE_S)
    second.result(DEADLINE_S)
    assert early is False
    assert leads_too.is_set()


def test_cancelled_candidate_leaves_election(kazoo: Connect, base: str, background: Background) -> None:
    one, two = kazoo().Election(f"{base}/election", "one"), kazoo().Election(f"{base}/election", "two")
    leads, resign, leads_too = threading.Event(), threading.Event(), threading.Event()
    first = background(one.run, lambda: (leads.set(), resign.wait(DEADLINE_S)))
    assert leads.wait(DEADLINE_S)
    second = background(two.run, leads_too.set)
    wait_until(lambda: one.contenders() == ["one", "two"])

    two.cancel()
    second.result(DEADLINE_S)
    left = one.contenders()
    resign.set()
    first.result(DEADLINE_S)

    assert left == ["one"]
    assert not leads_too.is_set()


def test_barrier_holds_until_removed(kazoo: Connect, base: str, background: Background) -> None:
    keeper, guest = kazoo().Barrier(f"{base}/barrier"), kazoo().Barrier(f"{base}/barrier")
    keeper.create()

    held = guest.wait(timeout=0.05)
    waiting = background(guest.wait, DEADLINE_S)
    removed = keeper.remove()

    assert (held, removed) == (False, True)
    assert waiting.result(DEADLINE_S) is True


def test_missing_barrier_does_not_block(kazoo: Connect, base: str) -> None:
    barrier = kazoo().Barrier(f"{base}/barrier")

    assert barrier.wait(timeout=0) is True
    assert barrier.remove() is False


def test_double_barrier_admits_and_releases_together(kazoo: Connect, base: str, background: Background) -> None:
    client = kazoo()
    barriers = [kazoo().DoubleBarrier(f"{base}/barrier", 3) for _ in range(3)]

    entering = [background(barrier.enter) for barrier in barriers[:2]]
    wait_until(lambda: client.exists(f"{base}/barrier") and len(client.get_children(f"{base}/barrier")) == 2)
    early = [future.done() for future in entering]
    entering.append(background(barriers[2].enter))
    _ = [future.result(DEADLINE_S) for future in entering]
    entered = [barrier.participating for barrier in barriers]
    leaving = [background(barrier.leave) for barrier in barriers]
    _ = [future.result(DEADLINE_S) for future in leaving]

    assert early == [False, False]
    assert entered == [True, True, True]
    assert client.get_children(f"{base}/barrier") == []
