"""The dispatch tables, and the decorators that fill them.

- ``TABLE``: from an op code to its decoder and its handler; one look-up a request.
- ``WRITES``: from the op code of a single write to its ``prepare`` and ``reply``, for transactions.
- ``APPLIES``: from the class of a transaction record to the function that applies it.

A read is one function, which returns the encoded body of its reply. A write is three: *prepare* checks the request and
returns a transaction record or raises, *apply* (found by the record's class) changes the state and cannot fail, *reply*
encodes the result. Beside the record, prepare returns the node that it has looked up (of a create or delete the
parent), so that apply need not walk the path again; a record that comes from elsewhere is applied without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from zoolet.protocol.codec import Record, compiled
from zoolet.protocol.errors import NotReadOnlyError
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.compat import Compat
from zoolet.server.core.node import Node
from zoolet.server.core.state import ServerState

Decode = Callable[[bytes, int, int], Any]
Handle = Callable[[ServerState, ClientConnection, Any], bytes]
T = TypeVar("T", bound=Record)
Prepared = tuple[T, Node]
Prepare = Callable[[ServerState, ClientConnection, Any], Prepared[Any]]
Apply = Callable[[ServerState, Any, int, Node | None], Any]
Reply = Callable[[Any, Any], bytes]


class Entry(NamedTuple):
    """The decoder and the handler of one op code.

    Args:
        decode: Decodes the body of the request; None for the decoder of the operation's record, which
            :func:`build_dispatch` finds.
        handle: Executes the request and returns the body of the reply.
        costly: One request may take much longer than its size suggests, so the clock is read after each.
    """

    decode: Decode | None
    handle: Handle
    costly: bool


Dispatch = dict[int, tuple[Decode, Handle, bool]]
"""A dispatch table. Its entries are plain tuples: unpacking a named tuple costs 3 % of a get (Python 3.11)."""


class Write(NamedTuple):
    """The functions of a write that depend on its op code."""

    prepare: Prepare
    reply: Reply


TABLE: dict[int, Entry] = {}
WRITES: dict[int, Write] = {}
APPLIES: dict[type[Record], Apply] = {}


def reads(*ops: int, decode: Decode | None = None, costly: bool = False) -> Callable[[Handle], Handle]:
    """Register the handler of operations that do not change the tree."""

    def register(handle: Handle) -> Handle:
        for op in ops:
            TABLE[op] = Entry(decode, handle, costly)
        return handle

    return register


def prepares(replies: dict[OpCode, Reply]) -> Callable[[Prepare], Prepare]:
    """Register the function that prepares these operations; each has its own function that encodes the reply."""

    def register(prepare: Prepare) -> Prepare:
        for op, reply in replies.items():
            WRITES[op] = Write(prepare, reply)
            if op != OpCode.CHECK:  # only inside a transaction
                TABLE[op] = Entry(None, _write(op, prepare, reply), True)
        return prepare

    return register


def applies(*txns: type[Record]) -> Callable[[Apply], Apply]:
    """Register the function that applies these transaction records."""

    def register(apply: Apply) -> Apply:
        for txn in txns:
            APPLIES[txn] = apply
        return apply

    return register


def _write(op: OpCode, prepare: Prepare, reply: Reply) -> Handle:
    applies = APPLIES

    def handle(state: ServerState, client: ClientConnection, request: Any) -> bytes:
        state.zxid += 1  # a write takes its zxid even if it fails its checks
        txn, node = prepare(state, client, request)
        session = client.session
        assert session is not None
        outcome = applies[type(txn)](state, txn, session.id, node)
        if (record := state.record) is not None:
            record((session.id, client.last_xid, state.zxid, state.now, op, txn))
        return reply(txn, outcome)

    return handle


def build_dispatch(*, read_only: bool = False, writable: bool = True) -> Dispatch:
    """Return a dispatch table.

    A record's decoder is compiled by the first request that needs it, and replaces its placeholder in the table.

    Args:
        read_only: Refuse writes, and sync.
        writable: Serve writes; they are refused while they cannot be logged.

    Source: ReadOnlyRequestProcessor.
    """
    table: Dispatch = {}
    refuses_writes = read_only or not writable
    for op, entry in TABLE.items():
        operation = OPERATIONS[op]
        if (operation.takes_zxid and refuses_writes) or (read_only and op == OpCode.SYNC):
            table[op] = _skip_body, _refuse, False
        elif entry.decode is None:
            assert operation.request is not None, op
            table[op] = _compiling_decoder(table, op, operation.request), entry.handle, entry.costly
        else:
            table[op] = entry.decode, entry.handle, entry.costly  # a plain tuple, see Dispatch
    return table


def late_decoder(table: Dispatch, op: int) -> Decode:
    """Return a decoder for a table that wraps another, whose own is replaced when the first request compiles it."""
    return lambda buf, offset, end: table[op][0](buf, offset, end)


def _compiling_decoder(table: Dispatch, op: int, request: type[Record]) -> Decode:
    def decode(buf: bytes, offset: int, end: int) -> Record:
        compiled_decode = compiled(request).decode
        table[op] = compiled_decode, *table[op][1:]
        return compiled_decode(buf, offset, end)

    return decode


def zxid_on_decode_error(compat: Compat) -> frozenset[int]:
    """Return the writes that take a zxid even if they do not decode; a multi always takes its zxid first."""
    return frozenset(WRITES.keys() - {OpCode.RECONFIG}) if compat.undecodable_write_takes_zxid else frozenset()


def _skip_body(buf: bytes, offset: int, end: int) -> None:
    return None


def _refuse(state: ServerState, client: ClientConnection, request: None) -> bytes:
    raise NotReadOnlyError
