"""An observer in this process, with leaders on real sockets."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from support.calls import create, set_data
from support.fake_leader import FakeLeader, LeaderPort
from support.waiting import until

from zoolet.client import Client
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import NotReadOnlyError
from zoolet.server import Observer
from zoolet.server.admin.figures import monitor
from zoolet.server.admin.observed import ready
from zoolet.server.admin.prometheus import text
from zoolet.server.learner.errors import LearnerError, ObserverRefusedError
from zoolet.server.net import leader_link
from zoolet.server.net.leader_link import LeaderLink


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delays between attempts to connect."""
    monkeypatch.setattr(leader_link, "FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(leader_link, "MAX_INTERVAL_SECONDS", 0.02)


@pytest.fixture
def leader() -> FakeLeader:
    """The leader of an ensemble with the node ``/config``."""
    leader = FakeLeader()
    create(leader.peer, "/config", data=b"v1")
    leader.commit()
    return leader


async def test_observer_and_its_clients_show_tree_of_ensemble(leader: FakeLeader) -> None:
    async with LeaderPort(leader) as port, Observer(port.address) as replica:
        await replica.caught_up(10)
        node = replica.tree()["/config"]
        assert (node.data, node.acl, node.stat.version) == (b"v1", OPEN_ACL_UNSAFE, 0)
        assert replica.leader == port.address
        assert replica.lag == 0
        async with Client(replica.hosts, read_only=True) as client:
            async with client.watch("/config") as events:
                set_data(leader.peer, "/config")
                port.push()
                assert (await anext(aiter(events))).path == "/config"
            assert (await client.get("/config"))[0] == b"new"
            with pytest.raises(NotReadOnlyError):
                await client.set("/config", b"mine")
        assert list(replica.tree("/config")) == ["/config"]


async def test_next_leader_sends_only_diff_to_observer(leader: FakeLeader) -> None:
    async with (
        LeaderPort(None) as silent,
        LeaderPort(leader) as first,
        Observer(f"{silent.address},{first.address}") as replica,
    ):
        await replica.caught_up(10)
        async with Client(replica.hosts, read_only=True) as client:
            leader.restart(epoch=2)
            first.drop()
            create(leader.peer, "/later")
            leader.commit()
            await until(lambda: "/later" in replica.tree())
            assert (await client.get("/later"))[0] == b""
        metrics = replica._replica.learning
        assert (metrics.connections, metrics.snapshots, metrics.diffs) == (2, 1, 1)


async def test_reconnect_delay_does_not_grow_after_success(leader: FakeLeader) -> None:
    async with LeaderPort(leader) as port, Observer(port.address) as replica:
        for _ in range(12):  # delays that double would exceed 10 s
            await replica.caught_up(5)
            port.drop()
            await until(lambda: not replica.leader)
        await replica.caught_up(5)
        assert replica._replica.learning.snapshots == 1


async def test_refusal_by_member_closes_connections_to_other_members(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(link: Any, address: tuple[str, int]) -> Any:
        if address[1] == 1:
            raise ObserverRefusedError("refused")
        connection = leader_link._MemberLink.__new__(leader_link._MemberLink)
        connection.address = address
        return connection

    closed: list[tuple[str, int]] = []
    monkeypatch.setattr(LeaderLink, "_ask", answer)
    monkeypatch.setattr(leader_link._MemberLink, "close", lambda connection: closed.append(connection.address))
    async with Observer("127.0.0.1:1,127.0.0.1:2") as replica:
        with pytest.raises(ObserverRefusedError):
            await replica.caught_up(10)

    assert closed == [("127.0.0.1", 2)]


async def test_unexpected_end_of_observer_is_logged(
    leader: FakeLeader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(link: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(LeaderLink, "_find_leader", fail)
    async with Observer("127.0.0.1:1") as replica:
        with pytest.raises(RuntimeError, match="planted"):
            await replica.caught_up(10)

    assert "the observer has stopped: planted" in caplog.text


async def test_tree_with_wrong_digest_is_replaced(leader: FakeLeader, caplog: pytest.LogCaptureFixture) -> None:
    async with LeaderPort(leader) as port, Observer(port.address) as replica:
        await replica.caught_up(10)
        replica._replica.digest += 1
        set_data(leader.peer, "/config")
        port.push()
        await until(lambda: replica._replica.learning.snapshots == 2)
        await replica.caught_up(10)

        assert replica._replica.digest == leader.digest
        assert replica.tree()["/config"].data == b"new"
    assert "the tree differs from the leader's after transaction" in caplog.text


async def test_observer_reports_each_problem_once(caplog: pytest.LogCaptureFixture) -> None:
    async def close_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()

    attempts = 0
    server = await asyncio.start_server(close_connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Observer(f"127.0.0.1:{port},127.0.0.1:1") as replica:
        await until(lambda: attempts > 3)
        with pytest.raises(TimeoutError, match=r"127\.0\.0\.1:1: connection refused.*not a quorum port"):
            await replica.caught_up(0)
        with pytest.raises(LearnerError, match="the replica is not complete yet: no leader: "):
            replica.tree()
    server.close()

    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].endswith("; trying again")


async def test_observer_reports_tls_peer_with_zookeeper_setting() -> None:
    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x15\x03\x03\0\2\2\x50")
        writer.close()

    server = await asyncio.start_server(alert, "127.0.0.1", 0)
    async with Observer(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as replica:
        await until(lambda: "sslQuorum" in replica._link.problem)
    server.close()


async def test_participant_sid_stops_observer() -> None:
    leader = FakeLeader(config=b"server.100=a:1:2:participant;3\nversion=0")
    async with LeaderPort(leader) as port, Observer(port.address) as replica:
        with pytest.raises(ObserverRefusedError, match="voting member"):
            await replica.caught_up(10)
        assert port.accepted == 1


async def test_observer_reports_mode_and_metrics(leader: FakeLeader) -> None:
    async with LeaderPort(leader) as port, Observer(port.address) as replica:
        observed = replica._running.observed
        assert ready(observed).startswith("no leader: ")
        await replica.caught_up(10)
        create(leader.peer, "/a")
        port.push()
        await until(lambda: "/a" in replica.tree())

        shown = monitor(observed)
        assert ready(observed) == ""
        assert shown["server_state"] == "observer"
        assert (shown["zoolet_observer_following"], shown["zoolet_observer_snapshots"]) == (1, 1)
        assert shown["zoolet_observer_digests_compared"] == 1
        assert "zoolet_observer_lag_transactions 0.0" in await text(observed)


async def test_use_of_observer_outside_block_raises_with_advice() -> None:
    observer = Observer("127.0.0.1:2888")

    with pytest.raises(RuntimeError, match="async with"):
        observer.tree()
    with pytest.raises(RuntimeError, match="async with"):
        await observer.caught_up()


@pytest.mark.parametrize(
    ("hosts", "sid", "message"),
    [
        ("zk1", 100, r"server must be host:port or \[IPv6\]:port, with a port from 1 to 65535, not 'zk1'"),
        ("zk1:2888,", 100, "not '' in 'zk1:2888,'"),
        ("zk1:0", 100, "not 'zk1:0'"),
        ("zk1:2888:3888", 100, "not 'zk1:2888:3888'"),
        ("zk1:2888", 0, "sid must be a whole number from 1 to 127, not 0"),
        ("zk1:2888", 128, "not 128"),
    ],
)
def test_invalid_argument_of_observer_raises_value_error(hosts: str, sid: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Observer(hosts, sid=sid)


def test_observer_accepts_several_addresses() -> None:
    assert Observer("zk1:2888, [::1]:2889")._ensemble.addresses == (("zk1", 2888), ("::1", 2889))
