"""The leader of an ensemble, without I/O: a real engine whose transactions are sent to observers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from types import TracebackType
from typing import Final

from support.calls import NOW, connect_peer
from support.engine import make_engine
from support.peer import Peer

from zoolet.protocol import txns as t
from zoolet.protocol.acl import AclList
from zoolet.protocol.learner import (
    PROTOCOL_VERSION,
    SNAPSHOT_END,
    AclEntry,
    DesignatedLeader,
    LeaderInfo,
    LearnerStream,
    Packet,
    PacketType,
    SessionTimeout,
    SnapshotNode,
    encode_snapshot_table,
)
from zoolet.server.core.acls import SNAPSHOT_OPEN_KEY
from zoolet.server.core.journal import Applied, Journal
from zoolet.server.core.settings import EngineSettings
from zoolet.server.learner.learner import Learner, LearnerState
from zoolet.server.learner.replica import ReplicaEngine
from zoolet.server.storage.live import take_snapshot

CONFIG: Final = b"server.1=a:2888:3888:participant;a:2181\nserver.2=b:2888:3888:observer\nversion=0"
SID: Final = 100


def make_replica(settings: EngineSettings | None = None) -> ReplicaEngine:
    """Return an empty replica."""
    return ReplicaEngine(settings or EngineSettings(), now=NOW, monotonic_ms=0, sid=SID, rng=Random(0))


class FakeLeader:
    """A leader for observers: an engine, and the transactions since the last commit.

    Args:
        epoch: Its epoch.
        config: The configuration of the ensemble.
        digests: Whether transactions have digests.

    Attributes:
        engine: The state of the ensemble.
        peer: A client of a member.
        log: The bytes of the transactions by zxid.
        connections: The connections of observers.
        during_snapshot: A function that is called after each node of a snapshot.
    """

    def __init__(self, epoch: int = 1, config: bytes | None = CONFIG, *, digests: bool = True) -> None:
        self.epoch, self.config = epoch, config
        self.engine = make_engine(now=NOW, zxid=epoch << 32)
        self.engine.use_journal(Journal(self.engine.zxid))
        self.log: dict[int, bytes] = {}
        self.connections: list[LeaderConnection] = []
        self.during_snapshot: Callable[[], object] = lambda: None
        self._digests = digests
        self.peer = connect_peer(self.engine)
        self.commit()

    def client(self) -> Peer:
        """Connect a client to a member."""
        peer = connect_peer(self.engine)
        self.commit()
        return peer

    @property
    def digest(self) -> int:
        """The digest of the leader's tree."""
        return take_snapshot(self.engine).computed_digest()

    def commit(self) -> None:
        """Send the transactions since the last call to observers. The last transaction has a digest."""
        assert self.engine.journal is not None
        entries = self.engine.journal.pop_all()
        for number, entry in enumerate(entries, 1):
            data = transaction(entry)
            if self._digests and number == len(entries) and entry[4] != -1:
                data += t.TxnDigest(2, self.digest - (1 << 64 if self.digest >> 63 else 0)).encode()
            self.log[entry[2]] = data
            for connection in self.connections:
                if connection.is_learning:
                    connection.send(PacketType.INFORM, entry[2], data)

    def restart(self, epoch: int) -> None:
        """Lose all connections, and start to lead a newer epoch."""
        self.epoch, self.connections = epoch, []
        self.engine.zxid = epoch << 32

    def connect(self) -> LeaderConnection:
        """Accept a connection of an observer, and return the leader's end."""
        self.connections.append(LeaderConnection(self))
        return self.connections[-1]


def transaction(entry: Applied) -> bytes:
    """Return the bytes of a transaction, without a digest."""
    *header, record = entry
    if isinstance(record, list):
        record = t.MultiTxn([t.Txn(op, part.encode()) for op, part in record])
    return t.TxnHeader(*header).encode() + record.encode()  # type: ignore[arg-type] # the header has numbers only


