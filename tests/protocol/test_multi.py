"""Transactions on the wire: operations and results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.frames import unhex
from support.golden import STAT, STAT_BYTES
from support.numbers import END
from support.record_strategies import instances, quick

from zoolet.protocol import multi as wire
from zoolet.protocol import records
from zoolet.protocol import records as r
from zoolet.protocol.codec import Record
from zoolet.protocol.operations import OPERATIONS, OpCode

# --- the bytes of ZooKeeper ---


def test_encoded_transaction_ends_with_done_header() -> None:
    raw = wire.encode_operations(
        [(OpCode.DELETE, r.DeleteRequest("/h", -1)), (OpCode.CHECK, r.CheckVersionRequest("/", 0))]
    )

    assert raw == unhex(
        "00000002 00 ffffffff 00000002 2f68 ffffffff"  # delete
        "0000000d 00 ffffffff 00000001 2f 00000000" + END  # check
    )


def test_empty_transaction_consists_of_end_header() -> None:
    assert wire.encode_operations([]) == unhex(END)
    assert wire.decode_results(unhex(END)) == []


def test_last_multi_header_is_recognised_by_done_flag() -> None:
    raw = unhex("00000005 01 00000000")

    assert list(wire.iter_operations(raw, 0, len(raw), wire.WRITES)) == []
    assert wire.decode_results(raw) == []


def test_failed_multi_results_contain_each_error_code_twice() -> None:
    raw = unhex("ffffffff 00 00000000 00000000 ffffffff 00 ffffff9b ffffff9b ffffffff 00 fffffffe fffffffe" + END)

    assert b"".join(map(wire.encode_error_result, [0, -101, -2])) + wire.END == raw
    assert wire.decode_results(raw) == [(-1, r.ErrorResponse(code)) for code in (0, -101, -2)]


def test_format_of_multi_result_depends_on_operation() -> None:
    raw = unhex(
        "00000001 00 00000000 00000002 2f68"  # create
        "00000002 00 00000000"  # delete
        "00000005 00 00000000" + STAT_BYTES +  # setData
        "0000000d 00 00000000"  # check
        "0000000f 00 00000000 00000002 2f68" + STAT_BYTES +  # create2
        "00000004 00 00000000 ffffffff" + STAT_BYTES +  # getData
        "00000008 00 00000000 00000001 00000001 61" + END  # getChildren
    )  # fmt: skip

    assert wire.decode_results(raw) == [
        (1, r.CreateResponse("/h")),
        (2, r.EmptyResponse()),
        (5, r.StatResponse(STAT)),
        (13, r.EmptyResponse()),
        (15, r.Create2Response("/h", STAT)),
        (4, r.GetDataResponse(None, STAT)),
        (8, r.GetChildrenResponse(["a"])),
    ]


# --- round trips ---


def operations(allowed: frozenset[OpCode]) -> st.SearchStrategy[list[tuple[OpCode, Record]]]:
    """Return a strategy for lists of operations in a transaction."""
    bodies = [st.tuples(st.just(op), instances(OPERATIONS[op].request or Record)) for op in sorted(allowed)]
    return st.lists(st.one_of(bodies), max_size=4)


@pytest.mark.parametrize("allowed", [wire.WRITES, wire.READS], ids=["multi", "multiRead"])
@quick
@given(data=st.data(), rest=st.binary(max_size=9))
def test_operations_of_transaction_survive_round_trip(
    allowed: frozenset[OpCode], data: st.DataObject, rest: bytes
) -> None:
    written = data.draw(operations(allowed))
    raw = wire.encode_operations(written) + rest

    assert list(wire.iter_operations(raw, 0, len(raw), allowed)) == written


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
def test_results_of_transaction_survive_round_trip(written: list[tuple[int, Any]]) -> None:
    raw = [
        wire.encode_error_result(body.err) if op == -1 else wire.encode_result(op, body.encode())
        for op, body in written
    ]

    assert wire.decode_results(b"".join(raw) + wire.END) == written
