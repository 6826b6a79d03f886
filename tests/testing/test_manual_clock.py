"""A manual clock: sessions and nodes that expire when the test advances the clock, with their times and order."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kazoo.client import KazooClient
from support.waiting import DEADLINE_S
from support.wire import EPHEMERAL, Wire

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server, Znode, delay

DAY: Final = 86_400.0
STOPPED_TIMEOUT_S: Final = 1.0
NO_RECONNECT: Final = {"max_tries": 0}  # kazoo need not reconnect in these tests
CREATED, DELETED = 1, 2
RECURSIVE: Final = 1
NEAR_HUNDREDS: Final = st.builds(lambda n, off: n * 100 + off, st.integers(1, 9), st.integers(-1, 1))  # milliseconds


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with a manual clock."""
    with Server(clock="manual", seed=1) as server:
        yield server


def witness(server: Server, wires: ExitStack) -> Wire:
    """Open a session with a timeout of a day that is notified of all changes of the tree."""
    wire = wires.enter_context(Wire(server, DAY)).welcomed()
    assert wire.ask(OpCode.ADD_WATCH, r.AddWatchRequest("/", RECURSIVE)) == 0
    return wire


def deleted(wire: Wire) -> list[str]:
    """Return the deleted nodes, in order."""
    assert wire.ask(OpCode.PING) == 0
    gone = [path for kind, path in wire.events if kind == DELETED]
    wire.events.clear()
    return gone


# --- due sessions and nodes ---


@pytest.mark.parametrize("timeout", [0.1, 0.25, 1.234, 10.0, 3600.0])
def test_session_lives_until_its_deadline(server: Server, wires: ExitStack, timeout: float) -> None:
    session = wires.enter_context(Wire(server, timeout)).welcomed()
    session.create("/e", EPHEMERAL)

    server.advance(timeout - 0.001)
    assert set(server.tree()) == {"/e"}
    server.advance(0.001)

    assert (dict(server.tree()), dict(server.sessions())) == ({}, {})


