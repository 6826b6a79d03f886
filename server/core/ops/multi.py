"""The requests multi and multiRead. Either all operations of a multi are applied, or none.

Each operation of a multi is performed before the next operation is read, and sees the changes of all earlier
operations. The first operation that fails rolls back the whole transaction.

``make straight`` copies functions of this module into ``straight.py``, which serves clients. Run it after each change.

Source: PrepRequestProcessor.pRequest2Txn (case multi), MultiOperationRecord.deserialize, FinalRequestProcessor (cases
    multi and multiRead).
"""

from __future__ import annotations

from typing import Any, Final

from ....protocol import multi as wire
from ....protocol import records as r
from ....protocol.acl import AclList
from ....protocol.codec import Bool, Int, Record, combined_struct
from ....protocol.enums import CREATE_MODES, PLAIN_MODES, TTL_MODES, CreateMode
from ....protocol.errors import BadArgumentsError, ErrorCode, MarshallingError, ZooKeeperError
from ....protocol.operations import OPERATIONS, OpCode, codes_by_change
from ....protocol.quotas import STATS
from ....protocol.txns import ErrorTxn
from ..client_connection import ClientConnection
from ..compat import Compat
from ..journal import ERROR, Applied, MultiRecords
from ..node import NodeOrLeaf
from ..state import ServerState
from . import writes
from .dispatch import STRAIGHT_OPERATIONS, TABLE, WRITES, DispatchEntry, fields_getter, reads

assert writes  # importing the module registers the operations of a transaction
Span = tuple[bytes, int, int]
"""The body of a request: the received bytes, and the positions of its start and its end."""
_SHORT_MODES: Final = PLAIN_MODES - {CreateMode.CONTAINER}
MAX_RECOUNTS: Final = 8
"""Maximum number of quota statistics that one multi may create. Each create counts all nodes below the quota."""
_FLAGS_INDEX: Final = 3  # the index of the flags among the fields of a create
_HEADER_SIZE: Final = combined_struct(r.MultiHeader).size
_header_at: Final = combined_struct(Int, Bool).unpack_from  # without the last field, which has no meaning in a request


def multi(state: ServerState, client: ClientConnection, buf: bytes, offset: int, end: int) -> bytes:
    """Apply all operations or none, and return the encoded results.

    If an operation fails, its error is in the results, and the error code of the reply is 0. A request that fails as a
    whole also uses up its zxid, except for a null ACL list in a create in 3.9.

    Raises:
        MarshallingError: The request is malformed, or combines operations that must not be in one multi.
        PartialResultsError: An operation has a null path, in 3.8.
        BadArgumentsError: The request has too many operations, or creates too many nodes of quota statistics.
    """
    assert client.session is not None
    session_id = client.session.id
    state.zxid += 1
    span = buf, offset, end
    results: list[bytes] = []
    performed: list[Applied] = []
    failed: MultiRecords = []
    record, limit = state.record, state.settings.max_multi_operations
    if record is not None:
        state.record = performed.append  # the journal gets one transaction
    state.begin()
    try:
        for _ in range(limit + 1):
            at = offset + _HEADER_SIZE
            if at > end:
                raise MarshallingError(None, "the end of the operations is missing")
            kind, done = _header_at(buf, offset)
            if done:
                break
            part = STRAIGHT_OPERATIONS.get(kind)
            after = part(state, client, buf, at, end, results) if part is not None else 0
            offset = after or perform_part(state, client, kind, buf, at, end, results)
        else:
            raise MarshallingError(None, f"a transaction may contain at most {limit} operations")
    except ZooKeeperError as error:
        state.roll_back()
        failed = _fail(state, client, span, offset, error, results)
    except BaseException:  # after a defect or an interrupt, the state must not stay inside a transaction
        state.roll_back()
        raise
    else:
        state.commit()
    finally:
        state.record = record
    if record is not None:
        parts: MultiRecords = [(kind, txn) for _, _, _, _, kind, txn in performed]  # type: ignore[misc] # none is a multi
        record((session_id, client.last_xid, state.zxid, state.now, OpCode.MULTI, parts + failed))
    results.append(wire.END)
    return b"".join(results)


