"""Known bugs of kazoo 2.11.0, reproduced every time by a schedule of faults.

Each test asserts the wrong behaviour. The test with the same number in ``test_zoolet_is_immune.py`` asserts the
behaviour of a correct client. The numbers refer to https://github.com/python-zk/kazoo/issues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, KazooException, LockTimeout, NodeExistsError
from support import kazoo_bugs
from support.waiting import DEADLINE_S

from zoolet.testing import Server

QUICK_RETRY: Final = {"max_tries": 50, "delay": 0.001, "max_delay": 0.01}
Connect = Callable[[], KazooClient]


@pytest.fixture
def connect(zoolet: Server, zoolet_kazoo_factory: Callable[..., KazooClient]) -> Connect:
    """A function that returns a KazooClient with short reconnect delays."""
    return lambda: zoolet_kazoo_factory(connection_retry=QUICK_RETRY | {"max_tries": -1}, command_retry=QUICK_RETRY)


@pytest.fixture
def first(connect: Connect) -> KazooClient:
    """The first client."""
    return connect()


@pytest.fixture
def second(connect: Connect) -> KazooClient:
    """The second client."""
    return connect()


@pytest.fixture
def background() -> Iterator[Callable[..., list[Any]]]:
    """A function that runs a function in a thread; it returns a list that receives the result or the exception."""
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
        thread.join(DEADLINE_S)


# --- sessions that end ---


def test_282_lock_appears_held_after_session_end(zoolet: Server, first: KazooClient, second: KazooClient) -> None:
    """A correct client resets ``held`` as soon as it learns that the session has expired."""
    lost, taken = first.Lock("/lock"), second.Lock("/lock")
    lost.acquire()

    kazoo_bugs.lose_session(zoolet, first)

    assert taken.acquire(blocking=False)
    assert (lost.is_acquired, taken.is_acquired) == (True, True)


def test_282_lock_of_ended_session_is_not_reacquired(zoolet: Server, first: KazooClient) -> None:
    """A correct client gets a free lock, even after a lost hold; without a timeout, kazoo hangs here."""
    lock = first.Lock("/lock")
    lock.acquire()

    kazoo_bugs.lose_session(zoolet, first)

    assert kazoo_bugs.children(zoolet, "/lock") == []
    assert lock.acquire(timeout=0.1) is False


def test_491_ephemeral_is_missing_in_next_session(zoolet: Server, first: KazooClient) -> None:
    """A correct client offers a registration that recreates its node in each new session."""
    first.create("/here", ephemeral=True)

    kazoo_bugs.lose_session(zoolet, first)

    assert first.connected
    assert "/here" not in zoolet.tree()


def test_491_party_counts_member_with_deleted_node(zoolet: Server, first: KazooClient) -> None:
    """A correct client joins again, or reports that it no longer takes part."""
    party = first.Party("/party", "me")
    party.join()

    kazoo_bugs.lose_session(zoolet, first)

    assert (party.participating, len(party)) == (True, 0)


# --- sequence numbers that wrap ---


def test_606_two_clients_hold_lock_at_negative_number(zoolet: Server, first: KazooClient, second: KazooClient) -> None:
    """A correct client compares the numbers as 32-bit serial numbers: -2147483648 comes right after 2147483647."""
    kazoo_bugs.create_with_next_sequence(zoolet, "/lock", kazoo_bugs.LAST_SEQUENCE)

    both = [client.Lock("/lock").acquire(timeout=0.2) for client in (first, second)]

    assert [name[-11:] for name in kazoo_bugs.children(zoolet, "/lock")] == ["_2147483647", "-2147483648"]
    assert both == [True, True]


def test_730_newcomers_take_lock_at_negative_number(zoolet: Server, connect: Connect) -> None:
    """A correct client compares numbers, not text: as text, -2147483647 is less than -2147483648."""
    kazoo_bugs.create_with_next_sequence(zoolet, "/lock", kazoo_bugs.FIRST_NEGATIVE_SEQUENCE)

    gotten = [connect().Lock("/lock").acquire(timeout=0.2) for _ in range(3)]

    assert gotten == [True, True, True]


def test_606_queue_reverses_order_at_negative_number(zoolet: Server, first: KazooClient) -> None:
    """A correct client returns the entries in the order of their puts, even across the wrap."""
    kazoo_bugs.create_with_next_sequence(zoolet, "/queue", kazoo_bugs.LAST_SEQUENCE - 1)
    queue = first.Queue("/queue")
    for entry in (b"1", b"2", b"3", b"4"):
        queue.put(entry)

    assert [queue.get() for _ in range(4)] == [b"4", b"3", b"1", b"2"]


# --- leftovers of a recipe that gives up ---


def test_732_lock_leaves_contender_if_cleanup_is_lost(zoolet: Server, first: KazooClient, second: KazooClient) -> None:
    """A correct client retries the delete of its contender while the session lives. Here the lock stays blocked."""
    holder = first.Lock("/lock")
    holder.acquire()
    with kazoo_bugs.drop_delete(zoolet, "/lock"):
        assert second.Lock("/lock").acquire(blocking=False) is False

    holder.release()

    assert len(kazoo_bugs.children(zoolet, "/lock")) == 1
    assert first.Lock("/lock").acquire(blocking=False) is False


def test_732_lock_timeout_leaves_contender(zoolet: Server, first: KazooClient, second: KazooClient) -> None:
    """A correct client searches for the node that it may have created, until it gets an answer.

    kazoo searches by its own prefix, but only once. If the search also fails, it reports nothing, and the node stays.
    """
    with kazoo_bugs.lose_create_reply(zoolet, "/lock/"), kazoo_bugs.fail_child_lists(zoolet, second, "/lock"):
        assert second.Lock("/lock").acquire(timeout=0.05) is False

    assert len(kazoo_bugs.children(zoolet, "/lock")) == 1
    assert first.Lock("/lock").acquire(blocking=False) is False


def test_732_cancelled_lock_leaves_contender(
    zoolet: Server, first: KazooClient, second: KazooClient, background: Callable[..., list[Any]]
) -> None:
    """In a correct client, a cancelled ``acquire`` deletes the contender, or reports that it may be left."""
    first.Lock("/lock").acquire()
    waiter = second.Lock("/lock")
    with kazoo_bugs.drop_delete(zoolet, "/lock") as fault:
        cancelled = background(waiter.acquire)
        zoolet.wait_for(lambda: kazoo_bugs.client_watches(zoolet, second))
        waiter.cancel()
        zoolet.wait_for(lambda: cancelled)

    assert (type(cancelled[0]), fault.hits) == (CancelledError, 1)
    assert len(kazoo_bugs.children(zoolet, "/lock")) == 2


def test_733_lock_timeout_leaves_watch(zoolet: Server, first: KazooClient, second: KazooClient) -> None:
    """A correct client removes its watch, so neither the server nor the client remembers the waiter."""
    first.Lock("/lock").acquire()

    for _ in range(3):
        with pytest.raises(LockTimeout):
            second.Lock("/lock").acquire(timeout=0.001)

    [watch] = kazoo_bugs.client_watches(zoolet, second)
    assert watch.kind == "data"
    assert len(second._data_watchers[watch.path]) == 3


def test_733_barrier_timeout_leaves_watch(zoolet: Server, first: KazooClient) -> None:
    """A correct client removes its watch when it stops waiting."""
    zoolet.populate({"/barrier": b""})

    assert first.Barrier("/barrier").wait(timeout=0.001) is False

    assert [watch.path for watch in kazoo_bugs.client_watches(zoolet, first)] == ["/barrier"]


# --- applied changes with a lost reply ---


def test_repeated_create_fails_because_of_its_own_node(zoolet: Server, first: KazooClient) -> None:
    """A correct client recognises its node by zxid or session, or reports an unknown outcome, but not "it exists"."""
    with kazoo_bugs.lose_create_reply(zoolet, "/mine"), pytest.raises(NodeExistsError):
        first.retry(first.create, "/mine", b"mine")

    assert first.get("/mine")[0] == b"mine"


def test_repeated_sequential_create_creates_two_nodes(zoolet: Server, first: KazooClient) -> None:
    """A correct client puts its own mark into the name, which identifies the node that it has already created."""
    zoolet.populate({"/queue": b""})

    with kazoo_bugs.lose_create_reply(zoolet, "/queue/"):
        first.retry(first.create, "/queue/n-", sequence=True)

    assert kazoo_bugs.children(zoolet, "/queue") == ["n-0000000000", "n-0000000001"]


def test_counter_applies_addition_with_lost_reply_twice(zoolet: Server, first: KazooClient) -> None:
    """A correct client reports that the outcome is unknown, or distinguishes its own change from other changes."""
    counter = first.Counter("/count")
    counter += 0

    with kazoo_bugs.lose_set_reply(zoolet, "/count"):
        counter += 1

    assert counter.value == 2
