"""kazoo's transactions."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, RolledBackError, RuntimeInconsistency
from support.waiting import DEADLINE_S

Connect = Callable[..., KazooClient]


def test_transaction_applies_all_its_operations(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/old")

    transaction = client.transaction()
    transaction.check(base, version=0)
    transaction.create(f"{base}/n-", b"new", sequence=True)
    transaction.set_data(base, b"data", version=0)
    transaction.delete(f"{base}/old")
    checked, created, stat, deleted = transaction.commit()

    assert (checked, created, deleted) == (True, f"{base}/n-0000000001", True)
    assert (stat.version, client.get(base)[0]) == (1, b"data")
    assert client.get_children(base) == ["n-0000000001"]


def test_failed_transaction_is_not_applied(kazoo: Connect, base: str) -> None:
    client = kazoo()

    transaction = client.transaction()
    transaction.create(f"{base}/new")
    transaction.set_data(base, b"data", version=7)
    transaction.delete(f"{base}/missing")
    results = transaction.commit()

    assert [type(result) for result in results] == [RolledBackError, BadVersionError, RuntimeInconsistency]
    assert client.get_children(base) == []
    assert client.get(base)[0] == b""


def test_failed_transaction_does_not_fire_watch(kazoo: Connect, base: str) -> None:
    client = kazoo()
    events: queue.Queue[Any] = queue.Queue()
    client.exists(f"{base}/new", watch=events.put)
    client.exists(f"{base}/real", watch=events.put)

    transaction = client.transaction()
    transaction.create(f"{base}/new")
    transaction.check(base, version=7)
    transaction.commit()
    client.create(f"{base}/real")

    assert events.get(timeout=DEADLINE_S).path == f"{base}/real"


def test_transaction_sees_its_own_earlier_operations(kazoo: Connect, base: str) -> None:
    client = kazoo()

    transaction = client.transaction()
    transaction.create(f"{base}/a")
    transaction.create(f"{base}/a/b")
    transaction.delete(f"{base}/a/b")
    results = transaction.commit()

    assert results == [f"{base}/a", f"{base}/a/b", True]
    assert client.get_children(f"{base}/a") == []
