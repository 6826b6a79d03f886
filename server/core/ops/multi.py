"""Transactions: all of their operations are applied, or none.

Each operation is prepared and applied before the next one, so that it sees the changes of those before it; the first
that fails rolls all of them back.

Source: PrepRequestProcessor.pRequest2Txn, case multi; MultiOperationRecord.deserialize; FinalRequestProcessor, cases
    multi and multiRead.
"""

from __future__ import annotations

from typing import Any, Final

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import MODES, PLAIN_MODES, TTL_MODES, CreateMode
from zoolet.protocol.errors import ErrorCode, MarshallingError, ThrottledOpError, ZooKeeperError
from zoolet.protocol.operations import OpCode
from zoolet.protocol.quotas import STATS
from zoolet.protocol.txns import ErrorTxn
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.compat import Compat
from zoolet.server.core.journal import ERROR, Parts
from zoolet.server.core.ops import writes
from zoolet.server.core.ops.dispatch import APPLIES, TABLE, WRITES, Entry, Prepare, Reply, reads
from zoolet.server.core.state import ServerState

assert writes  # it registers what a transaction consists of
Operations = list[tuple[OpCode, Record]]
Span = tuple[bytes, int, int]
_CREATE: Final = OpCode.CREATE  # names of their own: a look-up in an enum costs 80 ns (Python 3.11)
_CONTAINER: Final = CreateMode.CONTAINER
RECOUNTS: Final = 8
"""Quota statistics that one multi may create: for each, all nodes below the quota are counted."""


def multi(state: ServerState, client: ClientConnection, span: Span) -> bytes:
    """Apply all operations or none; the error of a failed one is in the results, and the reply's header has 0.

    Only a malformed request fails as a whole; except for one case of 3.9, it has taken its zxid by then.
    """
    assert client.session is not None
    session_id = client.session.id
    state.zxid += 1
    operations = _decode_operations(state, span)
    results: list[bytes] = []
    applied: Parts = []  # for the journal
    state.begin()
    record, steps, applies = state.record, _STEPS, APPLIES
    try:
        for op, request in operations:
            if op == _CREATE and request.flags in TTL_MODES:  # type: ignore[attr-defined] # a create has flags
                raise MarshallingError(None, "create flags that need a ttl, without one")
            prepare, reply, result = steps[op]
            txn, node = prepare(state, client, request)
            outcome = applies[type(txn)](state, txn, session_id, node)
            results.append(result)
            results.append(reply(txn, outcome))
            if record is not None:
                applied.append((op, txn))
    except ZooKeeperError as error:
        state.roll_back()
        if type(error) is MarshallingError:
            raise
        done = len(results) // 2
        not_tried = len(operations) - done - 1
        codes = [ErrorCode.OK] * done + [error.code] + [ErrorCode.RUNTIME_INCONSISTENCY] * not_tried
        results = [wire.error_result(code) for code in codes]
        applied += [(ERROR, ErrorTxn(code)) for code in codes[done:]]
    except BaseException:  # a defect, or an interrupt: the state must not stay inside a transaction
        state.roll_back()
        raise
    else:
        state.commit()
    if record is not None:
        record((session_id, client.last_xid, state.zxid, state.now, OpCode.MULTI, applied))
    results.append(wire.END)
    return b"".join(results)


def result_of(op: int, txn: Record, outcome: object) -> bytes:
    """Return the result of one operation that was applied, encoded."""
    _, reply, header = _STEPS[op]
    return header + reply(txn, outcome)


