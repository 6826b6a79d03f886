"""The dispatch tables, and the decorators that fill them.

- ``TABLE`` maps an op code to its decoder and its handler, with one look-up per request.
- ``WRITES`` maps the op code of a write to its ``perform`` and ``reply``.
- ``STRAIGHT_REQUESTS`` and ``STRAIGHT_OPERATIONS`` map the op code of a frequent operation to its *straight form*: one
  generated function that does all steps of a request, or of an operation inside a multi.
- ``APPLIES`` maps the class of a transaction record to the function that applies it.

A read is one function, which returns the encoded body of its reply. A write consists of two functions. *perform* checks
the fields of the request in ZooKeeper's order, changes the state, and passes the transaction record to ``state.record``
if there is a journal. *reply* encodes the result. ``make straight`` generates the straight forms from the sources of
these functions and of the functions that they call.

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
from ..node import Node, NodeOrLeaf, encode_stat
from ..state import ServerState

Decode = Callable[[bytes, int, int], Any]
"""A decoder of requests: a function of the bytes, and of the start and the end of the body in them."""
Handle = Callable[[ServerState, ClientConnection, Any], bytes]
"""A handler: a function that executes a decoded request and returns the body of the reply."""
StraightRequest = Callable[[ServerState, ClientConnection, bytes, int, int], bytes]
"""A straight form of a request. It receives the position of the body, and returns the whole frame of the reply."""
StraightOperation = Callable[[ServerState, ClientConnection, bytes, int, int, list[bytes]], int]
"""A straight form of an operation of a multi. It receives the position of the operation's record and the list of
results, appends its encoded result, and returns the position of the next operation. If the operation needs the general
form, it changes nothing and returns 0.
"""
Outcome = tuple[str, NodeOrLeaf]
"""The result of a write: the path of the node, including a sequence number, and the node."""
Perform = Callable[..., Outcome]
"""A function that performs a write. Parameters: state, connection, op code, and the fields of the request."""
Reply = Callable[[str, Any], bytes]
"""A function that encodes the body of a write's reply from its outcome. Only new nodes can be packed leaves."""
Apply = Callable[[ServerState, Any, int], Any]
"""A function that applies a transaction record for a session id. It makes no checks."""


def path_reply(path: str, node: NodeOrLeaf) -> bytes:
    """Return the reply to a create: the encoded path."""
    raw = path.encode()
    return pack_int(len(raw)) + raw


def path_and_stat_reply(path: str, node: NodeOrLeaf) -> bytes:
    """Return the reply to create2, createContainer or createTTL: the encoded path and Stat."""
    raw = path.encode()
    return pack_int(len(raw)) + raw + encode_stat(node)


def stat_reply(path: str, node: Node) -> bytes:
    """Return the reply to setData or setACL: the encoded Stat."""
    stat = node.stat()  # a statement, because `make straight` copies the function here
    return stat


def data_and_stat_reply(path: str, node: Node) -> bytes:
    """Return the reply to reconfig: the encoded data and Stat."""
    return node.encoded_data() + node.stat()


def no_reply(path: str, node: NodeOrLeaf) -> bytes:
    """Return the empty reply to delete or check."""
    return b""


class DispatchEntry(NamedTuple):
    """The decoder and the handler of one op code.

    Args:
        decode: A function that decodes the body of the request; None for the decoder of the operation's record, which
            :func:`build_dispatch` finds.
        handle: A function that executes the request and returns the body of the reply.
        costly: Whether a request may take much longer than its size suggests. The clock is read after each such
            request.
    """

    decode: Decode | None
    handle: Handle
    costly: bool


DispatchTuple = tuple[Decode, Handle, bool, StraightRequest | None]
Dispatch = dict[int, DispatchTuple]
"""A dispatch table. It maps an op code to the decoder, the handler, whether the operation is costly, and the straight
form or None. A straight form is called instead of the decoder and the handler, so a table that wraps handlers must
replace it by None. The entries are plain tuples, because unpacking a named tuple costs 3 % of a get (Python 3.11).
"""


class Write(NamedTuple):
    """A write: the function that performs it, and the function that encodes the reply."""

    perform: Perform
    reply: Reply


class UnfinishedError(ZooKeeperError):
    """A signal to the connection that a request is not finished. The connection continues the request in steps.

    Args:
        steps: Iterator that does a part of the work for each item. The connection advances the iterator during its
            turns, and sends a reply without a body after the last item.
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
    """Return a decorator that registers a handler for operations that do not change the tree.

    Args:
        *ops: The op codes.
        decode: See :class:`DispatchEntry`.
        costly: See :class:`DispatchEntry`.
    """

    def register(handle: Handle) -> Handle:
        for op in ops:
            TABLE[op] = DispatchEntry(decode, handle, costly)
        return handle

    return register


def writes(replies: dict[OpCode, Reply]) -> Callable[[Perform], Perform]:
    """Return a decorator that registers a function that performs writes.

    Args:
        replies: The functions that encode the replies, by the op codes of the writes.
    """

    def register(perform: Perform) -> Perform:
        for op, reply in replies.items():
            WRITES[op] = Write(perform, reply)
            if op != OpCode.CHECK:  # a check is only supported inside a transaction
                TABLE[op] = DispatchEntry(None, _handler(op, WRITES[op]), True)
        return perform

    return register


def applies(*txns: type[Record]) -> Callable[[Apply], Apply]:
    """Return a decorator that registers the function that applies transaction records of these classes."""

    def register(apply: Apply) -> Apply:
        for txn in txns:
            APPLIES[txn] = apply
        return apply

    return register


def _handler(op: OpCode, write: Write) -> Handle:
    perform, reply, fields = write.perform, write.reply, fields_getter(op)

    def handle(state: ServerState, client: ClientConnection, request: Any) -> bytes:
        state.zxid += 1  # a write uses up a zxid even if a check fails; docs/_build/straight.py repeats this line
        return reply(*perform(state, client, op, *fields(request)))

    return handle


def fields_getter(op: OpCode) -> Callable[[Record], tuple[Any, ...]]:
    """Return a function that extracts the fields of an operation's record as a tuple."""
    return attrgetter(*_request_record(op).__match_args__)


def _request_record(op: int) -> type[Record]:
    request = OPERATIONS[op].request
    assert request is not None, op
    return request


def build_dispatch(*, read_only: bool = False, writable: bool = True) -> Dispatch:
    """Return a new dispatch table with all operations of :data:`TABLE`.

    The table first contains placeholders for the decoders of records. The first request for an operation compiles its
    decoder and puts it in the table.

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
    """Return a decoder for tables that wrap *table*. It looks up the decoder in *table* at each call.

    This is necessary because the first request replaces the decoder in *table*.
    """
    return lambda buf, offset, end: table[op][0](buf, offset, end)


def _compiling_decoder(table: Dispatch, op: int) -> Decode:
    def decode(buf: bytes, offset: int, end: int) -> Record:
        compiled_decode = ensure_compiled(_request_record(op)).decode
        table[op] = compiled_decode, *table[op][1:]
        return compiled_decode(buf, offset, end)

    return decode


def zxid_on_decode_error(compat: Compat) -> frozenset[int]:
    """Return the op codes of the writes that use up a zxid even if their body cannot be decoded.

    A multi is not included, because its handler uses up the zxid before it decodes the body.
    """
    return frozenset(WRITES.keys() - {OpCode.RECONFIG}) if compat.undecodable_write_takes_zxid else frozenset()


def _skip_body(buf: bytes, offset: int, end: int) -> None:
    return None


def _refuse(state: ServerState, client: ClientConnection, request: None) -> bytes:
    raise NotReadOnlyError
