"""The TLS contexts, from PEM files and Java key stores, and the listening sockets for TLS.

Java key stores (JKS, PKCS12) are read by the libraries of the extra ``tls``.

The listening sockets of a :class:`SecureAcceptor`::

    start --> accepting --no descriptor is left--> waiting --one second--> accepting
                  |                                   |
                  +-----------------close-------------+--> closed

An accepted connection::

    accepted --counted--> handshake --done--> open: a ServerProtocol, which releases the count when it is lost
        |                     |
        +--too many: closed   +--failed, timed out or cancelled: released and closed

Invariant: each counted connection is released exactly once. If ``connection_made`` has accepted it (``was_accepted``),
:class:`~zoolet.server.net.connections.Connections` releases it, and otherwise ``_shake_hands``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import secrets
import socket
import ssl
import struct
import tempfile
from pathlib import Path
from typing import Any, Final

from ...protocol.messages import lower_first
from ..core.client_connection import ClientConnection
from ..core.ops.session_ops import log_in_by_certificate
from .certificate import subject, valid_until
from .connections import Connections
from .lingering import LINGER
from .listening import listen_on_all, means_all, peer_host, port_for, split_hosts
from .pem import pem_problem
from .protocol import ServerProtocol
from .tls_settings import TlsSettings, store_type

_log = logging.getLogger("zoolet.server")
HANDSHAKE_SECONDS: Final = 10.0
"""Seconds for a TLS handshake. ZooKeeper allows ten for the first request (nio.sessionlessCnxnTimeout)."""
_BEGIN_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_END_CERTIFICATE: Final = "-----END CERTIFICATE-----"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {"need": ssl.CERT_REQUIRED, "want": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_TLS13_SUITES: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})


class TlsError(Exception):
    """The TLS settings cannot be used. The message names the file or setting, and the reason."""


class ServerContext(ssl.SSLContext):
    """A TLS context of a server.

    Attributes:
        certificate_ends: The earliest expiry time of a certificate in the chain, in seconds since the epoch; 0 if a
            certificate cannot be read.
    """

    certificate_ends = 0.0


def context(settings: TlsSettings) -> ServerContext:
    """Return the TLS context of a server.

    Raises:
        TlsError: A file cannot be read or its content is wrong, the key does not match the certificate, a library
            that is needed to read a file is missing, or a cipher suite is unknown.
    """
    tls_context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    tls_context.minimum_version = min(_VERSIONS[name] for name in settings.protocols)
    tls_context.maximum_version = max(_VERSIONS[name] for name in settings.protocols)
    tls_context.certificate_ends = _earliest_expiry(_load_key_store(tls_context, settings))
    if settings.trust_store is not None:
        password = _read_password(settings.trust_store_password, settings.trust_store_password_path)
        _load_trust_store(tls_context, settings.trust_store, settings.trust_store_type, password)
    tls_context.verify_mode = _VERIFY_MODES[settings.client_auth]
    if settings.client_auth != "none":  # a resumed TLS session could outlive the client's certificate
        tls_context.options |= ssl.OP_NO_TICKET
        tls_context.num_tickets = 0
    if settings.cipher_suites:
        _restrict_cipher_suites(tls_context, settings)
    return tls_context


def _earliest_expiry(chain: bytes) -> float:
    """Return the earliest expiry time in a PEM chain, in seconds since the epoch; 0 if a certificate is unreadable."""
    found = re.findall(f"{_BEGIN_CERTIFICATE}.*?{_END_CERTIFICATE}", chain.decode("latin-1"), re.DOTALL)
    try:
        return min(valid_until(ssl.PEM_cert_to_DER_cert(text)).timestamp() for text in found)
    except ValueError:
        return 0.0


def _read_password(configured: str | None, path: str | None) -> str | None:
    """Return the password from a file if a path is configured, otherwise the configured password.

    As in ZooKeeper, white space around a password in a file is removed.

    Raises:
        TlsError: The file cannot be read.
    """
    if path is None:
        return configured
    try:
        return Path(path).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TlsError(f"cannot read the password in {path}: {_error_text(error)}") from None


def _load_key_store(tls_context: ssl.SSLContext, settings: TlsSettings) -> bytes:
    """Load the certificate and the key of the server, and return the certificate chain in PEM.

    Raises:
        TlsError: The files cannot be used.
    """
    path, password = settings.key_store, _read_password(settings.key_store_password, settings.key_store_password_path)
    kind = store_type(path, settings.key_store_type)
    try:
        if kind == "PEM":
            # A function, because OpenSSL would prompt for a missing password at the terminal.
            tls_context.load_cert_chain(path, settings.key, password=lambda: password or "")
            return Path(path).read_bytes()
        is_jks = kind == "JKS" and _is_jks(path)
        chain, key = _read_jks_key(path, password) if is_jks else _read_pkcs12_key(path, password)
        _load_pem(tls_context, chain, key)
        return chain
    except _file_errors() as error:
        problem = pem_problem(path, settings.key, "--tls-key") if kind == "PEM" else None
        files = f"{path}, {settings.key}" if settings.key else path
        raise TlsError(f"cannot use {files} for TLS: {problem or _error_text(error)}") from None


def _load_pem(tls_context: ssl.SSLContext, chain: bytes, key: Any) -> None:
    """Load a certificate chain and a key.

    OpenSSL reads both only from files. They are therefore written to a temporary file that other users cannot read,
    with the key encrypted under a random password.
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
        tls_context.load_cert_chain(name, password=password)
    finally:
        os.unlink(name)