def _fail(
    state: ServerState, client: ClientConnection, span: Span, offset: int, error: ZooKeeperError, results: list[bytes]
) -> MultiRecords:
    """Replace *results* with the results of a multi that was rolled back.

    They are OK for each operation before the failed one, its error, and RUNTIME_INCONSISTENCY for each later operation.

    Args:
        state: The state of the server.
        client: The connection that sent the request.
        span: The body of the request.
        offset: Position of the failed operation.
        error: The error of the failed operation.
        results: The results of the operations before the failed operation. They are replaced.

    Returns:
        Error records for the journal, for the failed operation and for the later operations, which were not tried.

    Raises:
        MarshallingError: The request as a whole is malformed.
        BadArgumentsError: The request exceeds a limit.
    """
    if type(error) is MarshallingError:
        state.details[:] = [detail for detail in state.details if detail[0] != state.zxid]  # the zxid may be used again
        _check_operations(state, client, span, span[1], 0)
        raise error
    done = len(results)
    left = _check_operations(state, client, span, offset, done)
    state.failed += 1
    state.add_detail("")
    codes = [error.code] + [ErrorCode.RUNTIME_INCONSISTENCY] * (left - 1)
    encoded = {code: wire.encode_error_result(code) for code in (ErrorCode.OK, *set(codes))}
    results[:] = [encoded[ErrorCode.OK]] * done + [encoded[code] for code in codes]
    return [(ERROR, ErrorTxn(code)) for code in codes]


def perform_part(
    state: ServerState, client: ClientConnection, kind: int, buf: bytes, offset: int, end: int, results: list[bytes]
) -> int:
    """Read and perform one operation, and append its result to *results*. Return the offset of the next operation.

    Raises:
        MarshallingError: The whole request fails. The caller uses :func:`_check_operations` to find the first fault,
            which determines the final error.
        ZooKeeperError: The operation failed.
    """
    operation = _OPERATIONS.get(kind)
    if operation is None:
        raise MarshallingError(detail=f"operation {kind} is not allowed in a multi")
    op, request, fields_of_record = operation
    record, offset = request.read_from(buf, offset, end)
    fields = fields_of_record(record)
    if op in _CREATES and (op != OpCode.CREATE or needs_checked_create(state, fields[0], fields[2], fields[3])):
        op, fields = _checked_create(state, op, fields)
    results.append(encode_result(op, *WRITES[op].perform(state, client, op, *fields)))
    return offset


def needs_checked_create(state: ServerState, path: str | None, acl: AclList | None, flags: int) -> bool:
    """Return whether a CREATE with these fields needs :func:`_checked_create`."""
    return (
        acl is None
        or flags not in _SHORT_MODES
        or (state.quota.changes is not None and path is not None and path.endswith(STATS))
    )


def _checked_create(state: ServerState, op: OpCode, fields: tuple[Any, ...]) -> tuple[OpCode, tuple[Any, ...]]:
    """Check the rules for a create in a multi. Return its effective op code and fields.

    Raises:
        MarshallingError: The whole request fails. The caller uses :func:`_check_operations` to find the first fault,
            which determines the final error.
    """
    path, _, acl, flags, *_ = fields
    compat = state.settings.compat
    if compat.multi_checks_flags_first and op != OpCode.CREATE_TTL and (acl is None or flags not in PLAIN_MODES):
        raise _plain_create_error(path, flags)
    changes = state.quota.changes
    if path is not None and path.endswith(STATS) and changes is not None and changes.recounts >= MAX_RECOUNTS:
        raise MarshallingError(path, f"a transaction may create at most {MAX_RECOUNTS} nodes of quota statistics")
    op, fields = _normalize_create(compat, op, fields)
    if op == OpCode.CREATE and flags in TTL_MODES:
        raise MarshallingError(path, f"the create flags {flags} require a ttl")
    return op, fields


def encode_result(op: int, path: str, node: NodeOrLeaf) -> bytes:
    """Return the encoded result of one applied operation."""
    return wire.encode_result(OpCode.CREATE2 if op in _RESULTS_WITH_STAT else op, WRITES[op].reply(path, node))


