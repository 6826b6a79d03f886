"""Reconfiguration, as far as a single server can support it.

With ``reconfigEnabled``, a server answers like the only voter of an ensemble: clients can add and remove observers,
``/zookeeper/config`` lists the members, and a change that needs a second voter is rejected. A reconfiguration has no
other effect, and the server contacts no other server.

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
from ....protocol.members import MemberLine, Members, encode_config, parse_config, voter_numbers
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
    """Change the members that ``/zookeeper/config`` lists. The checks are in the order of the errors below.

    Args:
        state: The state of the server.
        client: The connection that sent the request.
        op: The op code.
        joining: Members to add or change, as comma-separated ``server.N=...`` lines.
        leaving: Comma-separated numbers of members to remove.
        new_members: The complete new list of members, in place of *joining* and *leaving*; None for a relative change.
        expected: The version that the configuration must have; -1 for any version.

    Raises:
        ReconfigDisabledError: ``reconfig_enabled`` is off.
        BadVersionError: The version of the configuration is not *expected*.
        BadArgumentsError: A line is malformed, an address belongs to a different member, or too few voters remain.
        MarshallingError: An entry of *leaving* is not a number.
        NewConfigNoQuorumError: No quorum of the new voters can be reached.
        NoAuthError: The client has no WRITE permission on ``/zookeeper/config``.
    """
    if not state.settings.reconfig_enabled:
        raise ReconfigDisabledError(CONFIG)
    node = state.tree.find(CONFIG)
    members, version = parse_config(node.data)
    if expected not in (-1, version):
        raise BadVersionError(CONFIG, f"expected configuration {expected:x}, found {version:x}")
    before = voter_numbers(members)
    if new_members is not None:
        members = dict(_parse_member(line) for line in re.split("[,\n]", new_members) if line.strip())
    else:
        members = _change_members(members, joining, leaving)
    voters, least = voter_numbers(members), min(len(before), 2)
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


def _change_members(members: Members, joining: str | None, leaving: str | None) -> Members:
    members = dict(members)
    for number in _split_list(leaving):
        if not re.fullmatch("[0-9]{1,18}", number):
            raise MarshallingError(CONFIG, f"invalid server number {number!r}")
        members.pop(int(number), None)
    owners = {spec: number_ for number_, spec in members.items()}
    for line in _split_list(joining):
        number_, spec = _parse_member(line)
        if owners.setdefault(spec, number_) != number_:
            raise BadArgumentsError(CONFIG, f"the addresses of {line!r} belong to a different server")
        if (before := members.get(number_)) is not None and before != spec:
            del owners[before]
        members[number_] = spec
    return members


def _split_list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _parse_member(line: str) -> tuple[int, str]:
    """Parse ``server.N=host:port:port[:role];[host:]port``.

    Raises:
        BadArgumentsError: The line does not have this form.
    """
    name, _, spec = line.partition("=")
    number = re.fullmatch(r"(?:.*\.)?(\d{1,18})", name.strip())
    with suppress(ValueError):
        member = MemberLine.parse(spec.strip())
        if number is not None and member.port is not None and not member.rest:
            return int(number[1]), f"{member.quorum}:{member.role};{member.host or '0.0.0.0'}:{member.port}"
    raise BadArgumentsError(CONFIG, f"expected server.N=host:port:port[:role];[host:]port, found {line!r}")
