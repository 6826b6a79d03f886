"""The beginning and end of sessions, and who a connection is.

Source: DataTree.processTxn, cases createSession and closeSession; NIOServerCnxn, ZooKeeperServer.processPacket, case
    auth.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from zoolet.protocol.acl import Id, digest_id
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.records import AuthPacket
from zoolet.protocol.sasl import SaslFailure
from zoolet.protocol.txns import CloseSessionTxn, CreateSessionTxn, DeleteTxn
from zoolet.server.core.ops.registry import applies
from zoolet.server.core.ops.writes import apply_delete
from zoolet.server.core.sasl import DigestMd5, brief
from zoolet.server.core.sessions import Session

if TYPE_CHECKING:
    from zoolet.server.core.caller import Caller
    from zoolet.server.core.engine import Engine


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


MAX_CREDENTIALS: Final = 4096
"""Bytes of ``user:password``; the user is kept with the connection, and with every ACL that it makes with ``auth``."""


def authenticate(engine: Engine, caller: Caller, packet: AuthPacket) -> bool:
    """Add the identity that an auth packet proves; return whether it proves one.

    A connection may have ``max_identities``; one more counts as a failure, and so do more than 4,096 bytes.

    Source: ZooKeeperServer.processPacket; the handleAuthentication of each provider.
    """
    settings = engine.settings
    if packet.scheme == "ip":
        caller.add_id("ip", caller.host)
        return True
    if (
        packet.scheme == "digest"
        and packet.auth is not None
        and len(packet.auth) <= MAX_CREDENTIALS
        and settings.digest_enabled
    ):
        name = digest_id(packet.auth, settings.digest_algorithm)
        if len(caller.ids) >= settings.max_identities and Id("digest", name) not in caller.ids:
            engine.metrics.refuse("identities")
            engine.warnings.warn(
                "identities", "%s:%d has %d identities already", caller.host, caller.port, len(caller.ids)
            )
            return False
        if settings.super_digest is not None and hmac.compare_digest(name.encode(), settings.super_digest.encode()):
            super_login(engine, caller, "digest")
        caller.add_id("digest", name)
        return True
    engine.warnings.warn(
        f"auth {caller.host}",
        "failed login of %s:%d: scheme %s proves nothing here",
        caller.host,
        caller.port,
        brief(packet.scheme or ""),
    )
    return False


def super_login(engine: Engine, caller: Caller, scheme: str) -> None:
    """Give a connection the rights of the super user; this is logged and counted."""
    caller.add_id("super", "")
    engine.metrics.super_logins += 1
    engine.warnings.warn(
        f"super {caller.host}", "%s:%d has logged in as the super user, by %s", caller.host, caller.port, scheme
    )


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
        engine.metrics.auth_failed += 1
        caller.sasl = None  # another try needs another nonce
        engine.warnings.warn(f"sasl {caller.host}", "failed SASL login of %s:%d: %s", caller.host, caller.port, failure)
        if settings.allow_failed_sasl:
            return None, ErrorCode.OK
        return None, ErrorCode.SESSION_CLOSED_REQUIRE_AUTH if "sasl" in settings.require_auth else ErrorCode.AUTH_FAILED
    if caller.sasl.user is not None:
        caller.add_id("sasl", caller.sasl.user)
        if caller.sasl.user in settings.super_users:
            super_login(engine, caller, "SASL")
    return answer, ErrorCode.OK
