"""kazoo's queues and counters."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry
from support.waiting import DEADLINE_S

Connect = Callable[..., KazooClient]
Background = Callable[..., Future[Any]]


def test_kazoo_queue_returns_entries_by_priority_and_age(kazoo: Connect, base: str) -> None:
    producer, consumer = kazoo().Queue(f"{base}/queue"), kazoo().Queue(f"{base}/queue")

    producer.put(b"b", priority=100)
    producer.put(b"c", priority=100)
    producer.put(b"a", priority=1)
    length = len(consumer)
    taken = [consumer.get() for _ in range(4)]

    assert length == 3
    assert taken == [b"a", b"b", b"c", None]


def test_two_consumers_get_different_entries(kazoo: Connect, base: str, background: Background) -> None:
    producer = kazoo().Queue(f"{base}/queue")
    consumers = [kazoo(command_retry=quick_retry()).Queue(f"{base}/queue") for _ in range(2)]
    items = [b"%03d" % number for number in range(40)]
    for item in items:
        producer.put(item)

    futures = [background(lambda consumer=consumer: list(iter(consumer.get, None))) for consumer in consumers]
    taken = [item for future in futures for item in future.result(DEADLINE_S)]

    # A Queue reads, then deletes. A client that loses the race for the delete tries the next entry; none is taken twice
    assert sorted(taken) == items


def quick_retry() -> KazooRetry:
    """Return a retry policy without backoffs of seconds when two clients compete."""
    return KazooRetry(max_tries=-1, delay=0.002, backoff=1)


def test_locking_queue_gives_entry_to_one_consumer(kazoo: Connect, base: str) -> None:
    one, two = kazoo().LockingQueue(f"{base}/queue"), kazoo().LockingQueue(f"{base}/queue")

    one.put(b"a")
    first = one.get(timeout=DEADLINE_S)
    second = two.get(timeout=0.05)

    assert (first, second) == (b"a", None)
    assert one.holds_lock() is True
    assert one.consume() is True
    assert len(two) == 0


def test_locking_queue_redelivers_released_entry(kazoo: Connect, base: str) -> None:
    one, two = kazoo().LockingQueue(f"{base}/queue"), kazoo().LockingQueue(f"{base}/queue")
    one.put(b"a")
    one.get(timeout=DEADLINE_S)

    released = one.release()

    assert released is True
    assert two.get(timeout=DEADLINE_S) == b"a"


def test_entry_of_stopped_consumer_is_redelivered(kazoo: Connect, base: str, background: Background) -> None:
    client = kazoo()
    one, two = client.LockingQueue(f"{base}/queue"), kazoo().LockingQueue(f"{base}/queue")
    one.put(b"a")
    one.get(timeout=DEADLINE_S)
    waiting = background(two.get, DEADLINE_S)

    client.stop()

    assert waiting.result(DEADLINE_S) == b"a"


def test_locking_queue_puts_many_entries_in_one_transaction(kazoo: Connect, base: str) -> None:
    locking_queue = kazoo().LockingQueue(f"{base}/queue")

    locking_queue.put_all([b"a", b"b", b"c"])

    assert len(locking_queue) == 3
    assert locking_queue.get(timeout=DEADLINE_S) == b"a"


def test_counter_adds_and_subtracts(kazoo: Connect, base: str) -> None:
    counter = kazoo().Counter(f"{base}/counter")

    counter += 5
    counter -= 2

    assert (counter.pre_value, counter.post_value, counter.value) == (5, 3, 3)


def test_float_counter_remains_float_after_additions(kazoo: Connect, base: str) -> None:
    client = kazoo()
    counter = client.Counter(f"{base}/counter", default=1.0)

    counter += 1.5

    assert client.Counter(f"{base}/counter", default=0.0).value == 2.5


def test_counter_applies_additions_of_both_clients(kazoo: Connect, base: str, background: Background) -> None:
    counters = [kazoo(command_retry=quick_retry()).Counter(f"{base}/counter") for _ in range(3)]

    futures = [background(lambda counter=counter: [counter + 1 for _ in range(20)]) for counter in counters]
    _ = [future.result(DEADLINE_S) for future in futures]

    assert counters[0].value == 60
