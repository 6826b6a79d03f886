"""The dispatch tables, and the decorators that fill them.

- ``TABLE``: from an op code to how its body is decoded and what answers it; one look-up a request.
- ``WRITES``: from the op code of a single write to its ``prepare`` and ``reply``, for transactions.
- ``APPLIES``: from the class of a transaction record to what does it to the engine.

A read answers with the encoded body of its reply. A write is three functions: *prepare* checks and returns a
transaction record, *apply* (found by the record's class) does it and cannot fail, *reply* encodes what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from zoolet.protocol.codec import Record, compiled
from zoolet.protocol.errors import MarshallingError, NotReadOnlyError
from zoolet.protocol.opcodes import OPERATIONS, OpCode
from zoolet.server.core.compat import Compat

if TYPE_CHECKING:
    from zoolet.server.core.caller import Caller
    from zoolet.server.core.engine import Engine

Decode = Callable[[bytes, int, int], Any]
Handle = Callable[["Engine", "Caller", Any], bytes]
Prepare = Callable[["Engine", "Caller", Any], Record]
Apply = Callable[["Engine", Any, int], Any]
Reply = Callable[[Any, Any], bytes]


class Entry(NamedTuple):
    """How to answer one op code."""

    decode: Decode
    handle: Handle


class Write(NamedTuple):
    """The parts of a write that belong to its op code."""

    prepare: Prepare
    reply: Reply


TABLE: dict[int, Entry] = {}
WRITES: dict[int, Write] = {}
APPLIES: dict[type[Record], Apply] = {}


def decoder(op: OpCode) -> Decode:
    """Give what reads an operation's request body: at first what compiles that, and puts it into ``TABLE``."""
    request = OPERATIONS[op].request
    assert request is not None, op

    def first(buf: bytes, at: int, stop: int) -> Record:
        decode = compiled(request).decode
        TABLE[op] = TABLE[op]._replace(decode=decode)
        return decode(buf, at, stop)

    return first


def reads(*ops: OpCode, decode: Decode | None = None) -> Callable[[Handle], Handle]:
    """Register what answers these operations without changing the tree."""

    def register(handle: Handle) -> Handle:
        for op in ops:
            TABLE[op] = Entry(decode or decoder(op), handle)
        return handle

    return register


def prepares(replies: dict[OpCode, Reply]) -> Callable[[Prepare], Prepare]:
    """Register what checks these operations; each has its own way to encode what became of it."""

    def register(prepare: Prepare) -> Prepare:
        for op, reply in replies.items():
            WRITES[op] = Write(prepare, reply)
            if op != OpCode.CHECK:  # only inside a transaction
                TABLE[op] = Entry(decoder(op), _write(prepare, reply))
        return prepare

    return register


def applies(*txns: type[Record]) -> Callable[[Apply], Apply]:
    """Register what does these transaction records."""

    def register(apply: Apply) -> Apply:
        for txn in txns:
            APPLIES[txn] = apply
        return apply

    return register


def _write(prepare: Prepare, reply: Reply) -> Handle:
    applies = APPLIES

    def handle(engine: Engine, caller: Caller, request: Any) -> bytes:
        engine.zxid += 1  # a write that fails its checks has taken its zxid all the same
        txn = prepare(engine, caller, request)
        session = caller.session
        assert session is not None
        return reply(txn, applies[type(txn)](engine, txn, session.id))

    return handle


def table_for(compat: Compat) -> dict[int, Entry]:
    """Give the dispatch table with which to answer as a release does."""
    if not compat.undecodable_write_takes_zxid:
        return TABLE
    late = WRITES.keys() - {OpCode.RECONFIG}  # and a multi always takes its zxid first
    return {op: _takes_zxid_first(entry) if op in late else entry for op, entry in TABLE.items()}


def _takes_zxid_first(entry: Entry) -> Entry:
    def handle(engine: Engine, caller: Caller, where: tuple[bytes, int, int]) -> bytes:
        try:
            request = entry.decode(*where)
        except MarshallingError:
            engine.zxid += 1
            raise
        return entry.handle(engine, caller, request)

    return Entry(lambda buf, at, stop: (buf, at, stop), handle)


def read_only_table(table: dict[int, Entry]) -> dict[int, Entry]:
    """Give a dispatch table that refuses what writes, and sync.

    Source: ReadOnlyRequestProcessor.
    """
    return {
        op: Entry(_whatever, _refuse) if OPERATIONS[OpCode(op)].writes or op == OpCode.SYNC else table[op]
        for op in table
    }


def _whatever(buf: bytes, at: int, stop: int) -> None:
    return None


def _refuse(engine: Engine, caller: Caller, request: None) -> bytes:
    raise NotReadOnlyError
