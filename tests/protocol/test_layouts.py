"""Bytes that are packed by hand for speed equal the encoded records.

The first part pins the helpers of the codec, the second the server's headers, Stats, events and bodies of replies.
"""

from __future__ import annotations

from ctypes import c_int32
from itertools import takewhile
from typing import Annotated, Any, get_args, get_origin

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.calls import connect_peer, read_session_id
from support.engine import make_engine
from support.frames import request
from support.numbers import NO_NODE
from support.peer import Peer
from support.record_strategies import HINTS, instances, ints, longs, quick, record_name, texts

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList, Acls
from zoolet.protocol.codec import Byte, Int, Long, Record, combined_struct, put_bytes, put_str, put_strs
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.framing import frame
from zoolet.protocol.operations import OpCode
from zoolet.server.core.node import Children, Node
from zoolet.server.core.watches import encode_event

few_examples = settings(max_examples=20, deadline=None)

# --- the layouts of fixed-size fields ---


def leading_fixed_fields(kind: type[Record]) -> list[str]:
    """Return the names of the fixed-size fields at the start of a record."""

    def fixed(name: str) -> bool:
        hint = HINTS[kind][name]
        return get_origin(hint) is Annotated and isinstance(get_args(hint)[1], str)

    return list(takewhile(fixed, HINTS[kind]))


@pytest.mark.parametrize("kind", [kind for kind in HINTS if leading_fixed_fields(kind)], ids=record_name)
@quick
@given(data=st.data())
def test_record_struct_covers_leading_fixed_fields(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(instances(kind))
    layout = combined_struct(kind)
    values = tuple(getattr(record, name) for name in leading_fixed_fields(kind))

    assert layout.pack(*values) == record.encode()[: layout.size]
    assert layout.unpack_from(record.encode()) == values


@few_examples
@given(xid=ints, op=ints, body=st.binary(max_size=12))
def test_struct_of_length_and_header_equals_frame(xid: int, op: int, body: bytes) -> None:
    layout = combined_struct(Int, r.RequestHeader)
    raw = frame(r.RequestHeader(xid, op).encode() + body)

    assert layout.pack(8 + len(body), xid, op) + body == raw
    assert layout.unpack_from(raw) == (8 + len(body), xid, op)


def test_combined_struct_allows_variable_field_only_in_last_part() -> None:
    assert combined_struct(Long, r.ReplyHeader, r.WatcherEvent).size == 8 + 16 + 8
    with pytest.raises(TypeError):
        combined_struct(r.WatcherEvent, Byte)


# --- strings, buffers, vectors ---


@few_examples
@given(st.none() | texts)
def test_put_str_matches_string_field(value: str | None) -> None:
    assert put_str(value) == r.SyncRequest(value).encode()


@few_examples
@given(st.none() | st.binary(max_size=12))
def test_put_bytes_matches_buffer_field(value: bytes | None) -> None:
    assert put_bytes(value) == r.SetSASLResponse(value).encode()


@few_examples
@given(st.none() | st.lists(texts, max_size=4))
def test_put_strs_matches_vector_field(values: list[str] | None) -> None:
    fields: Any = values

    assert put_strs(values) == r.SetWatches(0, [], [], fields).encode()[16:]


# --- ACL lists ---

read_acl, write_acl = get_args(Acls)[1]
OPEN_BYTES = (1).to_bytes(4, "big") + OPEN_ACL_UNSAFE[0].encode()


def read_entries(buf: bytes, offset: int, end: int) -> tuple[AclList | None, int]:
    """Read a list of ACL entries, each as a record."""
    if offset + 4 > end:
        raise MarshallingError
    count = int.from_bytes(buf[offset : offset + 4], "big", signed=True)
    offset += 4
    entries = []
    for _ in range(count):
        entry, offset = ACL.read_from(buf, offset, end)
        entries.append(entry)
    return None if count == -1 else tuple(entries), offset


def decode_outcome(read: Any, buf: bytes, offset: int, end: int) -> object:
    """Return the decoded value, or MarshallingError if the bytes are invalid."""
    try:
        return read(buf, offset, end)
    except MarshallingError:
        return MarshallingError


acl_lists = st.none() | st.just(OPEN_ACL_UNSAFE) | st.lists(instances(ACL), max_size=3).map(tuple)


@settings(max_examples=60, deadline=None)
@given(acl=acl_lists, before=st.binary(max_size=5), rest=st.binary(max_size=5), at=st.integers(0, 40), data=st.data())
def test_fast_acl_reader_equals_entry_reader(
    acl: AclList | None, before: bytes, rest: bytes, at: int, data: st.DataObject
) -> None:
    raw = bytearray(write_acl(acl))
    if data.draw(st.booleans(), "damaged"):
        raw[at % len(raw)] = data.draw(st.sampled_from([0, 1, 5, 6, 255]), "byte")
    buf = before + bytes(raw) + rest
    end = len(buf) - data.draw(st.integers(0, len(rest) + 1), "missing")

    assert decode_outcome(read_acl, buf, len(before), end) == decode_outcome(read_entries, buf, len(before), end)


@few_examples
@given(acl_lists)
def test_fast_acl_writer_equals_entry_writer(acl: AclList | None) -> None:
    entries = [] if acl is None else acl
    count = -1 if acl is None else len(acl)

    assert write_acl(acl) == count.to_bytes(4, "big", signed=True) + b"".join([entry.encode() for entry in entries])


def test_common_acl_list_is_written_like_list_of_same_entry() -> None:
    assert write_acl(OPEN_ACL_UNSAFE) == OPEN_BYTES == write_acl((OPEN_ACL_UNSAFE[0],))


# --- multiRead ---

read_operations = st.sampled_from(
    [(OpCode.GET_DATA, r.GetDataRequest), (OpCode.GET_CHILDREN, r.GetChildrenRequest)]
).flatmap(lambda kind: st.tuples(st.just(kind[0]), instances(kind[1])))


@few_examples
@given(st.lists(read_operations, max_size=4), st.binary(max_size=5))
def test_fast_multi_read_reader_equals_operation_reader(operations: list[tuple[OpCode, Any]], rest: bytes) -> None:
    raw = wire.encode_operations(operations) + rest

    assert list(wire.iter_reads(raw, 0, len(raw))) == [
        (op, body.path) for op, body in wire.iter_operations(raw, 0, len(raw), wire.READS)
    ]


# --- nodes and events ---

NUMBERS = st.fixed_dictionaries(
    {
        **{name: longs for name in ("czxid", "mzxid", "pzxid", "ctime", "mtime", "owner")},
        **{name: ints for name in ("version", "aversion", "creates")},
    }
)
"""Strategies for the numbers of a node."""
DATA = st.none() | st.binary(max_size=12)
names = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1), unique=True)