def _load_trust_store(tls_context: ssl.SSLContext, path: str, configured: str | None, password: str | None) -> None:
    kind = store_type(path, configured)
    try:
        if kind == "PEM":
            tls_context.load_verify_locations(path)
            return
        is_jks = kind == "JKS" and _is_jks(path)
        certificates = _read_jks_trust(path, password) if is_jks else _read_pkcs12_trust(path, password)
        for certificate in certificates:
            tls_context.load_verify_locations(cadata=certificate)
    except _file_errors() as error:
        problem = "no CA certificate in PEM format" if kind == "PEM" else _error_text(error)
        if isinstance(error, FileNotFoundError | PermissionError):
            problem = _error_text(error)
        raise TlsError(f"cannot use {path} for TLS: {problem}") from None
    if not certificates:
        raise TlsError(f"cannot use {path} for TLS: no CA certificate in the trust store")


def _file_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that unusable files cause. The exception of cryptography is included if it is installed."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
    except ImportError:
        return OSError, ValueError
    return OSError, ValueError, UnsupportedAlgorithm


def _error_text(error: Exception) -> str:
    return lower_first(getattr(error, "strerror", None) or str(error))


# --- Java key stores ---


_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # the first bytes of JKS and JCEKS stores


def _is_jks(path: str) -> bool:
    """Return whether a file contains a JKS store. Since Java 9, keytool also writes PKCS12 to files named ``.jks``."""
    with open(path, "rb") as file:
        return file.read(4) in _JKS_MAGIC


def _needs_extra(path: str, kind: str, extra: str) -> TlsError:
    return TlsError(f"{path} is a {kind} key store; to read it, install zoolet with the extra '{extra}'")


def _open_jks(path: str, password: str | None) -> Any:
    try:
        import jks  # pyright: ignore[reportMissingModuleSource]
        from pyasn1.error import PyAsn1Error  # pyright: ignore[reportMissingModuleSource]
    except ImportError:
        raise _needs_extra(path, "JKS", "jks") from None
    try:
        return jks.KeyStore.load(path, password or "")
    except (jks.util.KeystoreException, PyAsn1Error, LookupError, struct.error) as error:
        raise TlsError(f"cannot use {path} for TLS: {error or type(error).__name__}") from None


def _read_jks_key(path: str, password: str | None) -> tuple[bytes, Any]:
    store = _open_jks(path, password)
    from cryptography.hazmat.primitives import serialization

    if len(store.private_keys) != 1:
        raise TlsError(f"cannot use {path} for TLS: expected one key, found {len(store.private_keys)}")
    (entry,) = store.private_keys.values()
    if not entry.is_decrypted():
        raise TlsError(f"cannot use {path} for TLS: the key and the key store have different passwords")
    chain = "".join(ssl.DER_cert_to_PEM_cert(der) for _, der in entry.cert_chain)
    return chain.encode(), serialization.load_der_private_key(entry.pkey_pkcs8, None)


