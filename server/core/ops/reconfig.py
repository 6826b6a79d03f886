"""Reconfiguration, as far as a single server can support it.

With ``reconfigEnabled`` a server answers as the only voter of an ensemble: observers can be added and removed,
``/zookeeper/config`` lists the members, and a change that would need another voter is refused. It has no other effect:
no other server is ever contacted.

Source: PrepRequestProcessor.pRequest2Txn, case reconfig; QuorumPeer.QuorumServer; QuorumMaj.toString.
"""

from __future__ import annotations

import re

from zoolet.protocol import records as r
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import (
    BadArgumentsError,
    BadVersionError,
    NewConfigNoQuorumError,
    ReconfigDisabledError,
)
from zoolet.protocol.operations import OpCode
from zoolet.protocol.paths import CONFIG
from zoolet.protocol.txns import SetDataTxn
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.node import Node
from zoolet.server.core.ops.dispatch import Prepared, prepares
from zoolet.server.core.state import ServerState

_SPEC = re.compile(
    r"(?P<quorum>\[[^\]]+\]:\d+:\d+|[^:;\[\]]+:\d+:\d+)(?::(?P<role>participant|observer))?;(?:(?P<host>\[[^\]]+\]|[^:;\[\]]*):)?(?P<port>\d+)"
)

Members = dict[int, str]


def reply_config(txn: SetDataTxn, node: Node) -> bytes:
    """Return the new configuration and the Stat of its node."""
    return node.encoded_data() + node.stat()


@prepares({OpCode.RECONFIG: reply_config})
def prepare_reconfig(state: ServerState, client: ClientConnection, request: r.ReconfigRequest) -> Prepared[SetDataTxn]:
    """Check a change of the members; the last check is for WRITE permission on ``/zookeeper/config``."""
    if not state.settings.reconfig_enabled:
        raise ReconfigDisabledError(CONFIG)
    node = state.tree.find(CONFIG)
    members, version = parse_config(node.data)
    if request.curConfigId not in (-1, version):
        raise BadVersionError(CONFIG, f"expected configuration {request.curConfigId:x}, found {version:x}")
    if request.newMembers is not None:
        members = dict(_member(line) for line in re.split("[,\n]", request.newMembers) if line.strip())
    else:
        members = _changed(members, request.joiningServers, request.leavingServers)
    voters = voters_of(members)
    if not voters:
        raise BadArgumentsError(CONFIG, "the new configuration must have at least one participant")
    if not state.has_quorum(voters):
        raise NewConfigNoQuorumError(CONFIG, "most of the participants cannot be reached")
    state.acls.check(node.acl, client, Perm.WRITE, CONFIG)
    return SetDataTxn(CONFIG, encode_config(members, state.zxid), -1), node


def voters_of(members: Members) -> list[int]:
    """Return the numbers of the members that vote."""
    return [number for number, spec in members.items() if ":observer" not in spec]


def _changed(members: Members, joining: str | None, leaving: str | None) -> Members:
    members = dict(members)
    for number in _parts(leaving):
        if not re.fullmatch("[0-9]{1,18}", number):
            raise BadArgumentsError(CONFIG, f"not a server number: {number!r}")
        members.pop(int(number), None)
    owners = {spec: number_ for number_, spec in members.items()}
    for line in _parts(joining):
        number_, spec = _member(line)
        if owners.setdefault(spec, number_) != number_:
            raise BadArgumentsError(CONFIG, f"the addresses of {line!r} are another server's")
        if (before := members.get(number_)) is not None and before != spec:
            del owners[before]
        members[number_] = spec
    return members


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _member(line: str) -> tuple[int, str]:
    """Parse ``server.N=host:port:port[:role];[host:]port``.

    Raises:
        BadArgumentsError: The line is not of that form.
    """
    name, equals, spec = line.partition("=")
    number = re.fullmatch(r"(?:.*\.)?(\d{1,18})", name.strip())
    match = _SPEC.fullmatch(spec.strip())
    if not equals or number is None or match is None:
        raise BadArgumentsError(CONFIG, f"not of the form server.N=host:port:port[:role];[host:]port: {line!r}")
    role, host = match["role"] or "participant", match["host"] or "0.0.0.0"
    return int(number[1]), f"{match['quorum']}:{role};{host}:{match['port']}"


def encode_config(members: Members, version: int) -> bytes:
    """Return the data of ``/zookeeper/config``; the last line is the version, in hexadecimal."""
    return (
        "".join(f"server.{number}={spec}\n" for number, spec in sorted(members.items())).encode()
        + b"version=%x" % version
    )


def parse_config(data: bytes | None) -> tuple[Members, int]:
    """Parse the data of ``/zookeeper/config``; return the members and the version."""
    members: Members = {}
    version = 0
    for line in (data or b"").decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name == "version" and re.fullmatch("[0-9a-f]{1,16}", value):
            version = int(value, 16)
        elif name.startswith("server.") and name[7:].isdecimal():
            members[int(name[7:])] = value
    return members, version
