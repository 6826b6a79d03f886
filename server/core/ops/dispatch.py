"""The dispatch tables, and the decorators that fill them.

- ``TABLE``: from an op code to how its body is decoded and what answers it; one look-up a request.
- ``WRITES``: from the op code of a single write to its ``prepare`` and ``reply``, for transactions.
- ``APPLIES``: from the class of a transaction record to what does it to the state.

A read answers with the encoded body of its reply. A write is three functions: *prepare* checks and returns a
transaction record, *apply* (found by the record's class) does it and cannot fail, *reply* encodes what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zoolet.protocol.codec import Record, compiled
from zoolet.protocol.errors import NotReadOnlyError
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.compat import Compat
from zoolet.server.core.state import ServerState

Decode = Callable[[bytes, int, int], Any]
Handle = Callable[[ServerState, ClientConnection, Any], bytes]
Prepare = Callable[[ServerState, ClientConnection, Any], Record]
Apply = Callable[[ServerState, Any, int], Any]
Reply = Callable[[Any, Any], bytes]


class Entry(NamedTuple):
    """How to answer one op code.

    Args:
        decode: Reads the body of the request; None for the decoder of the operation's record, which
            :func:`build_dispatch` finds.
        handle: Does what it asks and returns the body of the reply.
        costly: One request may take much longer than its bytes let one expect, so the clock is read after each.
    """

    decode: Decode | None
    handle: Handle
    costly: bool


Dispatch = dict[int, tuple[Decode, Handle, bool]]
"""A dispatch table. Its entries are plain tuples: to take a named one apart costs 3 % of a get (Python 3.11)."""


class Write(NamedTuple):
    """The parts of a write that belong to its op code."""

    prepare: Prepare
    reply: Reply


TABLE: dict[int, Entry] = {}
WRITES: dict[int, Write] = {}
APPLIES: dict[type[Record], Apply] = {}


def reads(*ops: int, decode: Decode | None = None, costly: bool = False) -> Callable[[Handle], Handle]:
    """Register what answers these operations without changing the tree."""

    def register(handle: Handle) -> Handle:
        for op in ops:
            TABLE[op] = Entry(decode, handle, costly)
        return handle

    return register


def prepares(replies: dict[OpCode, Reply]) -> Callable[[Prepare], Prepare]:
    """Register what checks these operations; each has its own way to encode what became of it."""

    def register(prepare: Prepare) -> Prepare:
        for op, reply in replies.items():
            WRITES[op] = Write(prepare, reply)
            if op != OpCode.CHECK:  # only inside a transaction
                TABLE[op] = Entry(None, _write(prepare, reply), True)
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

    def handle(state: ServerState, client: ClientConnection, request: Any) -> bytes:
        state.zxid += 1  # a write that fails its checks has taken its zxid all the same
        txn = prepare(state, client, request)
        session = client.session
        assert session is not None
        return reply(txn, applies[type(txn)](state, txn, session.id))

    return handle


def build_dispatch(*, read_only: bool = False) -> Dispatch:
    """Return a dispatch table for one state.

    A record's decoder is compiled when the first request that needs it comes, and then takes its place in the table.

    Args:
        read_only: Refuse what writes, and sync.

    Source: ReadOnlyRequestProcessor.
    """
    table: Dispatch = {}
    for op, entry in TABLE.items():
        operation = OPERATIONS[op]
        if read_only and (operation.takes_zxid or op == OpCode.SYNC):
            table[op] = _skip_body, _refuse, False
        elif entry.decode is None:
            assert operation.request is not None, op
            table[op] = _compiling_decoder(table, op, operation.request), entry.handle, entry.costly
        else:
            table[op] = entry.decode, entry.handle, entry.costly  # plain, not named
    return table


def _compiling_decoder(table: Dispatch, op: int, request: type[Record]) -> Decode:
    def decode(buf: bytes, offset: int, end: int) -> Record:
        compiled_decode = compiled(request).decode
        table[op] = compiled_decode, *table[op][1:]
        return compiled_decode(buf, offset, end)

    return decode


def zxid_on_decode_error(compat: Compat) -> frozenset[int]:
    """Return the writes that take a zxid even if they do not decode; a multi takes its zxid first in any case."""
    return frozenset(WRITES.keys() - {OpCode.RECONFIG}) if compat.undecodable_write_takes_zxid else frozenset()


def _skip_body(buf: bytes, offset: int, end: int) -> None:
    return None


def _refuse(state: ServerState, client: ClientConnection, request: None) -> bytes:
    raise NotReadOnlyError