def _decode_operations(state: ServerState, span: Span) -> Operations:
    """Decode the operations of a multi, and normalise its creates; errors as for :func:`multi`."""
    settings = state.settings
    compat = settings.compat
    try:
        operations = wire.read_operations(*span)
    except MarshallingError:
        _check_as_a_whole(state, span)  # the first fault decides whether a zxid is taken
        raise
    if len(operations) > settings.max_multi_operations:
        raise _too_many(state, settings.max_multi_operations)
    recounts = 0
    for place, (op, request) in enumerate(operations):
        if request.path is None:  # type: ignore[attr-defined] # each request that wire.WRITES allows has one
            _check_as_a_whole(state, span)
            raise MarshallingError(None, "a path must not be null")
        if op not in _SIMPLE:
            if op == _CREATE and request.acl is not None and request.flags in _SHORT_MODES:  # type: ignore[attr-defined]
                recounts += request.path.endswith(STATS)  # type: ignore[attr-defined]
                continue  # as nearly all are: there is nothing to normalize
            recounts += request.path.endswith(STATS)  # type: ignore[attr-defined]
            if (
                compat.multi_checks_flags_first
                and type(request) is r.CreateRequest
                and (request.acl is None or request.flags not in PLAIN_MODES)
            ):
                _check_as_a_whole(state, span)
            operations[place] = _normalize_create(compat, op, request)
    if recounts > RECOUNTS:
        raise _too_many(state, RECOUNTS, "creates of quota statistics")
    return operations


def _check_as_a_whole(state: ServerState, span: Span) -> None:
    """Decode a faulty multi again, operation by operation, and raise the error of the first fault that makes the whole
    request malformed.

    Raises:
        MarshallingError: There is such a fault; if it is a null ACL list in a create, 3.9 takes no zxid.
    """
    checks_flags = state.settings.compat.multi_checks_flags_first
    first_is_read: bool | None = None
    for _, request in wire.iter_operations(*span, wire.WRITES | wire.READS):
        if checks_flags and isinstance(request, r.CreateRequest):
            _check_create_as_a_whole(state, request)
        is_read = isinstance(request, r.GetDataRequest | r.GetChildrenRequest)
        if first_is_read is None:
            first_is_read = is_read
        elif is_read is not first_is_read:
            raise MarshallingError(None, "reads and writes in one multi")


def _check_create_as_a_whole(state: ServerState, request: r.CreateRequest) -> None:
    """Refuse the whole request if a create has unknown flags, flags that need a ttl, or a null ACL list, which takes no
    zxid.

    Raises:
        MarshallingError: The create has one of these faults.

    Source: MultiOperationRecord.deserialize, 3.9, which constructs the operation, and so reads its flags and list, at
        once.
    """
    if request.flags not in MODES:
        raise MarshallingError(request.path, f"create flags {request.flags} are unknown")
    if request.acl is None:
        state.zxid -= 1  # multi() has taken it
        raise MarshallingError(request.path, "an ACL list must not be null")
    if request.flags in TTL_MODES:
        raise MarshallingError(request.path, f"create flags {request.flags} need a ttl")


def _too_many(state: ServerState, limit: int, what: str = "operations (zoolet.maxMultiOperations)") -> ThrottledOpError:
    """Count and log a request that would delay all others, because it cannot be interrupted; return its error."""
    state.metrics.refuse("multi_operations")
    state.warnings.warn("multi", "refusing a multi of more than %d " + what, limit)
    return ThrottledOpError(None, f"a multi of more than {limit} {what}")


_SHORT_MODES: Final = PLAIN_MODES - {CreateMode.CONTAINER}
_SIMPLE: Final = frozenset({OpCode.DELETE, OpCode.SET_DATA, OpCode.CHECK})


def _normalize_create(compat: Compat, op: OpCode, request: Record) -> tuple[OpCode, Record]:
    """Return the op code and request that a create in a multi stands for: its flags matter, not only its op code.

    Source: Op.create, Op.Create.getOpcode.
    """
    if isinstance(request, r.CreateTTLRequest):
        if request.flags in TTL_MODES:
            return op, request
        op, request = _CREATE, r.CreateRequest(request.path, request.data, request.acl, request.flags)
    elif not isinstance(request, r.CreateRequest):
        raise TypeError(op)
    elif not compat.multi_answers_create2:
        op = _CREATE
    return (OpCode.CREATE_CONTAINER if request.flags == _CONTAINER else op), request