def _check_operations(state: ServerState, client: ClientConnection, span: Span, offset: int, done: int) -> int:
    """Check a failed multi for faults that make the whole request fail.

    If there are several faults, the first fault determines whether the request uses up a zxid.

    Args:
        state: The state of the server.
        client: The connection that sent the request.
        span: The body of the request.
        offset: Position of the failed operation.
        done: Number of operations before the failed operation. They are known to be well-formed.

    Returns:
        The number of operations that remain, including the failed operation.

    Raises:
        MarshallingError: The request as a whole is malformed.
        PartialResultsError: An operation has a null path, in 3.8.
        BadArgumentsError: The request has too many operations, or creates too many nodes of quota statistics.
    """
    settings = state.settings
    compat = settings.compat
    try:
        operations = wire.read_operations(span[0], offset, span[2])
    except MarshallingError:
        _raise_first_fault(state, span)
        raise
    if done + len(operations) > settings.max_multi_operations:
        raise _limit_error(state, client, settings.max_multi_operations)
    recounts = 0
    for op, request in operations:
        path: str | None = request.path  # type: ignore[attr-defined] # each of these requests has a path
        if path is None:
            _raise_first_fault(state, span)
            if compat.null_path_in_multi_skips_zxid:
                raise PartialResultsError(wire.END, "a path must not be null", skips_zxid=True)
            raise MarshallingError(None, "a path must not be null")
        recounts += op in _CREATES and path.endswith(STATS)
        if compat.multi_checks_flags_first and isinstance(request, r.CreateRequest):
            if request.acl is None or request.flags not in PLAIN_MODES:
                _raise_first_fault(state, span)
    if recounts > MAX_RECOUNTS:
        raise _limit_error(state, client, MAX_RECOUNTS, "creates of quota statistics")
    return len(operations)


def _raise_first_fault(state: ServerState, span: Span) -> None:
    """Decode a faulty multi again, and raise the error for its first fault that makes the whole request malformed.

    Raises:
        MarshallingError: The request has such a fault. For a null ACL list in a create, 3.9 does not use up a zxid.
    """
    checks_flags = state.settings.compat.multi_checks_flags_first
    first_is_read: bool | None = None
    for _, request in wire.iter_operations(*span, wire.WRITES | wire.READS):
        if checks_flags and isinstance(request, r.CreateRequest):
            _reject_malformed_create(state, request)
        is_read = isinstance(request, r.GetDataRequest | r.GetChildrenRequest)
        if first_is_read is None:
            first_is_read = is_read
        elif is_read is not first_is_read:
            raise MarshallingError(None, "a multi must not contain both reads and writes")


def _reject_malformed_create(state: ServerState, request: r.CreateRequest) -> None:
    """Reject the whole request if a create has unknown flags, flags that require a ttl, or a null ACL list.

    For a null ACL list, the zxid of the request can be used again.

    Raises:
        MarshallingError: The create has one of these faults.

    Source: MultiOperationRecord.deserialize of 3.9, which immediately constructs the operation from its flags and list.
    """
    if request.flags not in CREATE_MODES:
        raise MarshallingError(request.path, f"unknown create flags {request.flags}")
    if request.acl is None:
        state.zxid -= 1  # multi() has incremented it
        raise MarshallingError(request.path, "an ACL list must not be null")
    if request.flags in TTL_MODES:
        raise MarshallingError(request.path, f"create flags {request.flags} need a ttl")


def _plain_create_error(path: str | None, flags: int) -> MarshallingError:
    """Return the error for a create with these flags, or with a null ACL list, which a multi must not contain."""
    if flags in PLAIN_MODES:
        return MarshallingError(path, "an ACL list must not be null in a multi")
    return MarshallingError(path, f"create flags {flags} are not allowed in a multi")


def _limit_error(
    state: ServerState, client: ClientConnection, limit: int, items: str = "operations (zoolet.maxMultiOperations)"
) -> ZooKeeperError:
    """Count and log a multi that exceeds a limit, and return the error to raise.

    The limits exist because a multi cannot be interrupted, and a long multi would delay all other requests. The error
    is not ThrottledOpError, because clients would repeat the request.
    """
    state.metrics.count_refusal("multi_operations")
    state.warnings.warn("multi", "refusing a multi from %s with more than %d " + items, client.address, limit)
    return BadArgumentsError(None, f"the multi has more than {limit} {items}")


_CREATES: Final = frozenset(map(OpCode, codes_by_change("create")))
_OPERATIONS: Final = {
    int(op): (op, request, fields_getter(op)) for op in wire.WRITES if (request := OPERATIONS[op].request) is not None
}


def _normalize_create(compat: Compat, op: OpCode, fields: tuple[Any, ...]) -> tuple[OpCode, tuple[Any, ...]]:
    """Return the effective op code and fields of a create in a multi, which depend on its op code and flags.

    Source: Op.create, Op.Create.getOpcode.
    """
    if op == OpCode.CREATE_TTL:
        if fields[_FLAGS_INDEX] in TTL_MODES:
            return op, fields
        op, fields = OpCode.CREATE, fields[:-1]
    elif not compat.multi_answers_create2:
        op = OpCode.CREATE
    return (OpCode.CREATE_CONTAINER if fields[_FLAGS_INDEX] == CreateMode.CONTAINER else op), fields