def _read_jks_trust(path: str, password: str | None) -> list[bytes]:
    store = _open_jks(path, password)
    # As in Java, an entry with a key makes only its own certificate trusted, not the certificates that sign it.
    own = [entry.cert_chain[0][1] for entry in store.private_keys.values() if entry.cert_chain]
    return [*(entry.cert for entry in store.certs.values()), *own]


def _open_pkcs12(path: str, password: str | None) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise _needs_extra(path, "PKCS12", "tls") from None
    return pkcs12.load_pkcs12(Path(path).read_bytes(), password.encode() if password is not None else None)


def _read_pkcs12_key(path: str, password: str | None) -> tuple[bytes, Any]:
    store = _open_pkcs12(path, password)
    from cryptography.hazmat.primitives import serialization

    if store.key is None or store.cert is None:
        raise TlsError(f"cannot use {path} for TLS: the key store contains no key with a certificate")
    certificates = [entry.certificate for entry in store.additional_certs]
    chain = _build_chain(store.cert.certificate, certificates)
    others = [certificate for certificate in certificates if certificate not in chain]
    if others:  # these may belong to more keys, but the library returns only one
        raise TlsError(f"cannot use {path} for TLS: expected one key, but the store seems to have {1 + len(others)}")
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in chain), store.key


def _read_pkcs12_trust(path: str, password: str | None) -> list[bytes]:
    from cryptography.hazmat.primitives import serialization

    store = _open_pkcs12(path, password)
    trusted = [entry.certificate for entry in store.additional_certs]
    if store.cert is not None:  # as in Java, an entry with a key makes only its own certificate trusted
        chain = _build_chain(store.cert.certificate, trusted)
        trusted = [store.cert.certificate, *(certificate for certificate in trusted if certificate not in chain)]
    return [certificate.public_bytes(serialization.Encoding.DER) for certificate in trusted]


def _build_chain(certificate: Any, others: list[Any]) -> list[Any]:
    """Return a certificate, followed by its issuer, the issuer's issuer and so on, as far as *others* contains them."""
    chain = [certificate]
    while issuers := [other for other in others if other.subject == chain[-1].issuer and other not in chain]:
        chain.append(issuers[0])
    return chain


# --- cipher suites ---


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite with a Java name such as ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    if cipher.startswith("CHACHA20"):
        cipher = "CHACHA20_POLY1305"
    name = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return name.replace("_", "-")


