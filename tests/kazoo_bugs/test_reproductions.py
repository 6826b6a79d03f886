"""Known bugs of kazoo 2.11.0, reproduced every time by a schedule of faults.

Each test asserts what goes wrong. The test of the same number in ``test_zoolet_is_immune.py`` asserts what a right
client does. The numbers are those of https://github.com/python-zk/kazoo/issues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, KazooException, LockTimeout, NodeExistsError
from support import kazoo_bugs

from zoolet.server import Server

QUICK: Final = {"max_tries": 50, "delay": 0.001, "max_delay": 0.01}
Connect = Callable[[], KazooClient]


@pytest.fixture
def connect(zoolet: Server, zoolet_kazoo_factory: Callable[..., KazooClient]) -> Connect:
    """A function that returns a KazooClient which does not wait long before it connects again."""
    return lambda: zoolet_kazoo_factory(connection_retry=QUICK | {"max_tries": -1}, command_retry=QUICK)


@pytest.fixture
def first(connect: Connect) -> KazooClient:
    """A client."""
    return connect()


@pytest.fixture
def second(connect: Connect) -> KazooClient:
    """Another."""
    return connect()


@pytest.fixture
def background() -> Iterator[Callable[..., list[Any]]]:
    """A function that runs another in a thread; the list it gives has the result or the exception once there is one."""
    threads = []

    def run(function: Callable[[], Any]) -> list[Any]:
        outcome: list[Any] = []

        def target() -> None:
            try:
                outcome.append(function())
            except KazooException as error:
                outcome.append(error)

        threads.append(threading.Thread(target=target, daemon=True))
        threads[-1].start()
        return outcome

    yield run
    for thread in threads:
        thread.join(10)


# --- sessions that end ---


def test_282_a_lock_claims_to_be_held_after_its_session_has_ended(
    zoolet: Server, first: KazooClient, second: KazooClient
) -> None:
    """A right client takes ``held`` back the moment it learns that the session is gone."""
    lost, taken = first.Lock("/lock"), second.Lock("/lock")
    lost.acquire()

    kazoo_bugs.lose_session(zoolet, first)

    assert taken.acquire(blocking=False)
    assert (lost.is_acquired, taken.is_acquired) == (True, True)


def test_282_a_lock_whose_session_has_ended_can_never_be_acquired_again(zoolet: Server, first: KazooClient) -> None:
    """A right client gets a lock that is free, whatever became of an earlier hold; without a timeout this one hangs."""
    lock = first.Lock("/lock")
    lock.acquire()

    kazoo_bugs.lose_session(zoolet, first)

    assert kazoo_bugs.children(zoolet, "/lock") == []
    assert lock.acquire(timeout=0.1) is False


def test_491_an_ephemeral_node_does_not_come_back_with_the_next_session(zoolet: Server, first: KazooClient) -> None:
    """A right client offers a registration that makes its node again in each new session."""
    first.create("/here", ephemeral=True)

    kazoo_bugs.lose_session(zoolet, first)

    assert first.connected
    assert "/here" not in zoolet.tree()


def test_491_a_party_counts_a_member_whose_node_is_gone(zoolet: Server, first: KazooClient) -> None:
    """A right client joins again, or says that it takes part no more."""
    party = first.Party("/party", "me")
    party.join()

    kazoo_bugs.lose_session(zoolet, first)

    assert (party.participating, len(party)) == (True, 0)


# --- sequence numbers that wrap ---


def test_606_two_hold_one_lock_when_the_sequence_turns_negative(
    zoolet: Server, first: KazooClient, second: KazooClient
) -> None:
    """A right client compares the numbers as 32-bit serial numbers: -2147483648 comes right after 2147483647."""
    kazoo_bugs.count_from(zoolet, "/lock", kazoo_bugs.LAST_NUMBER)

    both = [client.Lock("/lock").acquire(timeout=0.2) for client in (first, second)]

    assert [name[-11:] for name in kazoo_bugs.children(zoolet, "/lock")] == ["_2147483647", "-2147483648"]
    assert both == [True, True]


def test_730_every_newcomer_takes_a_lock_whose_sequence_is_negative(zoolet: Server, connect: Connect) -> None:
    """A right client compares numbers, not text: as text, -2147483647 is less than -2147483648."""
    kazoo_bugs.count_from(zoolet, "/lock", kazoo_bugs.FIRST_NEGATIVE)

    gotten = [connect().Lock("/lock").acquire(timeout=0.2) for _ in range(3)]

    assert gotten == [True, True, True]


def test_606_a_queue_gives_the_last_entry_first_when_the_sequence_turns_negative(
    zoolet: Server, first: KazooClient
) -> None:
    """A right client gives the entries in the order in which they were put, across the wrap too."""
    kazoo_bugs.count_from(zoolet, "/queue", kazoo_bugs.LAST_NUMBER - 1)
    queue = first.Queue("/queue")
    for entry in (b"1", b"2", b"3", b"4"):
        queue.put(entry)

    assert [queue.get() for _ in range(4)] == [b"4", b"3", b"1", b"2"]


# --- what a recipe leaves when it gives up ---


def test_732_a_lock_that_was_not_gotten_leaves_a_contender_when_its_cleanup_is_lost(
    zoolet: Server, first: KazooClient, second: KazooClient
) -> None:
    """A right client deletes its contender until that has worked or the session is gone: here nobody can ever lock."""
    holder = first.Lock("/lock")
    holder.acquire()
    with kazoo_bugs.cleanup_lost(zoolet, "/lock"):
        assert second.Lock("/lock").acquire(blocking=False) is False

    holder.release()

    assert len(kazoo_bugs.children(zoolet, "/lock")) == 1
    assert first.Lock("/lock").acquire(blocking=False) is False


def test_732_a_lock_that_times_out_leaves_the_contender_whose_reply_was_lost(
    zoolet: Server, first: KazooClient, second: KazooClient
) -> None:
    """A right client looks for the node that it may have made, and goes on looking until it gets an answer.

    kazoo does look, by a prefix that is its own, but once only: if that fails too, it says nothing and the node stays.
    """
    with kazoo_bugs.reply_to_create_lost(zoolet, "/lock/"), kazoo_bugs.blind(zoolet, second, "/lock"):
        assert second.Lock("/lock").acquire(timeout=0.05) is False

    assert len(kazoo_bugs.children(zoolet, "/lock")) == 1
    assert first.Lock("/lock").acquire(blocking=False) is False


def test_732_a_lock_that_is_cancelled_leaves_a_contender_when_its_cleanup_is_lost(
    zoolet: Server, first: KazooClient, second: KazooClient, background: Callable[..., list[Any]]
) -> None:
    """A right client's cancelled ``acquire`` returns with the contender gone, or with the word that it may be left."""
    first.Lock("/lock").acquire()
    waiter = second.Lock("/lock")
    with kazoo_bugs.cleanup_lost(zoolet, "/lock") as fault:
        cancelled = background(waiter.acquire)
        zoolet.wait_for(lambda: kazoo_bugs.watches_of(zoolet, second))
        waiter.cancel()
        zoolet.wait_for(lambda: cancelled)

    assert (type(cancelled[0]), fault.hits) == (CancelledError, 1)
    assert len(kazoo_bugs.children(zoolet, "/lock")) == 2


