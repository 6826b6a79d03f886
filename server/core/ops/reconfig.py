"""Reconfiguration, as far as a single server can support it.

With ``reconfigEnabled`` a server answers like the only voter of an ensemble: observers can be added and removed,
``/zookeeper/config`` lists the members, and a change that needs a second voter is rejected. It has no other effect, and
no other server is ever contacted.

Source: PrepRequestProcessor.pRequest2Txn (case reconfig), QuorumPeer.QuorumServer, QuorumMaj.toString.
"""

from __future__ import annotations

import re
from contextlib import suppress

from ....protocol.enums import Perm
from ....protocol.errors import (
    BadArgumentsError,
    BadVersionError,
    MarshallingError,
    NewConfigNoQuorumError,
    ReconfigDisabledError,
)
from ....protocol.members import MemberLine, Members, encode_config, parse_config, voters_of
from ....protocol.operations import OpCode
from ....protocol.paths import CONFIG
from ....protocol.txns import SetDataTxn
from ..client_connection import ClientConnection
from ..state import ServerState
from .dispatch import Outcome, data_and_stat_reply, writes
from .writes import log, replace_data


@writes({OpCode.RECONFIG: data_and_stat_reply})
def reconfig(
    state: ServerState,
    client: ClientConnection,
    op: int,
    joining: str | None,
    leaving: str | None,
    new_members: str | None,
    expected: int,
) -> Outcome:
    """Change the members. The last check is for WRITE permission on ``/zookeeper/config``."""
    if not state.settings.reconfig_enabled:
        raise ReconfigDisabledError(CONFIG)
    node = state.tree.find(CONFIG)
    members, version = parse_config(node.data)
    if expected not in (-1, version):
        raise BadVersionError(CONFIG, f"expected configuration {expected:x}, found {version:x}")
    before = voters_of(members)
    if new_members is not None:
        members = dict(_member(line) for line in re.split("[,\n]", new_members) if line.strip())
    else:
        members = _changed(members, joining, leaving)
    voters, least = voters_of(members), min(len(before), 2)
    if len(voters) < least:
        raise BadArgumentsError(CONFIG, f"the new configuration has {len(voters)} participants; it needs {least}")
    if not state.has_quorum(voters):
        raise NewConfigNoQuorumError(CONFIG, "no quorum of the participants can be reached")
    state.acls.check(node.acl, client, Perm.WRITE, CONFIG)
    data = encode_config(members, state.zxid)
    replace_data(state, CONFIG, node, data, -1)
    state.add_detail(data.decode())
    if state.record is not None:
        log(state, client, op, SetDataTxn(CONFIG, data, -1))
    return CONFIG, node


def _changed(members: Members, joining: str | None, leaving: str | None) -> Members:
    members = dict(members)
    for number in _parts(leaving):
        if not re.fullmatch("[0-9]{1,18}", number):
            raise MarshallingError(CONFIG, f"invalid server number {number!r}")
        members.pop(int(number), None)
    owners = {spec: number_ for number_, spec in members.items()}
    for line in _parts(joining):
        number_, spec = _member(line)
        if owners.setdefault(spec, number_) != number_:
            raise BadArgumentsError(CONFIG, f"the addresses of {line!r} belong to a different server")
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
    name, _, spec = line.partition("=")
    number = re.fullmatch(r"(?:.*\.)?(\d{1,18})", name.strip())
    with suppress(ValueError):
        member = MemberLine.parse(spec.strip())
        if number is not None and member.port is not None and not member.rest:
            return int(number[1]), f"{member.quorum}:{member.role};{member.host or '0.0.0.0'}:{member.port}"
    raise BadArgumentsError(CONFIG, f"expected server.N=host:port:port[:role];[host:]port, found {line!r}")
