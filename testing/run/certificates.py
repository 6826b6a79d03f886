"""Certificates for tests: an authority, and the certificates that it signs, made with ``cryptography``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ..state.real_time import REAL


class Authority:
    """A certificate authority that only the clients of a test trust.

    Args:
        folder: Folder for the files.
        name: Name of the authority, and of its file without ``.pem``.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        certificate = self._sign(self._name, self._key.public_key(), authority=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, password: bytes | None = None, days: int = 30) -> Path:
        """Write a certificate for this machine and its key into one file, and return its path.

        Args:
            name: Common name of the certificate, and name of the file without ``.pem``. If empty, no common name.
            password: Password to encrypt the key with, or None to leave it unencrypted.
            days: Number of days that the certificate is valid.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        path = self._folder / f"{name}.pem"
        locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        path.write_bytes(
            self._sign(_name(name), key.public_key(), days=days).public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        )
        return path

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool = False, days: int = 30
    ) -> x509.Certificate:
        now = datetime.fromtimestamp(REAL.now_ms() / 1000, UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")), x509.IPAddress(ip_address("::1"))]
        signs = not authority  # an authority signs only certificates and revocation lists, not data
        usage = x509.KeyUsage(signs, False, False, False, False, authority, authority, False, False)
        ours = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ours), critical=False)
            # Without a subject, this extension must be critical (RFC 5280).
            .add_extension(x509.SubjectAlternativeName(names), critical=not name)
        )
        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)] if text else [])
