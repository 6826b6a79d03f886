"""The audit log: who has changed what, and whether it was allowed; a line for each write, in ZooKeeper's format.

The writes' entries of a dispatch table are wrapped, so that a server without an audit log does no more than before. A
transaction has a line for each of its operations.

Source: AuditHelper; AuditEvent; Slf4jAuditLogger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from zoolet.protocol import multi as wire
from zoolet.protocol import operations as rows
from zoolet.protocol.enums import EPHEMERAL_MODES, SEQUENTIAL_MODES, TTL_MODES, CreateMode
from zoolet.protocol.errors import MarshallingError, ZooKeeperError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.ops.dispatch import Decode, Dispatch, Handle, late_decoder
from zoolet.server.core.state import ServerState

OPERATIONS: Final[dict[int, str]] = {
    OpCode.CREATE: "create",
    OpCode.CREATE2: "create",
    OpCode.CREATE_CONTAINER: "create",
    OpCode.CREATE_TTL: "create",
    OpCode.DELETE: "delete",
    OpCode.SET_DATA: "setData",
    OpCode.SET_ACL: "setAcl",
    OpCode.RECONFIG: "reconfig",
}
"""The operations that are audited, by ZooKeeper's names."""
WriteLine = Callable[[str], object]
"""Receives a line."""


class Audited(NamedTuple):
    """A request, and its bytes: one that is refused without a look is decoded for its line.

    Args:
        request: The request; None if it is refused.
        span: Where its bytes are.
    """

    request: Any
    span: tuple[bytes, int, int]

    @property
    def path(self) -> str | None:
        """Its path; None if it has none."""
        return getattr(self.request, "path", None)


def audited(table: Dispatch, write: WriteLine) -> Dispatch:
    """Return a dispatch table whose writes are audited."""
    return table | {op: _audited(op, table[op], table, write) for op in table if op in OPERATIONS or op == OpCode.MULTI}


def _audited(op: int, entry: tuple[Decode, Handle, bool], table: Dispatch, write: WriteLine) -> Any:
    _, handle, costly = entry

    inner = late_decoder(table, op)

    def decode(buf: bytes, offset: int, end: int) -> Audited:
        return Audited(inner(buf, offset, end), (buf, offset, end))

    def audited_handle(state: ServerState, client: ClientConnection, audited: Audited) -> bytes:
        decoded, span = audited
        try:
            body = handle(state, client, decoded)
        except ZooKeeperError:
            _write(write, client, op, decoded, span, "failure")
            raise
        result = "failure" if op == OpCode.MULTI and _has_failed(body) else "success"
        _write(write, client, op, decoded, span, result)
        return body

    return decode, audited_handle, costly


def _has_failed(body: bytes) -> bool:
    return body[:4] == b"\xff\xff\xff\xff" and body[4:5] == b"\0"  # the first result is an error: so are all


def _write(
    write: WriteLine, client: ClientConnection, op: int, request: Any, span: tuple[bytes, int, int], result: str
) -> None:
    kind = rows.OPERATIONS[op].request
    try:
        if request is None and kind is not None and op != OpCode.MULTI:  # refused without being looked at
            request = kind.decode(*span)
        operations = wire.read_operations(*span) if op == OpCode.MULTI else []
    except MarshallingError:
        write(audit_line(client, {"operation": OPERATIONS.get(op, "multiOperation"), "result": "failure"}))
        return
    if op != OpCode.MULTI:
        write(line(client, op, request, result))
        return
    for each, part in operations:
        if each in OPERATIONS:
            write(line(client, each, part, result))


def line(client: ClientConnection, op: int, request: Any, result: str) -> str:
    """Return the line of one operation."""
    fields = {"operation": OPERATIONS[op]}
    path = getattr(request, "path", None)
    if path is not None:
        fields["znode"] = path
    if OPERATIONS[op] == "create":
        fields["znode_type"] = _type(request.flags)
    if op == OpCode.SET_ACL:
        acl = request.acl or ()
        fields["acl"] = ",".join(f"{each.id.scheme}:{each.id.id}:{int(each.perms)}" for each in acl)
    return audit_line(client, {**fields, "result": result})


def audit_line(client: ClientConnection, fields: dict[str, str]) -> str:
    """Return a line about a client."""
    named = [identity for identity in client.ids if identity.scheme != "ip"]
    users = ",".join((identity.id or "").partition(":")[0] for identity in named) or client.host  # without the hash
    known = {"session": f"0x{client.session_id:x}", "user": users, "ip": client.host}
    return "\t".join(f"{name}={_printable(value)}" for name, value in (known | fields).items())


def _type(flags: int) -> str:
    """Return the type of a new node, as ZooKeeper names it."""
    if flags == CreateMode.CONTAINER:
        return "container"
    names = ["ephemeral" if flags in EPHEMERAL_MODES else "persistent"]
    names += ["sequential"] * (flags in SEQUENTIAL_MODES) + ["with_ttl"] * (flags in TTL_MODES)
    return "_".join(names)


def _printable(text: str) -> str:
    """Return a text that adds neither a field nor a line."""
    text = text if len(text) <= 1000 else text[:1000] + "..."
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
