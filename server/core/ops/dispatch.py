"""The dispatch tables, and the decorators that fill them.

- ``TABLE`` maps an op code to its decoder and its handler, with one look-up per request.
- ``WRITES`` maps the op code of a write to its ``perform`` and ``reply``.
- ``STRAIGHT_REQUESTS`` and ``STRAIGHT_OPERATIONS`` map the op code of a frequent operation to its *straight form*: one
  generated function for all steps, of a request or of an operation inside a multi.
- ``APPLIES`` maps the class of a transaction record to the function that applies it.

A read is one function, which returns the encoded body of its reply. A write is two: *perform* checks the fields of the
request in ZooKeeper's order, changes the state, and passes the transaction record to ``state.record`` if there is a
journal. *Reply* encodes the result. The straight forms are made from the sources of these functions, and of those that
they call (``make straight``).

A transaction record from a log or from another member has passed its checks, so *apply* only makes the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from ....protocol.codec import Record, ensure_compiled, pack_int
from ....protocol.errors import ErrorCode, NotReadOnlyError, ZooKeeperError
from ....protocol.operations import OPERATIONS, OpCode
from ..client_connection import ClientConnection
from ..compat import Compat
from ..node import Node, NodeOrLeaf, stat_of
from ..state import ServerState

Decode = Callable[[bytes, int, int], Any]
Handle = Callable[[ServerState, ClientConnection, Any], bytes]
StraightRequest = Callable[[ServerState, ClientConnection, bytes, int, int], bytes]
"""A straight form of a request: a function from the place of its body to the frame of its reply."""
StraightOperation = Callable[[ServerState, ClientConnection, bytes, int, int, list[bytes]], int]
"""A straight form of an operation of a multi: a function from the place of its record to the place of the next
operation. It adds its encoded result to a list. It returns 0, before it changes anything, if the operation needs the
general form.
"""
Outcome = tuple[str, NodeOrLeaf]
"""The path of the node that a write concerns, with its sequence number, and the node."""
Perform = Callable[..., Outcome]
"""A write: a function of the state, the connection, the op code and the fields of the request."""
Reply = Callable[[str, Any], bytes]
"""The body of a write's reply: a function of its outcome. A node that was changed is not packed."""
Apply = Callable[[ServerState, Any, int], Any]


def path_reply(path: str, node: NodeOrLeaf) -> bytes:
    """Encode the path."""
    raw = path.encode()
    return pack_int(len(raw)) + raw


def path_and_stat_reply(path: str, node: NodeOrLeaf) -> bytes:
    """Encode the path and the Stat."""
    raw = path.encode()
    return pack_int(len(raw)) + raw + stat_of(node)


def stat_reply(path: str, node: Node) -> bytes:
    """Encode the Stat."""
    stat = node.stat()  # a statement, because `make straight` copies the function here
    return stat


def data_and_stat_reply(path: str, node: Node) -> bytes:
    """Encode the data and the Stat."""
    return node.encoded_data() + node.stat()


def no_reply(path: str, node: NodeOrLeaf) -> bytes:
    """Encode nothing."""
    return b""


class DispatchEntry(NamedTuple):
    """The decoder and the handler of one op code.

    Args:
        decode: A function that decodes the body of the request; None for the decoder of the operation's record, which
            :func:`build_dispatch` finds.
        handle: A function that executes the request and returns the body of the reply.
        costly: Whether one request may take much longer than its size suggests. The clock is read after each of them.
    """

    decode: Decode | None
    handle: Handle
    costly: bool


DispatchTuple = tuple[Decode, Handle, bool, StraightRequest | None]
Dispatch = dict[int, DispatchTuple]
"""A dispatch table. An entry contains the decoder, the handler, whether the operation is costly, and the straight form
or None. A straight form is called instead of decoder and handler, so a table that wraps the handlers must replace it
by None. The entries are plain tuples, because unpacking a named tuple costs 3 % of a get (Python 3.11).
"""


class Write(NamedTuple):
    """The function of a write, and its reply."""

    perform: Perform
    reply: Reply


class UnfinishedError(ZooKeeperError):
    """A request takes long. This is not an error, but a signal to the connection, which continues the request in steps.

    Args:
        steps: Iterator that does a part of the work for each item. The connection advances it during its turns, and
            sends a reply without a body after the last item.
    """

    code = ErrorCode.SYSTEM_ERROR
    meaning = "the request is not finished"

    def __init__(self, steps: Iterator[None]) -> None:
        super().__init__(None)
        self.steps = steps


