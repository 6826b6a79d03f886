"""The protocol between a leader and its learners, on a quorum port: packets, their payloads, and a leader's snapshot.

Each direction is a stream of packets without frames. After a packet of type SNAP, the leader sends its snapshot, which
is not a packet::

    int count, SessionTimeout * count      the sessions
    int count, AclEntry * count            the ACL lists, except for the list with key -1
    SnapshotNode ...                       the nodes, parents first; the path of the root is empty
    "/", "BenWasHere"                      the end: two strings

The data of a packet depends on its type and its direction. L is the learner, M the leader (or a follower that serves
observers):

=================================  ====  ====================================================================
type                               from  zxid, and data
=================================  ====  ====================================================================
OBSERVERINFO, FOLLOWERINFO         L     highest accepted epoch << 32; LearnerInfo
LEADERINFO                         M     new epoch << 32; LeaderInfo
ACKEPOCH                           L     last transaction; EpochAck
DIFF, TRUNC, SNAP                  M     last zxid that follows, zxid to cut at, zxid of the snapshot; null
NEWLEADER                          M     epoch << 32; text of the configuration
UPTODATE                           M     -1; null
ACK                                L     epoch << 32; null
PROPOSAL, INFORM                   M     zxid of the transaction; the transaction
COMMIT                             M     zxid of the transaction; null
COMMITANDACTIVATE                  M     zxid of the transaction; long sid of the designated leader
INFORMANDACTIVATE                  M     zxid of the transaction; the same long, and the transaction
PING                               both  M: last proposed zxid; null. L: the same zxid; SessionTimeout ...
REVALIDATE                         both  -1; L: SessionTimeout. M: SessionValidity
REQUEST                            L     -1; ForwardedRequest, and the body of the client's request
SYNC                               M     0; null
=================================  ====  ====================================================================

A transaction is a TxnHeader, its record, and a TxnDigest, which is absent after failed requests and if digests are
disabled.

Source: zookeeper.jute (QuorumPacket, LearnerInfo), Leader, Learner, LearnerHandler, SerializeUtils.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from enum import IntEnum
from typing import Final

from .acl import Acls, Id
from .codec import Bool, Int, Long, Record, int_at, pack_int, put_str, record
from .errors import MarshallingError


class PacketType(IntEnum):
    """The type of a packet."""

    REQUEST = 1
    PROPOSAL = 2
    ACK = 3
    COMMIT = 4
    PING = 5
    REVALIDATE = 6
    SYNC = 7
    INFORM = 8
    COMMITANDACTIVATE = 9
    NEWLEADER = 10
    FOLLOWERINFO = 11
    UPTODATE = 12
    DIFF = 13
    TRUNC = 14
    SNAP = 15
    OBSERVERINFO = 16
    LEADERINFO = 17
    ACKEPOCH = 18
    INFORMANDACTIVATE = 19


PROTOCOL_VERSION: Final = 0x10000
"""The version of the protocol (Zab 1.0), which has not changed since ZooKeeper 3.4."""
MAX_IDS: Final = 1_000
"""Maximum number of identities in a packet."""


@record
class Packet(Record):
    """A packet between a leader and a learner (QuorumPacket). ``authinfo`` is null except in a REQUEST."""

    type: Int
    zxid: Long
    data: bytes | None
    authinfo: list[Id] | None


@record
class LearnerInfo(Record):
    """The number of a learner (``myid``), its protocol version, and the version of its configuration."""

    sid: Long
    protocolVersion: Int
    configVersion: Long


@record
class LeaderInfo(Record):
    """The leader's protocol version."""

    protocolVersion: Int


@record
class EpochAck(Record):
    """The learner's epoch, set by the last NEWLEADER; -1 if the learner had already accepted the new epoch."""

    epoch: Int


@record
class SessionTimeout(Record):
    """A session and its timeout in milliseconds."""

    session: Long
    timeout: Int


