"""Every record survives the wire: what is written is read back, whatever the fields hold and whatever stands around it.

The values come from each record's own declaration, so a new record is tested from the day it is declared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import get_annotations
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoolet.protocol import acl, records, txns
from zoolet.protocol import multi as wire
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, Acls
from zoolet.protocol.codec import Record
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OPERATIONS, OpCode

RECORDS = [
    kind
    for module in (records, txns, acl)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Record) and kind.__module__ == module.__name__
]
HINTS = {kind: get_annotations(kind, eval_str=True) for kind in RECORDS}
MANDATORY = [
    (kind, name)
    for kind, hints in HINTS.items()
    for name, hint in hints.items()
    if hint in (str, bytes) or get_origin(hint) is list
]
OPTIONAL = [
    (kind, name) for kind, hints in HINTS.items() for name, hint in hints.items() if NoneType in get_args(hint)
] + [(kind, name) for kind, hints in HINTS.items() for name, hint in hints.items() if hint == Acls]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
SCALARS: dict[object, st.SearchStrategy[object]] = {
    "b": st.integers(-128, 127),
    "i": ints,
    "q": longs,
    "?": st.booleans(),
    str: texts,
    bytes: st.binary(max_size=12),
    NoneType: st.none(),
}
quick = settings(max_examples=8, deadline=None)
glance = settings(max_examples=3, deadline=None)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """What a field of this declaration may hold."""
    arguments = get_args(hint)
    if hint == Acls:
        entries = st.lists(instances(acl.ACL), max_size=3).map(tuple)
        return st.one_of(st.none(), st.just(OPEN_ACL_UNSAFE), entries)
    if get_origin(hint) is Annotated:
        return SCALARS[arguments[1]]
    if get_origin(hint) is list:
        return st.lists(values(arguments[0]), max_size=3)
    if arguments:
        return st.one_of([values(one) for one in arguments])
    return SCALARS[hint] if hint in SCALARS else instances(hint)


@cache
def instances(kind: type[Record], null: str | None = None) -> st.SearchStrategy[Any]:
    """Records of this class with anything in them, and null in the field that is named, declared so or not."""
    return st.builds(kind, **{name: st.none() if name == null else values(hint) for name, hint in HINTS[kind].items()})


connect_requests = st.builds(
    ConnectRequest, longs, ints, longs, st.none() | st.binary(max_size=20), st.none() | st.booleans()
)
connect_responses = st.builds(
    ConnectResponse, ints, longs, st.none() | st.binary(max_size=20), st.none() | st.booleans()
)


def name_of(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


every_record = pytest.mark.parametrize("kind", RECORDS, ids=name_of)


def test_every_body_of_every_operation_is_among_the_records():
    bodies = {kind for one in OPERATIONS.values() for kind in (one.request, one.response) if kind is not None}

    assert bodies <= set(RECORDS)
    assert {records.MultiHeader, records.WatcherEvent, txns.MultiTxn, acl.ACL} <= set(RECORDS)


@every_record
@quick
@given(data=st.data())
def test_what_is_written_is_read_back(kind: type[Record], data: st.DataObject) -> None:
    written = data.draw(instances(kind))

    assert kind.decode(written.encode()) == written


@every_record
@quick
@given(data=st.data(), rest=st.binary(max_size=9))
def test_bytes_behind_a_record_are_ignored(kind: type[Record], data: st.DataObject, rest: bytes) -> None:
    written = data.draw(instances(kind))

    assert kind.decode(written.encode() + rest) == written


@every_record
@quick
@given(data=st.data(), before=st.binary(max_size=9), rest=st.binary(max_size=9))
def test_take_tells_where_the_next_record_starts(
    kind: type[Record], data: st.DataObject, before: bytes, rest: bytes
) -> None:
    written = data.draw(instances(kind))
    raw = written.encode()

    taken, at = kind.take(before + raw + rest, len(before), len(before + raw + rest))

    assert (taken, at) == (written, len(before + raw))


@pytest.mark.parametrize(("kind", "name"), MANDATORY, ids=name_of)
@glance
@given(data=st.data())
def test_null_does_not_decode_where_it_is_not_declared(kind: type[Record], name: str, data: st.DataObject) -> None:
    without = data.draw(instances(kind, name))

    with pytest.raises(MarshallingError):
        kind.decode(without.encode())


@pytest.mark.parametrize(("kind", "name"), OPTIONAL, ids=name_of)
@glance
@given(data=st.data())
def test_null_stays_null_where_it_is_declared(kind: type[Record], name: str, data: st.DataObject) -> None:
    without = data.draw(instances(kind, name))

    assert getattr(kind.decode(without.encode()), name) is None


# --- what is not a record, but made of some ---


@quick
@given(connect_requests)
def test_a_connect_request_is_read_back(request: ConnectRequest) -> None:
    assert ConnectRequest.decode(request.encode()) == request


@quick
@given(connect_responses)
def test_a_connect_response_is_read_back(response: ConnectResponse) -> None:
    assert ConnectResponse.decode(response.encode()) == response


@quick
@given(connect_requests.filter(lambda request: request.read_only is not None), st.binary(max_size=9))
def test_bytes_behind_a_whole_connect_request_are_ignored(request: ConnectRequest, rest: bytes) -> None:
    assert ConnectRequest.decode(request.encode() + rest) == request


def operations(allowed: frozenset[OpCode]) -> st.SearchStrategy[list[tuple[OpCode, Record]]]:
    """Lists of what a transaction may hold."""
    bodies = [st.tuples(st.just(op), instances(OPERATIONS[op].request or Record)) for op in sorted(allowed)]
    return st.lists(st.one_of(bodies), max_size=4)


@pytest.mark.parametrize("allowed", [wire.WRITES, wire.READS], ids=["multi", "multiRead"])
@quick
@given(data=st.data(), rest=st.binary(max_size=9))
def test_the_operations_of_a_transaction_are_read_back(
    allowed: frozenset[OpCode], data: st.DataObject, rest: bytes
) -> None:
    written = data.draw(operations(allowed))
    raw = wire.encode_operations(written) + rest

    assert list(wire.iter_operations(raw, 0, len(raw), allowed)) == written


def outcome(read: Callable[[], list[tuple[OpCode, Record]]]) -> object:
    """Return what was read, or that it could not be."""
    try:
        return read()
    except MarshallingError as error:
        return error.detail


@quick
@given(data=st.data(), at=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 30))
def test_the_fast_reader_of_a_multi_reads_what_the_other_reads(
    data: st.DataObject, at: int, byte: int, cut: int
) -> None:
    raw = bytearray(wire.encode_operations(data.draw(operations(wire.WRITES))))
    raw[at % len(raw)] = byte
    damaged = bytes(raw[: len(raw) - cut] if data.draw(st.booleans()) else raw)

    fast = outcome(lambda: wire.read_operations(damaged, 0, len(damaged)))
    slow = outcome(lambda: list(wire.iter_operations(damaged, 0, len(damaged), wire.WRITES)))

    assert fast == slow


RESULTS = [op for op in sorted(wire.WRITES | wire.READS) if op not in (OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)]
results = st.lists(
    st.one_of(
        [st.tuples(st.just(int(op)), instances(OPERATIONS[op].response or Record)) for op in RESULTS]
        + [st.tuples(st.just(-1), instances(records.ErrorResponse))]
    ),
    max_size=4,
)


@quick
@given(results)
def test_the_results_of_a_transaction_are_read_back(written: list[tuple[int, Any]]) -> None:
    raw = [wire.error_result(body.err) if op == -1 else wire.result(op, body.encode()) for op, body in written]

    assert wire.decode_results(b"".join(raw) + wire.END) == written
