"""Decoded requests for tests: recorded requests, and requests that faults are matched against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

from ...protocol import multi as wire
from ...protocol.acl import AclList
from ...protocol.codec import Record
from ...protocol.enums import EventType
from ...protocol.errors import ErrorCode, MarshallingError
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OPERATIONS, OpCode, operation_name
from ...protocol.records import AddWatchRequest, AuthPacket

CONNECT: Final = int(OpCode.CREATE_SESSION)
"""The op code that stands for the connect request, which has none."""
MAX_DATA_BYTES: Final = 40
"""Maximum number of bytes of data that a report shows."""
_TRANSACTION_OPCODES: Final = (OpCode.MULTI, OpCode.MULTI_READ)


@dataclass(frozen=True, slots=True)
class OpView:
    """One request that a test server has received.

    Args:
        op: The operation, such as ``getData``; ``connect`` for a connect request.
        path: The path, or the first of several paths, or None.
        client: The id of the client's session, or 0 if the client has no session yet.
        error: The error code of the reply: 0 for success, None if no reply was sent.
        zxid: The server's last zxid after the request; for a proxy, the zxid in the reply.
        fault: The actions of the applied faults, as text. Empty if no fault was applied.
        time: The time of the answer by the server's clock, in seconds since the epoch.
        data: The data to write, or None if the operation writes no data.
        version: The required version, -1 for any; None if the operation has no version.
        flags: The :class:`~zoolet.protocol.enums.CreateMode` of a create, or the mode of an addWatch; None otherwise.
        acl: The ACL list to set, or None if the operation sets no ACL list.
        ttl: The TTL of the created node, in seconds, or None.
        watch: Whether the request sets a watch.
        parts: The operations of a transaction, in order.
    """

    op: str
    path: str | None = None
    client: int = 0
    error: int | None = None
    zxid: int = 0
    fault: str = ""
    time: float = 0.0
    data: bytes | None = None
    version: int | None = None
    flags: int | None = None
    acl: AclList | None = None
    ttl: float | None = None
    watch: bool = False
    parts: tuple[OpView, ...] = ()

    @property
    def session(self) -> int:
        """The id of the client's session. An alias of ``client``, because other views call it ``session``."""
        return self.client

    @property
    def outcome(self) -> str:
        """``ok``, the name of the error, or ``no reply``."""
        if self.error is None:
            return "no reply"
        if self.error == 0:
            return "ok"
        return ErrorCode(self.error).name if self.error in ErrorCode.__members__.values() else str(self.error)

    @property
    def title(self) -> str:
        """Operation and path: ``create /a``; for a transaction every part: ``multi [create /a, delete /b]``."""
        if self.parts:
            return f"{self.op} [{', '.join(part.title for part in self.parts)}]"
        return f"{self.op} {self.path}" if self.path else self.op

    @property
    def summary(self) -> str:
        """Operation, path, data and outcome: ``setData /a b'1' -> ok``."""
        watch = ", with a watch" if self.watch else ""
        return f"{self.title_with_data}{watch} -> {self.outcome}"

    @property
    def title_with_data(self) -> str:
        """Operation, path and data: ``setData /a b'1'``, also for every part of a transaction."""
        if self.parts:
            return f"{self.op} [{', '.join(part.title_with_data for part in self.parts)}]"
        return self.title + (f" {shorten_data(self.data)}" if self.data else "")

    @property
    def details(self) -> str:
        """The summary, the zxid, and the applied faults."""
        return f"{self.summary} zxid={hexadecimal(self.zxid)}" + (f" [{self.fault}]" if self.fault else "")

    def __str__(self) -> str:
        return f"{hexadecimal(self.client)} {self.details}"


def shorten_data(data: bytes | None) -> str:
    """Return data in the format of reports. Long data is truncated, and its length is added."""
    if data is None or len(data) <= MAX_DATA_BYTES:
        return repr(data)
    return f"{data[:MAX_DATA_BYTES]!r}... ({len(data)} bytes)"


class RecordedRequest(NamedTuple):
    """One processed request, which :func:`recorded_view` decodes.

    Args:
        connection: The number of the connection, starting at 1.
        session: The id of the session, or 0 if the client has no session yet.
        opcode: The op code. For a connect request, :data:`CONNECT`.
        body: The bytes after the header, or the whole frame for a connect request.
        zxid: The server's last zxid after the request.
        error: The error code of the reply, or None if no reply was sent.
        part_errors: The error codes of the parts of an answered transaction.
        faults_applied: The applied fault actions.
        time: The time of the answer, in seconds since the epoch.
        reply: The reply without the length. Empty if no reply was sent, or if no recording was running.
    """

    connection: int
    session: int
    opcode: int
    body: bytes
    zxid: int
    error: int | None
    part_errors: tuple[int, ...]
    faults_applied: str
    time: float
    reply: bytes = b""