@record
class SessionValidity(Record):
    """The reply to a REVALIDATE: whether the session is alive. If so, this learner now serves the session."""

    session: Long
    valid: Bool


@record
class ForwardedRequest(Record):
    """The first part of the data of a REQUEST: session, xid and op code. The body of the client's request follows."""

    session: Long
    cxid: Int
    type: Int


@record
class DesignatedLeader(Record):
    """The first part of the data of COMMITANDACTIVATE and INFORMANDACTIVATE: the number of the designated leader."""

    sid: Long


@record
class AclEntry(Record):
    """An ACL list of a snapshot, with the key that nodes use to refer to it."""

    key: Long
    acl: Acls


@record
class SnapshotNode(Record):
    """A node of a snapshot. ``acl`` is a key, and ``creates`` is the number of children that were ever created."""

    path: str
    data: bytes | None
    acl: Long
    czxid: Long
    mzxid: Long
    ctime: Long
    mtime: Long
    version: Int
    creates: Int
    aversion: Int
    owner: Long
    pzxid: Long


@record
class SnapshotEnd(Record):
    """The two strings that end a snapshot (:data:`SNAPSHOT_END`)."""

    path: str
    signature: str


SNAPSHOT_END: Final = SnapshotEnd("/", "BenWasHere")


LeaderItem = Packet | SessionTimeout | AclEntry | SnapshotNode | SnapshotEnd
"""An item of a leader's stream: a packet, or a part of a snapshot."""
_LAST_PATH: Final = put_str(SNAPSHOT_END.path)
_STAT_SIZE: Final = 68
"""Number of bytes of a node after its data: the ACL key and the numbers of its Stat."""


