"""The operations: their numbers, and the records of their bodies."""

from __future__ import annotations

import pytest
from support.record_strategies import RECORDS

from zoolet.protocol import acl, records, txns
from zoolet.protocol.operations import OPERATIONS, OpCode, ops_that_change


@pytest.mark.parametrize("op", [-11, *range(1, 10), *range(11, 23), *range(100, 108)])
def test_every_operation_of_zookeeper_has_its_number(op: int) -> None:
    assert OpCode(op) == op


def test_every_body_of_operations_is_a_record():
    bodies = {kind for one in OPERATIONS.values() for kind in (one.request, one.response) if kind is not None}

    assert bodies <= set(RECORDS)
    assert {records.MultiHeader, records.WatcherEvent, txns.MultiTxn, acl.ACL} <= set(RECORDS)


def test_only_operations_taking_zxid_change_nodes():
    changes_nodes = {op for op, row in OPERATIONS.items() if row.changes}

    assert changes_nodes == {op for op, row in OPERATIONS.items() if row.takes_zxid} - {OpCode.CREATE_SESSION}


def test_creates_are_found_by_their_change():
    assert ops_that_change("create") == {OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL}
