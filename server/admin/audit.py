"""The audit log, with a line for each write, its user and its result, in ZooKeeper's format.

The handlers of writes are wrapped in the dispatch table, so a server without an audit log does no additional work. A
transaction writes one line for each operation. The end of a session writes one line for each ephemeral node.

Source: AuditHelper, AuditEvent, Slf4jAuditLogger, DataTree.deleteNodes, ZKAuditProvider.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple

from ...protocol import multi as wire
from ...protocol import operations as rows
from ...protocol.acl import name_without_hash
from ...protocol.enums import EPHEMERAL_MODES, SEQUENTIAL_MODES, TTL_MODES, CreateMode
from ...protocol.errors import MarshallingError, ZooKeeperError
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OpCode
from ..core.client_connection import ClientConnection
from ..core.engine import Engine
from ..core.ops.dispatch import Dispatch, DispatchTuple, late_decoder
from ..core.state import ServerState

_NAMES_BY_CHANGE: Final = {"create": "create", "delete": "delete", "set": "setData", "acl": "setAcl"}
OPERATIONS: Final[dict[int, str]] = {
    op: row.name if op == OpCode.RECONFIG else _NAMES_BY_CHANGE[row.changes]
    for op, row in rows.OPERATIONS.items()
    if row.changes in _NAMES_BY_CHANGE
}
"""The names of the audited operations in ZooKeeper, by op code."""
EPHEMERAL_DELETED: Final = "ephemeralZNodeDeletionOnSessionCloseOrExpire"
"""The name of the operation that deletes an ephemeral node of a closed or expired session.

