"""The state machine of one connection to a leader, without I/O. It updates the replica with the received bytes.

A transport calls these methods, after it has set the replica's time::

    learner.receive_data(data)     receive bytes, and follow the leader
    learner.data_to_send()         return the bytes to write now
    learner.join()                 follow this leader, in INVITED
    learner.check_silence()        raise an error if the leader has been silent for too long

States and transitions::

    GREETING --LEADERINFO--> INVITED --join()--> JOINING --DIFF--> SYNCING --UPTODATE--> FOLLOWING
                                                    |                 ^
                                                    +--SNAP--> LOADING-  end of the snapshot

An error of :mod:`~zoolet.server.learner.errors` stops a connection in any state, and the transport closes it. TRUNC is
such an error: the ensemble has lost transactions that the replica contains, so it needs a snapshot.

Invariants:

- A learner sends OBSERVERINFO, EPOCHACK, two ACKs, and an answer to each PING after the first ACK. It forwards no
  request, and so it cannot change the ensemble.
- Before the first ACK, nothing is sent in SYNCING, because the leader waits for this ACK.
- Several connections may be in GREETING and INVITED, to try all members at the same time. Only one is joined.
- From the start of LOADING until UPTODATE after it, transactions are applied tolerantly: the snapshot was written while
  its tree changed. Otherwise they are applied exactly, without gaps, and their digests are compared.

Source: Learner.registerWithLeader, Learner.syncWithLeader, Observer.processPacket.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ...protocol.errors import MarshallingError
from ...protocol.hexadecimal import hexadecimal
from ...protocol.learner import (
    PROTOCOL_VERSION,
    AclEntry,
    EpochAck,
    LeaderInfo,
    LeaderItem,
    LearnerInfo,
    LearnerStream,
    Packet,
    PacketType,
    SessionTimeout,
    SnapshotNode,
)
from ...protocol.members import parse_config, voter_numbers
from ...protocol.txns import TxnHeader
from .errors import LearnerError, ObserverRefusedError, ReplicaError
from .replica import ReplicaEngine

SILENCE_MS: Final = 10_000
"""Milliseconds without a packet after which a leader is considered lost. The leader sends one every half tickTime."""
MAX_BEHIND_MS: Final = 30_000
"""Maximum delay of a transaction in milliseconds. The leader keeps all packets that an observer has not read, so an
observer that is too slow disconnects, and starts from a DIFF or a snapshot.
"""
MAX_PROPOSALS: Final = 1_000
"""Maximum number of uncommitted proposals. A leader sends each proposal together with its COMMIT."""
OBSERVER_SID_OFFSET: Final = 1_000_000_000
"""Offset of the number that an observer sends in OBSERVERINFO. The leader counts answers with a member's number as
votes, and a reconfiguration can give any small number to a member while the observer is disconnected.
"""
BUFFER_FACTOR: Final = 2
"""Maximum size of a buffer in multiples of ``jute.maxbuffer``, as in ZooKeeper."""


class LearnerState(Enum):
    """The state of a connection to a leader. See the transitions in the module's docstring."""

    GREETING = 1
    INVITED = 2
    JOINING = 3
    LOADING = 4
    SYNCING = 5
    FOLLOWING = 6


