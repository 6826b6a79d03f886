"""Transactions: all of their operations, or none.

Each operation is prepared and applied before the next, so that it sees what came before; the first that fails undoes
them all.

Source: PrepRequestProcessor.pRequest2Txn, case multi; MultiOperationRecord.deserialize; FinalRequestProcessor, cases
    multi and multiRead.
"""

from __future__ import annotations

from typing import Any, Final

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import TTL_MODES, CreateMode
from zoolet.protocol.errors import ErrorCode, MarshallingError, ThrottledOpError, ZooKeeperError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.compat import Compat
from zoolet.server.core.ops.dispatch import APPLIES, TABLE, WRITES, Entry, reads
from zoolet.server.core.state import ServerState

Operations = list[tuple[OpCode, Record]]
Span = tuple[bytes, int, int]


def multi(state: ServerState, client: ClientConnection, span: Span) -> bytes:
    """Do all operations or none; either way the reply's header says 0 and the results tell.

    Only a request that is malformed as a whole fails as a whole; but for one case of 3.9 it has taken its zxid by then.
    """
    assert client.session is not None
    session_id = client.session.id
    state.zxid += 1
    compat = state.settings.compat
    try:
        operations = wire.read_operations(*span)
    except MarshallingError:
        _check_as_a_whole(state, span)  # what comes first decides about the zxid
        raise
    if len(operations) > state.settings.max_multi_operations:
        raise _too_many(state, state.settings.max_multi_operations)
    for place, (op, request) in enumerate(operations):
        if request.path is None:  # type: ignore[attr-defined] # each request that wire.WRITES allows has one
            _check_as_a_whole(state, span)
            raise MarshallingError(None, "a path must not be null")
        if op not in _SIMPLE:
            if (
                compat.multi_checks_flags_first
                and type(request) is r.CreateRequest
                and (request.acl is None or not 0 <= request.flags <= 4)
            ):
                _check_as_a_whole(state, span)
            operations[place] = _meant(compat, op, request)
    results: list[bytes] = []
    state.begin()
    try:
        for op, request in operations:
            if op == OpCode.CREATE and request.flags in TTL_MODES:  # type: ignore[attr-defined] # a create has flags
                raise MarshallingError(None, "create flags that need a ttl, without one")
            prepare, reply = WRITES[op]
            txn = prepare(state, client, request)
            results.append(_RESULT[op] + reply(txn, APPLIES[type(txn)](state, txn, session_id)))
    except ZooKeeperError as error:
        state.roll_back()
        if type(error) is MarshallingError:
            raise
        done, left = len(results), len(operations) - len(results) - 1
        codes = [ErrorCode.OK] * done + [error.code] + [ErrorCode.RUNTIME_INCONSISTENCY] * left
        results = [wire.error_result(code) for code in codes]
    except BaseException:  # a defect of ours must not leave the state inside a transaction
        state.roll_back()
        raise
    else:
        state.commit()
    return b"".join(results) + wire.END


def _check_as_a_whole(state: ServerState, span: Span) -> None:
    """Read a multi that has a fault once more, operation by operation, and raise the error of the first that makes the
    whole request malformed.

    Raises:
        MarshallingError: There is one; of a null ACL list in a create the release may not take a zxid.
    """
    whole = state.settings.compat.multi_checks_flags_first
    first_is_read: bool | None = None
    for _, request in wire.iter_operations(*span, wire.WRITES | wire.READS):
        if whole and isinstance(request, r.CreateRequest):
            _check_create_as_a_whole(state, request)
        is_read = isinstance(request, r.GetDataRequest | r.GetChildrenRequest)
        if first_is_read is None:
            first_is_read = is_read
        elif is_read is not first_is_read:
            raise MarshallingError(None, "reads and writes in one multi")


def _check_create_as_a_whole(state: ServerState, request: r.CreateRequest) -> None:
    """Refuse the whole request if a create has unknown flags, flags that need a ttl, or null for an ACL list; the last
    takes no zxid.

    Raises:
        MarshallingError: It has.

    Source: MultiOperationRecord.deserialize, 3.9: the operation is made, and its flags and list are read, at once.
    """
    if not 0 <= request.flags <= 6:
        raise MarshallingError(request.path, f"create flags {request.flags} are unknown")
    if request.acl is None:
        state.zxid -= 1
        raise MarshallingError(request.path, "an ACL list must not be null")
    if request.flags in TTL_MODES:
        raise MarshallingError(request.path, f"create flags {request.flags} need a ttl")


