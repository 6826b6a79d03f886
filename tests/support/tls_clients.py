"""Clients that speak TLS with a daemon, and the certificates in ``tests/support/tls``."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Final

from support.frames import HELLO
from support.waiting import DEADLINE_S

from zoolet.server.net.tls_settings import TlsSettings

FILES: Final = Path(__file__).parent / "tls"
CERTIFICATE_OPTIONS: Final = ("--tls-cert", str(FILES / "server.pem"), "--tls-key", str(FILES / "server-key.pem"))
"""The daemon options for the server certificate in that folder."""
AUTHORITY_OPTIONS: Final = ("--tls-ca", str(FILES / "ca.pem"))
"""The daemon options to require client certificates of the authority in that folder."""
CERTIFICATE_SETTINGS: Final = TlsSettings(str(FILES / "server.pem"), key=str(FILES / "server-key.pem"))
"""The same certificate for a server in the running event loop."""


def client_context(authority: Path | str = FILES / "ca.pem", *, certificate: bool = False) -> ssl.SSLContext:
    """Return a client's context that is as strict on every Python as the default of Python 3.13."""
    context = ssl.create_default_context(cafile=str(authority))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if certificate:
        context.load_cert_chain(FILES / "client.pem", FILES / "client-key.pem")
    return context


def shake_hands(
    port: int, authority: Path, certificate: Path | None = None, version: ssl.TLSVersion | None = None
) -> tuple[ssl.SSLSocket, bytes]:
    """Shake hands and open a session; return the connection, and the first bytes of the answer (empty if closed).

    With TLS 1.3, only the answer shows a client whether its certificate was accepted.
    """
    context = client_context(authority)
    if certificate is not None:
        context.load_cert_chain(certificate)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
    secure.sendall(HELLO)
    return secure, secure.recv(4)


def is_accepted(
    port: int, authority: Path, certificate: Path | None = None, version: ssl.TLSVersion | None = None
) -> bool:
    """Return whether the server gives a client a session."""
    try:
        connection, answer = shake_hands(port, authority, certificate, version)
    except OSError:
        return False
    connection.close()
    return len(answer) == 4


def common_name(port: int, authority: Path) -> str:
    """Return the common name in the subject of a server's certificate."""
    connection, _ = shake_hands(port, authority)
    with connection:
        subject = connection.getpeercert() or {}
        return dict(pair[0] for pair in subject["subject"])["commonName"]  # type: ignore[misc]
