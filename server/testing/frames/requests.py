"""Requests as tests see them: decoded, whether they were just recorded or are about to meet a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

from zoolet.protocol import multi as wire
from zoolet.protocol.acl import AclList
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import ErrorCode, MarshallingError
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.operations import OPERATIONS, OpCode, name_of
from zoolet.protocol.records import AddWatchRequest, AuthPacket

CONNECT: Final = int(OpCode.CREATE_SESSION)
"""The op code that stands for the connect request, which has none."""
_LISTS: Final = (OpCode.MULTI, OpCode.MULTI_READ)


@dataclass(frozen=True, slots=True)
class OpView:
    """One request that was read.

    Args:
        op: Its operation, such as ``getData``; ``connect`` for a connect request.
        path: Its path, or the first of several; None for none.
        client: The id of the client's session; 0 if there was none yet.
        error: The error code of the reply, 0 if it succeeded; None if there was no reply.
        zxid: The server's last zxid after it; of a proxy, the one in the reply.
        fault: The actions that were applied to it; empty for none.
        time: When it was answered, in seconds since the epoch, by the server's clock.
        data: The data that it writes; None for none.
        version: The version that it requires, -1 for any; None if it has no version.
        flags: Of a create, its :class:`~zoolet.protocol.enums.CreateMode`; of an addWatch, its mode; None otherwise.
        acl: The ACL list that it sets; None if it sets none.
        ttl: The TTL of the node that it creates, in seconds; None for none.
        watch: Whether it sets a watch.
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
        """The id of the client's session: as ``client``, by the name that it has in the other views."""
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
        """Operation and path: ``create /a``; of a transaction all of them: ``multi [create /a, delete /b]``."""
        if self.parts:
            return f"{self.op} [{', '.join(part.title for part in self.parts)}]"
        return f"{self.op} {self.path}" if self.path else self.op

    def __str__(self) -> str:
        fault = f" [{self.fault}]" if self.fault else ""
        return f"{hexadecimal(self.client)} {self.title} -> {self.outcome} zxid=0x{self.zxid:x}{fault}"


class RecordedRequest(NamedTuple):
    """One request that has passed; :func:`view_of` decodes it on demand.

    Args:
        connection: The number of its connection, counted from 1.
        session: The id of its session; 0 for none.
        opcode: Its op code; :data:`CONNECT` for a connect request.
        body: What follows its header; of a connect request all of it.
        zxid: The server's last zxid after it.
        error: The error code of its reply; None for no reply.
        part_errors: Of a transaction that was answered, the error codes of its parts.
        faults_applied: The actions that were applied to it.
        time: When it was answered, in seconds since the epoch.
        reply: Its reply without the length; empty if there was none, or while nothing is recorded.
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
    """One watch event that was sent.

    Args:
        connection: The number of its connection, counted from 1.
        session: The id of its session.
        time: When it was sent, in seconds since the epoch.
        payload: Its frame without the length.
        with_reply: Whether a request was being answered: it was sent right before the next reply.
    """

    connection: int
    session: int
    time: float
    payload: bytes
    with_reply: bool


Entry = RecordedRequest | RecordedEvent
"""An entry of a recording."""
MAX_FRAME: Final = 1 << 26
"""The most bytes of a frame of another server, which may be configured to accept much."""


class Request:
    """A request that is about to be executed, or an event that is about to be sent; decoded on demand.

    Args:
        opcode: The op code; 0 for an event.
        session: The id of the session; 0 for none.
        body: What follows the header.
        event: Of an event, its type and path; None for a request.
    """

    def __init__(self, opcode: int, session: int, body: bytes, *, event: tuple[int, str] | None = None) -> None:
        self.opcode = opcode
        self.session = session
        self.body = body
        self.event = event

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Its paths: none, one, or all those of a transaction."""
        return (self.event[1],) if self.event is not None else paths_in(self.opcode, self.body)

    @cached_property
    def view(self) -> OpView:
        """The operation. An event is shown with its type as the operation: ``nodeCreated``, ``nodeDeleted``,
        ``nodeDataChanged`` or ``nodeChildrenChanged``.
        """
        if self.event is not None:
            kind, path = self.event
            if kind not in EventType.__members__.values():
                return OpView(f"event {kind}", path, self.session)
            first, *others = EventType(kind).name.lower().split("_")
            return OpView(first + "".join(word.title() for word in others), path, self.session)
        return _decoded(self.opcode, self.body, OpView(name_of(self.opcode), None, self.session))


def view_of(request: RecordedRequest) -> OpView:
    """Return the view of a recorded request."""
    blank = OpView(
        name_of(request.opcode),
        None,
        request.session,
        request.error,
        request.zxid,
        request.faults_applied,
        request.time,
    )
    return _decoded(request.opcode, request.body, blank, request.part_errors)


def _decoded(opcode: int, body: bytes, blank: OpView, part_errors: tuple[int, ...] = ()) -> OpView:
    if opcode in _LISTS:
        parts = []
        for number, (op, request) in enumerate(_operations_in(body)):
            error = part_errors[number] if number < len(part_errors) else None
            part = OpView(name_of(op), None, blank.client, error, blank.zxid, time=blank.time)
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
    if isinstance(request, AuthPacket):  # its data are credentials
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
    """Return the paths in a request: none, one, or all those of a transaction."""
    if opcode in _LISTS:
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
