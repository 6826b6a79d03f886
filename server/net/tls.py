"""TLS: contexts from PEM files and Java key stores, and the port that speaks it.

Java key stores (JKS, PKCS12) are read by the libraries of the extra ``tls``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import socket
import ssl
import struct
import tempfile
from pathlib import Path
from typing import Any, Final

from zoolet.server.net.connections import Connections
from zoolet.server.net.protocol import LINGER, ServerProtocol
from zoolet.server.net.tls_settings import TlsSettings, store_type

_log = logging.getLogger("zoolet.server")
HANDSHAKE_SECONDS: Final = 10.0
"""Seconds for a TLS handshake; ZooKeeper has ten for the first request (nio.sessionlessCnxnTimeout)."""
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_DEMANDS: Final = {"need": ssl.CERT_REQUIRED, "want": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_TLS13_SUITES: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})


class TlsError(Exception):
    """A context cannot be made of what was told; the message says which file or setting, and why."""


def context(settings: TlsSettings) -> ssl.SSLContext:
    """Return what a server needs to speak TLS.

    Raises:
        TlsError: A file cannot be read or does not hold what it should, the key is another certificate's, a library
            that would read it is missing, or the suites are unknown.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = min(_VERSIONS[name] for name in settings.protocols)
    made.maximum_version = max(_VERSIONS[name] for name in settings.protocols)
    _load_key_store(made, settings)
    if settings.trust_store is not None:
        password = _password(settings.trust_store_password, settings.trust_store_password_path)
        _load_trust_store(made, settings.trust_store, settings.trust_store_type, password)
    made.verify_mode = _DEMANDS[settings.client_auth]
    if settings.cipher_suites:
        _restrict(made, settings)
    return made


def _password(told: str | None, path: str | None) -> str | None:
    """Return a password, from its file where there is one: all of it but for white space around it, as in ZooKeeper."""
    if path is None:
        return told
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TlsError(f"cannot read the password in {path}: {_why(error)}") from None


def _load_key_store(made: ssl.SSLContext, settings: TlsSettings) -> None:
    path, password = settings.key_store, _password(settings.key_store_password, settings.key_store_password_path)
    kind = store_type(path, settings.key_store_type)
    try:
        if kind == "PEM":
            # A function, for OpenSSL would ask at the terminal for a password that it is not given.
            made.load_cert_chain(path, settings.key, password=lambda: password or "")
            return
        chain, key = _read_jks_key(path, password) if kind == "JKS" else _read_pkcs12_key(path, password)
        _load_pem(made, chain, key)
    except _unusable() as error:
        files = f"{path}, {settings.key}" if settings.key else path
        raise TlsError(f"cannot use {files} for TLS: {_why(error)}") from None


def _load_pem(made: ssl.SSLContext, chain: bytes, key: Any) -> None:
    """Load a certificate chain and a key, which OpenSSL takes from files only: one that nobody else may read, with the
    key encrypted under a password that is used once.
    """
    from cryptography.hazmat.primitives import serialization

    password = secrets.token_bytes(24).hex().encode()
    text = chain + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )
    number, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(text)
        made.load_cert_chain(name, password=password)
    finally:
        os.unlink(name)


def _load_trust_store(made: ssl.SSLContext, path: str, told: str | None, password: str | None) -> None:
    kind = store_type(path, told)
    try:
        if kind == "PEM":
            made.load_verify_locations(path)
            return
        certificates = _read_jks_trust(path, password) if kind == "JKS" else _read_pkcs12_trust(path, password)
        for certificate in certificates:
            made.load_verify_locations(cadata=certificate)
    except _unusable() as error:
        raise TlsError(f"cannot use {path} for TLS: {_why(error)}") from None
    if not certificates:
        raise TlsError(f"cannot use {path} for TLS: it holds no certificate of an authority")


