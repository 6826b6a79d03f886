"""Messages for files for TLS that are wrong: OpenSSL says "PEM lib"."""

from __future__ import annotations

import ssl
from pathlib import Path

__all__ = ["pem_problem"]


def pem_problem(certificate: str | Path, key: str | Path | None, option: str) -> str | None:
    """Return why a certificate and its key cannot be used, as far as their texts tell it; None if they do not.

    Args:
        certificate: The file of the certificate, in PEM.
        key: The file of its key; None if it is in the same file.
        option: The option that names the key, for the message.
    """
    try:
        texts = [Path(file).read_bytes() for file in (certificate, key or certificate)]
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    if b"-----BEGIN CERTIFICATE-----" not in texts[0]:
        return f"{certificate} has no certificate in PEM"
    if b"PRIVATE KEY-----" not in texts[1]:
        return f"{key} has no private key in PEM" if key else f"{certificate} has no private key; give {option}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"the key in {key or certificate} is not that of the certificate in {certificate}"
        if b"ENCRYPTED" in texts[1]:
            return f"the key in {key or certificate} is encrypted, and its password is missing or wrong"
        if b"-----END CERTIFICATE-----" not in texts[0] or texts[1].count(b"PRIVATE KEY-----") < 2:
            return f"{certificate} or its key is truncated"
    return None
