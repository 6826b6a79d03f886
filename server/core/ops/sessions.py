"""The beginning and end of sessions, and who a connection is.

Source: DataTree.processTxn, cases createSession and closeSession; NIOServerCnxn, ZooKeeperServer.processPacket, case
    auth.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from zoolet.protocol.acl import digest_id
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.records import AuthPacket
from zoolet.protocol.sasl import SaslFailure
from zoolet.protocol.txns import CloseSessionTxn, CreateSessionTxn, DeleteTxn
from zoolet.server.core.ops.registry import applies
from zoolet.server.core.ops.writes import apply_delete
from zoolet.server.core.sasl import DigestMd5
from zoolet.server.core.sessions import Session

if TYPE_CHECKING:
    from zoolet.server.core.caller import Caller
    from zoolet.server.core.engine import Engine

_log = logging.getLogger("zoolet.server")


@applies(CreateSessionTxn)
def apply_create_session(engine: Engine, txn: CreateSessionTxn, session_id: int) -> Session:
    """Make the session."""
    return engine.sessions.open(session_id, txn.timeOut, engine.uptime)


@applies(CloseSessionTxn)
def apply_close_session(engine: Engine, txn: CloseSessionTxn, session_id: int) -> None:
    """Remove the session's ephemeral nodes, telling those who watch, and the session."""
    for path in txn.paths2Delete:
        apply_delete(engine, DeleteTxn(path), session_id)
    engine.sessions.close(engine.sessions.alive[session_id])


def authenticate(engine: Engine, caller: Caller, packet: AuthPacket) -> bool:
    """Add the identity that an auth packet proves; say whether it proves one.

    Source: ZooKeeperServer.processPacket; the handleAuthentication of each provider.
    """
    if packet.scheme == "ip":
        caller.add_id("ip", caller.host)
        return True
    if packet.scheme == "digest" and packet.auth is not None:
        name = digest_id(packet.auth, engine.settings.digest_algorithm)
        if name == engine.settings.super_digest:
            caller.add_id("super", "")
        caller.add_id("digest", name)
        return True
    return False


def sasl_step(engine: Engine, caller: Caller, token: bytes) -> tuple[bytes | None, int]:
    """Take one step of a SASL exchange.

    Returns:
        The token to answer with, and an error code or 0; an error ends the connection.

    Source: ZooKeeperServer.processSasl.
    """
    settings = engine.settings
    if settings.sasl_users is None:
        return None, ErrorCode.OK
    if caller.sasl is None:
        caller.sasl = DigestMd5(settings.sasl_users, engine.random)
    try:
        answer = caller.sasl.step(token)
    except SaslFailure as failure:
        _log.warning("SASL login from %s:%d failed: %s", caller.host, caller.port, failure)
        if settings.allow_failed_sasl:
            return None, ErrorCode.OK
        return None, ErrorCode.SESSION_CLOSED_REQUIRE_AUTH if "sasl" in settings.require_auth else ErrorCode.AUTH_FAILED
    if caller.sasl.user is not None:
        caller.add_id("sasl", caller.sasl.user)
        if caller.sasl.user in settings.super_users:
            caller.add_id("super", "")
    return answer, ErrorCode.OK
