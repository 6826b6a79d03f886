"""What TLS can be told; apart from :mod:`zoolet.server.net.tls`, which takes 10 ms to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TlsSettings:
    """The certificates, and who may connect with what.

    Args:
        key_store: The server's certificate, those between it and its authority, and its key: a PEM file, or a Java key
            store.
        key_store_password: What it, or the key in it, is encrypted with; None for nothing.
        key_store_password_path: A file with that password, read whenever the certificates are.
        key_store_type: ``PEM``, ``JKS`` or ``PKCS12``; None to tell by the file's name.
        key: A PEM file with the key, where that is in a file of its own.
        trust_store: The authorities whose certificates clients show.
        trust_store_password: As for the key store.
        trust_store_password_path: As for the key store.
        trust_store_type: As for the key store.
        client_auth: Whether clients have to show a certificate: ``need``, ``want`` or ``none``.
        protocols: ``TLSv1.2``, ``TLSv1.3`` or both.
        cipher_suites: The suites to offer, by Java's or OpenSSL's names; empty for OpenSSL's choice.
    """

    key_store: str = ""
    key_store_password: str | None = None
    key_store_password_path: str | None = None
    key_store_type: str | None = None
    key: str | None = None
    trust_store: str | None = None
    trust_store_password: str | None = None
    trust_store_password_path: str | None = None
    trust_store_type: str | None = None
    client_auth: str = "none"
    protocols: frozenset[str] = frozenset({"TLSv1.2", "TLSv1.3"})
    cipher_suites: tuple[str, ...] = ()


KEY_STORE_TYPES = {".pem": "PEM", ".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".bcfks": "BCFKS"}
"""The types by the ends of file names, as in ZooKeeper (KeyStoreFileType); any other file is PEM here."""


def store_type(path: str, told: str | None) -> str:
    """Return the type of a key store, as it was told or by the file's name."""
    ending = next((ending for ending in KEY_STORE_TYPES if path.lower().endswith(ending)), ".pem")
    return (told or KEY_STORE_TYPES[ending]).upper()
