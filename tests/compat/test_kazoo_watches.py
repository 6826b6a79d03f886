"""kazoo's watches, and the recipes built on them."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.states import EventType
from kazoo.recipe.cache import TreeCache, TreeEvent
from support.kazoo_clients import drop_connection, record_states
from support.waiting import DEADLINE_S, wait_until

Connect = Callable[..., KazooClient]


def test_get_watch_fires_once(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    events: queue.Queue[Any] = queue.Queue()
    client.get(base, watch=events.put)

    other.set(base, b"one")
    other.set(base, b"two")
    event = events.get(timeout=DEADLINE_S)
    client.sync(base)

    assert (event.type, event.path) == (EventType.CHANGED, base)
    assert events.empty()


def test_exists_watch_reports_creation(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    events: queue.Queue[Any] = queue.Queue()
    client.exists(f"{base}/later", watch=events.put)

    other.create(f"{base}/later")

    event = events.get(timeout=DEADLINE_S)
    assert (event.type, event.path) == (EventType.CREATED, f"{base}/later")


def test_data_watch_reports_each_state_of_node(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    seen: queue.Queue[bytes | None] = queue.Queue()
    path = f"{base}/node"

    client.DataWatch(path, lambda data, stat: seen.put(data))
    absent = seen.get(timeout=DEADLINE_S)
    other.create(path, b"one")
    created = seen.get(timeout=DEADLINE_S)
    other.set(path, b"two")
    changed = seen.get(timeout=DEADLINE_S)
    other.delete(path)
    deleted = seen.get(timeout=DEADLINE_S)

    assert [absent, created, changed, deleted] == [None, b"one", b"two", None]


def test_data_watch_survives_dropped_connection(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    states = record_states(client)
    seen: queue.Queue[bytes | None] = queue.Queue()
    client.DataWatch(base, lambda data, stat: seen.put(data))
    first = seen.get(timeout=DEADLINE_S)

    drop_connection(client)
    states.get(timeout=DEADLINE_S)
    other.set(base, b"meanwhile")
    meanwhile = seen.get(timeout=DEADLINE_S)
    other.set(base, b"after")
    after = seen.get(timeout=DEADLINE_S)

    assert [first, meanwhile, after] == [b"", b"meanwhile", b"after"]


def test_children_watch_reports_added_and_deleted_node(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    seen: queue.Queue[list[str]] = queue.Queue()

    client.ChildrenWatch(base, seen.put)
    none = seen.get(timeout=DEADLINE_S)
    other.create(f"{base}/a")
    one = seen.get(timeout=DEADLINE_S)
    other.create(f"{base}/b")
    two = seen.get(timeout=DEADLINE_S)
    other.delete(f"{base}/a")
    left = seen.get(timeout=DEADLINE_S)

    assert [none, one, sorted(two), left] == [[], ["a"], ["a", "b"], ["b"]]


def test_children_watch_passes_event_on_request(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    seen: queue.Queue[Any] = queue.Queue()
    client.ChildrenWatch(base, lambda children, event: seen.put(event), send_event=True)
    seen.get(timeout=DEADLINE_S)

    other.create(f"{base}/a")

    event = seen.get(timeout=DEADLINE_S)
    assert (event.type, event.path) == (EventType.CHILD, base)


def test_tree_cache_follows_subtree(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    other.create(f"{base}/before", b"0")
    events: queue.Queue[int] = queue.Queue()
    cache = TreeCache(client, base)
    cache.listen(lambda event: events.put(event.event_type))

    cache.start()
    start = [events.get(timeout=DEADLINE_S) for _ in range(3)]
    other.create(f"{base}/a/b", b"1", makepath=True)
    created = [events.get(timeout=DEADLINE_S) for _ in range(2)]
    other.set(f"{base}/a/b", b"2")
    changed = events.get(timeout=DEADLINE_S)
    other.delete(f"{base}/before")
    deleted = events.get(timeout=DEADLINE_S)

    assert start == [TreeEvent.NODE_ADDED, TreeEvent.NODE_ADDED, TreeEvent.INITIALIZED]
    assert created == [TreeEvent.NODE_ADDED, TreeEvent.NODE_ADDED]
    assert (changed, deleted) == (TreeEvent.NODE_UPDATED, TreeEvent.NODE_REMOVED)
    assert cache.get_data(f"{base}/a/b").data == b"2"
    wait_until(lambda: cache.get_children(base) == frozenset({"a"}))
    cache.close()
