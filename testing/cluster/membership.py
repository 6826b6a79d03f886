"""The list of members in ``/zookeeper/config``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...protocol.members import encode_config
from ...protocol.paths import CONFIG
from ...protocol.txns import SetDataTxn
from ...server.core.engine import Engine
from .member import Member

FIRST_ZXID: Final = 1 << 32
"""The first zxid of the first epoch."""


def _member_line(member: Member) -> str:
    # The first two ports are for traffic between members, which needs no ports here.
    return f"{member.address}:{member.port}:{member.role};{member.address}"


def _config_text(members: Iterable[Member], version: int) -> bytes:
    return encode_config({member.number: _member_line(member) for member in members}, version)


def write_config(members: Iterable[Member], engines: Iterable[Engine]) -> None:
    """Write the list of members into every engine if ``reconfigEnabled`` is set, as when an ensemble starts.

    Its version is the first zxid of the first epoch, as if the first leader had written it.
    """
    for engine in engines:
        if engine.settings.reconfig_enabled:
            node = engine.tree.find(CONFIG)
            engine.tree.set_data(node, _config_text(members, FIRST_ZXID), -1, FIRST_ZXID, node.mtime)


def reconfigure(members: Iterable[Member], leading: Engine) -> None:
    """Write the members as a transaction of the preparing engine, if ``reconfigEnabled`` is set."""
    if leading.settings.reconfig_enabled:
        leading.zxid += 1
        leading.apply(SetDataTxn(CONFIG, _config_text(members, leading.zxid), -1), 0)
