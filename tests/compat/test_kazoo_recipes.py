"""kazoo 2.11 as it comes from the index does, over real sockets, all that it does with ZooKeeper."""

from __future__ import annotations

import datetime
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    InvalidACLError,
    LockTimeout,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.partitioner import SetPartitioner
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, make_acl, make_digest_acl
from support.daemon import DaemonProcess

WAIT_S = 10.0  # every wait ends early when the thing happens; only a failure lasts this long
TICK_S = 0.2  # the daemon's
ALLOWANCE_S = 0.25  # what threads and processes may take to notice
NOWHERE = "127.0.0.1:1"

Connect = Callable[..., KazooClient]
Background = Callable[..., Future[Any]]
Until = Callable[..., None]

CHILD = """
import sys, threading
from kazoo.client import KazooClient

client = KazooClient(sys.argv[1], timeout=1.0)
client.start()
client.create(sys.argv[2], ephemeral=True)
print(client.client_id[0], client.client_id[1].hex(), flush=True)
threading.Event().wait()
"""


def start_child(hosts: str, path: str) -> tuple[subprocess.Popen[str], tuple[int, bytes]]:
    """Start a process that makes an ephemeral node; return it with its session's id and password once the node is
    there.
    """
    child = subprocess.Popen([sys.executable, "-c", CHILD, hosts, path], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    session, password = child.stdout.readline().split()
    return child, (int(session), bytes.fromhex(password))


def record_states(client: KazooClient) -> queue.Queue[str]:
    """Return a queue that gets the states of the connection from now on."""
    states: queue.Queue[str] = queue.Queue()

    def put(state: str) -> None:
        states.put(state)

    client.add_listener(put)
    return states


def drop(client: KazooClient) -> None:
    """Cut the TCP connection, as a network does: the session knows nothing of it."""
    client._connection._socket.shutdown(2)


# --- nodes ---


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


def test_sequence_names_rise_with_ten_digits(kazoo: Connect, base: str) -> None:
    client = kazoo()

    names = [client.create(f"{base}/n-", sequence=True) for _ in range(3)]

    assert names == [f"{base}/n-0000000000", f"{base}/n-0000000001", f"{base}/n-0000000002"]


def test_create_with_include_data_returns_the_stat(kazoo: Connect, base: str) -> None:
    client = kazoo()

    path, stat = client.create(f"{base}/node", b"four", include_data=True)

    assert stat == client.exists(path)
    assert stat.dataLength == 4


def test_create_with_makepath_makes_the_parents(kazoo: Connect, base: str) -> None:
    client = kazoo()

    client.create(f"{base}/a/b/c", makepath=True)

    assert client.get_children(f"{base}/a") == ["b"]


def test_recursive_delete_takes_the_subtree(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/a/b/c", makepath=True)

    client.delete(f"{base}/a", recursive=True)

    assert client.get_children(base) == []


def test_get_children_with_include_data_returns_the_stat(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/only")

    children, stat = client.get_children(base, include_data=True)

    assert children == ["only"]
    assert stat.numChildren == 1


def test_create_of_an_existing_node_is_refused(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(NodeExistsError):
        client.create(base)


def test_get_of_a_missing_node_is_refused(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(NoNodeError):
        client.get(f"{base}/missing")


def test_delete_of_a_node_with_children_is_refused(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/child")

    with pytest.raises(NotEmptyError):
        client.delete(base)


def test_ephemeral_node_takes_no_children(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/ephemeral", ephemeral=True)

    with pytest.raises(NoChildrenForEphemeralsError):
        client.create(f"{base}/ephemeral/child")


def test_set_with_a_wrong_version_changes_nothing(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(BadVersionError):
        client.set(base, b"wrong", version=7)

    assert client.get(base)[0] == b""


def test_set_with_the_right_version_raises_it_by_one(kazoo: Connect, base: str) -> None:
    client = kazoo()
    version = client.set(base, b"one").version

    stat = client.set(base, b"two", version=version)

    assert stat.version == version + 1


def test_delete_with_a_wrong_version_leaves_the_node(kazoo: Connect, base: str) -> None:
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
    numbers = [int(result.get(timeout=WAIT_S)[-10:]) for result in results]

    assert numbers == list(range(200))


def test_node_takes_nearly_a_megabyte(kazoo: Connect, base: str) -> None:
    client = kazoo()
    data = bytes(range(256)) * 4092  # 1,047,552 bytes; with path and header still below jute.maxbuffer, 1,048,575

    client.set(base, data)

    assert client.get(base)[0] == data


def test_oversized_request_closes_the_connection_but_not_the_session(kazoo: Connect, base: str) -> None:
    client = kazoo()
    session = client.client_id
    states = record_states(client)

    with pytest.raises(ConnectionLoss):
        client.set(base, bytes(1_100_000))

    assert [states.get(timeout=WAIT_S) for _ in range(2)] == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.client_id == session
    assert client.get(base)[0] == b""


# --- watches ---


def test_get_watch_fires_once(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    events: queue.Queue[Any] = queue.Queue()
    client.get(base, watch=events.put)

    other.set(base, b"one")
    other.set(base, b"two")
    event = events.get(timeout=WAIT_S)
    client.sync(base)

    assert (event.type, event.path) == (EventType.CHANGED, base)
    assert events.empty()


def test_exists_watch_tells_of_creation(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    events: queue.Queue[Any] = queue.Queue()
    client.exists(f"{base}/later", watch=events.put)

    other.create(f"{base}/later")

    event = events.get(timeout=WAIT_S)
    assert (event.type, event.path) == (EventType.CREATED, f"{base}/later")


def test_data_watch_sees_each_state_of_a_node(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    seen: queue.Queue[bytes | None] = queue.Queue()
    path = f"{base}/node"

    client.DataWatch(path, lambda data, stat: seen.put(data))
    absent = seen.get(timeout=WAIT_S)
    other.create(path, b"one")
    created = seen.get(timeout=WAIT_S)
    other.set(path, b"two")
    changed = seen.get(timeout=WAIT_S)
    other.delete(path)
    deleted = seen.get(timeout=WAIT_S)

    assert [absent, created, changed, deleted] == [None, b"one", b"two", None]


def test_data_watch_continues_after_a_dropped_connection(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    states = record_states(client)
    seen: queue.Queue[bytes | None] = queue.Queue()
    client.DataWatch(base, lambda data, stat: seen.put(data))
    first = seen.get(timeout=WAIT_S)

    drop(client)
    states.get(timeout=WAIT_S)
    other.set(base, b"meanwhile")
    meanwhile = seen.get(timeout=WAIT_S)
    other.set(base, b"after")
    after = seen.get(timeout=WAIT_S)

    assert [first, meanwhile, after] == [b"", b"meanwhile", b"after"]


def test_children_watch_sees_children_come_and_go(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    seen: queue.Queue[list[str]] = queue.Queue()

    client.ChildrenWatch(base, seen.put)
    none = seen.get(timeout=WAIT_S)
    other.create(f"{base}/a")
    one = seen.get(timeout=WAIT_S)
    other.create(f"{base}/b")
    two = seen.get(timeout=WAIT_S)
    other.delete(f"{base}/a")
    left = seen.get(timeout=WAIT_S)

    assert [none, one, sorted(two), left] == [[], ["a"], ["a", "b"], ["b"]]


def test_children_watch_passes_the_event(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    seen: queue.Queue[Any] = queue.Queue()
    client.ChildrenWatch(base, lambda children, event: seen.put(event), send_event=True)
    seen.get(timeout=WAIT_S)

    other.create(f"{base}/a")

    event = seen.get(timeout=WAIT_S)
    assert (event.type, event.path) == (EventType.CHILD, base)


def test_tree_cache_follows_a_subtree(kazoo: Connect, base: str, until: Until) -> None:
    client, other = kazoo(), kazoo()
    other.create(f"{base}/before", b"0")
    events: queue.Queue[int] = queue.Queue()
    cache = TreeCache(client, base)
    cache.listen(lambda event: events.put(event.event_type))

    cache.start()
    start = [events.get(timeout=WAIT_S) for _ in range(3)]
    other.create(f"{base}/a/b", b"1", makepath=True)
    created = [events.get(timeout=WAIT_S) for _ in range(2)]
    other.set(f"{base}/a/b", b"2")
    changed = events.get(timeout=WAIT_S)
    other.delete(f"{base}/before")
    deleted = events.get(timeout=WAIT_S)

    assert start == [TreeEvent.NODE_ADDED, TreeEvent.NODE_ADDED, TreeEvent.INITIALIZED]
    assert created == [TreeEvent.NODE_ADDED, TreeEvent.NODE_ADDED]
    assert (changed, deleted) == (TreeEvent.NODE_UPDATED, TreeEvent.NODE_REMOVED)
    assert cache.get_data(f"{base}/a/b").data == b"2"
    until(lambda: cache.get_children(base) == frozenset({"a"}))
    cache.close()


# --- transactions ---


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


def test_failed_transaction_applies_nothing(kazoo: Connect, base: str) -> None:
    client = kazoo()

    transaction = client.transaction()
    transaction.create(f"{base}/new")
    transaction.set_data(base, b"data", version=7)
    transaction.delete(f"{base}/missing")
    results = transaction.commit()

    assert [type(result) for result in results] == [RolledBackError, BadVersionError, RuntimeInconsistency]
    assert client.get_children(base) == []
    assert client.get(base)[0] == b""


def test_failed_transaction_fires_no_watch(kazoo: Connect, base: str) -> None:
    client = kazoo()
    events: queue.Queue[Any] = queue.Queue()
    client.exists(f"{base}/new", watch=events.put)
    client.exists(f"{base}/real", watch=events.put)

    transaction = client.transaction()
    transaction.create(f"{base}/new")
    transaction.check(base, version=7)
    transaction.commit()
    client.create(f"{base}/real")

    assert events.get(timeout=WAIT_S).path == f"{base}/real"


def test_transaction_sees_its_own_earlier_operations(kazoo: Connect, base: str) -> None:
    client = kazoo()

    transaction = client.transaction()
    transaction.create(f"{base}/a")
    transaction.create(f"{base}/a/b")
    transaction.delete(f"{base}/a/b")
    results = transaction.commit()

    assert results == [f"{base}/a", f"{base}/a/b", True]
    assert client.get_children(f"{base}/a") == []


# --- chroot ---


def test_chroot_client_sees_its_part_as_the_whole(kazoo: Connect, base: str) -> None:
    client, inside = kazoo(), kazoo(base)

    path = inside.create("/node", b"data")

    assert path == "/node"
    assert inside.get_children("/") == ["node"]
    assert client.get(f"{base}/node")[0] == b"data"


def test_chroot_client_gets_its_own_paths_in_events(kazoo: Connect, base: str) -> None:
    client, inside = kazoo(), kazoo(base)
    events: queue.Queue[Any] = queue.Queue()
    inside.exists("/node", watch=events.put)

    client.create(f"{base}/node")

    assert events.get(timeout=WAIT_S).path == "/node"


def test_chroot_client_takes_a_lock_against_one_outside(kazoo: Connect, base: str) -> None:
    client, inside = kazoo(), kazoo(base)

    with inside.Lock("/lock"):
        taken = client.Lock(f"{base}/lock").acquire(blocking=False)

    assert taken is False


# --- sessions ---


def test_ephemeral_belongs_to_its_session(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()

    client.create(f"{base}/ephemeral", ephemeral=True)

    assert other.exists(f"{base}/ephemeral").ephemeralOwner == client.client_id[0]


def test_ephemerals_are_gone_when_stop_returns(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    client.create(f"{base}/a", ephemeral=True)
    client.create(f"{base}/b", ephemeral=True)
    client.create(f"{base}/stays")

    client.stop()

    assert other.get_children(base) == ["stays"]


def test_stop_fires_the_watches_on_ephemerals(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    events: queue.Queue[Any] = queue.Queue()
    client.create(f"{base}/ephemeral", ephemeral=True)
    other.exists(f"{base}/ephemeral", watch=events.put)

    client.stop()

    assert events.get(timeout=WAIT_S).type == EventType.DELETED


@pytest.mark.slow
def test_ephemerals_of_a_killed_process_go_within_session_timeout_and_tick(
    kazoo: Connect, base: str, daemon: DaemonProcess
) -> None:
    client = kazoo()
    child, _ = start_child(daemon.hosts, f"{base}/ephemeral")
    gone = threading.Event()
    client.exists(f"{base}/ephemeral", watch=lambda event: gone.set())

    killed_at = time.monotonic()
    with child:
        child.kill()
    there_without_connection = client.exists(f"{base}/ephemeral") is not None

    assert there_without_connection
    assert gone.wait(WAIT_S)
    assert time.monotonic() - killed_at <= 1.0 + TICK_S + ALLOWANCE_S
    assert client.exists(f"{base}/ephemeral") is None


@pytest.mark.slow
def test_session_of_a_killed_process_is_resumed_with_its_password(
    kazoo: Connect, base: str, daemon: DaemonProcess
) -> None:
    other = kazoo()
    child, (session, password) = start_child(daemon.hosts, f"{base}/ephemeral")

    with child:
        child.kill()
    heir = kazoo(client_id=(session, password), timeout=4.0)
    time_of_death = time.monotonic() + 1.0 + TICK_S + ALLOWANCE_S
    threading.Event().wait(time_of_death - time.monotonic())  # that nothing happens cannot be waited for otherwise

    assert heir.client_id[0] == session
    assert other.exists(f"{base}/ephemeral").ephemeralOwner == session


def test_session_is_not_resumed_with_a_wrong_password(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    session, _ = client.client_id
    client.create(f"{base}/ephemeral", ephemeral=True)

    thief = kazoo(client_id=(session, bytes(16)))

    assert thief.client_id[0] != session
    assert other.exists(f"{base}/ephemeral").ephemeralOwner == session


def test_wrong_password_costs_the_owner_its_connection_but_not_its_session(kazoo: Connect) -> None:
    # ZooKeeperServer.processConnectRequest closes the session's connection before reopenSession looks at the password.
    client = kazoo()
    session = client.client_id
    states = record_states(client)

    kazoo(client_id=(session[0], bytes(16)))
    observed = [states.get(timeout=WAIT_S) for _ in range(2)]

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.client_id == session


def test_dropped_connection_keeps_session_and_ephemerals(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    session = client.client_id
    states = record_states(client)
    client.create(f"{base}/ephemeral", ephemeral=True)
    created = other.exists(f"{base}/ephemeral")

    drop(client)
    observed = [states.get(timeout=WAIT_S) for _ in range(2)]

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.client_id == session
    assert client.exists(f"{base}/ephemeral") == created


@pytest.mark.slow
def test_session_survives_many_dropped_connections(kazoo: Connect, base: str) -> None:
    client = kazoo()
    session = client.client_id
    states = record_states(client)
    client.create(f"{base}/ephemeral", ephemeral=True)

    observed = [drop(client) or (states.get(timeout=WAIT_S), states.get(timeout=WAIT_S)) for _ in range(3)]

    assert observed == [(KazooState.SUSPENDED, KazooState.CONNECTED)] * 3
    assert client.client_id == session
    assert client.exists(f"{base}/ephemeral").ephemeralOwner == session[0]


@pytest.mark.slow
def test_client_whose_session_was_closed_elsewhere_learns_that_it_is_lost(
    kazoo: Connect, base: str, daemon: DaemonProcess
) -> None:
    client = kazoo()
    session = client.client_id
    states = record_states(client)
    client.create(f"{base}/ephemeral", ephemeral=True)

    client.set_hosts(NOWHERE)  # so that it does not take its session back at once
    drop(client)
    suspended = states.get(timeout=WAIT_S)
    kazoo(client_id=session).stop()
    client.set_hosts(daemon.hosts)
    back = [states.get(timeout=WAIT_S) for _ in range(2)]

    assert [suspended, *back] == [KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED]
    assert client.client_id[0] != session[0]
    assert client.exists(f"{base}/ephemeral") is None


@pytest.mark.slow
def test_idle_client_keeps_its_session_by_pings(kazoo: Connect, base: str) -> None:
    client = kazoo(timeout=1.0)
    states = record_states(client)
    client.create(f"{base}/ephemeral", ephemeral=True)

    with pytest.raises(queue.Empty):
        states.get(timeout=1.0 + 2 * TICK_S)

    assert client.exists(f"{base}/ephemeral") is not None


def test_restarted_client_has_a_new_session(kazoo: Connect, base: str) -> None:
    client = kazoo()
    session = client.client_id
    client.create(f"{base}/ephemeral", ephemeral=True)

    client.restart()

    assert client.client_id[0] != session[0]
    assert client.exists(f"{base}/ephemeral") is None


# --- access ---


def test_digest_node_is_closed_to_a_stranger(kazoo: Connect, base: str) -> None:
    owner, stranger = kazoo(), kazoo()
    acl = [make_digest_acl("ann", "secret", all=True)]

    owner.create(f"{base}/closed", b"data", acl=acl)

    with pytest.raises(NoAuthError):
        stranger.get(f"{base}/closed")


def test_digest_node_is_open_to_who_knows_the_password(kazoo: Connect, base: str) -> None:
    owner, friend = kazoo(), kazoo()
    owner.create(f"{base}/closed", b"data", acl=[make_digest_acl("ann", "secret", all=True)])

    friend.add_auth("digest", "ann:secret")

    assert friend.get(f"{base}/closed")[0] == b"data"
    assert friend.set(f"{base}/closed", b"more").version == 1


def test_digest_node_is_closed_to_a_wrong_password(kazoo: Connect, base: str) -> None:
    owner, stranger = kazoo(), kazoo()
    owner.create(f"{base}/closed", acl=[make_digest_acl("ann", "secret", all=True)])

    stranger.add_auth("digest", "ann:guess")

    with pytest.raises(NoAuthError):
        stranger.get(f"{base}/closed")


def test_auth_data_is_sent_again_after_a_dropped_connection(kazoo: Connect, base: str) -> None:
    client = kazoo(auth_data=[("digest", "ann:secret")])
    states = record_states(client)
    client.create(f"{base}/closed", b"data", acl=CREATOR_ALL_ACL)

    drop(client)
    observed = [states.get(timeout=WAIT_S) for _ in range(2)]

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.get(f"{base}/closed")[0] == b"data"


def test_creator_acl_becomes_the_digest_of_the_creator(kazoo: Connect, base: str) -> None:
    client = kazoo(auth_data=[("digest", "ann:secret")])

    client.create(f"{base}/closed", acl=CREATOR_ALL_ACL)

    acls, _ = client.get_acls(f"{base}/closed")
    assert acls == [make_digest_acl("ann", "secret", all=True)]


def test_creator_acl_without_authentication_is_invalid(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(InvalidACLError):
        client.create(f"{base}/closed", acl=CREATOR_ALL_ACL)


def test_read_permission_does_not_include_write(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/read-only", b"data", acl=[make_acl("world", "anyone", read=True)])

    data, _ = client.get(f"{base}/read-only")

    assert data == b"data"
    with pytest.raises(NoAuthError):
        client.set(f"{base}/read-only", b"more")


def test_create_needs_permission_on_the_parent(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/parent", acl=[make_acl("world", "anyone", read=True, write=True, delete=True)])

    with pytest.raises(NoAuthError):
        client.create(f"{base}/parent/child")


def test_delete_needs_permission_on_the_parent_and_not_on_the_node(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/parent", acl=[make_acl("world", "anyone", create=True, delete=True)])
    client.create(f"{base}/parent/child", acl=[make_digest_acl("ann", "secret", all=True)])

    client.delete(f"{base}/parent/child")

    assert client.exists(f"{base}/parent/child") is None


def test_set_acls_raises_the_acl_version_and_closes_the_node(kazoo: Connect, base: str) -> None:
    client, stranger = kazoo(auth_data=[("digest", "ann:secret")]), kazoo()

    stat = client.set_acls(base, [make_digest_acl("ann", "secret", all=True)], version=0)

    assert stat.aversion == 1
    with pytest.raises(NoAuthError):
        stranger.get(base)


def test_set_acls_with_a_wrong_version_is_refused(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(BadVersionError):
        client.set_acls(base, [make_acl("world", "anyone", read=True)], version=7)


def test_transaction_without_permission_applies_nothing(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/closed", acl=[make_digest_acl("ann", "secret", all=True)])

    transaction = client.transaction()
    transaction.create(f"{base}/new")
    transaction.set_data(f"{base}/closed", b"data")
    results = transaction.commit()

    assert [type(result) for result in results] == [RolledBackError, NoAuthError]
    assert client.exists(f"{base}/new") is None


def test_unknown_scheme_fails_and_ends_the_connection(kazoo: Connect) -> None:
    client = kazoo()

    with pytest.raises(AuthFailedError):
        client.add_auth("nosuch", "ann:secret")


# --- locks ---


def test_lock_excludes_another_client(kazoo: Connect, base: str) -> None:
    one, two = kazoo().Lock(f"{base}/lock", "one"), kazoo().Lock(f"{base}/lock", "two")

    one.acquire()

    assert two.acquire(blocking=False) is False
    one.release()
    assert two.acquire(blocking=False) is True


def test_lock_passes_in_the_order_of_arrival(kazoo: Connect, base: str, background: Background, until: Until) -> None:
    locks = [kazoo().Lock(f"{base}/lock", name) for name in ("one", "two", "three")]
    locks[0].acquire()
    second = background(locks[1].acquire)
    until(lambda: locks[0].contenders() == ["one", "two"])
    third = background(locks[2].acquire)
    until(lambda: locks[0].contenders() == ["one", "two", "three"])

    locks[0].release()

    assert second.result(WAIT_S) is True
    assert not third.done()
    locks[1].release()
    assert third.result(WAIT_S) is True


def test_lock_attempt_times_out_and_leaves_no_contender(kazoo: Connect, base: str) -> None:
    one, two = kazoo().Lock(f"{base}/lock", "one"), kazoo().Lock(f"{base}/lock", "two")
    one.acquire()

    with pytest.raises(LockTimeout):
        two.acquire(timeout=0.05)

    assert one.contenders() == ["one"]


def test_lock_moves_on_when_its_holder_stops(kazoo: Connect, base: str, background: Background, until: Until) -> None:
    holder = kazoo()
    holder.Lock(f"{base}/lock", "one").acquire()
    lock = kazoo().Lock(f"{base}/lock", "two")
    waiting = background(lock.acquire)
    until(lambda: lock.contenders() == ["one", "two"])

    holder.stop()

    assert waiting.result(WAIT_S) is True


def test_lock_is_kept_over_a_dropped_connection(kazoo: Connect, base: str) -> None:
    holder = kazoo()
    lock = holder.Lock(f"{base}/lock", "one")
    lock.acquire()
    states = record_states(holder)

    drop(holder)
    observed = [states.get(timeout=WAIT_S) for _ in range(2)]

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert kazoo().Lock(f"{base}/lock", "two").acquire(blocking=False) is False
    assert lock.release() is True


def test_waiting_for_a_lock_survives_a_dropped_connection(
    kazoo: Connect, base: str, background: Background, until: Until
) -> None:
    one, client = kazoo().Lock(f"{base}/lock", "one"), kazoo()
    one.acquire()
    states = record_states(client)
    waiting = background(client.Lock(f"{base}/lock", "two").acquire)
    until(lambda: one.contenders() == ["one", "two"])

    drop(client)
    observed = [states.get(timeout=WAIT_S) for _ in range(2)]
    one.release()

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert waiting.result(WAIT_S) is True


def test_readers_share_and_keep_a_writer_out(kazoo: Connect, base: str) -> None:
    readers = [kazoo().ReadLock(f"{base}/lock") for _ in range(2)]
    writer = kazoo().WriteLock(f"{base}/lock")

    shared = [reader.acquire(blocking=False) for reader in readers]

    assert shared == [True, True]
    assert writer.acquire(blocking=False) is False


def test_writer_gets_in_when_the_last_reader_leaves(
    kazoo: Connect, base: str, background: Background, until: Until
) -> None:
    readers = [kazoo().ReadLock(f"{base}/lock", "reader") for _ in range(2)]
    writer = kazoo().WriteLock(f"{base}/lock", "writer")
    readers[0].acquire()
    readers[1].acquire()
    waiting = background(writer.acquire)
    until(lambda: writer.contenders() == ["reader", "reader", "writer"])

    readers[1].release()
    readers[0].release()

    assert waiting.result(WAIT_S) is True


def test_writer_keeps_readers_and_writers_out(kazoo: Connect, base: str) -> None:
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


def test_semaphore_lets_as_many_in_as_it_has_leases(kazoo: Connect, base: str) -> None:
    one, two, three = (kazoo().Semaphore(f"{base}/semaphore", name, max_leases=2) for name in ("one", "two", "three"))

    one.acquire()
    two.acquire()

    assert three.acquire(blocking=False) is False
    assert sorted(three.lease_holders()) == ["one", "two"]


def test_semaphore_wakes_a_waiter_when_a_lease_is_free(
    kazoo: Connect, base: str, background: Background, until: Until
) -> None:
    one, two = (kazoo().Semaphore(f"{base}/semaphore", name, max_leases=1) for name in ("one", "two"))
    client = kazoo()
    one.acquire()
    waiting = background(two.acquire)
    until(lambda: client.get_children(f"{base}/semaphore-__lock__"))

    one.release()

    assert waiting.result(WAIT_S) is True
    assert one.lease_holders() == ["two"]


def test_semaphore_refuses_another_number_of_leases(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.Semaphore(f"{base}/semaphore", max_leases=2).acquire()

    with pytest.raises(ValueError, match="Inconsistent max leases: 2, expected: 3"):
        client.Semaphore(f"{base}/semaphore", max_leases=3).acquire()


def test_lease_is_refused_to_others_till_it_is_stopped(kazoo: Connect, base: str) -> None:
    one, two = kazoo(), kazoo()
    hour = datetime.timedelta(hours=1)

    first = bool(one.NonBlockingLease(f"{base}/lease", hour, identifier="one"))
    second = bool(two.NonBlockingLease(f"{base}/lease", hour, identifier="two"))

    assert (first, second) == (True, False)


# --- elections and barriers ---


def test_election_has_one_leader_at_a_time(kazoo: Connect, base: str, background: Background, until: Until) -> None:
    one, two = kazoo().Election(f"{base}/election", "one"), kazoo().Election(f"{base}/election", "two")
    leads, resign, leads_too = threading.Event(), threading.Event(), threading.Event()

    first = background(one.run, lambda: (leads.set(), resign.wait(WAIT_S)))
    assert leads.wait(WAIT_S)
    second = background(two.run, leads_too.set)
    until(lambda: one.contenders() == ["one", "two"])
    early = leads_too.is_set()
    resign.set()

    first.result(WAIT_S)
    second.result(WAIT_S)
    assert early is False
    assert leads_too.is_set()


def test_cancelled_candidate_leaves_the_election(
    kazoo: Connect, base: str, background: Background, until: Until
) -> None:
    one, two = kazoo().Election(f"{base}/election", "one"), kazoo().Election(f"{base}/election", "two")
    leads, resign, leads_too = threading.Event(), threading.Event(), threading.Event()
    first = background(one.run, lambda: (leads.set(), resign.wait(WAIT_S)))
    assert leads.wait(WAIT_S)
    second = background(two.run, leads_too.set)
    until(lambda: one.contenders() == ["one", "two"])

    two.cancel()
    second.result(WAIT_S)
    left = one.contenders()
    resign.set()
    first.result(WAIT_S)

    assert left == ["one"]
    assert not leads_too.is_set()


def test_barrier_holds_till_it_is_removed(kazoo: Connect, base: str, background: Background) -> None:
    keeper, guest = kazoo().Barrier(f"{base}/barrier"), kazoo().Barrier(f"{base}/barrier")
    keeper.create()

    held = guest.wait(timeout=0.05)
    waiting = background(guest.wait, WAIT_S)
    removed = keeper.remove()

    assert (held, removed) == (False, True)
    assert waiting.result(WAIT_S) is True


def test_barrier_that_does_not_exist_holds_nobody(kazoo: Connect, base: str) -> None:
    barrier = kazoo().Barrier(f"{base}/barrier")

    assert barrier.wait(timeout=0) is True
    assert barrier.remove() is False


def test_double_barrier_lets_all_in_and_all_out_together(
    kazoo: Connect, base: str, background: Background, until: Until
) -> None:
    client = kazoo()
    barriers = [kazoo().DoubleBarrier(f"{base}/barrier", 3) for _ in range(3)]

    entering = [background(barrier.enter) for barrier in barriers[:2]]
    until(lambda: client.exists(f"{base}/barrier") and len(client.get_children(f"{base}/barrier")) == 2)
    early = [future.done() for future in entering]
    entering.append(background(barriers[2].enter))
    _ = [future.result(WAIT_S) for future in entering]
    entered = [barrier.participating for barrier in barriers]
    leaving = [background(barrier.leave) for barrier in barriers]
    _ = [future.result(WAIT_S) for future in leaving]

    assert early == [False, False]
    assert entered == [True, True, True]
    assert client.get_children(f"{base}/barrier") == []


# --- queues and counters ---


def test_queue_returns_by_priority_and_then_by_age(kazoo: Connect, base: str) -> None:
    producer, consumer = kazoo().Queue(f"{base}/queue"), kazoo().Queue(f"{base}/queue")

    producer.put(b"b", priority=100)
    producer.put(b"c", priority=100)
    producer.put(b"a", priority=1)
    length = len(consumer)
    taken = [consumer.get() for _ in range(4)]

    assert length == 3
    assert taken == [b"a", b"b", b"c", None]


def test_two_consumers_share_a_queue_without_overlap(kazoo: Connect, base: str, background: Background) -> None:
    producer = kazoo().Queue(f"{base}/queue")
    consumers = [kazoo(command_retry=quick_retry()).Queue(f"{base}/queue") for _ in range(2)]
    items = [b"%03d" % number for number in range(40)]
    for item in items:
        producer.put(item)

    futures = [background(lambda consumer=consumer: list(iter(consumer.get, None))) for consumer in consumers]
    taken = [item for future in futures for item in future.result(WAIT_S)]

    # A Queue reads, then deletes: who loses the race for the delete tries the next, so nothing is taken twice.
    assert sorted(taken) == items


def quick_retry() -> KazooRetry:
    """Return a retry policy that does not back off for seconds when two clients want the same."""
    return KazooRetry(max_tries=-1, delay=0.002, backoff=1)


def test_locking_queue_gives_an_entry_to_one_consumer(kazoo: Connect, base: str) -> None:
    one, two = kazoo().LockingQueue(f"{base}/queue"), kazoo().LockingQueue(f"{base}/queue")

    one.put(b"a")
    first = one.get(timeout=WAIT_S)
    second = two.get(timeout=0.05)

    assert (first, second) == (b"a", None)
    assert one.holds_lock() is True
    assert one.consume() is True
    assert len(two) == 0


def test_locking_queue_gives_a_released_entry_again(kazoo: Connect, base: str) -> None:
    one, two = kazoo().LockingQueue(f"{base}/queue"), kazoo().LockingQueue(f"{base}/queue")
    one.put(b"a")
    one.get(timeout=WAIT_S)

    released = one.release()

    assert released is True
    assert two.get(timeout=WAIT_S) == b"a"


def test_locking_queue_gives_the_entry_of_a_stopped_consumer_again(
    kazoo: Connect, base: str, background: Background
) -> None:
    client = kazoo()
    one, two = client.LockingQueue(f"{base}/queue"), kazoo().LockingQueue(f"{base}/queue")
    one.put(b"a")
    one.get(timeout=WAIT_S)
    waiting = background(two.get, WAIT_S)

    client.stop()

    assert waiting.result(WAIT_S) == b"a"


def test_locking_queue_puts_many_in_one_transaction(kazoo: Connect, base: str) -> None:
    locking_queue = kazoo().LockingQueue(f"{base}/queue")

    locking_queue.put_all([b"a", b"b", b"c"])

    assert len(locking_queue) == 3
    assert locking_queue.get(timeout=WAIT_S) == b"a"


def test_counter_adds_and_subtracts(kazoo: Connect, base: str) -> None:
    counter = kazoo().Counter(f"{base}/counter")

    counter += 5
    counter -= 2

    assert (counter.pre_value, counter.post_value, counter.value) == (5, 3, 3)


def test_counter_of_floats_keeps_its_type(kazoo: Connect, base: str) -> None:
    client = kazoo()
    counter = client.Counter(f"{base}/counter", default=1.0)

    counter += 1.5

    assert client.Counter(f"{base}/counter", default=0.0).value == 2.5


def test_counter_loses_nothing_between_clients(kazoo: Connect, base: str, background: Background) -> None:
    counters = [kazoo(command_retry=quick_retry()).Counter(f"{base}/counter") for _ in range(3)]

    futures = [background(lambda counter=counter: [counter + 1 for _ in range(20)]) for counter in counters]
    _ = [future.result(WAIT_S) for future in futures]

    assert counters[0].value == 60


# --- groups ---


def test_party_knows_its_members(kazoo: Connect, base: str) -> None:
    one, two = kazoo().Party(f"{base}/party", "one"), kazoo().Party(f"{base}/party", "two")

    one.join()
    two.join()
    both = sorted(one)
    one.leave()

    assert both == ["one", "two"]
    assert (list(two), len(two)) == (["two"], 1)


def test_party_loses_a_member_that_stops(kazoo: Connect, base: str) -> None:
    client, party = kazoo(), kazoo().Party(f"{base}/party", "two")
    client.Party(f"{base}/party", "one").join()
    party.join()

    client.stop()

    assert list(party) == ["two"]


def test_shallow_party_keeps_the_names_in_the_nodes(kazoo: Connect, base: str) -> None:
    one, two = kazoo().ShallowParty(f"{base}/party", "one"), kazoo().ShallowParty(f"{base}/party", "two")

    one.join()
    two.join()

    assert sorted(one) == ["one", "two"]


def partition(client: KazooClient, path: str, name: str) -> SetPartitioner:
    """Return a member that divides four letters among its group."""
    return client.SetPartitioner(path, ("a", "b", "c", "d"), identifier=name, time_boundary=0.1, max_reaction_time=0.2)


def acquired(*members: SetPartitioner) -> bool:
    """Take the next step of every member; return whether all have their share."""
    _ = [member.release_set() for member in members if member.release]
    return all(member.acquired for member in members)


@pytest.mark.slow
def test_set_partitioner_divides_a_set_and_divides_it_anew(kazoo: Connect, base: str, until: Until) -> None:
    one = partition(kazoo(), f"{base}/set", "one")
    until(lambda: acquired(one))
    alone = sorted(one)

    two = partition(kazoo(), f"{base}/set", "two")
    until(lambda: acquired(one, two))
    shares = sorted(one), sorted(two)
    one.finish()
    until(lambda: two.release)
    until(lambda: acquired(two))
    left = sorted(two)
    two.finish()

    assert alone == ["a", "b", "c", "d"]
    assert shares == (["a", "c"], ["b", "d"])
    assert left == ["a", "b", "c", "d"]
