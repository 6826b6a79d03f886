"""The members, as ``/zookeeper/config`` says it."""

from __future__ import annotations

from collections.abc import Iterable

from zoolet.protocol.paths import CONFIG
from zoolet.protocol.txns import SetDataTxn
from zoolet.server.core.engine import Engine
from zoolet.server.core.ops.reconfig import encode_config
from zoolet.server.testing.cluster.member import Member


def _line_of(member: Member) -> str:
    # The first two ports are for members among each other, which need none here.
    return f"{member.address}:{member.port}:{member.role};{member.address}"


def _config_of(members: Iterable[Member], version: int) -> bytes:
    return encode_config({member.number: _line_of(member) for member in members}, version)


def write_config(members: Iterable[Member], engines: Iterable[Engine]) -> None:
    """Write the members into every engine, as at the start of an ensemble, if its configuration has that."""
    for engine in engines:
        if engine.settings.reconfig_enabled:
            engine.write_config(_config_of(members, 0))


def reconfigure(members: Iterable[Member], leading: Engine) -> None:
    """Write the members, as a transaction of the engine that prepares."""
    if leading.settings.reconfig_enabled:
        leading.zxid += 1
        leading.apply(SetDataTxn(CONFIG, _config_of(members, leading.zxid), -1), 0)
