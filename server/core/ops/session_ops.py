"""The beginning and end of sessions, and who a connection is.

Source: DataTree.processTxn, cases createSession and closeSession; NIOServerCnxn, ZooKeeperServer.processPacket, case
    auth.
"""

from __future__ import annotations

import hmac
from typing import Final

from zoolet.protocol.acl import Id, digest_id
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.records import AuthPacket
from zoolet.protocol.sasl import SaslFailure
from zoolet.protocol.txns import CloseSessionTxn, CreateSessionTxn, DeleteTxn
from zoolet.server.core.client_connection import ClientConnection, Session
from zoolet.server.core.ops.dispatch import applies
from zoolet.server.core.ops.writes import apply_delete
from zoolet.server.core.sasl import DigestMd5, brief
from zoolet.server.core.state import ServerState


@applies(CreateSessionTxn)
def apply_create_session(state: ServerState, txn: CreateSessionTxn, session_id: int) -> Session:
    """Make the session."""
    return state.sessions.open(session_id, txn.timeOut, state.monotonic_ms)


@applies(CloseSessionTxn)
def apply_close_session(state: ServerState, txn: CloseSessionTxn, session_id: int) -> None:
    """Remove the session's ephemeral nodes, telling those who watch, and the session."""
    for path in txn.paths2Delete:
        apply_delete(state, DeleteTxn(path), session_id)
    state.sessions.close(state.sessions.alive[session_id])


MAX_CREDENTIALS: Final = 4096
"""Bytes of ``user:password``; the user is kept with the connection, and with every ACL that it makes with ``auth``."""


def authenticate(state: ServerState, client: ClientConnection, packet: AuthPacket) -> bool:
    """Add the identity that an auth packet proves; return whether it proves one.

    A connection may have ``max_identities``; one more counts as a failure, and so do more than 4,096 bytes.

    Source: ZooKeeperServer.processPacket; the handleAuthentication of each provider.
    """
    settings = state.settings
    if packet.scheme == "ip":
        client.add_id("ip", client.host)
        return True
    if (
        packet.scheme == "digest"
        and packet.auth is not None
        and len(packet.auth) <= MAX_CREDENTIALS
        and settings.digest_enabled
    ):
        name = digest_id(packet.auth, settings.digest_algorithm)
        if len(client.ids) >= settings.max_identities and Id("digest", name) not in client.ids:
            state.metrics.refuse("identities")
            state.warnings.warn(
                "identities", "%s:%d has %d identities already", client.host, client.port, len(client.ids)
            )
            return False
        if settings.super_digest is not None and hmac.compare_digest(name.encode(), settings.super_digest.encode()):
            super_login(state, client, "digest")
        client.add_id("digest", name)
        return True
    state.warnings.warn(
        f"auth {client.host}",
        "failed login of %s:%d: scheme %s proves nothing here",
        client.host,
        client.port,
        brief(packet.scheme or ""),
    )
    return False


def super_login(state: ServerState, client: ClientConnection, scheme: str) -> None:
    """Return a connection the rights of the super user; this is logged and counted."""
    client.add_id("super", "")
    state.metrics.super_logins += 1
    state.warnings.warn(
        f"super {client.host}", "%s:%d has logged in as the super user, by %s", client.host, client.port, scheme
    )


def sasl_step(state: ServerState, client: ClientConnection, token: bytes) -> tuple[bytes | None, int]:
    """Take one step of a SASL exchange.

    Returns:
        The token to answer with, and an error code or 0; an error ends the connection.

    Source: ZooKeeperServer.processSasl.
    """
    settings = state.settings
    if settings.sasl_users is None:
        return None, ErrorCode.OK
    if client.sasl is None:
        client.sasl = DigestMd5(settings.sasl_users, state.rng)
    try:
        answer = client.sasl.step(token)
    except SaslFailure as failure:
        state.metrics.auth_failed += 1
        client.sasl = None  # another try needs another nonce
        state.warnings.warn(f"sasl {client.host}", "failed SASL login of %s:%d: %s", client.host, client.port, failure)
        if settings.allow_failed_sasl:
            return None, ErrorCode.OK
        return None, ErrorCode.SESSION_CLOSED_REQUIRE_AUTH if "sasl" in settings.require_auth else ErrorCode.AUTH_FAILED
    if client.sasl.user is not None:
        client.add_id("sasl", client.sasl.user)
        if client.sasl.user in settings.super_users:
            super_login(state, client, "SASL")
    return answer, ErrorCode.OK