_RESULTS_WITH_STAT: Final = (OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)
TABLE[OpCode.MULTI] = DispatchEntry(
    lambda buf, offset, end: (buf, offset, end), lambda state, client, span: multi(state, client, *span), True
)


class PartialResultsError(MarshallingError):
    """The error for a malformed multi or multiRead whose reply has an error code and also contains results.

    Args:
        body: The encoded list of results: of the operations before the malformed operation, or an empty list.
        detail: Description of the fault.
        skips_zxid: Whether the zxid of the reply is one below the zxid that the request used up, which no transaction
            has. Until the next write, replies to reads show the used-up zxid. In 3.8.0 they show the zxid before it.
    """

    def __init__(self, body: bytes, detail: str, *, skips_zxid: bool = False) -> None:
        super().__init__(None, detail)
        self.body = body
        self.skips_zxid = skips_zxid


READS_ONLY_REASON: Final = "a multiRead may contain only reads, and no null paths"


def _decode_reads(buf: bytes, offset: int, end: int) -> list[tuple[OpCode, str | None]] | list[tuple[OpCode, Record]]:
    """Decode the operations of a multiRead: reads with their paths, or writes, which the handler rejects.

    The first operation determines whether reads or writes are decoded. Its MultiHeader starts at *offset*: the op code
    is in bytes 0 to 3 (below 256 if the first three are 0), ``done`` is in byte 4, and ``err`` is in bytes 5 to 8.

    Raises:
        MarshallingError: The operations cannot be decoded, or contain both reads and writes.
    """
    if (
        end - offset >= 9
        and buf[offset : offset + 3] == b"\0\0\0"
        and buf[offset + 3] in wire.WRITES
        and not buf[offset + 4]
    ):
        return wire.read_operations(buf, offset, end)
    return list(wire.iter_reads(buf, offset, end))


def _refuse_writes(state: ServerState, operations: list[tuple[OpCode, Record]]) -> PartialResultsError:
    """Return the error for a multiRead that consists of writes.

    Raises:
        MarshallingError: One of the operations cannot be decoded in the imitated release.
    """
    for _, request in operations:
        if state.settings.compat.multi_checks_flags_first and isinstance(request, r.CreateRequest):
            if request.flags not in PLAIN_MODES or request.acl is None:
                raise _plain_create_error(request.path, request.flags)
    return PartialResultsError(wire.END, READS_ONLY_REASON)


@reads(OpCode.MULTI_READ, decode=_decode_reads, costly=True)
def multi_read(state: ServerState, client: ClientConnection, operations: list[tuple[OpCode, Any]]) -> bytes:
    """Execute several reads, and return the encoded results. Each read succeeds or fails separately. No watch is set.

    Raises:
        PartialResultsError: A path is null, or the operations are writes.
        MarshallingError: A create among the writes has invalid flags or a null ACL list, in 3.9.
        BadArgumentsError: The request has more than ``max_multi_operations`` reads, or the results have more than
            ``max_multi_read`` bytes. The results are limited because a short request can name a large node many times.
    """
    settings = state.settings
    if len(operations) > settings.max_multi_operations:
        raise _limit_error(state, client, settings.max_multi_operations)
    if operations and operations[0][0] in wire.WRITES:
        raise _refuse_writes(state, operations)
    results: list[bytes] = []
    bytes_left = settings.max_multi_read
    for op, path in operations:
        if path is None:
            raise PartialResultsError(b"".join(results) + wire.END, READS_ONLY_REASON)
        request = r.GetDataRequest(path, False) if op == OpCode.GET_DATA else r.GetChildrenRequest(path, False)
        try:
            results.append(wire.encode_result(op, TABLE[op].handle(state, client, request)))
        except ZooKeeperError as error:
            results.append(wire.encode_error_result(error.code))
        bytes_left -= len(results[-1])
        if bytes_left < 0:
            state.metrics.count_refusal("multi_read")
            state.warnings.warn(
                "multi_read",
                "refusing a multiRead from %s with more than %d bytes of results (zoolet.maxMultiReadBytes)",
                client.address,
                settings.max_multi_read,
            )
            reason = f"the results of the multiRead have more than {settings.max_multi_read} bytes"
            raise BadArgumentsError(None, reason)
    return b"".join(results) + wire.END