def test_733_a_lock_that_times_out_leaves_its_watch(zoolet: Server, first: KazooClient, second: KazooClient) -> None:
    """A right client removes its watch, so that neither the server nor it remembers who has given up."""
    first.Lock("/lock").acquire()

    for _ in range(3):
        with pytest.raises(LockTimeout):
            second.Lock("/lock").acquire(timeout=0.001)

    [watch] = kazoo_bugs.watches_of(zoolet, second)
    assert watch.kind == "data"
    assert len(second._data_watchers[watch.path]) == 3


def test_733_a_barrier_that_times_out_leaves_its_watch(zoolet: Server, first: KazooClient) -> None:
    """A right client removes its watch when it stops to wait."""
    zoolet.populate({"/barrier": b""})

    assert first.Barrier("/barrier").wait(timeout=0.001) is False

    assert [watch.path for watch in kazoo_bugs.watches_of(zoolet, first)] == ["/barrier"]


# --- changes that were done, and nobody heard ---


def test_a_create_that_is_tried_again_fails_over_its_own_node(zoolet: Server, first: KazooClient) -> None:
    """A right client knows its node by its zxid or session, or says that the outcome is unknown; not "it exists"."""
    with kazoo_bugs.reply_to_create_lost(zoolet, "/mine"), pytest.raises(NodeExistsError):
        first.retry(first.create, "/mine", b"mine")

    assert first.get("/mine")[0] == b"mine"


def test_a_sequential_create_that_is_tried_again_makes_two_nodes(zoolet: Server, first: KazooClient) -> None:
    """A right client puts a mark of its own into the name, by which it finds the node it has made already."""
    zoolet.populate({"/queue": b""})

    with kazoo_bugs.reply_to_create_lost(zoolet, "/queue/"):
        first.retry(first.create, "/queue/n-", sequence=True)

    assert kazoo_bugs.children(zoolet, "/queue") == ["n-0000000000", "n-0000000001"]


def test_a_counter_counts_one_step_twice(zoolet: Server, first: KazooClient) -> None:
    """A right client says that the outcome is unknown, or can tell its own change from that of another."""
    counter = first.Counter("/count")
    counter += 0

    with kazoo_bugs.reply_to_set_lost(zoolet, "/count"):
        counter += 1

    assert counter.value == 2
