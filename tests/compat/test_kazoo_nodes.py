"""kazoo creates, reads, changes and deletes nodes over real sockets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from support.kazoo_clients import record_states
from support.waiting import DEADLINE_S

Connect = Callable[..., KazooClient]


def test_node_is_created_read_changed_and_deleted(kazoo: Connect, base: str) -> None:
    client = kazoo()

    path = client.create(f"{base}/node", b"one")
    stat = client.set(path, b"two")
    data, read = client.get(path)
    client.delete(path)

    assert path == f"{base}/node"
    assert (data, read) == (b"two", stat)
    assert (stat.version, stat.dataLength, stat.ephemeralOwner) == (1, 3, 0)
    assert client.exists(path) is None


def test_sequential_names_rise_with_ten_digits(kazoo: Connect, base: str) -> None:
    client = kazoo()

    names = [client.create(f"{base}/n-", sequence=True) for _ in range(3)]

    assert names == [f"{base}/n-0000000000", f"{base}/n-0000000001", f"{base}/n-0000000002"]


def test_create_with_include_data_returns_stat(kazoo: Connect, base: str) -> None:
    client = kazoo()

    path, stat = client.create(f"{base}/node", b"four", include_data=True)

    assert stat == client.exists(path)
    assert stat.dataLength == 4


def test_create_with_makepath_creates_parents(kazoo: Connect, base: str) -> None:
    client = kazoo()

    client.create(f"{base}/a/b/c", makepath=True)

    assert client.get_children(f"{base}/a") == ["b"]


def test_recursive_delete_deletes_subtree(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/a/b/c", makepath=True)

    client.delete(f"{base}/a", recursive=True)

    assert client.get_children(base) == []


def test_get_children_with_include_data_returns_stat(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/only")

    children, stat = client.get_children(base, include_data=True)

    assert children == ["only"]
    assert stat.numChildren == 1


def test_create_of_existing_node_is_refused(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(NodeExistsError):
        client.create(base)


def test_get_of_missing_node_raises(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(NoNodeError):
        client.get(f"{base}/missing")


def test_delete_of_node_with_children_is_refused(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/child")

    with pytest.raises(NotEmptyError):
        client.delete(base)


def test_child_of_ephemeral_node_is_refused(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/ephemeral", ephemeral=True)

    with pytest.raises(NoChildrenForEphemeralsError):
        client.create(f"{base}/ephemeral/child")


def test_set_with_wrong_version_is_refused(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(BadVersionError):
        client.set(base, b"wrong", version=7)

    assert client.get(base)[0] == b""


def test_set_with_right_version_increments_it(kazoo: Connect, base: str) -> None:
    client = kazoo()
    version = client.set(base, b"one").version

    stat = client.set(base, b"two", version=version)

    assert stat.version == version + 1


def test_delete_with_wrong_version_keeps_node(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(BadVersionError):
        client.delete(base, version=7)

    assert client.exists(base) is not None


def test_sync_returns_its_path(kazoo: Connect, base: str) -> None:
    client = kazoo()

    assert client.sync(base) == base


def test_pipelined_requests_are_answered_in_order(kazoo: Connect, base: str) -> None:
    client = kazoo()

    results = [client.create_async(f"{base}/n-", sequence=True) for _ in range(200)]
    numbers = [int(result.get(timeout=DEADLINE_S)[-10:]) for result in results]

    assert numbers == list(range(200))


def test_node_can_hold_nearly_one_megabyte(kazoo: Connect, base: str) -> None:
    client = kazoo()
    data = bytes(range(256)) * 4092  # 1,047,552 bytes; with path and header just below jute.maxbuffer, 1,048,575

    client.set(base, data)

    assert client.get(base)[0] == data


def test_oversized_request_loses_connection_but_not_session(kazoo: Connect, base: str) -> None:
    client = kazoo()
    session = client.client_id
    states = record_states(client)

    with pytest.raises(ConnectionLoss):
        client.set(base, bytes(1_100_000))

    assert [states.get(timeout=DEADLINE_S) for _ in range(2)] == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.client_id == session
    assert client.get(base)[0] == b""
