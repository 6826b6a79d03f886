"""Records: each survives a round trip with any values and any surrounding bytes, and has ZooKeeper's encoding."""

from __future__ import annotations

from types import NoneType
from typing import get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.frames import unhex
from support.golden import OPEN_BYTES, STAT, STAT_BYTES
from support.numbers import END
from support.record_strategies import HINTS, RECORDS, instances, quick, record_name

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, Acls
from zoolet.protocol.codec import Record
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.operations import OpCode

MANDATORY = [
    (kind, name)
    for kind, hints in HINTS.items()
    for name, hint in hints.items()
    if hint in (str, bytes) or get_origin(hint) is list
]
OPTIONAL = [
    (kind, name) for kind, hints in HINTS.items() for name, hint in hints.items() if NoneType in get_args(hint)
] + [(kind, name) for kind, hints in HINTS.items() for name, hint in hints.items() if hint == Acls]
few_examples = settings(max_examples=3, deadline=None)
every_record = pytest.mark.parametrize("kind", RECORDS, ids=record_name)


# --- the bytes of ZooKeeper ---


@pytest.mark.parametrize(
    ("record", "raw"),
    [
        (r.RequestHeader(1, 1), "00000001 00000001"),
        (r.ReplyHeader(1, 2, -101), "00000001 0000000000000002 ffffff9b"),
        (r.MultiHeader(-1, True, -1), END),
        (r.MultiHeader(13, False, 0), "0000000d 00 00000000"),
        (r.CreateRequest("/h", b"hi", OPEN_ACL_UNSAFE, 0), "00000002 2f68 00000002 6869" + OPEN_BYTES + "00000000"),
        (r.CreateRequest(None, None, None, 3), "ffffffff ffffffff ffffffff 00000003"),
        (r.CreateRequest("", b"", (), 0), "00000000 00000000 00000000 00000000"),
        (r.CreateResponse("/h"), "00000002 2f68"),
        (r.Create2Response("/h", STAT), "00000002 2f68" + STAT_BYTES),
        (
            r.CreateTTLRequest("/h", b"", OPEN_ACL_UNSAFE, 5, 1),
            "00000002 2f68 00000000" + OPEN_BYTES + "00000005 0000000000000001",
        ),
        (r.DeleteRequest("/h", -1), "00000002 2f68 ffffffff"),
        (r.GetDataRequest("/h", True), "00000002 2f68 01"),
        (r.GetDataResponse(None, STAT), "ffffffff" + STAT_BYTES),
        (r.SetDataRequest("/h", b"", 7), "00000002 2f68 00000000 00000007"),
        (r.GetChildrenResponse(["a", "bc"]), "00000002 00000001 61 00000002 6263"),
        (r.GetChildren2Response([], STAT), "00000000" + STAT_BYTES),
        (r.SyncRequest(None), "ffffffff"),
        (r.AddWatchRequest("/h", 1), "00000002 2f68 00000001"),
        (r.ErrorResponse(0), "00000000"),
        (r.AuthPacket(0, "digest", b"u:p"), "00000000 00000006 646967657374 00000003 753a70"),
        (r.SetWatches(-1, [], ["/h"], None), "ffffffffffffffff 00000000 00000001 00000002 2f68 ffffffff"),
        (r.WatcherEvent(3, 3, "/h"), "00000003 00000003 00000002 2f68"),
        (r.WhoAmIResponse([r.ClientInfo("ip", "::1")]), "00000001 00000002 6970 00000003 3a3a31"),
        (r.SetSASLResponse(None), "ffffffff"),
        (r.EmptyResponse(), ""),
    ],
)
def test_encoded_record_matches_zookeeper(record: Record, raw: str) -> None:
    assert record.encode() == unhex(raw)
    assert type(record).decode(unhex(raw)) == record


def test_encoded_stat_matches_zookeeper() -> None:
    assert STAT.encode() == unhex(STAT_BYTES)
    assert len(STAT.encode()) == 68


def test_encoded_create_matches_zookeeper() -> None:
    payload = r.RequestHeader(1, OpCode.CREATE).encode() + r.CreateRequest("/h", b"hi", OPEN_ACL_UNSAFE, 0).encode()

    assert frame(payload) == unhex("00000033 00000001 00000001 00000002 2f68 00000002 6869" + OPEN_BYTES + "00000000")


def test_notification_of_zookeeper_is_read() -> None:
    (payload,) = Frames().feed(unhex("0000001e ffffffff ffffffffffffffff 00000000 00000003 00000003 00000002 2f68"))

    assert r.ReplyHeader.decode(payload) == r.ReplyHeader(-1, -1, 0)
    assert r.WatcherEvent.decode(payload, 16) == r.WatcherEvent(3, 3, "/h")


@pytest.mark.parametrize(("byte", "read"), [("00", False), ("01", True), ("02", True), ("ff", True)])
def test_nonzero_boolean_decodes_as_true(byte: str, read: bool) -> None:
    assert r.ExistsRequest.decode(unhex("00000000" + byte)).watch is read


# --- round trips ---


@every_record
@quick
@given(data=st.data())
def test_written_record_is_read_back(kind: type[Record], data: st.DataObject) -> None:
    written = data.draw(instances(kind))

    assert kind.decode(written.encode()) == written


@every_record
@quick
@given(data=st.data(), rest=st.binary(max_size=9))
def test_bytes_after_record_are_ignored(kind: type[Record], data: st.DataObject, rest: bytes) -> None:
    written = data.draw(instances(kind))

    assert kind.decode(written.encode() + rest) == written


@every_record
@quick
@given(data=st.data(), before=st.binary(max_size=9), rest=st.binary(max_size=9))
def test_read_from_returns_start_of_next_record(
    kind: type[Record], data: st.DataObject, before: bytes, rest: bytes
) -> None:
    written = data.draw(instances(kind))
    raw = written.encode()

    taken, at = kind.read_from(before + raw + rest, len(before), len(before + raw + rest))

    assert (taken, at) == (written, len(before + raw))


@pytest.mark.parametrize(("kind", "name"), MANDATORY, ids=record_name)
@few_examples
@given(data=st.data())
def test_null_in_mandatory_field_does_not_decode(kind: type[Record], name: str, data: st.DataObject) -> None:
    without = data.draw(instances(kind, name))

    with pytest.raises(MarshallingError):
        kind.decode(without.encode())


@pytest.mark.parametrize(("kind", "name"), OPTIONAL, ids=record_name)
@few_examples
@given(data=st.data())
def test_null_in_nullable_field_survives_round_trip(kind: type[Record], name: str, data: st.DataObject) -> None:
    without = data.draw(instances(kind, name))

    assert getattr(kind.decode(without.encode()), name) is None