def test_session_of_ten_seconds_expires_on_time(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    server.advance(9.999)
    assert set(server.sessions()) == {session.id}
    server.advance(0.001)
    assert not server.sessions()


def test_idle_connection_does_not_keep_session(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    server.advance(10)

    with pytest.raises(EOFError):
        session.payload()


def test_ping_extends_deadline_of_session(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    for _ in range(5):
        server.advance(9)
        assert session.ask(OpCode.PING) == 0
    server.advance(9.999)
    assert set(server.sessions()) == {session.id}
    server.advance(0.001)

    assert not server.sessions()


def test_session_view_shows_time_until_expiry(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    server.advance(2.5)

    assert server.sessions()[session.id].expires_in == pytest.approx(7.5, abs=0.0011)


def test_manual_time_advances_only_by_call(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 0.1)).welcomed()
    began = time.monotonic()

    server.wait_for(lambda: time.monotonic() - began > 0.25)  # real time of more than twice the timeout

    assert set(server.sessions()) == {session.id}


def test_kazoo_sessions_expire_in_order_of_deadlines(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    clients = {
        timeout: KazooClient(server.hosts, timeout=timeout, connection_retry=NO_RECONNECT) for timeout in (40, 20, 30)
    }
    for timeout, client in clients.items():
        client.start(DEADLINE_S)
        client.create(f"/e{timeout}", ephemeral=True)

    server.advance(19.999)
    assert deleted(observer) == []
    server.advance(15)
    assert deleted(observer) == ["/e20", "/e30"]
    server.advance(10)
    assert deleted(observer) == ["/e40"]

    for client in clients.values():
        client.stop()
        client.close()


def test_sessions_and_ttl_nodes_expire_by_deadline(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    for timeout in (7, 3, 5):
        wires.enter_context(Wire(server, timeout)).welcomed().create(f"/session{timeout}", EPHEMERAL)
    server.populate({f"/ttl{ttl}": Znode(ttl=ttl) for ttl in (6, 2, 4)} | {"/stays": "x"})

    server.advance(100)

    assert deleted(observer) == ["/ttl2", "/session3", "/ttl4", "/session5", "/ttl6", "/session7"]
    assert set(server.tree()) == {"/stays"}


def test_ttl_node_and_session_expire_at_own_time(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    server.populate({"/first": Znode(ttl=1)})
    wires.enter_context(Wire(server, 2)).welcomed().create("/second", EPHEMERAL)
    seen = []

    for _ in range(30):
        server.advance(0.1)
        seen.append(deleted(observer))

    assert [(at, paths) for at, paths in enumerate(seen, 1) if paths] == [(11, ["/first"]), (20, ["/second"])]


def test_ttl_counts_from_last_change(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    server.populate({"/t": Znode(ttl=5)})

    server.advance(4)
    assert observer.ask(OpCode.SET_DATA, r.SetDataRequest("/t", b"new", -1)) == 0
    server.advance(5)  # like in ZooKeeper, a node is deleted once it is older than its TTL, not at that age
    assert set(server.tree()) == {"/t"}
    server.advance(0.001)

    assert dict(server.tree()) == {}


def test_ttl_node_outlives_its_children(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    server.populate({"/t": Znode(ttl=1, children={"c": Znode(ttl=3)})})

    server.advance(2.999)
    assert set(server.tree()) == {"/t", "/t/c"}
    server.advance(10)

    assert deleted(observer) == ["/t/c", "/t"]


def test_container_is_deleted_after_last_child(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    server.populate({"/c": Znode(container=True, children={"a": "", "b": ""}), "/unused": Znode(container=True)})

    server.advance(1000)
    assert set(server.tree()) == {"/c", "/c/a", "/c/b", "/unused"}
    observer.ask(OpCode.DELETE, r.DeleteRequest("/c/a", -1))
    server.advance(1000)
    assert set(server.tree()) == {"/c", "/c/b", "/unused"}
    observer.ask(OpCode.DELETE, r.DeleteRequest("/c/b", -1))
    server.advance(1000)

    assert set(server.tree()) == {"/unused"}
    assert deleted(observer) == ["/c/a", "/c/b", "/c"]


def test_container_is_deleted_after_its_last_ephemeral(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    server.populate({"/locks": Znode(container=True)})
    wires.enter_context(Wire(server, 10)).welcomed().create("/locks/mine", EPHEMERAL)

    server.advance(1000)

    assert deleted(observer) == ["/locks/mine", "/locks"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("open"), NEAR_HUNDREDS.filter(lambda ms: ms >= 100)),
            st.tuples(st.just("ping"), st.integers(0, 20)),
            st.tuples(st.just("ttl"), NEAR_HUNDREDS),
            st.tuples(st.just("advance"), NEAR_HUNDREDS),
        ),
        min_size=3,
        max_size=25,
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_due_nodes_and_sessions_expire_in_order(steps: list[tuple[str, int]]) -> None:
    """Compare with a model: the deadline of every node and session, in milliseconds."""
    now = 0
    due: dict[str, int] = {}
    timeouts: dict[str, int] = {}
    sessions: dict[str, Wire] = {}
    with Server(clock="manual") as server, ExitStack() as wires:
        observer = witness(server, wires)
        for number, (what, value) in enumerate(steps):
            name = f"/{what}{number}"
            if what == "open":
                sessions[name] = wires.enter_context(Wire(server, value / 1000)).welcomed()
                sessions[name].create(name, EPHEMERAL)
                timeouts[name], due[name] = value, now + value
            elif what == "ttl":
                server.populate({name: Znode(ttl=value / 1000)})
                due[name] = now + value + 1  # like in ZooKeeper, a node has to be older than its TTL
            elif what == "ping" and sessions:
                name = list(sessions)[value % len(sessions)]
                sessions[name].ask(OpCode.PING)
                due[name] = now + timeouts[name]
            elif what == "advance":
                server.advance(value / 1000)
                now += value
                ended = [name for name, at in due.items() if at <= now]
                gone = deleted(observer)
                assert sorted(gone) == sorted(ended)
                assert [due[name] for name in gone] == sorted(due[name] for name in ended)
                for name in gone:
                    del due[name]
                    sessions.pop(name, None)
            assert set(server.tree()) == set(due)


# --- advance ---


def test_advance_by_many_days_is_quick(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, DAY)).welcomed()
    session.create("/e", EPHEMERAL)
    server.populate({f"/t{hour}": Znode(ttl=3600 * hour) for hour in range(1, 100)})
    began = time.process_time()

    server.advance(1000 * DAY)

    assert time.process_time() - began < 1.0
    assert dict(server.tree()) == {}


def test_expiry_of_200_sessions_takes_under_a_second(server: Server) -> None:
    with ExitStack() as wires:
        for i in range(200):
            wires.enter_context(Wire(server, 10 + i / 100)).welcomed()
        began = time.process_time()
        server.advance(20)
        assert time.process_time() - began < 1.0
        assert not server.sessions()


def test_nodes_have_manual_time(server: Server) -> None:
    server.populate({"/a": "x"})
    server.advance(12.5)
    server.populate({"/b": "x"})

    tree = server.tree()
    assert tree["/b"].ctime - tree["/a"].ctime == pytest.approx(12.5)


def test_advance_by_zero_has_no_effect(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    server.advance(0)

    assert set(server.sessions()) == {session.id}


def test_small_advances_add_up(server: Server, wires: ExitStack) -> None:
    wires.enter_context(Wire(server, 0.1)).welcomed()
    for _ in range(99):
        server.advance(0.001)
    assert len(server.sessions()) == 1
    server.advance(0.001)

    assert not server.sessions()


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan")])
def test_advance_by_negative_time_is_refused(server: Server, seconds: float) -> None:
    with pytest.raises(ValueError, match=str(seconds)):
        server.advance(seconds)


@pytest.mark.parametrize("seconds", ["x", None, float("inf")])
def test_invalid_time_raises_value_error(server: Server, seconds: Any) -> None:
    with pytest.raises(ValueError, match=str(seconds)):
        server.advance(seconds)


def test_real_clock_cannot_be_advanced() -> None:
    with Server() as server, pytest.raises(ValueError, match="advance needs a manual clock: Server"):
        server.advance(1)


async def test_advance_in_server_loop_is_immediate() -> None:
    async with Server(clock="manual") as server:
        server.populate({"/t": Znode(ttl=5)})
        server.advance(5)
        assert set(server.tree()) == {"/t"}
        server.advance(0.001)
        assert dict(server.tree()) == {}


def test_delay_lasts_until_clock_is_advanced(server: Server, wires: ExitStack) -> None:
    slow, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))
    with server.fault(delay(5), "create", client=slow.id) as fault:
        slow.send(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0))
        server.wait_for(lambda: fault.hits == 1)
        server.advance(4.999)
        assert other.ask(OpCode.PING) == 0
        assert not slow.has_something()
        assert dict(server.tree()) == {}
        server.advance(0.001)
        assert slow.reply() == 0

    assert set(server.tree()) == {"/a"}


def test_delay_ends_in_order_during_advance(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    slow = wires.enter_context(Wire(server)).welcomed()
    server.populate({"/before": Znode(ttl=4), "/after": Znode(ttl=6)})
    with server.fault(delay(5), "create", client=slow.id) as fault:
        slow.send(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0))
        server.wait_for(lambda: fault.hits == 1)
        server.advance(10)
        assert slow.reply() == 0
    observer.ask(OpCode.PING)

    assert observer.events[2:] == [(DELETED, "/before"), (CREATED, "/a"), (DELETED, "/after")]


# --- repeatability ---


def test_same_seed_gives_same_session_ids_and_times() -> None:
    def story(seed: int) -> tuple[list[int], list[bytes], dict[str, Any]]:
        with Server(clock="manual", seed=seed) as server, ExitStack() as wires:
            sessions = []
            for i in range(3):
                sessions.append(wires.enter_context(Wire(server)).welcomed())
                sessions[-1].create(f"/n{i}")
                server.advance(1.5)
            return [one.id for one in sessions], [one.password for one in sessions], dict(server.tree())

    assert story(7) == story(7)


# --- a stopped process ---


@pytest.mark.slow
def test_stopped_process_loses_no_session() -> None:
    code = f"""
import sys
from kazoo.client import KazooClient
from zoolet.testing import Server

with Server(clock="manual") as server:
    client = KazooClient(server.hosts, timeout={STOPPED_TIMEOUT_S})
    client.start({DEADLINE_S})
    states = []
    client.add_listener(states.append)
    client.create("/e", ephemeral=True)
    before = client.client_id
    print("ready", flush=True)
    sys.stdin.readline()
    client.retry(client.set, "/e", b"still here")
    assert client.client_id == before, "another session"
    assert list(server.sessions()) == [before[0]], server.sessions()
    assert server.tree()["/e"].ephemeral_owner == before[0], "the ephemeral node is gone"
    assert "LOST" not in states, states
    print("fine", flush=True)
    client.stop()
    client.close()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(3 * STOPPED_TIMEOUT_S)  # the test needs this much real time
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate("go on\n", timeout=DEADLINE_S)

    assert (process.returncode, out) == (0, "fine\n"), err
