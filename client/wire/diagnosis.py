"""Likely causes of a connection that fails before the server has answered, the most common first."""

from __future__ import annotations

from typing import Final

CLOSED: Final = "the server closed the connection"
RESET: Final = "the server reset the connection"
TLS_ALERT: Final = b"\x15\x03"
"""First bytes of the answer of a TLS port to a client without TLS."""


def closed_early(reason: str, tls: bool) -> str:
    """Return the likely causes of a connection that was :data:`CLOSED` or :data:`RESET` before the first byte."""
    port = "be a plain port or require a different certificate" if tls else "serve TLS only (tls=, --tls-ca)"
    return (
        f"{reason} before it answered: the server may have reached its limit of connections (maxClientCnxns, "
        f"maxCnxns), the port may {port}, or a proxy may be unable to reach its server"
    )


def resumed_late(seconds: float) -> str:
    """Return the warning about a session that was resumed *seconds* after the deadline of its leases."""
    return f"the session was resumed {seconds:.3f} s after its timeout had passed; leases may be lost"


def foreign(answer: bytes) -> str:
    """Return the reason for a first answer that does not follow the ZooKeeper protocol."""
    if answer.startswith(TLS_ALERT):
        return "the server serves TLS only (tls=, --tls-ca)"
    return f"not a ZooKeeper server: received {answer[:20]!r}"
