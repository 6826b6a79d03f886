"""The operations: their numbers, and the records of their bodies."""

from __future__ import annotations

import pytest
from support.record_strategies import RECORDS

from zoolet.protocol import acl, records, txns
from zoolet.protocol.operations import OPERATIONS, OpCode, codes_by_change


@pytest.mark.parametrize("op", [-11, *range(1, 10), *range(11, 23), *range(100, 108)])
def test_operation_numbers_match_zookeeper(op: int) -> None:
    assert OpCode(op) == op


def test_all_bodies_of_operations_are_in_tested_records():
    bodies = {kind for one in OPERATIONS.values() for kind in (one.request, one.response) if kind is not None}

    assert bodies <= set(RECORDS)
    assert {records.MultiHeader, records.WatcherEvent, txns.MultiTxn, acl.ACL} <= set(RECORDS)


def test_operations_changing_nodes_take_zxid_and_vice_versa():
    changes_nodes = {op for op, row in OPERATIONS.items() if row.changes}

    assert changes_nodes == {op for op, row in OPERATIONS.items() if row.takes_zxid} - {OpCode.CREATE_SESSION}


def test_codes_by_change_lists_all_create_operations():
    assert codes_by_change("create") == {OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL}
