"""A clock that only the test moves: what ends on the way, at which moment, and in which order."""

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
from support.wire import DEADLINE_S, EPHEMERAL, Wire

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server import Server
from zoolet.server.testing import Znode, delay

DAY: Final = 86_400.0
STOPPED_TIMEOUT_S: Final = 1.0
NEVER: Final = {"max_tries": 0}  # kazoo need not come back in these tests
CREATED, DELETED = 1, 2
RECURSIVE: Final = 1
NEAR_HUNDREDS: Final = st.builds(lambda n, off: n * 100 + off, st.integers(1, 9), st.integers(-1, 1))  # milliseconds


@pytest.fixture
def server() -> Iterator[Server]:
    """A server whose time stands still."""
    with Server(clock="manual", seed=1) as server:
        yield server


def witness(server: Server, wires: ExitStack) -> Wire:
    """Open a session that lives for a day and is notified of all changes of the tree."""
    wire = wires.enter_context(Wire(server, DAY)).welcomed()
    assert wire.ask(OpCode.ADD_WATCH, r.AddWatchRequest("/", RECURSIVE)) == 0
    return wire


def deleted(wire: Wire) -> list[str]:
    """Return the nodes that are gone, in order."""
    assert wire.ask(OpCode.PING) == 0
    gone = [path for kind, path in wire.events if kind == DELETED]
    wire.events.clear()
    return gone


# --- what is due, and only that ---


@pytest.mark.parametrize("timeout", [0.1, 0.25, 1.234, 10.0, 3600.0])
def test_a_session_lives_until_its_very_deadline(server: Server, wires: ExitStack, timeout: float) -> None:
    session = wires.enter_context(Wire(server, timeout)).welcomed()
    session.create("/e", EPHEMERAL)

    server.advance(timeout - 0.001)
    assert set(server.tree()) == {"/e"}
    server.advance(0.001)

    assert (dict(server.tree()), dict(server.sessions())) == ({}, {})


