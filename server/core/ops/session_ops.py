"""The operations that create and close sessions, and authentication.

Source: DataTree.processTxn (cases createSession and closeSession), NIOServerCnxn, ZooKeeperServer.processPacket (case
    auth).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....protocol.acl import Id, digest_id
from ....protocol.errors import ErrorCode
from ....protocol.operations import OpCode
from ....protocol.records import AuthPacket, GetSASLRequest, SetSASLResponse
from ....protocol.txns import CloseSessionTxn, CreateSessionTxn
from ..client_connection import ClientConnection, Session
from ..state import ServerState
from ..warnings import quoted_name
from .dispatch import applies
from .writes import finish_delete


@applies(CreateSessionTxn)
def apply_create_session(state: ServerState, txn: CreateSessionTxn, session_id: int) -> Session:
    """Open the session of a transaction record."""
    return state.sessions.open(session_id, txn.timeOut, state.monotonic_ms)


@applies(CloseSessionTxn)
def apply_close_session(state: ServerState, txn: CloseSessionTxn, session_id: int) -> None:
    """Close a session.

    Delete its ephemeral nodes, fire the watches on them and their parents, and count the deletes.
    """
    tree, paths = state.tree, txn.paths2Delete
    if paths:
        nodes, parents = tree.delete_owned(paths, session_id, state.zxid)
        affected_paths = state.watches.affected_paths(paths, parents) if state.watches.active else set[str]()
        if state.quota.active:
            affected_paths |= state.quota.affected_paths(paths, parents)
        if affected_paths or any([node.acl for node in nodes]):
            for path, node in zip(paths, nodes, strict=True):
                if node.acl or path in affected_paths:
                    finish_delete(state, path, node, tree.parent_of(path))
    tree.ephemerals.pop(session_id, None)
    state.sessions.close(state.sessions.alive[session_id])


MAX_CREDENTIALS: Final = 4096
"""Maximum size of ``user:password`` in bytes. Connections and ACL lists keep the user name in memory."""


def authenticate(state: ServerState, client: ClientConnection, packet: AuthPacket) -> bool:
    """Add the identity of an auth packet to a connection. Return whether the login succeeded.

    A login fails if the scheme is unknown or disabled, if the credentials are null or have more than 4,096 bytes, or if
    the connection would have more than ``max_identities`` identities. A login with scheme ``x509`` fails if the client
    has no certificate. A login with a wrong password for the super user succeeds, but only adds an ordinary identity,
    as in ZooKeeper.

    Source: ZooKeeperServer.processPacket, and handleAuthentication of each provider.
    """
    settings = state.settings
    if packet.scheme == "x509":  # the identity was added when the certificate was verified
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
            state.metrics.count_refusal("identities")
            reason = "refusing a login from %s: it already has %d identities (zoolet.maxIdentities)"
            state.warnings.warn("identities", reason, client.address, len(client.ids))
            return False
        if settings.super_digest is not None:
            from hmac import compare_digest

            if compare_digest(name.encode(), settings.super_digest.encode()):
                log_in_super_user(state, client, "digest")
            elif name.partition(":")[0] == settings.super_digest.partition(":")[0]:
                # The client may be guessing the password. As in ZooKeeper, it still receives an ordinary identity.
                state.metrics.auth_failed += 1
                text = "wrong password for the super user from %s"
                state.warnings.warn(f"super {client.host}", text, client.address)
        client.add_id("digest", name)
        return True
    state.warnings.warn(
        f"auth {client.host}",
        "failed login from %s with scheme %s",
        client.address,
        quoted_name(packet.scheme or ""),
    )
    return False


def log_in_by_certificate(state: ServerState, client: ClientConnection, name: str) -> None:
    """Add the identity of a client's verified certificate. The certificate may also identify the super user.

    Args:
        state: The server's state.
        client: The connection.
        name: Distinguished name of the certificate's subject.

    Source: X509AuthenticationProvider.handleAuthentication.
    """
    if name == state.settings.x509_super:
        log_in_super_user(state, client, "x509", name)
    client.add_id("x509", name)


def log_in_super_user(state: ServerState, client: ClientConnection, scheme: str, name: str = "") -> None:
    """Add the super user's identity to a connection, log the login and count it."""
    client.add_id("super", name)
    state.metrics.super_logins += 1
    state.warnings.warn(f"super {client.host}", "%s logged in as the super user with scheme %s", client.address, scheme)


def auth_step(state: ServerState, client: ClientConnection, buf: bytes, offset: int, end: int) -> tuple[bytes, int]:
    """Execute an auth packet. Return the empty body of the reply, and an error code or 0.

    The caller closes the connection after an error.

    Raises:
        MarshallingError: The packet cannot be decoded. The caller closes the connection without a reply.
    """
    if authenticate(state, client, AuthPacket.decode(buf, offset, end)):
        return b"", ErrorCode.OK
    state.metrics.auth_failed += 1
    return b"", ErrorCode.AUTH_FAILED


def sasl_step(state: ServerState, client: ClientConnection, buf: bytes, offset: int, end: int) -> tuple[bytes, int]:
    """Execute one step of a SASL exchange. Return the body of the reply with the next token, and an error code or 0.

    The token is null if SASL is disabled, and after a failed login. The caller closes the connection after an error.

    Raises:
        MarshallingError: The request cannot be decoded. The caller closes the connection without a reply.

    Source: ZooKeeperServer.processSasl.
    """
    answer, error = _sasl_answer(state, client, GetSASLRequest.decode(buf, offset, end).token)
    return SetSASLResponse(answer).encode(), error


LoginStep = Callable[[ServerState, ClientConnection, bytes, int, int], tuple[bytes, int]]
LOGIN_STEPS: Final[dict[int, LoginStep]] = {OpCode.AUTH: auth_step, OpCode.SASL: sasl_step}
"""The functions that execute login requests, by op code. They work even if authentication is required."""


def _sasl_answer(state: ServerState, client: ClientConnection, token: bytes) -> tuple[bytes | None, int]:
    settings = state.settings
    if settings.sasl_users is None:
        return None, ErrorCode.OK
    from ....protocol.sasl import SaslFailure  # imported here, because few servers have SASL users
    from ..sasl import DigestMd5

    if client.sasl is None:
        client.sasl = DigestMd5(settings.sasl_users, state.rng)
    try:
        answer = client.sasl.step(token)
    except SaslFailure as failure:
        state.metrics.auth_failed += 1
        client.sasl = None  # the next attempt needs a new nonce
        state.warnings.warn(f"sasl {client.host}", "failed SASL login from %s: %s", client.address, failure)
        if settings.allow_failed_sasl:
            return None, ErrorCode.OK
        return None, ErrorCode.SESSION_CLOSED_REQUIRE_AUTH if "sasl" in settings.require_auth else ErrorCode.AUTH_FAILED
    if client.sasl.user is not None:
        client.add_id("sasl", client.sasl.user)
        if client.sasl.user in settings.super_users:
            log_in_super_user(state, client, "SASL")
    return answer, ErrorCode.OK
