"""The TLS settings. They are not part of :mod:`zoolet.server.net.tls`, because importing that module takes 10 ms."""

from __future__ import annotations

from ..core.fields import Fields


class TlsSettings(Fields):
    """Certificates, client authentication, protocols and cipher suites.

    Args:
        key_store: The server's certificate chain and private key: a PEM file, or a Java key store.
        key_store_password: The password of the file, or of the key in it; None if the file is not encrypted.
        key_store_password_path: A file with that password, which is read together with the certificates.
        key_store_type: ``PEM``, ``JKS`` or ``PKCS12``; None to derive it from the file's name.
        key: A PEM file with the private key, if it is not in ``key_store``.
        trust_store: The certificates of the authorities that sign clients' certificates.
        trust_store_password: The password of the trust store; None if it is not encrypted.
        trust_store_password_path: A file with that password, which is read together with the certificates.
        trust_store_type: ``PEM``, ``JKS`` or ``PKCS12``; None to derive it from the file's name.
        client_auth: Whether clients must present a certificate: ``need``, ``want`` or ``none``.
        protocols: ``TLSv1.2``, ``TLSv1.3`` or both.
        cipher_suites: The cipher suites to offer, by Java's or OpenSSL's names; empty for OpenSSL's default.
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
"""The types by file name extension, as in ZooKeeper (KeyStoreFileType). Files with other extensions are PEM here."""


def store_type(path: str, configured: str | None) -> str:
    """Return the configured type of a key store, or the type for the extension of the file name."""
    extension = next((extension for extension in KEY_STORE_TYPES if path.lower().endswith(extension)), ".pem")
    return (configured or KEY_STORE_TYPES[extension]).upper()
