"""Error messages for invalid TLS files, because OpenSSL only reports "PEM lib"."""

from __future__ import annotations

import ssl
from pathlib import Path

from ...protocol.messages import file_error_reason

__all__ = ["pem_problem"]


def pem_problem(certificate: str | Path, key: str | Path | None, option: str) -> str | None:
    """Return the reason why a certificate and its key cannot be used, or None if no reason was found.

    Args:
        certificate: File of the certificate, in PEM.
        key: File of its key; None if the key is in the same file.
        option: Name of the option for the key, for the message.
    """
    try:
        texts = [Path(file).read_bytes() for file in (certificate, key or certificate)]
    except OSError as error:
        reason = file_error_reason(error)
        return reason if error.filename == str(certificate) else f"cannot read {error.filename}: {reason}"
    if b"-----BEGIN CERTIFICATE-----" not in texts[0]:
        return f"{certificate} contains no PEM certificate"
    if b"PRIVATE KEY-----" not in texts[1]:
        return f"{key} contains no PEM private key" if key else f"{certificate} contains no private key; pass {option}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"the key in {key or certificate} does not match the certificate in {certificate}"
        if b"ENCRYPTED" in texts[1]:
            return f"the key in {key or certificate} is encrypted, and its password is missing or wrong"
        if b"-----END CERTIFICATE-----" not in texts[0] or texts[1].count(b"PRIVATE KEY-----") < 2:
            return f"{certificate} or its key is truncated"
    return None