class RecordedEvent(NamedTuple):
    """One watch event that a test server has sent.

    Args:
        connection: The number of the connection, starting at 1.
        session: The id of the session.
        time: The time of sending, in seconds since the epoch.
        payload: The frame without the length.
        with_reply: Whether the event was sent directly before the reply to a request.
    """

    connection: int
    session: int
    time: float
    payload: bytes
    with_reply: bool


Entry = RecordedRequest | RecordedEvent
"""An entry of a recording."""
MAX_FRAME: Final = 1 << 26
"""Maximum size of a frame in bytes at a proxy. The server behind the proxy may have a higher limit than zoolet."""


class InterceptedRequest:
    """A request before its execution, or an event before it is sent. It is decoded on demand.

    Args:
        opcode: The op code, or 0 for an event.
        session: The id of the session, or 0 if the client has no session yet.
        body: The bytes after the header.
        event: The type and path of an event, or None for a request.
    """

    def __init__(self, opcode: int, session: int, body: bytes, *, event: tuple[int, str] | None = None) -> None:
        self.opcode = opcode
        self.session = session
        self.body = body
        self.event = event

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths in the request: no path, one path, or every path of a transaction."""
        return (self.event[1],) if self.event is not None else paths_in(self.opcode, self.body)

    @cached_property
    def view(self) -> OpView:
        """The decoded request. For an event, the operation is its type: ``nodeCreated``, ``nodeDeleted``,
        ``nodeDataChanged`` or ``nodeChildrenChanged``.
        """
        if self.event is not None:
            kind, path = self.event
            if kind not in EventType.__members__.values():
                return OpView(f"event {kind}", path, self.session)
            first, *others = EventType(kind).name.lower().split("_")
            return OpView(first + "".join(word.title() for word in others), path, self.session)
        return _decode_view(self.opcode, self.body, OpView(operation_name(self.opcode), None, self.session))


def recorded_view(request: RecordedRequest) -> OpView:
    """Return the view of a recorded request."""
    blank = OpView(
        operation_name(request.opcode),
        None,
        request.session,
        request.error,
        request.zxid,
        request.faults_applied,
        request.time,
    )
    return _decode_view(request.opcode, request.body, blank, request.part_errors)


def _decode_view(opcode: int, body: bytes, blank: OpView, part_errors: tuple[int, ...] = ()) -> OpView:
    if opcode in _TRANSACTION_OPCODES:
        parts = []
        for number, (op, request) in enumerate(_operations_in(body)):
            error = part_errors[number] if number < len(part_errors) else None
            part = OpView(operation_name(op), None, blank.client, error, blank.zxid, time=blank.time)
            parts.append(_with_fields(part, op, request))
        path = next((part.path for part in parts if part.path is not None), None)
        return replace(blank, path=path, parts=tuple(parts))
    operation = OPERATIONS.get(opcode)
    if operation is None or operation.request is None:
        return blank
    try:
        request = operation.request.decode(body)
    except MarshallingError:
        return blank
    return _with_fields(blank, opcode, request)


def _with_fields(blank: OpView, opcode: int, request: Record) -> OpView:
    field = OPERATIONS[opcode].path
    path = getattr(request, field, None) if field is not None else None
    if isinstance(request, AuthPacket):  # credentials are never decoded
        return blank
    ttl = getattr(request, "ttl", None)
    adds_watch = isinstance(request, AddWatchRequest)
    return replace(
        blank,
        path=path,
        data=getattr(request, "data", None),
        version=getattr(request, "version", None),
        flags=request.mode if isinstance(request, AddWatchRequest) else getattr(request, "flags", None),
        acl=getattr(request, "acl", None),
        ttl=None if ttl is None else ttl / 1000,
        watch=adds_watch or bool(getattr(request, "watch", False)),
    )


def _operations_in(body: bytes) -> list[tuple[OpCode, Record]]:
    try:
        return list(wire.iter_operations(body, 0, len(body), wire.WRITES | wire.READS))
    except MarshallingError:
        return []


def paths_in(opcode: int, body: bytes) -> tuple[str, ...]:
    """Return the paths in a request: no path, one path, or every path of a transaction."""
    if opcode in _TRANSACTION_OPCODES:
        return tuple(
            path for _, request in _operations_in(body) if (path := getattr(request, "path", None)) is not None
        )
    operation = OPERATIONS.get(opcode)
    if operation is None or operation.request is None or operation.path is None:
        return ()
    try:
        path = getattr(operation.request.decode(body), operation.path)
    except MarshallingError:
        return ()
    return () if path is None else (path,)


When = Callable[[OpView], object]
"""A condition of a fault: called with a request before it is executed."""