class LeaderConnection:
    """The leader's end of a connection.

    Attributes:
        received: The packets of the observer.
        is_learning: Whether the observer gets each transaction.
    """

    def __init__(self, leader: FakeLeader) -> None:
        self.received: list[Packet] = []
        self.is_learning = False
        self._leader = leader
        self._out: list[bytes] = []
        self._stream = LearnerStream(1 << 20, from_leader=False)

    def send(self, kind: PacketType, zxid: int, data: bytes | None = None) -> None:
        """Send a packet to the observer."""
        self._out.append(Packet(kind, zxid, data, None).encode())

    def reconfigure(self, config: bytes) -> None:
        """Send a reconfiguration that keeps this leader."""
        engine = self._leader.engine
        engine.zxid += 1
        entry = (0, 0, engine.zxid, NOW, 16, t.SetDataTxn("/zookeeper/config", config, 1))
        self.send(PacketType.INFORMANDACTIVATE, engine.zxid, DesignatedLeader(1).encode() + transaction(entry))

    def data_to_send(self) -> bytes:
        """Return the bytes for the observer."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def receive_data(self, data: bytes) -> None:
        """Receive bytes from the observer, and answer its packets."""
        for packet in self._stream.feed(data):
            assert isinstance(packet, Packet)
            self.received.append(packet)
            self._answer(packet)

    def _answer(self, packet: Packet) -> None:
        leader, first = self._leader, self._leader.epoch << 32
        acks = sum(each.type == PacketType.ACK for each in self.received)
        if packet.type == PacketType.OBSERVERINFO:
            self.send(PacketType.LEADERINFO, first, LeaderInfo(PROTOCOL_VERSION).encode())
        elif packet.type == PacketType.ACKEPOCH:
            self.is_learning = True
            self._synchronize(packet.zxid)
            self.send(PacketType.NEWLEADER, first, leader.config)
        elif packet.type == PacketType.ACK and acks == 1:
            self.send(PacketType.UPTODATE, -1)

    def _synchronize(self, last: int) -> None:
        leader = self._leader
        missing = [zxid for zxid in leader.log if zxid > last]
        if last > max(leader.log):
            self.send(PacketType.TRUNC, max(leader.log))
        elif last in leader.log:
            self.send(PacketType.DIFF, max(leader.log))
            for zxid in missing:
                self.send(PacketType.PROPOSAL, zxid, leader.log[zxid])
                self.send(PacketType.COMMIT, zxid)
        else:
            self._send_snapshot()

    def _send_snapshot(self) -> None:
        """Append a snapshot to the output while the tree may change, and after it the transactions of that time."""
        engine = self._leader.engine
        queued, self._out = self._out, []
        sessions = [SessionTimeout(each.id, each.timeout_ms) for each in engine.sessions.alive.values()]
        lists: dict[int, AclList] = engine.acls.lists()
        head = Packet(PacketType.SNAP, engine.zxid, None, None).encode() + encode_snapshot_table(sessions)
        head += encode_snapshot_table([AclEntry(key, acl) for key, acl in lists.items()])
        nodes = b"".join(node.encode() for node in self._nodes())
        self._out = [*queued, head + nodes + SNAPSHOT_END.encode(), *self._out]

    def _nodes(self) -> Iterator[SnapshotNode]:
        tree, pending = self._leader.engine.tree, [""]
        while pending:
            path = pending.pop(0)
            node = tree.get(path)
            if node is None:
                continue
            key = node.acl or SNAPSHOT_OPEN_KEY
            fields = (node.czxid, node.mzxid, node.ctime, node.mtime, node.version, node.creates, node.aversion)
            yield SnapshotNode(path, node.data, key, *fields, node.owner, node.pzxid)
            pending += [f"{path}/{name}" for name in node.children or ()]
            self._leader.during_snapshot()


def exchange(learner: Learner, connection: LeaderConnection, size: int = 1 << 16) -> None:
    """Pass bytes in both directions until both are silent. The observer joins when it is invited."""
    while True:
        connection.receive_data(learner.data_to_send())
        data = connection.data_to_send()
        for start in range(0, len(data), size):
            learner.receive_data(data[start : start + size])
        if learner.state is LearnerState.INVITED:
            learner.join()
        elif not data:
            return


def follow(replica: ReplicaEngine, leader: FakeLeader, size: int = 1 << 16) -> tuple[Learner, LeaderConnection]:
    """Connect a replica to a leader, and pass bytes until the replica is up to date."""
    learner, connection = Learner(replica, SID), leader.connect()
    exchange(learner, connection, size)
    return learner, connection


class LeaderPort:
    """A quorum port in the running event loop, as an asynchronous context manager.

    Args:
        leader: The leader at the port; None for a process that accepts connections and stands still.

    Attributes:
        accepted: Number of connections so far.
    """

    def __init__(self, leader: FakeLeader | None) -> None:
        self.accepted = 0
        self._leader = leader
        self._open: dict[LeaderConnection | None, asyncio.StreamWriter] = {}
        self._server: asyncio.Server

    async def __aenter__(self) -> LeaderPort:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.drop()

    @property
    def address(self) -> str:
        """The address of the port, as ``host:port``."""
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def drop(self) -> None:
        """Close all connections."""
        for writer in self._open.values():
            writer.close()
        self._open.clear()
        if self._leader is not None:
            self._leader.connections.clear()

    def push(self) -> None:
        """Commit the transactions of the leader, and send them."""
        assert self._leader is not None
        self._leader.commit()
        for connection, writer in self._open.items():
            if connection is not None:
                writer.write(connection.data_to_send())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = self._leader.connect() if self._leader is not None else None
        self._open[connection] = writer
        while data := await reader.read(1 << 16):
            if connection is not None:
                connection.receive_data(data)
                writer.write(connection.data_to_send())
        writer.close()
