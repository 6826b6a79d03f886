"""kazoo's sessions: dropped connections, killed processes, expiry and resumption."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.protocol.states import EventType
from support.daemon import DaemonProcess
from support.kazoo_clients import drop_connection, record_states
from support.waiting import DEADLINE_S

TICK_S = 0.2  # tick of the daemon
ALLOWANCE_S = 0.25  # allowance for slow threads and processes
UNREACHABLE = "127.0.0.1:1"
Connect = Callable[..., KazooClient]
CHILD_PROGRAM = """
import sys, threading
from kazoo.client import KazooClient

client = KazooClient(sys.argv[1], timeout=1.0)
client.start()
client.create(sys.argv[2], ephemeral=True)
print(client.client_id[0], client.client_id[1].hex(), flush=True)
threading.Event().wait()
"""


def start_child(hosts: str, path: str) -> tuple[subprocess.Popen[str], tuple[int, bytes]]:
    """Start a process that creates an ephemeral node. Once the node exists, return the process with the id and password
    of its session.
    """
    child = subprocess.Popen([sys.executable, "-c", CHILD_PROGRAM, hosts, path], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    session, password = child.stdout.readline().split()
    return child, (int(session), bytes.fromhex(password))


def test_ephemeral_node_belongs_to_session_of_creator(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()

    client.create(f"{base}/ephemeral", ephemeral=True)

    assert other.exists(f"{base}/ephemeral").ephemeralOwner == client.client_id[0]


def test_ephemeral_nodes_are_deleted_when_client_stop_returns(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    client.create(f"{base}/a", ephemeral=True)
    client.create(f"{base}/b", ephemeral=True)
    client.create(f"{base}/stays")

    client.stop()

    assert other.get_children(base) == ["stays"]


def test_client_stop_fires_watches_on_its_ephemeral_nodes(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    events: queue.Queue[Any] = queue.Queue()
    client.create(f"{base}/ephemeral", ephemeral=True)
    other.exists(f"{base}/ephemeral", watch=events.put)

    client.stop()

    assert events.get(timeout=DEADLINE_S).type == EventType.DELETED


@pytest.mark.slow
def test_ephemeral_nodes_of_killed_process_are_deleted(kazoo: Connect, base: str, daemon: DaemonProcess) -> None:
    client = kazoo()
    child, _ = start_child(daemon.hosts, f"{base}/ephemeral")
    gone = threading.Event()
    client.exists(f"{base}/ephemeral", watch=lambda event: gone.set())

    with child:
        child.kill()
    there_without_connection = client.exists(f"{base}/ephemeral") is not None

    assert there_without_connection
    assert gone.wait(DEADLINE_S)
    assert client.exists(f"{base}/ephemeral") is None


@pytest.mark.slow
def test_session_of_killed_process_can_be_resumed(kazoo: Connect, base: str, daemon: DaemonProcess) -> None:
    other = kazoo()
    child, (session, password) = start_child(daemon.hosts, f"{base}/ephemeral")

    with child:
        child.kill()
    heir = kazoo(client_id=(session, password), timeout=4.0)
    time_of_death = time.monotonic() + 1.0 + TICK_S + ALLOWANCE_S
    threading.Event().wait(time_of_death - time.monotonic())  # the test must wait, because no event marks this moment

    assert heir.client_id[0] == session
    assert other.exists(f"{base}/ephemeral").ephemeralOwner == session


def test_session_is_not_resumed_with_wrong_password(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    session, _ = client.client_id
    client.create(f"{base}/ephemeral", ephemeral=True)

    thief = kazoo(client_id=(session, bytes(16)))

    assert thief.client_id[0] != session
    assert other.exists(f"{base}/ephemeral").ephemeralOwner == session


def test_wrong_session_password_costs_connection_not_session(kazoo: Connect) -> None:
    # ZooKeeperServer.processConnectRequest closes the session's connection before reopenSession checks the password.
    client = kazoo()
    session = client.client_id
    states = record_states(client)

    kazoo(client_id=(session[0], bytes(16)))
    observed = [states.get(timeout=DEADLINE_S) for _ in range(2)]

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.client_id == session


def test_ephemerals_survive_dropped_connection(kazoo: Connect, base: str) -> None:
    client, other = kazoo(), kazoo()
    session = client.client_id
    states = record_states(client)
    client.create(f"{base}/ephemeral", ephemeral=True)
    created = other.exists(f"{base}/ephemeral")

    drop_connection(client)
    observed = [states.get(timeout=DEADLINE_S) for _ in range(2)]

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.client_id == session
    assert client.exists(f"{base}/ephemeral") == created


@pytest.mark.slow
def test_session_survives_many_dropped_connections(kazoo: Connect, base: str) -> None:
    client = kazoo()
    session = client.client_id
    states = record_states(client)
    client.create(f"{base}/ephemeral", ephemeral=True)

    observed = [
        drop_connection(client) or (states.get(timeout=DEADLINE_S), states.get(timeout=DEADLINE_S)) for _ in range(3)
    ]

    assert observed == [(KazooState.SUSPENDED, KazooState.CONNECTED)] * 3
    assert client.client_id == session
    assert client.exists(f"{base}/ephemeral").ephemeralOwner == session[0]


@pytest.mark.slow
def test_client_detects_closed_session(kazoo: Connect, base: str, daemon: DaemonProcess) -> None:
    client = kazoo()
    session = client.client_id
    states = record_states(client)
    client.create(f"{base}/ephemeral", ephemeral=True)

    client.set_hosts(UNREACHABLE)  # prevents the client from resuming its session immediately
    drop_connection(client)
    suspended = states.get(timeout=DEADLINE_S)
    kazoo(client_id=session).stop()
    client.set_hosts(daemon.hosts)
    back = [states.get(timeout=DEADLINE_S) for _ in range(2)]

    assert [suspended, *back] == [KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED]
    assert client.client_id[0] != session[0]
    assert client.exists(f"{base}/ephemeral") is None


@pytest.mark.slow
def test_pings_keep_session_of_idle_client(kazoo: Connect, base: str) -> None:
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
