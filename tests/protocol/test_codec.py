"""Arbitrary bytes decode to a record or raise MarshallingError, at a cost limited by the number of bytes."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from inspect import get_annotations
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.record_strategies import thorough

from zoolet.protocol import acl, records, txns
from zoolet.protocol import multi as wire
from zoolet.protocol.acl import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Acls
from zoolet.protocol.codec import Decoded, Record, text
from zoolet.protocol.enums import MAX_FRAME
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OPERATIONS

MAX_INT = 2**31 - 1
KINDS = [
    kind
    for module in (records, txns, acl)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Record) and kind.__module__ == module.__name__
]
HINTS = {kind: get_annotations(kind, eval_str=True) for kind in KINDS}
SAMPLES: dict[object, object] = {"i": -2, "q": 2**40, "?": True, str: "/é", bytes: b"\x00\xff"}


def sample_value(hint: Any) -> Any:
    """Return a non-empty value for a field with this declaration."""
    arguments = [one for one in get_args(hint) if one is not NoneType]
    if hint == Acls:
        return CREATOR_ALL_ACL + OPEN_ACL_UNSAFE
    if get_origin(hint) is Annotated:
        return SAMPLES[get_args(hint)[1]]
    if get_origin(hint) is list:
        return [sample_value(arguments[0])] * 2
    if arguments:
        return sample_value(arguments[0])
    return SAMPLES[hint] if hint in SAMPLES else full_record(hint)


def full_record(kind: type[Record], **given: object) -> Any:
    """Return a record with a non-empty value in every field; *given* values take precedence."""
    return kind(**{name: given.get(name, sample_value(hint)) for name, hint in HINTS[kind].items()})


def matching_fields(wanted: Callable[[Any], bool]) -> list[tuple[type[Record], str]]:
    return [(kind, name) for kind, hints in HINTS.items() for name, hint in hints.items() if wanted(hint)]


def split_at_field(kind: type[Record], name: str, empty: object) -> tuple[bytes, bytes]:
    """Return the bytes of a record before and after the length of one empty field."""
    hollow = full_record(kind, **{name: empty}).encode()
    at = [one == other for one, other in zip(hollow, full_record(kind, **{name: None}).encode(), strict=False)].index(
        False
    )
    return hollow[:at], hollow[at + 4 :]


def is_vector(hint: Any) -> bool:
    return hint == Acls or any(get_origin(one) is list for one in (hint, *get_args(hint)))


def case_id(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


VECTORS = matching_fields(is_vector)
STRINGS = matching_fields(lambda hint: not is_vector(hint) and (hint is str or str in get_args(hint)))
BUFFERS = matching_fields(lambda hint: hint is bytes or bytes in get_args(hint))
every_record = pytest.mark.parametrize("kind", KINDS, ids=case_id)
every_vector = pytest.mark.parametrize(("kind", "name"), VECTORS, ids=case_id)
every_scalar = pytest.mark.parametrize(
    ("kind", "name", "empty"), [(*one, "") for one in STRINGS] + [(*one, b"") for one in BUFFERS], ids=case_id
)
Decode = Callable[[bytes], object]
LISTS = [
    [(op, full_record(OPERATIONS[op].request or Record)) for op in sorted(kind)] for kind in (wire.WRITES, wire.READS)
]
RESULTS = [
    wire.encode_result(op, full_record(OPERATIONS[op].response or Record).encode()) for op in wire.WRITES | wire.READS
]
COMPOSITES: dict[str, tuple[Decode, bytes]] = {
    "connect request": (ConnectRequest.decode, ConnectRequest(1, 2, 3, b"4", True).encode()),
    "connect response": (ConnectResponse.decode, ConnectResponse(1, 2, b"3", True).encode()),
    "multi": (
        lambda raw: list(wire.iter_operations(raw, 0, len(raw), wire.WRITES)),
        wire.encode_operations(LISTS[0]),
    ),
    "multiRead": (
        lambda raw: list(wire.iter_operations(raw, 0, len(raw), wire.READS)),
        wire.encode_operations(LISTS[1]),
    ),
    "results": (wire.decode_results, b"".join(RESULTS) + wire.encode_error_result(-101) + wire.END),
    "frames": (lambda raw: Frames().feed(raw), frame(b"one") + frame(b"") + frame(bytes(30))),
}
every_composite = pytest.mark.parametrize(("decode", "valid"), COMPOSITES.values(), ids=COMPOSITES)
edge_integers = st.sampled_from([0, 1, 2, -1, -2, MAX_INT, -MAX_INT - 1, MAX_FRAME, 0x01000000]).map(
    lambda n: n.to_bytes(4, "big", signed=True)
)
noise = st.one_of(
    st.binary(max_size=60), st.lists(st.one_of(edge_integers, st.binary(max_size=5)), max_size=15).map(b"".join)
)
splices = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 8), st.one_of(edge_integers, st.binary(max_size=4))), max_size=4
)
# The deadline is in milliseconds; an example takes less than 1 ms.
few_examples = settings(max_examples=8, deadline=2000)


def damage_bytes(raw: bytes, cuts: list[tuple[float, int, bytes]]) -> bytes:
    """Return valid bytes with some of them replaced."""
    for place, size, new in cuts:
        at = int(place * len(raw))
        raw = raw[:at] + new + raw[at + size :]
    return raw


def read(decode: Decode, raw: bytes) -> None:
    """Decode bytes. MarshallingError is the only error allowed."""
    with suppress(MarshallingError):
        decode(raw)


# --- arbitrary bytes ---


@every_record
@few_examples
@given(noise)
def test_random_bytes_decode_or_raise_marshalling_error(kind: type[Record], raw: bytes) -> None:
    read(kind.decode, raw)


@every_record
@few_examples
@given(splices)
def test_damaged_record_decodes_or_raises_marshalling_error(
    kind: type[Record], cuts: list[tuple[float, int, bytes]]
) -> None:
    read(kind.decode, damage_bytes(full_record(kind).encode(), cuts))


@every_composite
@thorough
@given(raw=noise)
def test_random_bytes_as_several_records_decode_or_raise(decode: Decode, valid: bytes, raw: bytes) -> None:
    read(decode, raw)


@every_composite
@thorough
@given(cuts=splices)
def test_damaged_records_raise_only_marshalling_error(
    decode: Decode, valid: bytes, cuts: list[tuple[float, int, bytes]]
) -> None:
    read(decode, damage_bytes(valid, cuts))


# --- truncated bytes ---


def can_decode(decode: Decode, raw: bytes) -> bool:
    """Return whether the bytes can be decoded."""
    try:
        decode(raw)
    except MarshallingError:
        return False
    return True


@every_record
def test_truncated_record_does_not_decode(kind: type[Record]) -> None:
    raw = full_record(kind).encode()

    decoded = [cut for cut in range(len(raw)) if can_decode(kind.decode, raw[:cut])]

    assert decoded == []


@every_record
def test_record_is_not_read_beyond_end_of_its_buffer_part(kind: type[Record]) -> None:
    raw = full_record(kind).encode()

    decoded = [
        stop for stop in range(2, 2 + len(raw)) if can_decode(lambda buf, at=stop: kind.decode(buf, 2, at), b"##" + raw)
    ]
    taken = [
        stop
        for stop in range(2, 2 + len(raw))
        if can_decode(lambda buf, at=stop: kind.read_from(buf, 2, at), b"##" + raw)
    ]

    assert (decoded, taken) == ([], [])


@pytest.mark.parametrize("which", ["multi", "multiRead", "results"])
def test_truncated_transaction_does_not_decode(which: str) -> None:
    decode, raw = COMPOSITES[which]

    decoded = [cut for cut in range(len(raw)) if can_decode(decode, raw[:cut])]

    assert decoded == []


@pytest.mark.parametrize(("which", "size"), [("connect request", 29), ("connect response", 21)])
def test_handshake_may_end_only_before_its_last_byte(which: str, size: int) -> None:
    decode, raw = COMPOSITES[which]

    decoded = [cut for cut in range(len(raw)) if can_decode(decode, raw[:cut])]

    assert decoded == [size]


# --- wrong lengths and counts ---


@every_scalar
@pytest.mark.parametrize("length", [-2, -MAX_INT - 1, MAX_INT, 0x01000000])
def test_invalid_field_length_does_not_decode(kind: type[Record], name: str, empty: object, length: int) -> None:
    before, behind = split_at_field(kind, name, empty)

    with pytest.raises(MarshallingError):
        kind.decode(before + length.to_bytes(4, "big", signed=True) + behind)


@every_vector
@pytest.mark.parametrize("count", [-2, -MAX_INT - 1])
def test_vector_with_count_below_minus_one_decodes_as_empty(kind: type[Record], name: str, count: int) -> None:
    empty: Any = () if HINTS[kind][name] == Acls else []
    before, behind = split_at_field(kind, name, empty)

    decoded = kind.decode(before + count.to_bytes(4, "big", signed=True) + behind)

    assert getattr(decoded, name) == empty


@every_vector
def test_vector_with_maximum_count_allocates_no_memory(kind: type[Record], name: str) -> None:
    before, behind = split_at_field(kind, name, () if HINTS[kind][name] == Acls else [])
    raw = before + MAX_INT.to_bytes(4, "big") + behind + bytes(40)
    tracemalloc.start()

    with pytest.raises(MarshallingError):
        kind.decode(raw)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


# --- text that is not UTF-8 ---


def decode_string(raw: bytes) -> str | None:
    """Return the string that is decoded from these bytes of a frame."""
    return records.SyncRequest.decode(len(raw).to_bytes(4, "big") + raw).path


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("eda080", "\ufffd"),
        ("edbfbf", "\ufffd"),
        ("eda0", "\ufffd"),
        ("eda041", "\ufffdA"),
        ("eda080edb080", "\ufffd\ufffd"),
        ("61eda08062eda0", "a\ufffdb\ufffd"),
        ("ed", "\ufffd"),
        ("ed9fbf", "\ud7ff"),
        ("ff41", "\ufffdA"),
    ],
)
def test_surrogate_becomes_one_replacement_character(raw: str, read: str) -> None:
    assert decode_string(bytes.fromhex(raw)) == read


byte_pieces = st.sampled_from(
    ["c0", "c3", "e0", "e2", "ed", "ef", "f0", "f4", "f5", "ff", "80", "90", "9f", "bf", "41"]
)
malformed_texts = st.lists(byte_pieces.map(bytes.fromhex), max_size=10).map(b"".join)


@thorough
@given(malformed_texts.filter(lambda raw: not re.search(b"\xed[\xa0-\xbf]", raw)))
@example(b"\xe0\x80\x80\xf0\x90\x80\xc3\xf4\x90\x80\x80")
def test_malformed_utf8_is_replaced_as_by_python_decoder(raw: bytes) -> None:
    assert decode_string(raw) == raw.decode("utf-8", "replace")


@thorough
@given(malformed_texts)
def test_malformed_utf8_decodes_equally_in_field_and_vector(raw: bytes) -> None:
    sized = len(raw).to_bytes(4, "big") + raw

    mandatory = records.GetACLRequest.decode(sized).path
    item = records.GetChildrenResponse.decode(b"\x00\x00\x00\x01" + sized).children

    assert (mandatory, item) == (text(raw), [text(raw)])


# --- repeated requests ---


def test_repeated_request_is_decoded_once() -> None:
    requests = Decoded(records.GetDataRequest)
    raw = records.GetDataRequest("/a", True).encode()

    assert requests[raw] == records.GetDataRequest("/a", True)
    assert requests[bytes(bytearray(raw))] is requests[raw]


def test_number_and_size_of_cached_records_are_limited() -> None:
    requests = Decoded(records.GetDataRequest)

    for number in range(10_000):
        assert requests[records.GetDataRequest(f"/{number}", False).encode()].path == f"/{number}"
        assert len(requests) <= 4096
    requests.clear()
    requests[records.GetDataRequest("/" + "n" * 300, False).encode()]

    assert not requests


def test_malformed_request_is_not_cached() -> None:
    requests = Decoded(records.GetDataRequest)

    with pytest.raises(MarshallingError):
        requests[b"\0\0"]

    assert not requests