TABLE: dict[int, DispatchEntry] = {}
WRITES: dict[int, Write] = {}
STRAIGHT_REQUESTS: dict[int, StraightRequest] = {}
STRAIGHT_OPERATIONS: dict[int, StraightOperation] = {}
APPLIES: dict[type[Record], Apply] = {}


def reads(*ops: int, decode: Decode | None = None, costly: bool = False) -> Callable[[Handle], Handle]:
    """Register a handler for operations that do not change the tree. For the arguments see :class:`DispatchEntry`."""

    def register(handle: Handle) -> Handle:
        for op in ops:
            TABLE[op] = DispatchEntry(decode, handle, costly)
        return handle

    return register


def writes(replies: dict[OpCode, Reply]) -> Callable[[Perform], Perform]:
    """Register the function that performs some writes. *replies* maps their op codes to encoders of their replies."""

    def register(perform: Perform) -> Perform:
        for op, reply in replies.items():
            WRITES[op] = Write(perform, reply)
            if op != OpCode.CHECK:  # outside a transaction, a check is not supported
                TABLE[op] = DispatchEntry(None, _handler(op, WRITES[op]), True)
        return perform

    return register


def applies(*txns: type[Record]) -> Callable[[Apply], Apply]:
    """Register the function that applies these transaction records."""

    def register(apply: Apply) -> Apply:
        for txn in txns:
            APPLIES[txn] = apply
        return apply

    return register


def _handler(op: OpCode, write: Write) -> Handle:
    perform, reply, fields = write.perform, write.reply, fields_of(op)

    def handle(state: ServerState, client: ClientConnection, request: Any) -> bytes:
        state.zxid += 1  # a write uses up its zxid even if it fails its checks; docs/_build/straight.py repeats this
        return reply(*perform(state, client, op, *fields(request)))

    return handle


def fields_of(op: OpCode) -> Callable[[Record], tuple[Any, ...]]:
    """Return a function that returns the fields of an operation's record."""
    return attrgetter(*_request_of(op).__match_args__)


def _request_of(op: int) -> type[Record]:
    request = OPERATIONS[op].request
    assert request is not None, op
    return request


def build_dispatch(*, read_only: bool = False, writable: bool = True) -> Dispatch:
    """Return a dispatch table.

    A record's decoder is compiled by the first request that needs it, and replaces its placeholder in the table.

    Args:
        read_only: Whether writes and sync are rejected, with NotReadOnlyError.
        writable: Whether writes are executed. False rejects them in the same way, while they cannot be logged.

    Source: ReadOnlyRequestProcessor.
    """
    table: Dispatch = {}
    refuses_writes = read_only or not writable
    for op, entry in TABLE.items():
        operation = OPERATIONS[op]
        if (operation.takes_zxid and refuses_writes) or (read_only and op == OpCode.SYNC):
            table[op] = _skip_body, _refuse, False, None
        else:
            decode = entry.decode or _compiling_decoder(table, op)
            table[op] = decode, entry.handle, entry.costly, STRAIGHT_REQUESTS.get(op)
    return table


def late_decoder(table: Dispatch, op: int) -> Decode:
    """Return a decoder that looks up *table* at each call, because the first request replaces the decoder there. It is
    for tables that wrap another table.
    """
    return lambda buf, offset, end: table[op][0](buf, offset, end)


def _compiling_decoder(table: Dispatch, op: int) -> Decode:
    def decode(buf: bytes, offset: int, end: int) -> Record:
        compiled_decode = ensure_compiled(_request_of(op)).decode
        table[op] = compiled_decode, *table[op][1:]
        return compiled_decode(buf, offset, end)

    return decode


def zxid_on_decode_error(compat: Compat) -> frozenset[int]:
    """Return the op codes of the writes that use up a zxid even if they cannot be decoded. A multi is not included: its
    handler uses the zxid before it decodes anything.
    """
    return frozenset(WRITES.keys() - {OpCode.RECONFIG}) if compat.undecodable_write_takes_zxid else frozenset()


def _skip_body(buf: bytes, offset: int, end: int) -> None:
    return None


def _refuse(state: ServerState, client: ClientConnection, request: None) -> bytes:
    raise NotReadOnlyError