class LearnerStream:
    """A splitter of one direction of a connection into packets and, from a leader, the parts of snapshots.

    The received pieces of a long item are joined once, so an item of n bytes costs O(n).

    Args:
        limit: Maximum size of a string or buffer in bytes.
        from_leader: Whether the bytes are from a leader, which may send snapshots.
    """

    def __init__(self, limit: int, *, from_leader: bool = True) -> None:
        self._limit = limit
        self._from_leader = from_leader
        self._parts: list[bytes] = []
        self._buf, self._offset, self._size = b"", 0, 0
        self._needed = 1
        self._start = 0  # position of _buf in the stream, for error messages
        self._items = self._read_all()

    def feed(self, data: bytes) -> Iterator[LeaderItem]:
        """Receive bytes, and yield the items that they complete.

        Raises:
            MarshallingError: The bytes are not a valid stream, or a length exceeds the limit. The stream cannot be
                continued after this error.
        """
        self._parts.append(data)
        self._size += len(data)
        if self._size - self._offset < self._needed:
            return
        self._buf = b"".join([self._buf[self._offset :], *self._parts])
        self._start += self._offset
        self._parts, self._offset, self._size = [], 0, len(self._buf)
        while (item := next(self._items)) is not None:
            yield item

    @property
    def buffered(self) -> int:
        """The number of received bytes of an incomplete item."""
        return self._size - self._offset

    def _read_all(self) -> Iterator[LeaderItem | None]:
        """Yield the items, and None each time when more bytes are needed."""
        while True:
            end = yield from self._wait_for_end(self._end_of_packet)
            packet, self._offset = Packet.read_from(self._buf, self._offset, end)
            yield packet
            if self._from_leader and packet.type == PacketType.SNAP:
                yield from self._read_snapshot()

    def _read_snapshot(self) -> Iterator[LeaderItem | None]:
        for kind, end_of_entry in ((SessionTimeout, self._end_of_session), (AclEntry, self._end_of_acl)):
            yield from self._wait_for_end(lambda: self._offset + 4)
            (count,) = int_at(self._buf, self._offset)
            if count < 0:
                raise self._invalid("count of entries", count)
            self._offset += 4
            for _ in range(count):
                end = yield from self._wait_for_end(end_of_entry)
                entry, self._offset = kind.read_from(self._buf, self._offset, end)
                yield entry
        while True:
            yield from self._wait_for_end(lambda: self._offset + len(_LAST_PATH))
            if self._buf.startswith(_LAST_PATH, self._offset):
                break
            end = yield from self._wait_for_end(self._end_of_node)
            node, self._offset = SnapshotNode.read_from(self._buf, self._offset, end)
            yield node
        end = yield from self._wait_for_end(lambda: self._end_of_buffer(self._offset + len(_LAST_PATH)))
        last, self._offset = SnapshotEnd.read_from(self._buf, self._offset, end)
        if last != SNAPSHOT_END:
            raise MarshallingError(detail=f"the snapshot ends with {last.signature!r}, not {SNAPSHOT_END.signature!r}")
        yield last

    # --- ends of items: each method returns a position after the received bytes if the item is incomplete ---

    def _wait_for_end(self, find_end: Callable[[], int]) -> Generator[None, None, int]:
        """Yield None until an item is complete, and return the position of its end."""
        while (end := find_end()) > self._size:
            self._needed = end - self._offset
            yield None
        self._needed = 1
        return end

    def _end_of_packet(self) -> int:
        if self._size - self._offset >= 4:
            (kind,) = int_at(self._buf, self._offset)
            if kind not in _TYPES:
                raise MarshallingError(detail=f"{self._explain_unknown_type(kind)} {self._position_text()}")
        end = self._end_of_buffer(self._offset + 12)
        if end + 4 > self._size:
            return end + 4
        (count,) = int_at(self._buf, end)
        if not -1 <= count <= MAX_IDS:
            raise self._invalid("count of identities", count)
        end += 4
        for _ in range(2 * count):
            end = self._end_of_buffer(end)
        return end

    def _end_of_session(self) -> int:
        return self._offset + 12

    def _end_of_acl(self) -> int:
        end = self._offset + 12
        if end > self._size:
            return end
        (count,) = int_at(self._buf, end - 4)
        if count * 12 > self._limit:
            raise self._invalid("count of ACL entries", count)
        for _ in range(count):
            end = self._end_of_buffer(self._end_of_buffer(end + 4))
            if end > self._size:
                return end
        return end

    def _end_of_node(self) -> int:
        return self._end_of_buffer(self._end_of_buffer(self._offset)) + _STAT_SIZE

    def _end_of_buffer(self, start: int) -> int:
        """Return the end of a string or buffer. While its length is incomplete, return the end of the length."""
        if start + 4 > self._size:
            return start + 4
        (length,) = int_at(self._buf, start)
        if not -1 <= length <= self._limit:
            raise self._invalid(f"length (limit {self._limit}, jute.maxbuffer)", length)
        end: int = start + 4 + max(length, 0)
        return end

    def _invalid(self, field: str, value: int) -> MarshallingError:
        return MarshallingError(detail=f"invalid {field}: {value} {self._position_text()}")

    def _position_text(self) -> str:
        return f"at byte {self._start + self._offset} of the stream"

    def _explain_unknown_type(self, kind: int) -> str:
        """Return a description of an unknown packet type, with its likely cause."""
        if kind >> 16 == _TLS_ALERT and not self._start + self._offset:
            return "the port expects TLS, not a plain connection (sslQuorum)"
        return f"unknown packet type {kind}; this may not be a quorum port of ZooKeeper"


_TYPES: Final = frozenset(map(int, PacketType))
_TLS_ALERT: Final = 0x1503


def encode_snapshot_table(entries: list[SessionTimeout] | list[AclEntry]) -> bytes:
    """Return the encoded sessions or ACL lists of a snapshot: their number and the records."""
    return pack_int(len(entries)) + b"".join([entry.encode() for entry in entries])


def read_touched_sessions(data: bytes | None) -> list[SessionTimeout]:
    """Return the active sessions in the data of a learner's PING, with their timeouts.

    Raises:
        MarshallingError: The data is truncated.
    """
    return [SessionTimeout.decode(data or b"", offset) for offset in range(0, len(data or b""), 12)]
