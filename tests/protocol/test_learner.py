"""The stream of a quorum port, read from recorded connections of ZooKeeper 3.8.0 and 3.9.4 to the last byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.learner_dumps import DUMPS, FOLDER, bytes_from
from support.rows import for_each

from zoolet.protocol import learner as p
from zoolet.protocol import txns as t
from zoolet.protocol.codec import Record, pack_int
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.learner import LearnerStream, Packet, PacketType
from zoolet.server.core.journal import decode_transaction

MAX_ITEM_BYTES = 1 << 20
PING = Packet(PacketType.PING, 7, None, None)
SNAP = Packet(PacketType.SNAP, 7, None, None)
NODE = p.SnapshotNode("", b"data", -1, 1, 2, 3, 4, 5, 6, 7, 8, 9)


def read(data: bytes, size: int, *, from_leader: bool = True) -> list[p.LeaderItem]:
    """Return the items of a stream that arrives in pieces of *size* bytes."""
    stream = LearnerStream(MAX_ITEM_BYTES, from_leader=from_leader)
    items = [item for start in range(0, len(data), size) for item in stream.feed(data[start : start + size])]
    assert stream.buffered == 0
    return items


def encode_items(items: list[p.LeaderItem]) -> bytes:
    """Return the encoded items of a stream. The tables of a snapshot are encoded at its end."""
    out, parts = b"", None
    for item in items:
        if isinstance(item, Packet):
            out += item.encode()
            parts = {p.SessionTimeout: [], p.AclEntry: [], p.SnapshotNode: []} if item.type == PacketType.SNAP else None
        elif isinstance(item, p.SnapshotEnd):
            out += p.encode_snapshot_table(parts[p.SessionTimeout]) + p.encode_snapshot_table(parts[p.AclEntry])
            out += b"".join(node.encode() for node in parts[p.SnapshotNode]) + item.encode()
        else:
            parts[type(item)].append(item)
    return out


def reencode_transaction(data: bytes) -> bytes:
    """Decode a transaction, and return it encoded again."""
    entry, offset = decode_transaction(data)
    record = entry[-1]
    header = t.TxnHeader(*entry[:-1]).encode()
    if isinstance(record, list):
        raw = t.MultiTxn.decode(data, len(header))  # a failed multi contains the bytes of other records
        assert [part.type for part in raw.txns] == [op for op, _ in record]
        body = raw.encode()
    else:
        body = record.encode() if len(header) < offset else b""
    digest = t.TxnDigest.decode(data, offset).encode() if offset < len(data) else b""
    return header + body + digest


def reencode_payload(packet: Packet, sender: str) -> bytes | None:
    """Decode the data of a packet, and return it encoded again."""
    kind, data = PacketType(packet.type), packet.data
    fixed: dict[PacketType, type[Record]] = {
        PacketType.OBSERVERINFO: p.LearnerInfo,
        PacketType.LEADERINFO: p.LeaderInfo,
        PacketType.ACKEPOCH: p.EpochAck,
        PacketType.COMMITANDACTIVATE: p.DesignatedLeader,
        PacketType.REVALIDATE: p.SessionTimeout if sender == "O" else p.SessionValidity,
    }
    if kind in fixed:
        return fixed[kind].decode(data).encode()
    if kind in (PacketType.INFORM, PacketType.PROPOSAL):
        return reencode_transaction(data)
    if kind == PacketType.INFORMANDACTIVATE:
        return p.DesignatedLeader.decode(data).encode() + reencode_transaction(data[8:])
    if kind == PacketType.REQUEST:
        head, offset = p.ForwardedRequest.read_from(data, 0, len(data))
        return head.encode() + data[offset:]
    if kind == PacketType.PING and sender == "O":
        return b"".join(each.encode() for each in p.read_touched_sessions(data))
    if kind == PacketType.NEWLEADER:
        return data.decode().encode()
    assert data is None
    return data


def test_learner_dumps_of_both_apache_releases_exist() -> None:
    assert {path.name.partition("-")[0] for path in DUMPS} == {"3.8.0", "3.9.4"}
    assert len(DUMPS) == 22


@for_each("dump", DUMPS, ids=str)
def test_recorded_streams_survive_round_trip(dump: Path) -> None:
    for sender in "OL":
        data = bytes_from(sender, dump)
        for size in (1, 7, len(data)):
            items = read(data, size, from_leader=sender == "L")
            assert encode_items(items) == data


@for_each("dump", DUMPS, ids=str)
def test_recorded_payloads_survive_round_trip(dump: Path) -> None:
    for sender in "OL":
        data = bytes_from(sender, dump)
        for item in read(data, len(data), from_leader=sender == "L"):
            if isinstance(item, Packet):
                assert reencode_payload(item, sender) == item.data


def test_failed_multi_in_diff_contains_only_errors() -> None:
    dump = FOLDER / "3.9.4-failed-multi-diff.dump"
    proposals = [item for item in read(bytes_from("L", dump), 99) if item.type == PacketType.PROPOSAL]
    entry, _ = decode_transaction(proposals[-1].data)

    assert {op for op, _ in entry[-1]} == {-1}


def test_learner_stream_item_is_complete_at_its_last_byte() -> None:
    data = PING.encode() + SNAP.encode() + pack_int(0) + pack_int(0) + NODE.encode() + p.SNAPSHOT_END.encode()
    stream = LearnerStream(MAX_ITEM_BYTES)
    seen = [[type(item) for item in stream.feed(bytes([byte]))] for byte in data]
    ends = [at for at, items in enumerate(seen) if items]

    assert [items for items in seen if items] == [[Packet], [Packet], [p.SnapshotNode], [p.SnapshotEnd]]
    assert ends[:2] == [19, 39]
    assert ends[-1] == len(data) - 1


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x15\x03\x03\0\x02\x02\x50", "expects TLS"),
        (pack_int(37) + bytes(33), "unknown packet type 37"),
        (PING.encode()[:12] + pack_int(MAX_ITEM_BYTES + 1), "jute.maxbuffer"),
        (PING.encode()[:12] + pack_int(-2), "invalid length"),
        (PING.encode()[:-4] + pack_int(1_001), "count of identities"),
        (SNAP.encode() + pack_int(-1), "count of entries"),
        (SNAP.encode() + pack_int(0) + pack_int(1) + bytes(8) + pack_int(1 << 30), "count of ACL entries"),
        (SNAP.encode() + pack_int(0) + pack_int(0) + p.SnapshotEnd("/", "BenWasThere").encode(), "BenWasThere"),
    ],
)
def test_malformed_learner_stream_is_refused(data: bytes, text: str) -> None:
    stream = LearnerStream(MAX_ITEM_BYTES)

    with pytest.raises(MarshallingError, match=text):
        list(stream.feed(data))


def test_long_learner_item_in_many_pieces_is_read() -> None:
    packet = Packet(PacketType.INFORM, 1, bytes(1 << 19), None)
    stream = LearnerStream(MAX_ITEM_BYTES)
    data = packet.encode()
    items = [item for start in range(0, len(data), 64) for item in stream.feed(data[start : start + 64])]

    assert items == [packet]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (t.TxnHeader(1, 2, 3, 4, 99).encode(), "unknown transaction type 99"),
        (t.TxnHeader(1, 2, 3, 4, 14).encode() + t.MultiTxn([t.Txn(14, b"")]).encode(), "cannot contain"),
        (t.TxnHeader(1, 2, 3, 4, 5).encode(), "unexpected end"),
    ],
)
def test_unknown_transaction_type_is_refused(record: bytes, text: str) -> None:
    with pytest.raises(MarshallingError, match=text):
        decode_transaction(record)


def test_close_session_path_is_not_read_as_digest() -> None:
    header = t.TxnHeader(1, 2, 3, 4, -11)
    closed = t.CloseSessionTxn(["/abc"])

    entry, offset = decode_transaction(header.encode() + closed.encode())

    assert entry[-1] == closed
    assert offset == len(header.encode()) + 12
