"""Apply a transaction that another engine has prepared, and answer its request: what a member of an ensemble does with
what its leader has proposed.

Source: FinalRequestProcessor.processRequest; DataTree.processTxn.
"""

from __future__ import annotations

from zoolet.protocol import multi as wire
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.operations import OpCode
from zoolet.server.core.journal import ERROR, Applied, Parts
from zoolet.server.core.ops.dispatch import APPLIES, WRITES
from zoolet.server.core.ops.multi import result_of
from zoolet.server.core.state import ServerState

__all__ = ["ERROR", "Applied", "replay"]


def replay(state: ServerState, entry: Applied) -> tuple[int, bytes]:
    """Apply a transaction at its own zxid and time; this cannot fail.

    Args:
        state: The state, which has all transactions before this one and none after it.
        entry: The transaction.

    Returns:
        The error code and the body of the reply to its request.
    """
    session_id, _, zxid, time, kind, record = entry
    now, state.now, state.zxid = state.now, time, zxid
    try:
        if kind == ERROR:
            return record.err, b""  # type: ignore[union-attr] # an ErrorTxn
        if kind == OpCode.MULTI:
            return ErrorCode.OK, _replay_multi(state, record, session_id)  # type: ignore[arg-type]
        if kind == OpCode.CREATE_SESSION and session_id in state.sessions.alive:
            return ErrorCode.OK, b""  # its client came before the transaction
        outcome = APPLIES[type(record)](state, record, session_id, None)  # type: ignore[index] # it is no multi
        write = WRITES.get(kind)
        return ErrorCode.OK, write.reply(record, outcome) if write is not None else b""
    finally:
        state.now = now


def _replay_multi(state: ServerState, parts: Parts, session_id: int) -> bytes:
    has_failed = any(kind == ERROR for kind, _ in parts)
    results = []
    state.begin()
    for op, txn in parts:
        if has_failed:
            results.append(wire.error_result(txn.err if op == ERROR else ErrorCode.OK))  # type: ignore[attr-defined]
        else:
            results.append(result_of(op, txn, APPLIES[type(txn)](state, txn, session_id, None)))
    state.commit()
    results.append(wire.END)
    return b"".join(results)