def _too_many(state: ServerState, limit: int) -> ThrottledOpError:
    """Count and log a request that would keep everybody else waiting, for it cannot be interrupted."""
    state.metrics.refuse("multi_operations")
    state.warnings.warn("multi", "refusing a multi of more than %d operations (zoolet.maxMultiOperations)", limit)
    return ThrottledOpError(None, f"a multi of more than {limit} operations")


_SIMPLE: Final = frozenset({OpCode.DELETE, OpCode.SET_DATA, OpCode.CHECK})


def _meant(compat: Compat, op: OpCode, request: Record) -> tuple[OpCode, Record]:
    """Return what a create of a multi means: here the flags decide what it makes, not only the op code.

    Raises:
        MarshallingError: Span a release looks at that first: its flags are unknown or need a ttl.

    Source: Op.create, Op.Create.getOpcode.
    """
    if isinstance(request, r.CreateTTLRequest):
        if request.flags in TTL_MODES:
            return op, request
        op, request = OpCode.CREATE, r.CreateRequest(request.path, request.data, request.acl, request.flags)
    elif not isinstance(request, r.CreateRequest):
        raise TypeError(op)
    elif not compat.multi_answers_create2:
        op = OpCode.CREATE
    return (OpCode.CREATE_CONTAINER if request.flags == CreateMode.CONTAINER else op), request


_RESULT: Final = {
    op: wire.result(OpCode.CREATE2 if op in (OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL) else op, b"")
    for op in wire.WRITES
}
"""What stands before the result of each operation."""

TABLE[OpCode.MULTI] = Entry(lambda buf, offset, end: (buf, offset, end), multi, True)


class PartialResults(MarshallingError):
    """A multiRead came upon a null path or a write: the reply has the error, and the results up to there.

    Args:
        body: The results.
    """

    def __init__(self, body: bytes) -> None:
        super().__init__(None, "a multiRead reads, and no path may be null")
        self.body = body


def _decode_reads(buf: bytes, offset: int, end: int) -> list[tuple[OpCode, str | None]] | Operations:
    """Read the operations of a multiRead: reads with their paths, or writes alone, which fail only when it is done."""
    if (
        end - offset >= 9
        and buf[offset : offset + 3] == b"\0\0\0"
        and buf[offset + 3] in wire.WRITES
        and not buf[offset + 4]
    ):
        return list(wire.iter_operations(buf, offset, end, wire.WRITES))
    return list(wire.iter_reads(buf, offset, end))


def _refuse_writes(state: ServerState, operations: list[tuple[OpCode, Record]]) -> PartialResults:
    """Return the error for a multiRead of writes alone.

    Raises:
        MarshallingError: The release that is imitated does not decode one of them.
    """
    for _, request in operations:
        if state.settings.compat.multi_checks_flags_first and isinstance(request, r.CreateRequest):
            if not 0 <= request.flags <= 6 or request.acl is None or request.flags in TTL_MODES:
                raise MarshallingError(request.path, "create flags or an ACL list that are not allowed in a multi")
    return PartialResults(wire.END)


@reads(OpCode.MULTI_READ, decode=_decode_reads, costly=True)
def multi_read(state: ServerState, client: ClientConnection, operations: list[tuple[OpCode, Any]]) -> bytes:
    """Do several reads; each succeeds or fails for itself, and none sets a watch.

    Raises:
        PartialResults: A path is null, or all operations are writes.
        ThrottledOpError: There are more than ``max_multi_operations``, or the results have more than ``max_multi_read``
            bytes: a short request can name a large node often.
    """
    settings = state.settings
    if len(operations) > settings.max_multi_operations:
        raise _too_many(state, settings.max_multi_operations)
    if operations and operations[0][0] in wire.WRITES:
        raise _refuse_writes(state, operations)
    results: list[bytes] = []
    left = settings.max_multi_read
    for op, path in operations:
        if path is None:
            raise PartialResults(b"".join(results) + wire.END)
        request = r.GetDataRequest(path, False) if op == OpCode.GET_DATA else r.GetChildrenRequest(path, False)
        try:
            results.append(wire.result(op, TABLE[op].handle(state, client, request)))
        except ZooKeeperError as error:
            results.append(wire.error_result(error.code))
        left -= len(results[-1])
        if left < 0:
            state.metrics.refuse("multi_read")
            state.warnings.warn(
                "multi_read",
                "refusing a multiRead: its results have more than %d bytes (zoolet.maxMultiReadBytes)",
                settings.max_multi_read,
            )
            raise ThrottledOpError(None, f"the results of a multiRead may have {settings.max_multi_read} bytes")
    return b"".join(results) + wire.END
