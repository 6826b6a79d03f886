"""Texts about connections that fail before the server has answered, with likely causes, and about late resumptions."""

from __future__ import annotations

from typing import Final

CLOSED: Final = "the server closed the connection"
RESET: Final = "the server reset the connection"
NO_QUORUM: Final = "the server is read-only because it has no quorum"
OLD_DATA_WARNING: Final = f"{NO_QUORUM}; its data may be old"
TLS_ALERT: Final = b"\x15\x03"
"""First bytes of the answer of a TLS port to a client without TLS."""


def early_close_reason(reason: str, tls: bool, refuses_read_only: bool = False) -> str:
    """Return the reason for a connection that ended before the first byte of an answer, with the likely causes.

    Args:
        reason: :data:`CLOSED` or :data:`RESET`.
        tls: Whether the client uses TLS.
        refuses_read_only: Whether the client refuses a read-only server, which then closes the connection.
    """
    port = "the port is plain or requires a different certificate" if tls else "the port requires TLS"
    causes = ["maxClientCnxns or maxCnxns is reached", port, "a proxy cannot reach its server"]
    if refuses_read_only:
        causes.append(NO_QUORUM)
    return f"{reason} without an answer; possible causes: {', '.join(causes[:-1])}, or {causes[-1]}"


def no_answer_reason(seconds: float, tls: bool) -> str:
    """Return the reason for a connection on which the server did not answer within *seconds*, with likely causes."""
    port = "" if tls else "; the port may require TLS or may not be a ZooKeeper port"
    return f"no answer within {seconds:.3g} s{port}"


def late_resumption_warning(seconds: float) -> str:
    """Return the warning about a session that was resumed *seconds* after the deadline of its leases."""
    return f"the session was resumed {seconds:.3f} s after its timeout had passed; leases may be lost"


def foreign_answer_reason(answer: bytes) -> str:
    """Return the reason for a first answer that does not follow the ZooKeeper protocol."""
    if answer.startswith(TLS_ALERT):
        return "the port requires TLS"
    start = bytes(answer[:40]).partition(b"\r\n")[0]
    is_text = start.isascii() and start.decode("ascii", "replace").isprintable()
    return f"not a ZooKeeper server: received {start.decode('ascii') if is_text else start[:20]!r}"