def _unusable() -> tuple[type[Exception], ...]:
    """Return what is raised for a file that cannot be used: SSLError is an OSError; cryptography has one of its own."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
    except ImportError:
        return OSError, ValueError
    return OSError, ValueError, UnsupportedAlgorithm


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


# --- Java key stores ---


def _needs_extra(path: str, kind: str, error: ImportError) -> TlsError:
    return TlsError(f"{path} is a {kind} key store, and {error.name} is not installed (pip install 'zoolet[tls]')")


def _open_jks(path: str, password: str | None) -> Any:
    try:
        import jks
        from pyasn1.error import PyAsn1Error
    except ImportError as error:
        raise _needs_extra(path, "JKS", error) from None
    try:
        return jks.KeyStore.load(path, password or "")
    except jks.util.BadKeystoreFormatException:
        # Since Java 9 keytool writes PKCS12, whatever the file is called.
        return None
    except (jks.util.KeystoreException, PyAsn1Error, LookupError, struct.error) as error:
        raise TlsError(f"cannot use {path} for TLS: {error or type(error).__name__}") from None


def _read_jks_key(path: str, password: str | None) -> tuple[bytes, Any]:
    store = _open_jks(path, password)
    if store is None:
        return _read_pkcs12_key(path, password)
    from cryptography.hazmat.primitives import serialization

    if len(store.private_keys) != 1:
        raise TlsError(f"cannot use {path} for TLS: it holds {len(store.private_keys)} keys, and must hold one")
    (entry,) = store.private_keys.values()
    if not entry.is_decrypted():
        raise TlsError(f"cannot use {path} for TLS: its key has another password than the store")
    chain = "".join(ssl.DER_cert_to_PEM_cert(der) for _, der in entry.cert_chain)
    return chain.encode(), serialization.load_der_private_key(entry.pkey_pkcs8, None)


def _read_jks_trust(path: str, password: str | None) -> list[bytes]:
    store = _open_jks(path, password)
    if store is None:
        return _read_pkcs12_trust(path, password)
    # As Java: of an entry with a key, its own certificate and not those that vouch for it.
    own = [entry.cert_chain[0][1] for entry in store.private_keys.values() if entry.cert_chain]
    return [*(entry.cert for entry in store.certs.values()), *own]


def _open_pkcs12(path: str, password: str | None) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise _needs_extra(path, "PKCS12", error) from None
    return pkcs12.load_pkcs12(Path(path).read_bytes(), password.encode() if password is not None else None)


def _read_pkcs12_key(path: str, password: str | None) -> tuple[bytes, Any]:
    store = _open_pkcs12(path, password)
    from cryptography.hazmat.primitives import serialization

    if store.key is None or store.cert is None:
        raise TlsError(f"cannot use {path} for TLS: it holds no key with a certificate")
    certificates = [one.certificate for one in store.additional_certs]
    chain = _chain(store.cert.certificate, certificates)
    others = [one for one in certificates if one not in chain]
    if others:  # the library gives one key, whichever it is
        raise TlsError(f"cannot use {path} for TLS: it seems to hold {1 + len(others)} keys, and must hold one")
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain), store.key


def _read_pkcs12_trust(path: str, password: str | None) -> list[bytes]:
    from cryptography.hazmat.primitives import serialization

    store = _open_pkcs12(path, password)
    trusted = [one.certificate for one in store.additional_certs]
    if store.cert is not None:  # as Java: of an entry with a key, its own certificate and not those that vouch for it
        above = _chain(store.cert.certificate, trusted)
        trusted = [store.cert.certificate, *(one for one in trusted if one not in above)]
    return [one.public_bytes(serialization.Encoding.DER) for one in trusted]


def _chain(certificate: Any, others: list[Any]) -> list[Any]:
    """Return a certificate and those of the others that vouch for it, in order."""
    chain = [certificate]
    while above := [one for one in others if one.subject == chain[-1].issuer and one not in chain]:
        chain.append(above[0])
    return chain


# --- cipher suites ---


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite that Java calls ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    if cipher.startswith("CHACHA20"):
        cipher = "CHACHA20_POLY1305"
    name = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return name.replace("_", "-")


def _restrict(made: ssl.SSLContext, settings: TlsSettings) -> None:
    """Offer these suites only.

    Python cannot choose among the three suites of TLS 1.3: all of them are offered, or TLS 1.3 is not.
    """
    modern = frozenset(settings.cipher_suites) & _TLS13_SUITES
    old = [openssl_name(suite) for suite in settings.cipher_suites if suite not in _TLS13_SUITES]
    if modern and modern != _TLS13_SUITES:
        missing = ", ".join(sorted(_TLS13_SUITES - modern))
        raise TlsError(f"ssl.ciphersuites: the suites of TLS 1.3 can only be offered together; add {missing}")
    if not modern:
        if "TLSv1.2" not in settings.protocols:
            raise TlsError("ssl.ciphersuites names no suite of TLS 1.3, and ssl.enabledProtocols nothing else")
        made.maximum_version = ssl.TLSVersion.TLSv1_2
    if not old:
        if "TLSv1.3" not in settings.protocols:
            raise TlsError("ssl.ciphersuites names no suite of TLS 1.2, and ssl.enabledProtocols nothing else")
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    for name, suite in zip(old, [one for one in settings.cipher_suites if one not in _TLS13_SUITES], strict=True):
        try:
            made.set_ciphers(name)
        except ssl.SSLError:
            raise TlsError(f"ssl.ciphersuites: {suite} is unknown to {ssl.OPENSSL_VERSION}") from None
        if name not in [one["name"] for one in made.get_ciphers()]:  # an expression, such as ALL
            raise TlsError(f"ssl.ciphersuites: {suite} is not the name of one suite")
    made.set_ciphers(":".join(old))


# --- the port ---


class SecureAcceptor:
    """A listening socket for TLS.

    A connection is counted when it is accepted, before the handshake, so that silent sockets fill no more than their
    host's share; a handshake may take ten seconds. asyncio's own server reports a connection only once its handshake
    is done.

    Args:
        connections: Where accepted connections go.
        context: The certificates; may be replaced, for the connections that come from then on.
        backlog: Connections that may wait to be accepted.
    """

    def __init__(self, connections: Connections, context: ssl.SSLContext, backlog: int) -> None:
        self._connections = connections
        self.context = context
        self._backlog = backlog
        self._sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    async def start(self, host: str | None, port: int) -> int:
        """Listen; arguments, result and errors as for :meth:`Daemon.start_secure`."""
        found = await self._connections.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                made = socket.socket(family, kind, protocol)
                self._sockets.append(made)
                made.setblocking(False)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind(address)
                made.listen(self._backlog)
        except OSError:
            await self.close()
            raise
        self._accept_from_now_on()
        return int(self._sockets[0].getsockname()[1])

    def _accept_from_now_on(self) -> None:
        self._retry = None
        for each in self._sockets:
            self._connections.loop.add_reader(each, self._accept, each)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, address = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptor is left: leave the others in the backlog for a second
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._connections.warn_of_descriptors()
            else:
                _log.warning("cannot accept TLS connections: %s", error)
            for each in self._sockets:
                self._connections.loop.remove_reader(each)
            self._retry = self._connections.loop.call_later(1.0, self._accept_from_now_on)
            return
        host = str(address[0])
        if not self._connections.try_accept(host):
            accepted.close()
            return
        accepted.setblocking(False)
        task = self._connections.loop.create_task(self._shake_hands(accepted, host))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, host: str) -> None:
        made = ServerProtocol(self._connections, counted=True)
        try:
            await self._connections.loop.connect_accepted_socket(
                lambda: made,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=LINGER,
            )
        except OSError as error:  # which an SSLError is, too
            _log.debug("TLS handshake of %s failed: %s", host, error)
        finally:
            if not made.was_made:
                self._connections.release(host)
                accepted.close()

    async def close(self) -> None:
        """Accept no more, and end the handshakes under way."""
        if self._retry is not None:
            self._retry.cancel()
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            self._connections.loop.remove_reader(each)
            each.close()
        for task in self._handshakes:
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
