"""TLS for the listener, from PEM files."""

from __future__ import annotations

import ssl


def context(certificate: str, key: str | None, authority: str | None) -> ssl.SSLContext:
    """Make what a server needs to speak TLS 1.2 or newer.

    Args:
        certificate: A PEM file with the server's certificate and those between it and its authority.
        key: A PEM file with its key; None where that is in the same file.
        authority: A PEM file with the authorities whose certificates clients must show; None asks clients for none.

    Raises:
        OSError: A file cannot be read.
        ssl.SSLError: A file does not hold what it should, or the key is another certificate's.
    """
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_cert_chain(certificate, key)
    if authority is not None:
        made.load_verify_locations(authority)
        made.verify_mode = ssl.CERT_REQUIRED
    return made
