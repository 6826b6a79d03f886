"""The replay of transactions that a different engine has prepared, with the replies to their requests.

Members of an ensemble apply the proposals of their leader in this way.

Source: FinalRequestProcessor.processRequest, DataTree.processTxn.
"""

from __future__ import annotations

from ....protocol import multi as wire
from ....protocol.errors import ErrorCode
from ....protocol.operations import OpCode
from ..journal import ERROR, Applied, MultiRecords
from ..state import ServerState
from .dispatch import APPLIES, WRITES
from .multi import encode_result

__all__ = ["ERROR", "Applied", "replay"]


def replay(state: ServerState, entry: Applied) -> tuple[int, bytes]:
    """Apply a transaction at its own zxid and time, without checks, because it has passed them in a different engine.

    Args:
        state: The state after all earlier transactions, and no others.
        entry: The transaction.

    Returns:
        The error code and the body of the reply to its request.
    """
    session_id, _, zxid, time, kind, record = entry
    now, state.now, state.zxid = state.now, time, zxid
    try:
        if kind == ERROR:
            return record.err, b""  # type: ignore[union-attr] # the record is an ErrorTxn
        if kind == OpCode.MULTI:
            return ErrorCode.OK, _replay_multi(state, record, session_id)  # type: ignore[arg-type]
        if kind == OpCode.CREATE_SESSION and session_id in state.sessions.alive:
            return ErrorCode.OK, b""  # the session was already opened when the client connected
        outcome = APPLIES[type(record)](state, record, session_id)  # type: ignore[index] # the record is not a multi
        write = WRITES.get(kind)
        return ErrorCode.OK, write.reply(record.path, outcome) if write is not None else b""  # type: ignore[union-attr]
    finally:
        state.now = now


def _replay_multi(state: ServerState, parts: MultiRecords, session_id: int) -> bytes:
    has_failed = any(kind == ERROR for kind, _ in parts)
    results = []
    state.begin()
    for op, txn in parts:
        if has_failed:
            results.append(wire.encode_error_result(txn.err if op == ERROR else ErrorCode.OK))  # type: ignore[attr-defined]
        else:
            outcome = APPLIES[type(txn)](state, txn, session_id)
            results.append(encode_result(op, txn.path, outcome))  # type: ignore[attr-defined]
    state.commit()
    results.append(wire.END)
    return b"".join(results)
