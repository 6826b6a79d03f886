"""The operations: their numbers, and the records of their bodies."""

from __future__ import annotations

import pytest
from support.record_strategies import RECORDS

from zoolet.protocol import acl, records, txns
from zoolet.protocol.operations import OPERATIONS, OpCode


@pytest.mark.parametrize("op", [-11, *range(1, 10), *range(11, 23), *range(100, 108)])
def test_every_operation_of_zookeeper_has_its_number(op: int) -> None:
    assert OpCode(op) == op


def test_every_body_of_every_operation_is_among_the_records():
    bodies = {kind for one in OPERATIONS.values() for kind in (one.request, one.response) if kind is not None}

    assert bodies <= set(RECORDS)
    assert {records.MultiHeader, records.WatcherEvent, txns.MultiTxn, acl.ACL} <= set(RECORDS)
