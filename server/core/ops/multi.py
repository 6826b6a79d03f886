"""Transactions: all of their operations, or none.

Each operation is prepared and applied before the next, so that it sees what came before; the first that fails undoes them all.

Source: PrepRequestProcessor.pRequest2Txn, case multi; FinalRequestProcessor, cases multi and multiRead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import SEQUENTIAL_MODES, TTL_MODES, CreateMode
from zoolet.protocol.errors import ErrorCode, MarshallingError, ZooKeeperError
from zoolet.protocol.opcodes import OpCode
from zoolet.server.core.ops.reads import get_children, get_data
from zoolet.server.core.ops.registry import APPLIES, TABLE, WRITES, Entry, reads

if TYPE_CHECKING:
    from zoolet.server.core.caller import Caller
    from zoolet.server.core.engine import Engine

Operations = list[tuple[OpCode, Record]]


def _decode_writes(buf: bytes, at: int, stop: int) -> Operations:
    return list(wire.take_operations(buf, at, stop, wire.WRITES))


def _decode_reads(buf: bytes, at: int, stop: int) -> Operations:
    return list(wire.take_operations(buf, at, stop, wire.READS))


def multi(engine: Engine, caller: Caller, operations: Operations) -> bytes:
    """Do all operations or none; either way the reply's header says 0 and the results tell."""
    assert caller.session is not None
    session_id = caller.session.id
    engine.zxid += 1
    results: list[bytes] = []
    try:
        with engine.all_or_nothing():
            for op, request in operations:
                op = _kind(engine, op, request)
                prepare, reply = WRITES[op]
                txn = prepare(engine, caller, request)
                results.append(wire.result(_result_type(engine, op), reply(txn, APPLIES[type(txn)](engine, txn, session_id))))
    except MarshallingError:
        raise
    except ZooKeeperError as error:
        failed, left = len(results), len(operations) - len(results) - 1
        codes = [ErrorCode.OK] * failed + [error.code] + [ErrorCode.RUNTIME_INCONSISTENCY] * left
        results = [wire.error_result(code) for code in codes]
    return b"".join(results) + wire.END


def _kind(engine: Engine, op: OpCode, request: Record) -> OpCode:
    return op


def _result_type(engine: Engine, op: OpCode) -> int:
    return op


TABLE[OpCode.MULTI] = Entry(_decode_writes, multi)


@reads(OpCode.MULTI_READ, decode=_decode_reads)
def multi_read(engine: Engine, caller: Caller, operations: Operations) -> bytes:
    """Do several reads; each succeeds or fails for itself, and none sets a watch."""
    results = []
    for op, request in operations:
        assert isinstance(request, r.GetDataRequest | r.GetChildrenRequest)
        request.watch = False
        try:
            results.append(wire.result(op, TABLE[op].handle(engine, caller, request)))
        except ZooKeeperError as error:
            results.append(wire.error_result(error.code))
    return b"".join(results) + wire.END
