"""Transactions for a history, decoded from the received requests.

While requests are executed, only their bytes are kept, which makes a write cheap. They are decoded when the history is
read. Facts that are not in these bytes, such as the path of a sequential node, come from the details
(``ServerState.add_detail``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ....protocol import multi as wire
from ....protocol import records as r
from ....protocol.codec import Int, combined_struct, ensure_compiled
from ....protocol.enums import SEQUENTIAL_MODES
from ....protocol.operations import OPERATIONS, OpCode, codes_by_change
from ....protocol.paths import CONFIG
from ..journal import Change, RequestBatch, Transaction
from .dispatch import WRITES

_HEAD: Final = combined_struct(Int, r.RequestHeader)
_MULTI: Final = int(OpCode.MULTI)
_CREATES: Final = codes_by_change("create")
_OPERATIONS_WITH_DATA: Final = _CREATES | {OpCode.SET_DATA}


def transactions(requests: RequestBatch) -> Iterator[Transaction]:
    """Decode a batch of successful requests, and yield its transactions. Reads are skipped."""
    buf, session_id, time, zxid, details = requests
    texts: dict[int, list[str]] = {}
    for of, text in details:
        texts.setdefault(of, []).append(text)
    at = 0
    while at < len(buf):
        length, xid, op = _HEAD.unpack_from(buf, at)
        start, at = at + _HEAD.size, at + 4 + length
        if op == _MULTI:
            operations: list[tuple[OpCode, Any]] = wire.read_operations(buf, start, at)
        elif op in WRITES:
            request = OPERATIONS[op].request
            assert request is not None, op
            operations = [(OpCode(op), ensure_compiled(request).decode(buf, start, at))]
        else:
            continue
        zxid += 1
        found = texts.get(zxid, ())
        if operations and (not found or found[-1]):  # skip an empty multi, and a failed one, whose last detail is empty
            left = iter(found)
            yield session_id, xid, zxid, time, op, [_change(code, request, left) for code, request in operations]


def _change(op: int, request: Any, texts: Iterator[str]) -> Change:
    if op == OpCode.RECONFIG:
        return op, CONFIG, len(next(texts))
    path: str = request.path
    if op in _CREATES and request.flags in SEQUENTIAL_MODES:
        path = next(texts)
    data = request.data if op in _OPERATIONS_WITH_DATA else None
    return op, path, -1 if data is None else len(data)