_WITH_STAT: Final = (OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)
_STEPS: Final[dict[int, tuple[Prepare, Reply, bytes]]] = {
    op: (write.prepare, write.reply, wire.result(OpCode.CREATE2 if op in _WITH_STAT else op, b""))
    for op, write in ((op, WRITES[op]) for op in wire.WRITES)
}
"""Of each operation how it is prepared, its reply, and the header of its result."""

TABLE[OpCode.MULTI] = Entry(lambda buf, offset, end: (buf, offset, end), multi, True)


class PartialResults(MarshallingError):
    """A multiRead has a null path or a write: the reply has the error, and the results of the operations before it.

    Args:
        body: These results, encoded.
    """

    def __init__(self, body: bytes) -> None:
        super().__init__(None, "a multiRead may contain reads only, with paths that are not null")
        self.body = body


def _decode_reads(buf: bytes, offset: int, end: int) -> list[tuple[OpCode, str | None]] | Operations:
    """Decode the operations of a multiRead: reads with their paths, or writes, which decode here and fail later.

    The first operation decides. Its MultiHeader begins at *offset*: the op code is in bytes 0 to 3 (below 256 if the
    first three are 0), ``done`` in byte 4, ``err`` in bytes 5 to 8.
    """
    if (
        end - offset >= 9
        and buf[offset : offset + 3] == b"\0\0\0"
        and buf[offset + 3] in wire.WRITES
        and not buf[offset + 4]
    ):
        return list(wire.iter_operations(buf, offset, end, wire.WRITES))
    return list(wire.iter_reads(buf, offset, end))


def _refuse_writes(state: ServerState, operations: list[tuple[OpCode, Record]]) -> PartialResults:
    """Return the error for a multiRead that consists of writes.

    Raises:
        MarshallingError: One of them does not decode in the release that is reproduced.
    """
    for _, request in operations:
        if state.settings.compat.multi_checks_flags_first and isinstance(request, r.CreateRequest):
            if request.flags not in PLAIN_MODES or request.acl is None:
                raise MarshallingError(request.path, "create flags or an ACL list that are not allowed in a multi")
    return PartialResults(wire.END)


@reads(OpCode.MULTI_READ, decode=_decode_reads, costly=True)
def multi_read(state: ServerState, client: ClientConnection, operations: list[tuple[OpCode, Any]]) -> bytes:
    """Execute several reads; each succeeds or fails on its own, and none sets a watch.

    Raises:
        PartialResults: A path is null, or the operations are writes.
        ThrottledOpError: There are more than ``max_multi_operations``, or the results have more than ``max_multi_read``
            bytes: a short request can name a large node many times.
    """
    settings = state.settings
    if len(operations) > settings.max_multi_operations:
        raise _too_many(state, settings.max_multi_operations)
    if operations and operations[0][0] in wire.WRITES:
        raise _refuse_writes(state, operations)
    results: list[bytes] = []
    bytes_left = settings.max_multi_read
    for op, path in operations:
        if path is None:
            raise PartialResults(b"".join(results) + wire.END)
        request = r.GetDataRequest(path, False) if op == OpCode.GET_DATA else r.GetChildrenRequest(path, False)
        try:
            results.append(wire.result(op, TABLE[op].handle(state, client, request)))
        except ZooKeeperError as error:
            results.append(wire.error_result(error.code))
        bytes_left -= len(results[-1])
        if bytes_left < 0:
            state.metrics.refuse("multi_read")
            state.warnings.warn(
                "multi_read",
                "refusing a multiRead: its results have more than %d bytes (zoolet.maxMultiReadBytes)",
                settings.max_multi_read,
            )
            raise ThrottledOpError(None, f"the results of a multiRead may have at most {settings.max_multi_read} bytes")
    return b"".join(results) + wire.END
