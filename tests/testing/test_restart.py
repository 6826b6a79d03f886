"""``restart()``, ``stop()`` and ``start()``: the port stays, and what else survives is the test's choice."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from support.wire import DEADLINE_S, Wire

from zoolet.client import Client
from zoolet.server import Server
from zoolet.server.testing import Simulation, delay, withhold_event

Dial = Callable[..., KazooClient]


def test_tree_and_sessions_survive_and_connections_do_not(server: Server, kazoo: Dial) -> None:
    client = kazoo(server)
    client.create("/e", b"1", ephemeral=True)
    session, hosts = client.client_id[0], server.hosts
    [before] = server.sessions().values()

    server.restart()

    assert server.hosts == hosts
    assert list(server.tree()) == ["/e"]
    server.wait_for(lambda: server.sessions()[session].client not in (None, before.client))
    server.wait_for(lambda: client.connected)
    assert client.client_id[0] == session
    assert client.retry(client.get, "/e")[0] == b"1"


def test_watches_end_and_the_client_sets_them_again(server: Server, kazoo: Dial) -> None:
    client, other = kazoo(server), kazoo(server)
    client.create("/a")
    events: list[object] = []
    client.get("/a", watch=events.append)

    server.restart()

    other.retry(other.set, "/a", b"2")
    server.wait_for(lambda: events)


def test_an_empty_server_has_nothing_and_says_that_sessions_have_expired(server: Server, kazoo: Dial) -> None:
    client = kazoo(server)
    client.create("/a")
    session, states = client.client_id[0], []
    client.add_listener(states.append)

    server.restart(keep=False)

    assert dict(server.tree()) == {}
    server.wait_for(lambda: "LOST" in states)
    server.wait_for(lambda: client.connected and client.client_id and client.client_id[0] != session)
    with pytest.raises(NoNodeError):
        client.retry(client.get, "/a")


def test_a_downtime_refuses_connections_and_sessions_outlive_it(manual: Server) -> None:
    with Wire(manual, timeout=2.0).welcomed() as wire:
        manual.restart(downtime=10.0)
        with pytest.raises(ConnectionRefusedError):
            Wire(manual)
        manual.advance(9)
        with pytest.raises(ConnectionRefusedError):
            Wire(manual)
        manual.advance(1)
        with Wire(manual, timeout=2.0, session=(wire.id, wire.password)).welcomed() as again:
            assert again.id == wire.id
        manual.advance(2.1)
        assert dict(manual.sessions()) == {}


def test_the_last_restart_decides_when_it_serves_again(manual: Server) -> None:
    manual.restart(downtime=5.0)
    manual.advance(4)
    manual.restart(downtime=5.0)
    manual.advance(4)
    with pytest.raises(ConnectionRefusedError):
        Wire(manual)
    manual.advance(1)
    with Wire(manual).welcomed():
        pass


def test_it_does_not_wait_for_the_downtime(server: Server) -> None:
    began = time.monotonic()
    server.restart(downtime=30.0)
    assert time.monotonic() - began < 1
    server.heal()
    with Wire(server).welcomed():
        pass


@pytest.mark.parametrize("downtime", [-1, float("inf"), float("nan"), "1", None])
def test_a_downtime_that_is_invalid_is_refused(server: Server, downtime: float) -> None:
    with pytest.raises(ValueError, match="downtime="):
        server.restart(downtime=downtime)


def test_stopped_and_started_again_it_has_the_same_port(server: Server, kazoo: Dial) -> None:
    hosts = server.hosts
    client = kazoo(server)
    states: list[str] = []
    client.add_listener(states.append)
    server.stop()
    server.start()

    assert server.hosts == hosts
    assert dict(server.tree()) == {}
    deadline = time.monotonic() + DEADLINE_S
    while "LOST" not in states:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.wait_for(lambda: client.connected)


def test_it_restarts_in_virtual_time_too() -> None:
    sim = Simulation(seed=1)

    async def main() -> None:
        async with sim.server() as server, Client(server.hosts) as zk:
            await zk.create("/a", ephemeral=True)
            session, began = zk.session_id, sim.time()
            server.restart(downtime=5.0)
            await server.until(lambda: server.sessions()[session].connected, timeout=60)
            assert sim.time() - began >= 5
            await zk.set("/a", b"2")
            assert zk.session_id == session

    sim.run(main())


def test_a_read_only_server_serves_those_that_accept_it(server: Server, kazoo: Dial) -> None:
    server.populate({"/a": b"1"})
    client = kazoo(server, read_only=True)
    server.set_read_only(True)
    server.wait_for(lambda: str(client.client_state) == "CONNECTED_RO")
    assert client.get("/a")[0] == b"1"
    server.set_read_only(False)
    server.wait_for(lambda: client.connected and str(client.client_state) == "CONNECTED")


def test_what_the_test_refuses_stays_refused_after_a_downtime(manual: Server) -> None:
    manual.restart(downtime=5.0)
    manual.refuse_connections()
    manual.advance(6)
    with pytest.raises(ConnectionRefusedError):
        Wire(manual)
    manual.accept_connections()
    manual.restart(downtime=5.0)
    manual.heal()
    manual.refuse_connections()
    manual.advance(6)
    with pytest.raises(ConnectionRefusedError):
        Wire(manual)


def test_faults_and_recordings_go_on_when_it_is_started_again(server: Server) -> None:
    with server.recording() as ops, server.fault(delay(0), "exists") as fault:
        server.stop()
        server.start()
        with Wire(server).welcomed() as wire:
            wire.exists("/a")
    assert fault.hits == 1
    ops.assert_ops("connect", "exists /a -> NO_NODE")


def test_a_fault_that_ends_while_it_is_stopped_does_not_come_back(server: Server) -> None:
    with server.recording() as ops, server.fault(delay(0), "exists") as fault:
        server.stop()
    server.start()
    with Wire(server).welcomed() as wire:
        wire.exists("/a")
    assert (fault.hits, len(ops)) == (0, 0)


def test_events_are_withheld_when_it_is_started_again(server: Server) -> None:
    with server.fault(withhold_event()) as fault:
        server.stop()
        server.start()
        with Wire(server).welcomed() as wire:
            wire.watch("/a")
            server.populate({"/a": b""})
            assert fault.hits == 1
            fault.release()
            assert wire.event() == (1, "/a")
