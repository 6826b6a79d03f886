"""Likely causes of a connection that fails before the server has answered, the most common first."""

from __future__ import annotations

from typing import Final

CLOSED: Final = "the server closed the connection"
RESET: Final = "the server reset the connection"
NO_QUORUM: Final = "the server is read-only because it has no quorum"
OLD_DATA: Final = f"{NO_QUORUM}; its data may be old"
TLS_ALERT: Final = b"\x15\x03"
"""First bytes of the answer of a TLS port to a client without TLS."""


def closed_early(reason: str, tls: bool, refuses_read_only: bool = False) -> str:
    """Return the likely causes of a connection that was :data:`CLOSED` or :data:`RESET` before the first byte.

    Args:
        reason: One of these two.
        tls: Whether the client uses TLS.
        refuses_read_only: Whether the client refuses a read-only server, which then closes the connection.
    """
    port = "the port is plain or requires a different certificate" if tls else "the port requires TLS"
    causes = ["maxClientCnxns or maxCnxns is reached", port, "a proxy cannot reach its server"]
    if refuses_read_only:
        causes.append(NO_QUORUM)
    return f"{reason} without an answer; possible causes: {', '.join(causes[:-1])}, or {causes[-1]}"


def silent(seconds: float, tls: bool) -> str:
    """Return the likely causes of a server that accepts a connection and does not answer within *seconds*."""
    port = "" if tls else "; the port may require TLS or may not be a ZooKeeper port"
    return f"no answer within {seconds:.3g} s{port}"


def resumed_late(seconds: float) -> str:
    """Return the warning about a session that was resumed *seconds* after the deadline of its leases."""
    return f"the session was resumed {seconds:.3f} s after its timeout had passed; leases may be lost"


def foreign(answer: bytes) -> str:
    """Return the reason for a first answer that does not follow the ZooKeeper protocol."""
    if answer.startswith(TLS_ALERT):
        return "the port requires TLS"
    start = bytes(answer[:40]).partition(b"\r\n")[0]
    is_text = start.isascii() and start.decode("ascii", "replace").isprintable()
    return f"not a ZooKeeper server: received {start.decode('ascii') if is_text else start[:20]!r}"
