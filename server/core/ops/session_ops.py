"""Creating and closing sessions, and authentication.

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
def apply_create_session(state: ServerState, txn: CreateSessionTxn, session_id: int, node: object) -> Session:
    """Create the session."""
    return state.sessions.open(session_id, txn.timeOut, state.monotonic_ms)


@applies(CloseSessionTxn)
def apply_close_session(state: ServerState, txn: CloseSessionTxn, session_id: int, node: object) -> None:
    """Delete the session's ephemeral nodes, with events, and the session."""
    for path in txn.paths2Delete:
        apply_delete(state, DeleteTxn(path), session_id, None)
    state.tree.ephemerals.pop(session_id, None)
    state.sessions.close(state.sessions.alive[session_id])


MAX_CREDENTIALS: Final = 4096
"""The most bytes of ``user:password``. The user name is kept with the connection and with its ACLs."""


def authenticate(state: ServerState, client: ClientConnection, packet: AuthPacket) -> bool:
    """Authenticate a connection: add the identity of an auth packet and return True, or return False.

    It fails if the scheme is not supported, the connection has ``max_identities``, or the packet has more than 4,096
    bytes.

    Source: ZooKeeperServer.processPacket; the handleAuthentication of each provider.
    """
    settings = state.settings
    if packet.scheme == "x509":  # the identity came with the certificate
        return "x509" in client.schemes
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
        if settings.super_digest is not None:
            if hmac.compare_digest(name.encode(), settings.super_digest.encode()):
                super_login(state, client, "digest")
            elif name.partition(":")[0] == settings.super_digest.partition(":")[0]:
                # As in ZooKeeper this is an identity like any other; but it is what somebody does who tries passwords.
                state.metrics.auth_failed += 1
                text = "a wrong password of the super user from %s:%d"
                state.warnings.warn(f"super {client.host}", text, client.host, client.port)
        client.add_id("digest", name)
        return True
    state.warnings.warn(
        f"auth {client.host}",
        "failed login of %s:%d with scheme %s",
        client.host,
        client.port,
        brief(packet.scheme or ""),
    )
    return False


def certificate_login(state: ServerState, client: ClientConnection, name: str) -> None:
    """Add the identity of a client's certificate, which has been verified.

    Args:
        state: The server's state.
        client: The connection.
        name: Whose certificate it is, as a distinguished name.

    Source: X509AuthenticationProvider.handleAuthentication.
    """
    if name == state.settings.x509_super:
        super_login(state, client, "x509", name)
    client.add_id("x509", name)


def super_login(state: ServerState, client: ClientConnection, scheme: str, name: str = "") -> None:
    """Add the super user's identity to a connection; this is logged and counted."""
    client.add_id("super", name)
    state.metrics.super_logins += 1
    state.warnings.warn(
        f"super {client.host}", "%s:%d has logged in as the super user, by %s", client.host, client.port, scheme
    )


def sasl_step(state: ServerState, client: ClientConnection, token: bytes) -> tuple[bytes | None, int]:
    """Execute one step of a SASL exchange.

    Returns:
        The token to answer with, and an error code or 0; after an error the connection is closed.

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
        client.sasl = None  # the next attempt needs another nonce
        state.warnings.warn(f"sasl {client.host}", "failed SASL login of %s:%d: %s", client.host, client.port, failure)
        if settings.allow_failed_sasl:
            return None, ErrorCode.OK
        return None, ErrorCode.SESSION_CLOSED_REQUIRE_AUTH if "sasl" in settings.require_auth else ErrorCode.AUTH_FAILED
    if client.sasl.user is not None:
        client.add_id("sasl", client.sasl.user)
        if client.sasl.user in settings.super_users:
            super_login(state, client, "SASL")
    return answer, ErrorCode.OK
