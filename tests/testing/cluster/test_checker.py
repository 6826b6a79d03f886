"""The checker of histories accepts the answers of a cluster under all faults, and finds planted violations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from support.effort import effort
from support.script_client import ScriptClient

from zoolet.client import Client
from zoolet.protocol.errors import ZooKeeperError
from zoolet.server.core.server_connection import ServerConnection
from zoolet.testing import Cluster, Simulation
from zoolet.testing.checking.checker import check
from zoolet.testing.cluster.gateway import Gateway
from zoolet.testing.cluster.replica import Replica
from zoolet.testing.cluster.voting import Voting


async def run_operations(zk: Client, rng: Random, until: Callable[[], bool]) -> None:
    """Read and write a few nodes, and ignore failures."""
    while not until():
        path = f"/n{rng.randrange(4)}"
        try:
            match rng.randrange(6):
                case 0:
                    await zk.create(path, b"0")
                case 1 | 2:
                    await zk.set(path, b"%d" % rng.randrange(1000))
                case 3:
                    await zk.delete(path)
                case 4:
                    await zk.create("/q-", sequential=True)
                case _:
                    await zk.get(path)
        except ZooKeeperError:
            pass
        await asyncio.sleep(rng.uniform(0.0, 0.05))


async def disturb(cluster: Cluster, rng: Random) -> None:
    """Cause a random failure in a cluster, and sometimes stop earlier ones."""
    number = rng.randrange(3)
    match rng.randrange(7):
        case 0:
            cluster.lag(number, rng.choice([0.0, 0.02, 0.5]))
        case 1:
            cluster[number].kill()
        case 2:
            cluster[number].start()
        case 3:
            cluster.partition([number], noticed_after=rng.choice([0.0, 0.3]))
        case 4:
            cluster[number].pause()
        case 5:
            cluster[number].resume()
        case _:
            cluster.heal()
            for member in cluster:
                member.start()


@pytest.mark.parametrize("seed", range(effort(15, 60)))
def test_history_of_cluster_under_faults_is_accepted(seed: int) -> None:
    sim = Simulation(seed)

    async def main() -> None:
        async with sim.cluster(3) as cluster:
            with cluster.recording() as recording:
                async with asyncio.TaskGroup() as group:
                    for number in range(3):
                        group.create_task(run_client(cluster, Random(f"{seed} {number}")))
                    while sim.time() < 20:
                        await asyncio.sleep(sim.rng.uniform(0.0, 1.0))
                        await disturb(cluster, sim.rng)
                    cluster.heal()
                    for member in cluster:
                        member.start()
            assert len(recording) > 50
            assert check(recording.entries) is None
            assert cluster[0].tree() == cluster[1].tree() == cluster[2].tree()

    async def run_client(cluster: Cluster, rng: Random) -> None:
        async with Client(cluster.hosts, timeout=5.0, operation_timeout=2.0) as zk:
            await run_operations(zk, rng, lambda: sim.time() > 21)

    sim.run(main())


def test_checker_finds_member_that_skips_transaction(
    clients: list[ScriptClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = Replica.apply

    def skip(self: Replica, upto: int, log: list[object], first: int) -> None:
        if self.number == 1 and self.applied < 4 <= upto:
            apply(self, 3, log, first)  # type: ignore[arg-type]
            self.applied = 4
            self.engine.zxid = log[3 - first][2]  # type: ignore[index]
        apply(self, upto, log, first)  # type: ignore[arg-type]

    monkeypatch.setattr(Replica, "apply", skip)
    with Cluster(3) as cluster, cluster.recording() as recording:
        reader, writer = clients[:2]
        reader.connect(cluster[0].port)
        writer.connect(cluster[1].port)
        writer.create("/a", b"1")
        writer.set("/a", b"2")  # the fourth transaction
        assert reader.get("/a") == "1"

    found = check(recording.entries)
    assert found is not None
    assert found.rule == "A read of /a does not show a write up to its zxid."
    assert [entry.connection for entry in found.entries] == [2, 1]
    assert "setData /a to b'2' -> ok: version 1" in found.story


def test_checker_finds_leader_that_answers_before_quorum(
    clients: list[ScriptClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Voting, "is_quorum", lambda *_: True)
    with Cluster(3) as cluster, cluster.recording() as recording:
        leader = cluster.leader
        assert leader is not None
        others = [member for member in cluster if member is not leader]
        writer, reader = clients[:2]
        writer.connect(leader.port)
        writer.create("/a", b"1")
        cluster.partition([leader.index], [member.index for member in others], noticed_after=1000.0)
        assert writer.set("/a", b"2") == "OK"
        leader.kill()
        cluster.partition([member.index for member in others])
        reader.connect(others[0].port)
        reader.create("/b")
        assert reader.get("/a") == "1"

    found = check(recording.entries)
    assert found is not None
    assert "does not show a write" in found.rule


def test_checker_finds_read_of_earlier_state(clients: list[ScriptClient], monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: Gateway, session_id: int, timeout_ms: int, answered: Callable[[object], object]) -> None:
        sessions = self.replica.engine.sessions
        answered(sessions.alive.get(session_id) or sessions.open(session_id, timeout_ms, 0))

    monkeypatch.setattr(ServerConnection, "may_connect", lambda *_: True)
    monkeypatch.setattr(Gateway, "revalidate", at_once)
    with Cluster(3) as cluster, cluster.recording() as recording:
        client, writer = clients[:2]
        late = cluster.followers[0]
        other = cluster.followers[1]
        writer.connect(other.port)
        writer.create("/a", b"1")
        client.connect(other.port)
        cluster.lag(late.index, 1000.0)
        writer.set("/a", b"2")
        assert client.get("/a") == "2"
        assert client.connect(late.port) == "resumed"
        assert client.get("/a") == "1"

    found = check(recording.entries)
    assert found is not None
    assert found.rule == "A client gets an answer from an earlier state than it has seen."


def test_checker_finds_two_writes_with_one_zxid(clients: list[ScriptClient]) -> None:
    with Cluster(3) as cluster, cluster.recording() as recording:
        clients[0].connect(cluster[0].port)
        clients[0].create("/a")
        clients[0].create("/b")
    first, second = recording.entries[1:3]
    forged = second._replace(reply=second.reply[:4] + first.reply[4:12] + second.reply[12:], connection=9)  # type: ignore[union-attr, call-arg]

    found = check([*recording.entries, forged])

    assert found is not None
    assert found.rule in ("Two writes have the same zxid.", "/b was created twice, although it was not deleted.")
