"""Transactions on the wire: the operations of a request and the results of a reply.

Each operation or result follows a MultiHeader of nine bytes (type, done, err). The last item of the list is a
MultiHeader with ``done`` set.

Source: MultiOperationRecord, MultiResponse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .codec import Record, combined_struct, str_or_null_at
from .errors import MarshallingError
from .operations import OPERATIONS, OpCode
from .records import ErrorResponse, MultiHeader

_HEADER = combined_struct(MultiHeader)
_header_at: Final = _HEADER.unpack_from
END: Final = _HEADER.pack(-1, True, -1)
WRITES: Final = frozenset(OpCode(row.code) for row in OPERATIONS.values() if row.in_multi)
"""The operations that a multi may contain."""
READS: Final = frozenset(OpCode(row.code) for row in OPERATIONS.values() if row.in_multi_read)
"""The operations that a multiRead may contain."""

_OPERATION_TYPES: Final = {
    int(op): (op, request) for op in WRITES | READS if (request := OPERATIONS[op].request) is not None
}


def encode_operations(operations: list[tuple[OpCode, Record]]) -> bytes:
    """Return the encoded body of a multi or multiRead request."""
    return b"".join([MultiHeader(op, False, -1).encode() + body.encode() for op, body in operations]) + END


def iter_operations(buf: bytes, offset: int, end: int, allowed: frozenset[OpCode]) -> Iterator[tuple[OpCode, Record]]:
    """Yield the operations of a multi or multiRead request lazily: an error is raised only when it is reached.

    Raises:
        MarshallingError: An operation is not in *allowed* or cannot be decoded, or the final header is missing.
    """
    while True:
        if offset + 9 > end:
            raise MarshallingError(detail="unexpected end of data in a list of operations")
        kind, done, _ = _header_at(buf, offset)
        if done:
            return
        if kind not in allowed:
            request_name = "multiRead" if allowed is READS else "multi"
            raise MarshallingError(detail=f"operation {kind} is not allowed in a {request_name}")
        op, request = _OPERATION_TYPES[kind]
        body, offset = request.read_from(buf, offset + 9, end)
        yield op, body


def read_operations(buf: bytes, offset: int, end: int) -> list[tuple[OpCode, Record]]:
    """Return the operations of a multi request.

    Raises:
        MarshallingError: An operation is not allowed in a multi or cannot be decoded, or the final header is missing.
    """
    return list(iter_operations(buf, offset, end, WRITES))


def iter_reads(buf: bytes, offset: int, end: int) -> Iterator[tuple[OpCode, str | None]]:
    """Yield the operations of a multiRead request with their paths, which may be null.

    Raises:
        MarshallingError: An operation is not allowed in a multiRead or is truncated, or the final header is missing.
    """
    while True:
        if offset + 9 > end:
            raise MarshallingError(detail="unexpected end of data in a list of operations")
        kind, done, _ = _header_at(buf, offset)
        if done:
            return
        if kind not in READS:
            raise MarshallingError(detail=f"operation {kind} is not allowed in a multiRead")
        path, offset = str_or_null_at(buf, offset + 9, end)
        if offset >= end:
            raise MarshallingError(detail="unexpected end of data in a read of a multiRead")
        yield OpCode(kind), path
        offset += 1  # skip the watch flag, which a multiRead ignores


def encode_result(kind: int, body: bytes) -> bytes:
    """Return the encoded result of an operation that succeeded. *body* is the encoded response."""
    return MultiHeader(kind, False, 0).encode() + body


def encode_error_result(code: int) -> bytes:
    """Return the encoded result of an operation that failed or was not tried. Header and body contain the code."""
    return MultiHeader(-1, False, code).encode() + ErrorResponse(code).encode()


def decode_results(buf: bytes, offset: int = 0) -> list[tuple[int, Record]]:
    """Decode the body of a multi or multiRead reply.

    Returns:
        The result type and the response record of each operation. For type -1, the record is an
        :class:`ErrorResponse`.

    Raises:
        MarshallingError: A result type is unknown, or a result is truncated.
    """
    results: list[tuple[int, Record]] = []
    while True:
        header, offset = MultiHeader.read_from(buf, offset, len(buf))
        if header.done:
            return results
        if header.type == -1:
            kind: type[Record] = ErrorResponse
        else:
            operation = OPERATIONS.get(header.type)
            if operation is None or operation.response is None:
                raise MarshallingError(detail=f"unknown result type {header.type}")
            kind = operation.response
        body, offset = kind.read_from(buf, offset, len(buf))
        results.append((header.type, body))