class Learner:
    """State machine of one connection to a leader.

    Args:
        replica: The replica to keep up to date.
        sid: The number of this observer.

    Attributes:
        state: The state of the connection.
        epoch: The epoch of the leader; -1 before LEADERINFO.

    Raises:
        ObserverRefusedError: *sid* is the number of a voting member.
    """

    def __init__(self, replica: ReplicaEngine, sid: int) -> None:
        self.replica = replica
        self.state = LearnerState.GREETING
        self.epoch = -1
        self._sid = sid
        self._check_sid(replica.config)
        self._stream = LearnerStream(BUFFER_FACTOR * replica.settings.max_frame)
        self._heard = replica.monotonic_ms
        self._snapshot_zxid = 0
        self._is_tolerant = False
        self._has_acked = False
        self._proposed: dict[int, bytes] = {}
        self._shortest_delay: int | None = None
        self._out: list[bytes] = []
        info = LearnerInfo(OBSERVER_SID_OFFSET + sid, PROTOCOL_VERSION, 0)
        self._send(PacketType.OBSERVERINFO, replica.accepted_epoch << 32, info.encode())

    # --- calls from the transport ---

    def receive_data(self, data: bytes) -> None:
        """Receive bytes of the leader, update the replica, and prepare the answers.

        Raises:
            LearnerError: The connection cannot be continued.
        """
        self._heard = self.replica.monotonic_ms
        try:
            for item in self._stream.feed(data):
                if isinstance(item, Packet):
                    self._receive_packet(item)
                else:
                    self._load(item)
        except MarshallingError as error:
            raise LearnerError(error.detail) from None

    def data_to_send(self) -> bytes:
        """Return the bytes to write now."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def join(self) -> None:
        """Follow the leader, which has answered with its epoch. An incomplete replica is emptied first.

        Raises:
            LearnerError: The observer has followed a leader of a newer epoch since this leader answered.
        """
        assert self.state is LearnerState.INVITED, self.state
        replica = self.replica
        self._check_epoch()
        if not replica.is_complete:
            replica.forget()  # a connection may have been lost in the middle of a snapshot
        current = replica.current_epoch if self.epoch > replica.accepted_epoch else -1
        replica.accepted_epoch = self.epoch
        self._send(PacketType.ACKEPOCH, replica.last, EpochAck(current).encode())
        self.state = LearnerState.JOINING

    def check_silence(self) -> None:
        """Raise an error if the leader has been silent for too long.

        Raises:
            LearnerError: Nothing was received for :data:`SILENCE_MS`.
        """
        silent = self.replica.monotonic_ms - self._heard
        if silent >= SILENCE_MS:
            raise LearnerError(f"nothing was received for {silent / 1000:.0f} s")

    # --- packets ---

    def _send(self, kind: PacketType, zxid: int, data: bytes | None = None) -> None:
        self._out.append(Packet(kind, zxid, data, None).encode())

    def _receive_packet(self, packet: Packet) -> None:
        kind, state = packet.type, self.state
        if state is LearnerState.GREETING and kind == PacketType.LEADERINFO:
            self._receive_invitation(packet)
        elif state is LearnerState.JOINING:
            self._receive_sync_mode(packet)
        elif state not in (LearnerState.SYNCING, LearnerState.FOLLOWING):
            raise self._unexpected_packet_error(packet)
        elif kind == PacketType.INFORM:
            self._apply(packet.data or b"")
        elif kind == PacketType.PING:
            self._answer_ping(packet)
        elif kind == PacketType.INFORMANDACTIVATE:
            data = packet.data or b""
            self._apply(data[8:])
            self._check_sid(self.replica.reload_config())
        elif state is LearnerState.FOLLOWING:
            raise self._unexpected_packet_error(packet)
        elif kind == PacketType.PROPOSAL and len(self._proposed) < MAX_PROPOSALS:
            self._proposed[packet.zxid] = packet.data or b""
        elif kind in (PacketType.COMMIT, PacketType.COMMITANDACTIVATE) and packet.zxid in self._proposed:
            self._apply(self._proposed.pop(packet.zxid))
        elif kind == PacketType.NEWLEADER and not self._has_acked:
            self._receive_config(packet)
        elif kind == PacketType.UPTODATE and self._has_acked:
            self._receive_uptodate()
        else:
            raise self._unexpected_packet_error(packet)

    def _receive_invitation(self, packet: Packet) -> None:
        try:
            version = LeaderInfo.decode(packet.data or b"").protocolVersion
        except MarshallingError:
            version = 0
        if version != PROTOCOL_VERSION:
            raise ObserverRefusedError(
                f"unsupported protocol version of the leader: expected {PROTOCOL_VERSION:#x}, found {version:#x}"
            )
        self.epoch = packet.zxid >> 32
        self._check_epoch()
        self.state = LearnerState.INVITED

    def _receive_sync_mode(self, packet: Packet) -> None:
        """Start the synchronization that the leader has chosen: DIFF, or SNAP.

        Raises:
            ReplicaError: The leader wants to truncate transactions.
            LearnerError: The packet is unexpected.
        """
        metrics = self.replica.learning
        if packet.type == PacketType.DIFF:
            metrics.diffs += 1
            self.state = LearnerState.SYNCING
        elif packet.type == PacketType.SNAP:
            metrics.snapshots += 1
            self._snapshot_zxid = packet.zxid
            self._is_tolerant = True
            self.replica.start_snapshot()
            self.state = LearnerState.LOADING
        elif packet.type == PacketType.TRUNC:
            text = "the ensemble has no transactions after {}, but the replica has {}; was a backup restored?"
            raise ReplicaError(text.format(hexadecimal(packet.zxid), hexadecimal(self.replica.last)))
        else:
            raise self._unexpected_packet_error(packet)

    def _load(self, item: LeaderItem) -> None:
        """Receive a part of a snapshot."""
        replica = self.replica
        if isinstance(item, SnapshotNode):
            replica.add_node(item)
        elif isinstance(item, SessionTimeout):
            replica.add_session(item)
        elif isinstance(item, AclEntry):
            replica.add_acl(item)
        else:
            replica.finish_snapshot(self._snapshot_zxid)
            self.state = LearnerState.SYNCING

    def _receive_config(self, packet: Packet) -> None:
        if packet.data is None:
            raise ObserverRefusedError("the ensemble runs ZooKeeper 3.4 or older; an observer requires 3.5 or newer")
        self.replica.use_config(packet.data)
        self._check_sid(self.replica.config)
        self.replica.current_epoch = self.epoch
        self._send(PacketType.ACK, packet.zxid)
        self._has_acked = True

    def _receive_uptodate(self) -> None:
        """Handle UPTODATE: from now on, apply transactions exactly, and serve clients.

        Raises:
            LearnerError: A proposal was not committed.
        """
        if self._proposed:
            raise LearnerError(f"the leader sent UPTODATE before committing {len(self._proposed)} proposals")
        self._is_tolerant = False
        self.state = LearnerState.FOLLOWING
        self._send(PacketType.ACK, self.epoch << 32)
        self.replica.start_serving()

    def _answer_ping(self, packet: Packet) -> None:
        learning = self.replica.learning
        learning.lag = max(0, packet.zxid - max(self.replica.last, self.epoch << 32))
        if not learning.lag:
            learning.behind_ms = 0
        if self._has_acked:
            self._send(PacketType.PING, packet.zxid, b"")

    # --- transactions ---

    def _apply(self, data: bytes) -> None:
        replica, learning = self.replica, self.replica.learning
        try:
            zxid = TxnHeader.decode(data).zxid
        except MarshallingError:
            raise ReplicaError("the leader has sent an incomplete transaction") from None
        if zxid <= replica.last:
            if self.state is LearnerState.FOLLOWING:
                text = f"the leader sent transaction {hexadecimal(zxid)} after {hexadecimal(replica.last)}"
                raise ReplicaError(f"{text}; expected a higher zxid")
            return  # the replica already contains the transaction, from the snapshot or from before the DIFF
        if not self._is_tolerant and zxid != replica.last + 1 and zxid >> 32 == replica.last >> 32:
            span = f"{hexadecimal(replica.last)} and {hexadecimal(zxid)}"
            raise ReplicaError(f"the transactions between {span} are missing")
        time = replica.apply_transaction(data, tolerantly=self._is_tolerant)
        learning.transactions += 1
        delay = replica.now - time
        if self.state is LearnerState.FOLLOWING:
            self._update_behind_ms(delay)

    def _update_behind_ms(self, delay: int) -> None:
        """Estimate ``behind_ms`` from the delay of a transaction, and check that it is not too high.

        The shortest delay so far is taken as the difference between the two clocks.

        Raises:
            LearnerError: The estimate is above :data:`MAX_BEHIND_MS`.
        """
        if self._shortest_delay is None or delay < self._shortest_delay:
            self._shortest_delay = delay
        behind = self.replica.learning.behind_ms = delay - self._shortest_delay
        if behind > MAX_BEHIND_MS:
            raise LearnerError(
                f"the observer lags by {behind / 1000:.0f} s, and the leader must buffer all transactions since then"
            )

    # --- refusals ---

    def _check_epoch(self) -> None:
        if self.epoch < self.replica.accepted_epoch:
            raise LearnerError(
                f"the leader is in epoch {self.epoch}, but the observer already followed epoch "
                f"{self.replica.accepted_epoch}"
            )

    def _check_sid(self, config: bytes) -> None:
        members, _ = parse_config(config)
        if self._sid in voter_numbers(members):
            raise ObserverRefusedError(
                f"sid {self._sid} is the number of a voting member of the ensemble; "
                "choose a number that no member has, such as 101"
            )

    def _unexpected_packet_error(self, packet: Packet) -> LearnerError:
        return LearnerError(f"unexpected packet {PacketType(packet.type).name} in state {self.state.name}")