def stat_record(node: Node) -> r.Stat:
    """Return the Stat of a node as a record."""
    children = len(node.children or ())
    is_container, is_ttl = node.owner == -(1 << 63), node.owner >> 56 == -1  # any other owner is a session id
    return r.Stat(
        czxid=node.czxid,
        mzxid=node.mzxid,
        ctime=node.ctime,
        mtime=node.mtime,
        version=node.version,
        cversion=c_int32(2 * node.creates - children).value,
        aversion=node.aversion,
        ephemeralOwner=0 if is_container or is_ttl else node.owner,
        dataLength=len(node.data or b""),
        numChildren=children,
        pzxid=node.pzxid,
    )


def set_node_numbers(node: Node, numbers: dict[str, int]) -> None:
    """Set numbers of a node as the tree does."""
    for name, number in numbers.items():
        setattr(node, name, number)
    node.encoding = None


@settings(max_examples=50, deadline=None)
@example(numbers={"creates": 1 << 30}, data=None, children=[])  # a cversion of 2**31
@example(numbers={"creates": -1 << 30}, data=None, children=["a"])  # a cversion of -2**31 - 1
@given(numbers=NUMBERS, data=DATA, children=names)
def test_stat_of_node_equals_record(numbers: dict[str, int], data: bytes | None, children: list[str]) -> None:
    node = Node(data, 0, 0, 1, 2)
    before, expected_before = node.stat(), stat_record(node).encode()
    node.children = Children()
    node.children.update({name: Node(None, 0, 0, 1, 2) for name in children})

    set_node_numbers(node, numbers)

    assert before == expected_before
    assert node.stat() == stat_record(node).encode()


@few_examples
@given(children=names, more=names)
def test_encoded_child_names_equal_record(children: list[str], more: list[str]) -> None:
    known = Children()
    known.update({name: Node(None, 0, 0, 1, 2) for name in children})
    first = known.encoded()
    known.update({name: Node(None, 0, 0, 1, 2) for name in more})
    known.encoding = None

    assert first == r.GetChildrenResponse(children).encode()
    assert known.encoded() == known.encoded() == r.GetChildrenResponse(list(dict.fromkeys(children + more))).encode()


@few_examples
@given(event=instances(r.WatcherEvent), zxid=longs)
def test_event_frame_contains_header_and_record(event: r.WatcherEvent, zxid: int) -> None:
    event.state = 3

    raw = encode_event(event.path, event.type, zxid)

    assert raw == frame(r.ReplyHeader(-1, zxid, 0).encode() + event.encode())


# --- replies ---


def client_at_zxid(zxid: int = 1) -> Peer:
    """Return a client of a fresh server whose last zxid is the given one."""
    peer = connect_peer(make_engine())
    peer.engine.zxid = zxid
    return peer