def test_a_session_of_10_s_is_gone_after_10_s_in_one_step(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    server.advance(9.999)
    assert set(server.sessions()) == {session.id}
    server.advance(0.001)
    assert not server.sessions()


def test_a_connection_that_lives_does_not_save_its_session(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    server.advance(10)

    with pytest.raises(EOFError):
        session.payload()


def test_a_ping_moves_the_deadline(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    for _ in range(5):
        server.advance(9)
        assert session.ask(OpCode.PING) == 0
    server.advance(9.999)
    assert set(server.sessions()) == {session.id}
    server.advance(0.001)

    assert not server.sessions()


def test_the_view_tells_the_time_that_is_left(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    server.advance(2.5)

    assert server.sessions()[session.id].expires_in == pytest.approx(7.5, abs=0.0011)


def test_time_stands_still_by_itself(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 0.1)).welcomed()
    began = time.monotonic()

    server.wait_for(lambda: time.monotonic() - began > 0.25)  # more than twice the timeout of real time

    assert set(server.sessions()) == {session.id}


def test_kazoo_sessions_end_in_the_order_of_their_deadlines(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    clients = {timeout: KazooClient(server.hosts, timeout=timeout, connection_retry=NEVER) for timeout in (40, 20, 30)}
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


def test_all_kinds_end_in_one_order(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    for timeout in (7, 3, 5):
        wires.enter_context(Wire(server, timeout)).welcomed().create(f"/session{timeout}", EPHEMERAL)
    server.populate({f"/ttl{ttl}": Znode(ttl=ttl) for ttl in (6, 2, 4)} | {"/stays": "x"})

    server.advance(100)

    assert deleted(observer) == ["/ttl2", "/session3", "/ttl4", "/session5", "/ttl6", "/session7"]
    assert set(server.tree()) == {"/stays"}


def test_each_ends_at_its_own_moment(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    server.populate({"/first": Znode(ttl=1)})
    wires.enter_context(Wire(server, 2)).welcomed().create("/second", EPHEMERAL)
    seen = []

    for _ in range(30):
        server.advance(0.1)
        seen.append(deleted(observer))

    assert [(at, paths) for at, paths in enumerate(seen, 1) if paths] == [(11, ["/first"]), (20, ["/second"])]


def test_a_ttl_counts_from_the_last_change(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    server.populate({"/t": Znode(ttl=5)})

    server.advance(4)
    assert observer.ask(OpCode.SET_DATA, r.SetDataRequest("/t", b"new", -1)) == 0
    server.advance(5)  # as in ZooKeeper a node goes when it is older than its TTL, not when it is as old
    assert set(server.tree()) == {"/t"}
    server.advance(0.001)

    assert dict(server.tree()) == {}


def test_a_ttl_node_outlives_its_children(server: Server, wires: ExitStack) -> None:
    observer = witness(server, wires)
    server.populate({"/t": Znode(ttl=1, children={"c": Znode(ttl=3)})})

    server.advance(2.999)
    assert set(server.tree()) == {"/t", "/t/c"}
    server.advance(10)

    assert deleted(observer) == ["/t/c", "/t"]


def test_a_container_goes_after_its_last_child(server: Server, wires: ExitStack) -> None:
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


def test_a_container_follows_the_ephemeral_that_was_its_last_child(server: Server, wires: ExitStack) -> None:
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
def test_exactly_what_is_due_ends_and_in_order(steps: list[tuple[str, int]]) -> None:
    """A model: the deadline of everything, in milliseconds."""
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
                due[name] = now + value + 1  # as in ZooKeeper a node has to be older than its TTL
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


def test_days_pass_quickly(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, DAY)).welcomed()
    session.create("/e", EPHEMERAL)
    server.populate({f"/t{hour}": Znode(ttl=3600 * hour) for hour in range(1, 100)})
    began = time.process_time()

    server.advance(1000 * DAY)

    assert time.process_time() - began < 1.0
    assert dict(server.tree()) == {}


def test_many_sessions_end_quickly(server: Server) -> None:
    with ExitStack() as wires:
        for i in range(200):
            wires.enter_context(Wire(server, 10 + i / 100)).welcomed()
        began = time.process_time()
        server.advance(20)
        assert time.process_time() - began < 1.0
        assert not server.sessions()


def test_nodes_bear_the_manual_time(server: Server) -> None:
    server.populate({"/a": "x"})
    server.advance(12.5)
    server.populate({"/b": "x"})

    tree = server.tree()
    assert tree["/b"].ctime - tree["/a"].ctime == pytest.approx(12.5)


def test_no_time_at_all_is_fine(server: Server, wires: ExitStack) -> None:
    session = wires.enter_context(Wire(server, 10)).welcomed()

    server.advance(0)

    assert set(server.sessions()) == {session.id}


def test_small_steps_add_up(server: Server, wires: ExitStack) -> None:
    wires.enter_context(Wire(server, 0.1)).welcomed()
    for _ in range(99):
        server.advance(0.001)
    assert len(server.sessions()) == 1
    server.advance(0.001)

    assert not server.sessions()


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan")])
def test_time_does_not_run_backwards(server: Server, seconds: float) -> None:
    with pytest.raises(ValueError, match=str(seconds)):
        server.advance(seconds)


@pytest.mark.parametrize("seconds", ["x", None, float("inf")])
def test_what_is_no_time_is_named(server: Server, seconds: Any) -> None:
    with pytest.raises(ValueError, match=str(seconds)):
        server.advance(seconds)


def test_the_real_clock_is_not_moved() -> None:
    with Server() as server, pytest.raises(ValueError, match="manual"):
        server.advance(1)


async def test_advance_takes_effect_at_once_in_the_server_s_loop() -> None:
    async with Server(clock="manual") as server:
        server.populate({"/t": Znode(ttl=5)})
        server.advance(5)
        assert set(server.tree()) == {"/t"}
        server.advance(0.001)
        assert dict(server.tree()) == {}


def test_a_delay_lasts_until_the_clock_has_moved(server: Server, wires: ExitStack) -> None:
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


def test_a_delay_that_ends_on_the_way_comes_before_what_is_due_later(server: Server, wires: ExitStack) -> None:
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


# --- the same again ---


def test_one_seed_gives_one_set_of_ids_and_times() -> None:
    def story(seed: int) -> tuple[list[int], list[bytes], dict[str, Any]]:
        with Server(clock="manual", seed=seed) as server, ExitStack() as wires:
            sessions = []
            for i in range(3):
                sessions.append(wires.enter_context(Wire(server)).welcomed())
                sessions[-1].create(f"/n{i}")
                server.advance(1.5)
            return [one.id for one in sessions], [one.password for one in sessions], dict(server.tree())

    assert story(7) == story(7)


# --- a process that stands still ---


@pytest.mark.slow
def test_a_process_that_is_stopped_loses_no_session() -> None:
    code = f"""
import sys
from kazoo.client import KazooClient
from zoolet.server import Server

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
        time.sleep(3 * STOPPED_TIMEOUT_S)  # this much real time is what the test is about
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate("go on\n", timeout=DEADLINE_S)

    assert (process.returncode, out) == (0, "fine\n"), err