Source: AuditConstants.
"""
RECORD_CHARACTERS: Final = 30_000
"""Lines are joined into one log record up to this number of characters, because a record takes as long as ten lines."""
WriteLines = Callable[[str], object]
"""A function that receives a line, or several lines that are separated by ``\\n``."""


class Audited(NamedTuple):
    """A request and its bytes. The audit log decodes the bytes if the server has rejected the request without doing so.

    Args:
        request: The decoded request; None if the server rejects the request without decoding it.
        span: The bytes of the request: buffer, start and end.
    """

    request: Any
    span: tuple[bytes, int, int]

    @property
    def path(self) -> str | None:
        """The path of the request; None if it has no path."""
        return getattr(self.request, "path", None)


def audited_table(table: Dispatch, write: WriteLines) -> Dispatch:
    """Return a copy of a dispatch table whose handlers of writes also write lines of the audit log."""
    return table | {
        op: _audited_entry(op, table[op], table, write) for op in table if op in OPERATIONS or op == OpCode.MULTI
    }


def audit_sessions(engine: Engine, write: WriteLines) -> None:
    """Make an engine write a line for each ephemeral node that is deleted with its session."""
    before = engine.on_session

    def on_session(what: str, session_id: int, client: ClientConnection | None) -> None:
        if before is not None:
            before(what, session_id, client)
        if what in ("closed", "expired"):  # the nodes are deleted after this call
            start = server_line(EPHEMERAL_DELETED, "", session=hexadecimal(session_id))
            owned = engine.tree.ephemerals.get(session_id, ())
            _write_lines(write, (f"{start}\tznode={_make_printable(path)}\tresult=success" for path in owned))

    engine.on_session = on_session


def _audited_entry(op: int, entry: DispatchTuple, table: Dispatch, write: WriteLines) -> Any:
    _, handle, costly, _ = entry

    inner = late_decoder(table, op)

    def decode(buf: bytes, offset: int, end: int) -> Audited:
        return Audited(inner(buf, offset, end), (buf, offset, end))

    def audited_handle(state: ServerState, client: ClientConnection, audited: Audited) -> bytes:
        decoded, span = audited
        try:
            body = handle(state, client, decoded)
        except ZooKeeperError:
            _write_request(write, client, op, decoded, span, "failure", state.settings.max_multi_operations)
            raise
        result = "failure" if op == OpCode.MULTI and _has_failed(body) else "success"
        _write_request(write, client, op, decoded, span, result, state.settings.max_multi_operations)
        return body

    return decode, audited_handle, costly, None


def _has_failed(body: bytes) -> bool:
    return body[:4] == b"\xff\xff\xff\xff" and body[4:5] == b"\0"  # if the first result is an error, all results are


def _write_request(
    write: WriteLines,
    client: ClientConnection,
    op: int,
    request: Any,
    span: tuple[bytes, int, int],
    result: str,
    limit: int,
) -> None:
    kind = rows.OPERATIONS[op].request
    operations: list[tuple[OpCode, Any]] | None = None
    with suppress(MarshallingError):
        if request is None and kind is not None and op != OpCode.MULTI:  # the server rejected the undecoded request
            request = kind.decode(*span)
        operations = [*wire.read_operations(*span)] if op == OpCode.MULTI else [(OpCode(op), request)]
    if operations is None or (op == OpCode.MULTI and len(operations) > limit):  # the whole request was rejected
        write(audit_line(client, {"operation": OPERATIONS.get(op, "multiOperation"), "result": "failure"}))
        return
    start = _client_fields(client)
    lines = (f"{start}\t{_operation_fields(each, part, result)}" for each, part in operations if each in OPERATIONS)
    _write_lines(write, lines)


def _write_lines(write: WriteLines, lines: Iterable[str]) -> None:
    together, size = [], 0
    for line in lines:
        together.append(line)
        size += len(line)
        if size >= RECORD_CHARACTERS:
            write("\n".join(together))
            together, size = [], 0
    if together:
        write("\n".join(together))


def _operation_fields(op: int, request: Any, result: str) -> str:
    """Return the fields of a line that describe one operation and its result."""
    fields = {"operation": OPERATIONS[op]}
    path = getattr(request, "path", None)
    if path is not None:
        fields["znode"] = path
    if OPERATIONS[op] == "create":
        fields["znode_type"] = _node_type(request.flags)
    if op == OpCode.SET_ACL:
        acl = request.acl or ()
        fields["acl"] = ",".join(f"{each.id.scheme}:{each.id.id}:{int(each.perms)}" for each in acl)
    return _join_fields({**fields, "result": result})


def _client_fields(client: ClientConnection) -> str:
    """Return the fields of a line that describe a client: session, users and address."""
    named = [identity for identity in client.ids if identity.scheme != "ip"]
    users = ",".join(map(name_without_hash, named)) or client.host
    return _join_fields({"session": hexadecimal(client.session_id), "user": users, "ip": client.host})


def audit_line(client: ClientConnection, fields: dict[str, str]) -> str:
    """Return the line for an operation of a client."""
    return f"{_client_fields(client)}\t{_join_fields(fields)}"


def server_line(operation: str, result: str, *, session: str = "") -> str:
    """Return a line about an operation of the server itself, with the user of its process."""
    fields = {"session": session, "user": _own_user(), "operation": operation, "result": result}
    return _join_fields({name: value for name, value in fields.items() if value})


@cache
def _own_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        return str(os.getuid())


def _join_fields(fields: dict[str, str]) -> str:
    return "\t".join(f"{name}={_make_printable(value)}" for name, value in fields.items())


def _node_type(flags: int) -> str:
    """Return ZooKeeper's name for the type of a new node."""
    if flags == CreateMode.CONTAINER:
        return "container"
    names = ["ephemeral" if flags in EPHEMERAL_MODES else "persistent"]
    names += ["sequential"] * (flags in SEQUENTIAL_MODES) + ["with_ttl"] * (flags in TTL_MODES)
    return "_".join(names)


def _make_printable(text: str) -> str:
    """Return a text, escaped and truncated to 1,000 characters, so it cannot add fields or lines."""
    shown = text[:1001]
    if not shown.isprintable():
        shown = shown.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= 1000 else shown[:1000] + "..."
