"""``restart()``, ``stop()`` and ``start()``: the port stays, and the test chooses which state survives."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from support.waiting import PROMPT_S, wait_until
from support.wire import Wire

from zoolet.client import Client
from zoolet.testing import Server, Simulation, delay, withhold_event

Dial = Callable[..., KazooClient]


def test_restart_keeps_tree_and_sessions(server: Server, kazoo: Dial) -> None:
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


def test_client_restores_its_watches_after_restart(server: Server, kazoo: Dial) -> None:
    client, other = kazoo(server), kazoo(server)
    client.create("/a")
    events: list[object] = []
    client.get("/a", watch=events.append)

    server.restart()

    other.retry(other.set, "/a", b"2")
    server.wait_for(lambda: events)


def test_empty_server_reports_expired_sessions(server: Server, kazoo: Dial) -> None:
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


def test_restart_without_kept_state_forgets_quotas(server: Server) -> None:
    server.populate({"/a": b""})
    server.set_quota("/a", count=1, hard=True)
    server.restart(keep=False)
    server.populate({"/a": b""})

    with Wire(server).welcomed() as wire:
        assert [wire.create(f"/a/{number}") for number in range(3)] == [0, 0, 0]


def test_sessions_do_not_expire_during_downtime(manual: Server) -> None:
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


def test_second_restart_decides_end_of_downtime(manual: Server) -> None:
    manual.restart(downtime=5.0)
    manual.advance(4)
    manual.restart(downtime=5.0)
    manual.advance(4)
    with pytest.raises(ConnectionRefusedError):
        Wire(manual)
    manual.advance(1)
    with Wire(manual).welcomed():
        pass


def test_restart_does_not_wait_for_downtime(server: Server) -> None:
    began = time.monotonic()
    server.restart(downtime=30.0)
    assert time.monotonic() - began < PROMPT_S
    server.heal()
    with Wire(server).welcomed():
        pass


@pytest.mark.parametrize("downtime", [-1, float("inf"), float("nan"), "1", None])
def test_invalid_downtime_is_refused(server: Server, downtime: float) -> None:
    with pytest.raises(ValueError, match="downtime must be from 0 to 1,000,000,000 s, not "):
        server.restart(downtime=downtime)


def test_restarted_server_has_same_port(server: Server, kazoo: Dial) -> None:
    hosts = server.hosts
    client = kazoo(server)
    states: list[str] = []
    client.add_listener(states.append)
    server.stop()
    server.start()

    assert server.hosts == hosts
    assert dict(server.tree()) == {}
    wait_until(lambda: "LOST" in states)
    server.wait_for(lambda: client.connected)


def test_restart_works_in_virtual_time() -> None:
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


def test_read_only_server_serves_read_only_clients(server: Server, kazoo: Dial) -> None:
    server.populate({"/a": b"1"})
    client = kazoo(server, read_only=True)
    server.set_read_only(True)
    server.wait_for(lambda: str(client.client_state) == "CONNECTED_RO")
    assert client.get("/a")[0] == b"1"
    server.set_read_only(False)
    server.wait_for(lambda: client.connected and str(client.client_state) == "CONNECTED")


def test_refuse_connections_survives_end_of_downtime(manual: Server) -> None:
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


def test_faults_and_recordings_survive_restart(server: Server) -> None:
    with server.recording() as ops, server.fault(delay(0), "exists") as fault:
        server.stop()
        server.start()
        with Wire(server).welcomed() as wire:
            wire.exists("/a")
    assert fault.hits == 1
    ops.assert_ops("connect", "exists /a -> NO_NODE")


def test_fault_ended_during_stop_does_not_return(server: Server) -> None:
    with server.recording() as ops, server.fault(delay(0), "exists") as fault:
        server.stop()
    server.start()
    with Wire(server).welcomed() as wire:
        wire.exists("/a")
    assert (fault.hits, len(ops)) == (0, 0)


def test_withholding_of_events_survives_restart(server: Server) -> None:
    with server.fault(withhold_event()) as fault:
        server.stop()
        server.start()
        with Wire(server).welcomed() as wire:
            wire.watch("/a")
            server.populate({"/a": b""})
            assert fault.hits == 1
            fault.release()
            assert wire.event() == (1, "/a")