def reply(xid: int, zxid: int, body: Record | None = None, err: int = 0) -> bytes:
    """Return a reply encoded from records."""
    return frame(r.ReplyHeader(xid, zxid, err).encode() + (body.encode() if body is not None else b""))


@few_examples
@given(xid=ints, zxid=longs, numbers=NUMBERS, data=DATA, children=names)
def test_replies_to_reads_equal_records(
    xid: int, zxid: int, numbers: dict[str, int], data: bytes | None, children: list[str]
) -> None:
    peer = client_at_zxid(zxid)
    peer.engine.tree.create("/n", "n", peer.engine.tree.parent_of("/n"), data, 0, 0, 1, 0)
    node = peer.engine.tree.find("/n")
    for name in children:
        peer.engine.tree.create(f"/n/{name}", name, peer.engine.tree.parent_of(f"/n/{name}"), b"", 0, 0, 1, 0)
    set_node_numbers(node, numbers)
    stat = stat_record(node)
    expected: list[tuple[OpCode, Record, Record]] = [
        (OpCode.GET_DATA, r.GetDataRequest("/n", False), r.GetDataResponse(data, stat)),
        (OpCode.EXISTS, r.ExistsRequest("/n", False), r.StatResponse(stat)),
        (OpCode.GET_CHILDREN, r.GetChildrenRequest("/n", False), r.GetChildrenResponse(children)),
        (OpCode.GET_CHILDREN2, r.GetChildrenRequest("/n", False), r.GetChildren2Response(children, stat)),
        (
            OpCode.GET_ALL_CHILDREN_NUMBER,
            r.GetAllChildrenNumberRequest("/n"),
            r.GetAllChildrenNumberResponse(len(children)),
        ),
        (OpCode.ADD_WATCH, r.AddWatchRequest("/n", 0), r.ErrorResponse(0)),
    ]

    answers = [peer.feed(request(xid, op, asked)) for op, asked, _ in expected]

    assert answers == [reply(xid, zxid, answered) for _, _, answered in expected]


@few_examples
@given(xid=ints, path=st.none() | texts)
def test_reply_to_sync_equals_record(xid: int, path: str | None) -> None:
    raw = client_at_zxid().feed(request(xid, OpCode.SYNC, r.SyncRequest(path)))

    assert raw == reply(xid, 1, r.SyncResponse(path))


@few_examples
@given(names=names, prefix=st.sampled_from(["", "/", "/a", "/b"]))
def test_reply_to_get_ephemerals_equals_record(names: list[str], prefix: str) -> None:
    peer = client_at_zxid()
    paths = [f"/{letter}{name}" for name in names for letter in "ba"]
    for path in paths:
        peer.engine.tree.create(path, path[1:], peer.engine.tree.parent_of(path), b"", 0, read_session_id(peer), 1, 0)

    raw = peer.feed(request(7, OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest(prefix)))

    found = sorted(path for path in paths if path.startswith(prefix)) if len(prefix) > 1 else paths
    assert raw == reply(7, 1, r.GetEphemeralsResponse(found))


@few_examples
@given(xid=ints, name=st.text("aé漢", min_size=1, max_size=4), data=DATA)
def test_replies_to_writes_equal_records(xid: int, name: str, data: bytes | None) -> None:
    peer, path, second = client_at_zxid(), f"/{name}", f"/{name}2"

    first = peer.feed(request(xid, OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, 0)))
    with_stat = peer.feed(request(xid, OpCode.CREATE2, r.CreateRequest(second, data, OPEN_ACL_UNSAFE, 0)))
    created = stat_record(peer.engine.tree.find(second))
    changed = peer.feed(request(xid, OpCode.SET_DATA, r.SetDataRequest(path, data, -1)))
    deleted = peer.feed(request(xid, OpCode.DELETE, r.DeleteRequest(second, -1)))

    assert first == reply(xid, 2, r.CreateResponse(path))
    assert with_stat == reply(xid, 3, r.Create2Response(second, created))
    assert changed == reply(xid, 4, r.StatResponse(stat_record(peer.engine.tree.find(path))))
    assert deleted == reply(xid, 5)


@few_examples
@given(xid=ints, zxid=longs, code=ints)
def test_reply_without_body_equals_header(xid: int, zxid: int, code: int) -> None:
    peer = client_at_zxid(zxid)

    failed = peer.feed(request(xid, OpCode.GET_DATA, r.GetDataRequest("/none", False)))
    pinged = peer.feed(request(xid, OpCode.PING))
    peer.connection.answer_with_error(xid, OpCode.GET_DATA, code)

    assert failed == reply(xid, zxid, err=NO_NODE)
    assert pinged == reply(-2, zxid)
    assert peer.connection.data_to_send() == reply(xid, zxid, err=code)
