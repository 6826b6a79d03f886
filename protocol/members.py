"""The members of an ensemble, as lines ``server.N=host:port:port[:role][;[host:]port]``.

The lines appear in zoo.cfg, in the file of ``dynamicConfigFile``, in a reconfig request, and in the data of
``/zookeeper/config``. The first two ports are for traffic between members. The address after the semicolon is for
clients.

Source: QuorumPeerConfig.parseDynamicConfig, QuorumServer.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PARTICIPANT: Final = "participant"
OBSERVER: Final = "observer"
LINE_FORM: Final = "host:port:port[:role][;[host:]port]"
_LINE_PATTERN: Final = re.compile(
    r"(?P<quorum>(?:\[[^\]]+\]|[^:;|\[\]]+):\d+:\d+)(?::(?P<role>\w+))?"
    r"(?:;(?:(?P<host>\[[^\]]+\]|[^:;|\[\]]*):)?(?P<port>\d+))?(?P<rest>[;|].*)?"
)

Members = dict[int, str]
"""The values of the ``server.N`` keys by the number N of the member."""


class MemberLine(NamedTuple):
    """The value of one ``server.N`` key.

    Args:
        quorum: Host and ports for traffic between members, as ``host:port:port``.
        role: ``participant`` (the default) or ``observer``.
        host: Host for clients, with the brackets of an IPv6 address; None if the line contains no such host.
        port: Port for clients; None if the line contains no such port.
        rest: The remaining text, such as further addresses after ``|``.
    """

    quorum: str
    role: str
    host: str | None
    port: str | None
    rest: str

    @classmethod
    def parse(cls, text: str) -> MemberLine:
        """Parse the value of a ``server.N`` key.

        Raises:
            ValueError: The value is not of the form ``host:port:port[:role][;[host:]port]``, or the role is unknown.
        """
        match = _LINE_PATTERN.fullmatch(text)
        role = ((match and match["role"]) or PARTICIPANT).lower()
        if match is None or role not in (PARTICIPANT, OBSERVER):
            raise ValueError(f"expected {LINE_FORM}, found {text!r}")
        return cls(match["quorum"], role, match["host"] or None, match["port"], match["rest"] or "")


def voter_numbers(members: Members) -> list[int]:
    """Return the numbers of the members that vote: all except observers."""
    return [number for number, line in members.items() if not re.search(r":observer(;|$)", line)]


def encode_config(members: Members, version: int) -> bytes:
    """Return the data of ``/zookeeper/config``: a line for each member, and the version as a hexadecimal number."""
    return (
        "".join(f"server.{number}={line}\n" for number, line in sorted(members.items())).encode()
        + b"version=%x" % version
    )


def parse_config(data: bytes | None) -> tuple[Members, int]:
    """Return the members and the version in the data of ``/zookeeper/config``. Malformed lines are ignored."""
    members: Members = {}
    version = 0
    for line in (data or b"").decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name == "version" and re.fullmatch("[0-9a-f]{1,16}", value):
            version = int(value, 16)
        elif name.startswith("server.") and name[7:].isdecimal():
            members[int(name[7:])] = value
    return members, version