def _restrict_cipher_suites(tls_context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Enable only the configured cipher suites.

    Python cannot choose among the three suites of TLS 1.3. Either all of them are enabled, or TLS 1.3 is disabled.

    Raises:
        TlsError: A suite is unknown, or the suites do not fit the enabled versions of TLS.
    """
    modern = frozenset(settings.cipher_suites) & _TLS13_SUITES
    old = [openssl_name(suite) for suite in settings.cipher_suites if suite not in _TLS13_SUITES]
    if modern and modern != _TLS13_SUITES:
        missing = ", ".join(sorted(_TLS13_SUITES - modern))
        raise TlsError(f"ssl.ciphersuites: the TLS 1.3 suites can only be enabled together; add {missing}")
    if not modern:
        if "TLSv1.2" not in settings.protocols:
            raise TlsError("ssl.ciphersuites has no TLS 1.3 suite, but ssl.enabledProtocols only allows TLS 1.3")
        tls_context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not old:
        if "TLSv1.3" not in settings.protocols:
            raise TlsError("ssl.ciphersuites has no TLS 1.2 suite, but ssl.enabledProtocols only allows TLS 1.2")
        tls_context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    for name, suite in zip(old, [suite for suite in settings.cipher_suites if suite not in _TLS13_SUITES], strict=True):
        try:
            tls_context.set_ciphers(name)
        except ssl.SSLError:
            raise TlsError(f"ssl.ciphersuites: {suite} is unknown to {ssl.OPENSSL_VERSION}") from None
        if name not in [cipher["name"] for cipher in tls_context.get_ciphers()]:  # ALL, for example, is an expression
            raise TlsError(f"ssl.ciphersuites: {suite} is not the name of a single suite")
    tls_context.set_ciphers(":".join(old))


# --- listening sockets ---


class SecureAcceptor:
    """The acceptor of TLS connections.

    A connection is counted when it is accepted, because the handshake may take ten seconds, and the limit per host must
    include sockets that send nothing. asyncio's own server would report a connection only after its handshake.

    Args:
        connections: The connections of the server. Accepted connections are added to them.
        context: The TLS context. It may be replaced for new connections.
        backlog: Maximum number of connections that wait to be accepted.
    """

    def __init__(self, connections: Connections, context: ssl.SSLContext, backlog: int) -> None:
        self._connections = connections
        self.context = context
        self._backlog = backlog
        self._sockets: list[socket.socket] = []
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._retry: asyncio.TimerHandle | None = None

    async def start(self, host: str | None, port: int) -> int:
        """Start listening. The arguments, the result and the errors are the same as for :meth:`Daemon.start_secure`."""
        try:
            await self._bind(host, port)
        except OSError:
            await self.close()
            raise
        for listening in self._sockets:
            listening.setblocking(False)
        self._start_accepting()
        return int(self._sockets[0].getsockname()[1])

    async def _bind(self, host: str | None, port: int) -> None:
        loop = self._connections.loop
        if host is None or means_all(host):
            self._sockets.append(listen_on_all(port, self._backlog))
            return
        hosts = split_hosts(host)
        port = port_for(hosts, port)
        found = [
            entry
            for one in (hosts if isinstance(hosts, list) else [hosts])
            for entry in await loop.getaddrinfo(one, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ]
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            self._sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(self._backlog)

    def _start_accepting(self) -> None:
        self._retry = None
        for listening in self._sockets:
            self._connections.loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, address = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # usually no descriptor is left; connections wait in the backlog for a second
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._connections.warn_of_descriptors()
            else:
                _log.warning("cannot accept TLS connections: %s; retrying in 1 s", error)
            for waiting in self._sockets:
                self._connections.loop.remove_reader(waiting)
            self._retry = self._connections.loop.call_later(1.0, self._start_accepting)
            return
        host = peer_host(address)
        if not self._connections.try_accept(host):
            accepted.close()
            return
        accepted.setblocking(False)
        task = self._connections.loop.create_task(self._shake_hands(accepted, host))
        self._handshakes[task] = accepted
        task.add_done_callback(self._handshakes.pop)

    async def _shake_hands(self, accepted: socket.socket, host: str) -> None:
        server_protocol = ServerProtocol(self._connections, counted=True, identify=self._identify)
        try:
            await self._connections.loop.connect_accepted_socket(
                lambda: server_protocol,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=LINGER,
            )
        except (OSError, SystemError) as error:  # SSLError, or uvloop's SystemError for some certificates
            engine = self._connections.engine
            engine.metrics.handshakes_failed += 1
            reason = getattr(error, "reason", None) or ""
            if "CERTIFICATE" in reason or "ALERT" in reason:  # other reasons usually come from scanners
                engine.warnings.warn("tls", "the TLS handshake with %s failed: %s", host, error)
            else:
                _log.debug("the TLS handshake with %s failed: %s", host, str(error) or type(error).__name__)
        finally:
            if not server_protocol.was_accepted:
                self._connections.release(host)
                accepted.close()

    def _identify(self, transport: asyncio.Transport, client: ClientConnection) -> None:
        """Add the identity of the client's certificate, if the client presented one."""
        tls_object: ssl.SSLObject = transport.get_extra_info("ssl_object")
        certificate = tls_object.getpeercert(binary_form=True)
        if certificate is None:
            return
        engine = self._connections.engine
        try:
            name = subject(certificate)
        except ValueError:  # OpenSSL accepts the certificate, but an unreadable name gives no identity
            engine.warnings.warn("certificate", "cannot read the name in the certificate of %s", client.host)
            return
        if name:  # without this check, all certificates without a name would identify the same client
            log_in_by_certificate(engine, client, name)

    async def close(self) -> None:
        """Stop listening, and cancel the handshakes in progress."""
        if self._retry is not None:
            self._retry.cancel()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            self._connections.loop.remove_reader(listening)
            listening.close()
        handshakes = dict(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
        for accepted in handshakes.values():
            accepted.close()  # a task that was cancelled before its first step did not pass the socket to a transport
