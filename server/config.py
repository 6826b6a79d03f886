"""What a server can be told, and where it is told: options beat the file, the file beats the environment.

Every setting is one row of :data:`KEYS`. A key may be written in zoo.cfg as it stands or with ZooKeeper's prefix
``zookeeper.``, and as ``-Dzookeeper.KEY=VALUE`` or ``-DKEY=VALUE`` on the command line or in ``SERVER_JVMFLAGS`` or
``JVMFLAGS``.

Source: QuorumPeerConfig.parseProperties.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from zoolet.server import jaas, properties
from zoolet.server.core.compat import BY_NAME
from zoolet.server.core.settings import Settings
from zoolet.server.net.tls_settings import TlsSettings, store_type
from zoolet.server.properties import Setting, parse_definitions, parse_properties


class ConfigError(ValueError):
    """Something that the server was told makes no sense; the message says what, where, and what would."""


@dataclass(slots=True)
class Config:
    """All that a daemon is told. Times are milliseconds, sizes bytes.

    Args:
        host: The address to listen on; None for all of the machine's.
        port: The port; 0 for a free one, None for none: only TLS is spoken.
        max_client_cnxns: Connections one address may have; 0 for no limit.
        max_cnxns: Connections in all; 0 for no limit.
        backlog: Connections that may wait to be accepted.
        whitelist: The four-letter words that are answered.
        isro: Answer the word ``isro`` too; a single server is never read-only by itself.
        settings: What the core is told.
        secure_host: The address to listen on for TLS; None for all of the machine's.
        secure_port: A port for connections over TLS; None for none, 0 for a free one.
        tls: The certificates, and who may connect with what.
        ignored: Keys that are known and do nothing here, for one warning.
        unknown: Keys that nobody knows, each with the nearest known one, for a warning each.
    """

    host: str | None = "127.0.0.1"
    port: int | None = 2181
    max_client_cnxns: int = 60
    max_cnxns: int = 0
    backlog: int = 128
    whitelist: tuple[str, ...] = ("srvr",)
    isro: bool = False
    settings: Settings = field(default_factory=Settings)
    secure_host: str | None = "127.0.0.1"
    secure_port: int | None = None
    tls: TlsSettings = field(default_factory=TlsSettings)
    ignored: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()


# --- one row a setting ---


def _number(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return convert


def _decoded(text: str) -> int:
    """Read a number as Integer.getInteger does: 0x and # stand before hexadecimal digits."""
    if match := re.fullmatch(r"(?:0[xX]|#)([0-9a-fA-F]{1,8})", text):
        text = str(int(match[1], 16))
    return _number(0)(text)


def _true(text: str) -> bool:
    """Read a boolean system property: only ``true``, in any case, is true."""
    return text.lower() == "true"


def _flag(text: str) -> bool:
    """Read a boolean that zoo.cfg itself knows."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _schemes(text: str) -> frozenset[str]:
    schemes = frozenset(_words(text))
    if unknown := schemes - {"digest", "ip", "sasl"}:
        raise ValueError(
            f"schemes that a client can prove (digest, ip, sasl), and {', '.join(sorted(unknown))} is none"
        )
    return schemes


def _yes(text: str) -> bool:
    return text.lower() == "yes"


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _algorithm(text: str) -> str:
    name = text.lower().replace("sha-", "sha").replace("sha3-", "sha3_")
    if name not in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3_256", "sha3_384", "sha3_512"):
        raise ValueError("SHA1, SHA-256, SHA-512 or SHA3-256")
    return name


def _text(text: str) -> str:
    return text


def _one_of(*choices: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(" or ".join(choices))
        return text.lower()

    return convert


def _readable(text: str) -> str:
    """Check that a file with a password can be read; it is read again whenever the certificates are."""
    try:
        Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"a file with a password, and it cannot be read ({error})") from None
    return text


def _store_type(text: str) -> str:
    if text.upper() not in ("PEM", "JKS", "PKCS12"):
        raise ValueError("PEM, JKS or PKCS12")
    return text.upper()


def _store(text: str) -> str:
    if store_type(text, None) == "BCFKS":
        raise ValueError("a PEM file, or a JKS or PKCS12 key store; BCFKS cannot be read")
    return text


def _protocols(text: str) -> frozenset[str]:
    if text == "TLS":  # Java's name for whatever there is
        return frozenset({"TLSv1.2", "TLSv1.3"})
    if not (names := frozenset(_words(text))) or names - {"TLSv1.2", "TLSv1.3"}:
        raise ValueError("TLSv1.2, TLSv1.3 or both; older ones are not offered")
    return names


class Key(NamedTuple):
    """How one key is read, and which field of Config or Settings it sets."""

    convert: Callable[[str], object]
    target: str


KEYS: Final[dict[str, Key]] = {
    "clientPort": Key(_number(0, 65535), "port"),
    "clientPortAddress": Key(lambda text: text.strip("[]") or None, "host"),
    "clientPortListenBacklog": Key(_number(-1), "backlog"),
    "maxClientCnxns": Key(lambda text: max(0, _number(-(2**31))(text)), "max_client_cnxns"),
    "maxCnxns": Key(_number(0), "max_cnxns"),
    "4lw.commands.whitelist": Key(_words, "whitelist"),
    "tickTime": Key(_number(1), "settings.tick_time"),
    "minSessionTimeout": Key(_number(-1), "settings.min_session_timeout"),
    "maxSessionTimeout": Key(_number(-1), "settings.max_session_timeout"),
    "secureClientPort": Key(_number(0, 65535), "secure_port"),
    "secureClientPortAddress": Key(lambda text: text.strip("[]") or None, "secure_host"),
    "ssl.keyStore.location": Key(_store, "tls.key_store"),
    "ssl.keyStore.password": Key(_text, "tls.key_store_password"),
    "ssl.keyStore.passwordPath": Key(_readable, "tls.key_store_password_path"),
    "ssl.keyStore.type": Key(_store_type, "tls.key_store_type"),
    "ssl.keyStore.key.location": Key(_text, "tls.key"),
    "ssl.trustStore.location": Key(_store, "tls.trust_store"),
    "ssl.trustStore.password": Key(_text, "tls.trust_store_password"),
    "ssl.trustStore.passwordPath": Key(_readable, "tls.trust_store_password_path"),
    "ssl.trustStore.type": Key(_store_type, "tls.trust_store_type"),
    "ssl.clientAuth": Key(_one_of("need", "want", "none"), "tls.client_auth"),
    "ssl.protocol": Key(_protocols, "tls.protocols"),
    "ssl.enabledProtocols": Key(_protocols, "tls.protocols"),
    "ssl.ciphersuites": Key(_words, "tls.cipher_suites"),
    "jute.maxbuffer": Key(_decoded, "settings.max_frame"),
    "nio.sessionlessCnxnTimeout": Key(_number(1), "settings.sessionless_timeout"),
    "reconfigEnabled": Key(_flag, "settings.reconfig_enabled"),
    "java.security.auth.login.config": Key(_text, "jaas"),
    "sasl.serverconfig": Key(_text, "jaas_section"),
    "superUser": Key(lambda text: frozenset({text}), "settings.super_users"),
    "sessionRequireClientSASLAuth": Key(
        lambda text: frozenset({"sasl"} if _true(text) else ()), "settings.require_auth"
    ),
    "enforce.auth.schemes": Key(_schemes, "schemes"),
    "enforce.auth.enabled": Key(_true, "enforced"),
    "allowSaslFailedClients": Key(_true, "settings.allow_failed_sasl"),
    "znode.container.checkIntervalMs": Key(_number(1), "settings.container_check_interval"),
    "znode.container.maxPerMinute": Key(_number(1), "settings.container_max_per_minute"),
    "znode.container.maxNeverUsedIntervalMs": Key(_number(0), "settings.container_never_used"),
    "connection_throttle_tokens": Key(_number(0), "settings.throttle_tokens"),
    "connection_throttle_fill_time": Key(_number(1), "settings.throttle_fill_time"),
    "connection_throttle_fill_count": Key(_number(1), "settings.throttle_fill_count"),
    "readonlymode.enabled": Key(_true, "isro"),
    "skipACL": Key(_yes, "settings.skip_acl"),
    "extendedTypesEnabled": Key(_true, "settings.extended_types"),
    "enforceQuota": Key(_true, "settings.enforce_quota"),
    "DigestAuthenticationProvider.enabled": Key(_true, "settings.digest_enabled"),
    "DigestAuthenticationProvider.superDigest": Key(_text, "settings.super_digest"),
    "DigestAuthenticationProvider.digestAlg": Key(_algorithm, "settings.digest_algorithm"),
    "zoolet.maxAclEntries": Key(_number(1), "settings.max_acl_entries"),
    "zoolet.maxIdentities": Key(_number(1), "settings.max_identities"),
    "zoolet.maxWatches": Key(_number(1), "settings.max_watches"),
    "zoolet.maxWatchesPerConnection": Key(_number(1), "settings.max_watches_per_connection"),
    "zoolet.maxSetWatches": Key(_number(1), "settings.max_set_watches"),
    "zoolet.maxMultiOperations": Key(_number(1), "settings.max_multi_operations"),
    "zoolet.maxMultiReadBytes": Key(_number(1), "settings.max_multi_read"),
    "zoolet.maxUnreadBytes": Key(_number(1), "settings.max_write_buffer"),
    "zoolet.maxUnreadBytesTotal": Key(_number(1), "settings.max_write_buffer_total"),
    "zoolet.maxPartialRequestBytes": Key(_number(1), "settings.max_partial_requests"),
}
NO_EFFECT: Final = frozenset(
    {
        "dataDir",
        "dataLogDir",
        "localSessionsEnabled",
        "localSessionsUpgradingEnabled",
        "autopurge.snapRetainCount",
        "autopurge.purgeInterval",
        "admin.enableServer",
        "admin.serverPort",
        "snapCount",
        "requireClientAuthScheme",
        "jaasLoginRenew",
    }
)
"""Keys that people set and that mean something in ZooKeeper, but nothing in a server in memory, or nothing yet."""

ACCEPTED: Final = re.compile(
    r"""(?x)
    server\.\d+ | dynamicConfigFile | standaloneEnabled | initLimit | syncLimit | connectToLearnerMasterLimit
    | quorumListenOnAllIPs | syncEnabled | quorum\..* | observerMasterPort | multiAddress\..* | sslQuorum.*
    | portUnification | ssl\.quorum\..* | ssl\.hostnameVerification | ssl\.handshakeDetectionTimeoutMillis
    | fips-mode | root\.logger | console\.threshold | tracelog\..* | requestTraceFile | ssl\.sslProvider
    | ssl\.tcnative.* | metricsProvider\..* | jvm\.pause\..* | admin\..* | emulate353TTLNodes
    | enableEagerACLCheck | IPAuthenticationProvider\.usexforwardedfor | kerberos\..* | kinit | serverCnxnFactory
    | snapSizeLimitInKb | preAllocSize | txnLogSizeLimitInKb | commitLogCount | snapshotSizeFactor | forceSync
    | fsync\..* | flushDelay | maxBatchSize | maxWriteQueuePollTime | snapshot\..* | serializeLastProcessedZxid\..*
    | datadir\.autocreate | db\.autocreate | digest\.enabled | globalOutstandingLimit | request_throttle.*
    | request_stale.* | throttled_op_wait_time | largeRequest.* | connection_throttle_.* | netty\..*
    | nio\.(numSelectorThreads|numWorkerThreads|directBufferBytes|shutdownTimeout)
    | commitProcessor\..* | intBufferStartingSizeBytes | bitHashCacheSize | watcherClean.* | watchManagerName
    | maxInProcessingDeadWatchers | messageTracker\..* | maxResponseCacheSize | maxGetChildrenResponseCacheSize
    | closeSessionTxn\.enabled | clientTcpKeepAlive | tcpKeepAlive | audit\..* | pathStats\..* | leaderServes
    | leader\..* | learner\..* | observer\..* | follower\..* | fastleader\..* | cnxTimeout | electionPortBindRetry
    | quorumCnxnTimeoutMs | forceSnapshotSync | log\..* | jmx\..* | sasl\.client.* | client\.secure | version
    | jute\.maxbuffer\.extrasize
    | maxTimeToWaitForEpoch | electionPort.* | server\.cnxn.* | test\..* | clientCnxnSocket
    """
)
"""What else ZooKeeper knows and a single server in memory has no use for; each key as a whole."""
OVERRULED: Final = {
    "ssl.protocol": "ssl.enabledProtocols",
    "ssl.keyStore.password": "ssl.keyStore.passwordPath",
    "ssl.trustStore.password": "ssl.trustStore.passwordPath",
}
"""Keys that do not count where another one is set, as in ZooKeeper."""
BUILT_IN_PROVIDERS: Final = frozenset(
    f"org.apache.zookeeper.server.auth.{name}AuthenticationProvider" for name in ("Digest", "IP", "SASL")
)

REFUSED: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "authProvider": (
        lambda text: text not in BUILT_IN_PROVIDERS,
        "only the providers for digest, ip and SASL are built in",
    ),
    "audit.enable": (lambda text: text.lower() == "true", "this server writes no audit log"),
    "client.certReload": (lambda text: text.lower() == "true", "SIGHUP reads the certificates again; leave it out"),
    "ssl.crl": (lambda text: text.lower() == "true", "revoked certificates are not looked up; leave it out"),
    "ssl.ocsp": (lambda text: text.lower() == "true", "revoked certificates are not looked up; leave it out"),
    "ssl.clientHostnameVerification": (lambda text: text.lower() == "true", "the names of clients are not verified"),
    "ssl.context.supplier.class": (lambda text: True, "Java classes cannot be loaded"),
    "ssl.authProvider": (lambda text: text not in ("", "x509"), "only x509 is built in"),
    "client.portUnification": (lambda text: text.lower() == "true", "TLS and plain text need a port each"),
    "X509AuthenticationProvider": (lambda text: True, "certificates are no identities in this server"),
    "ensembleAuthName": (lambda text: True, "this server does not have the ensemble provider"),
    "requireKerberosConfig": (lambda text: text.lower() == "true", "Kerberos is not supported"),
    "electionAlg": (lambda text: text != "3", "3 is the only one there is"),
    "peerType": (lambda text: text.lower() != "participant", "this server is a single node; leave it out"),
    "group": (lambda text: True, "this server is a single node and has no groups; leave it out"),
    "weight": (lambda text: True, "this server is a single node and has no weights; leave it out"),
    "oraclePath": (lambda text: True, "this server is a single node and asks no oracle; leave it out"),
}
"""Keys that cannot be obeyed and must not be passed over: which of their values, and what to do."""


# --- where it is said ---


def read_environment(environ: Mapping[str, str]) -> dict[str, Setting]:
    """Read the -D options of ``SERVER_JVMFLAGS`` and ``JVMFLAGS``.

    Raises:
        ConfigError: A quotation mark is not closed.
    """
    try:
        return properties.read_environment(environ)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def read_file(path: str) -> dict[str, Setting]:
    """Read a zoo.cfg.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="latin-1")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    return parse_properties(text, path)


_SERVER: Final = re.compile(
    r"(?:\[[^\]]+\]|[^:;|\[\]]+):\d+:\d+(?::(?P<role>\w+))?"
    r"(?:;(?:(?P<host>\[[^\]]+\]|[^:;|\[\]]*):)?(?P<port>\d+))?(?:[;|].*)?"
)


def _alone(settings: Mapping[str, Setting]) -> tuple[str | None, int] | None:
    """Return the client address and port that the line of the only server has behind its semicolon: the official image
    names its port there and nowhere else.

    Raises:
        ConfigError: There are several, or an observer: answering for an ensemble would split it without a word.
    """
    servers = {name: one for name, one in settings.items() if re.fullmatch(r"server\.\d+", name)}
    client = None
    for name, (value, where) in servers.items():
        match = _SERVER.fullmatch(value)
        if match is None or (match["role"] or "participant").lower() not in ("participant", "observer"):
            raise ConfigError(f"{where}: {name} must be host:port:port[:participant][;[host:]port], not {value!r}")
        if (match["role"] or "").lower() == "observer":
            raise ConfigError(f"{where}: {name} is an observer, and this server is a single node")
        if match["port"]:
            client = ((match["host"] or "").strip("[]") or None), int(match["port"])
    if len(servers) > 1:
        names, (_, where) = ", ".join(sorted(servers)), next(iter(servers.values()))
        raise ConfigError(f"{where}: this server is a single node, and {len(servers)} servers are configured: {names}")
    return client


def _members(path: str) -> dict[str, Setting]:
    """Read a dynamicConfigFile, which has the members of the ensemble and nothing else.

    Raises:
        ConfigError: It cannot be read, or has another key.
    """
    settings = read_file(path)
    for name, (_, where) in settings.items():
        if not re.fullmatch(r"server\.\d+|group\..*|weight\..*|version", name):
            raise ConfigError(f"{where}: {name} is not a server.N line; a dynamicConfigFile has nothing else")
    return settings


def build(*sources: Mapping[str, Setting], compat: str = "3.9", strict: bool = False) -> Config:
    """Put a configuration together; later sources beat earlier ones.

    Args:
        sources: The settings by key.
        compat: Which release to answer like.
        strict: Refuse a key that nobody knows; otherwise it is left for the caller to warn of.

    Raises:
        ConfigError: A value is invalid, or cannot be obeyed where that matters.
    """
    settings: dict[str, Setting] = {}
    written: dict[str, str] = {}
    for source in sources:
        for name, setting in source.items():
            settings[name.removeprefix("zookeeper.")] = setting
            written[name.removeprefix("zookeeper.")] = name
    if dynamic := settings.get("dynamicConfigFile"):
        settings |= _members(dynamic.value)
    client = _alone(settings)
    told = dict(_told(settings, written))
    core: dict[str, Any] = {"compat": BY_NAME[compat]}
    core |= {name.removeprefix("settings."): value for name, value in told.items() if name.startswith("settings.")}
    if told.get("enforced") and not core.get("require_auth"):  # sessionRequireClientSASLAuth overrules it
        if not told.get("schemes"):
            where = settings["enforce.auth.enabled"].where
            raise ConfigError(f"{where}: enforce.auth.enabled is true, and enforce.auth.schemes names no scheme")
        core["require_auth"] = told["schemes"]
    core |= _sasl(settings, told)
    try:
        made = Settings(**core)
    except ValueError as error:
        said = settings.get("maxSessionTimeout") or settings.get("minSessionTimeout")
        raise ConfigError(f"{said.where}: {error}" if said else str(error)) from None
    config = Config(settings=made, ignored=tuple(sorted(name for name in settings if _idle(name))))
    config.unknown = tuple(_unknown(settings, written))
    if strict and config.unknown:
        name, nearest = config.unknown[0]
        where = next(setting.where for key, setting in settings.items() if written.get(key, key) == name)
        raise ConfigError(f"{where}: {name} is unknown{nearest}")
    if "clientPort" in settings:
        config.host = None  # as ZooKeeper: a port without an address means all addresses
    elif client is not None:
        config.host, config.port = client
    elif "secureClientPort" in settings:
        config.port = None
    for name in ("host", "port", "max_client_cnxns", "max_cnxns", "backlog", "whitelist", "isro", "secure_port"):
        if name in told:
            setattr(config, name, told[name])
    _secure(config, settings, told)
    return config


def _sasl(settings: Mapping[str, Setting], told: Mapping[str, Any]) -> dict[str, Any]:
    """Read the users of SASL, and who of them may do everything: superUser, and superUser.1 and so on."""
    core: dict[str, Any] = {}
    if "jaas" in told:
        said = settings["java.security.auth.login.config"]
        try:
            core["sasl_users"] = jaas.users(told["jaas"], told.get("jaas_section", "Server"))
            if core["sasl_users"] is None and "jaas_section" in told:
                raise ValueError(f"a JAAS file with a section {told['jaas_section']} (sasl.serverconfig)")
        except ValueError as error:
            raise ConfigError(
                f"{said.where}: java.security.auth.login.config must be {error}, not {said.value!r}"
            ) from None
    elif "jaas_section" in told:
        where = settings["sasl.serverconfig"].where
        raise ConfigError(f"{where}: sasl.serverconfig needs java.security.auth.login.config, a JAAS file")
    if supers := [value for name, (value, _) in settings.items() if re.fullmatch(r"superUser(\.\w+)?", name)]:
        core["super_users"] = frozenset(supers)
    return core


def _secure(config: Config, settings: Mapping[str, Setting], told: Mapping[str, Any]) -> None:
    """Set what TLS needs.

    Raises:
        ConfigError: A certificate without a port, a port without a certificate, or a demand for certificates that
            nothing could be verified with: a server in plain text must not be what comes of it.
    """
    tls = {name.removeprefix("tls."): value for name, value in told.items() if name.startswith("tls.")}
    config.tls = TlsSettings(**tls)
    port = settings.get("secureClientPort")
    if port is None:
        for name, (value, where) in settings.items():
            if where.startswith("environment variable") or value == "none":
                continue  # JVMFLAGS are the clients' too
            if name in KEYS and KEYS[name].target.startswith(("tls.", "secure_")):
                raise ConfigError(f"{where}: {name} needs secureClientPort (--secure-port): nothing would be encrypted")
        return
    if not config.tls.key_store:
        raise ConfigError(f"{port.where}: secureClientPort needs ssl.keyStore.location (--tls-cert), a certificate")
    if config.tls.trust_store is None and config.tls.client_auth != "none":
        where = settings["ssl.clientAuth"].where
        raise ConfigError(f"{where}: ssl.clientAuth={config.tls.client_auth} needs ssl.trustStore.location (--tls-ca)")
    if config.tls.trust_store is not None and "ssl.clientAuth" not in settings:
        config.tls.client_auth = "need"  # ZooKeeper's default
    if "secure_host" in told:
        config.secure_host = told["secure_host"]
    elif "command line" in (port.where, settings.get("clientPortAddress", port).where):  # --secure-port or --host
        config.secure_host = config.host
    else:
        config.secure_host = None


def _unknown(settings: Mapping[str, Setting], written: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each key that nobody knows, and which one may have been meant; of -D options only those of ZooKeeper's."""
    for name, (_, where) in settings.items():
        text = written.get(name, name)
        foreign = " -D" in where or where.startswith("environment variable")
        if foreign and not text.startswith(("zookeeper.", "zoolet.")):
            continue
        if name in KEYS or name in NO_EFFECT or _refusal(name) is not None or ACCEPTED.fullmatch(name):
            continue
        if re.fullmatch(r"superUser\.\w+", name):
            continue
        known = {key.lower(): key for key in (*KEYS, *NO_EFFECT, *REFUSED)}
        near = get_close_matches(name.lower(), known, 1, 0.75)
        yield text, f"; did you mean {known[near[0]]}?" if near else ""


def _refusal(name: str) -> tuple[Callable[[str], bool], str] | None:
    """Return why a key cannot be obeyed: the row of its name, or of the family that stands before its first dot."""
    return REFUSED.get(name) or REFUSED.get(name.partition(".")[0])


def _told(settings: Mapping[str, Setting], written: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    for name, (value, where) in settings.items():
        refused, remedy = _refusal(name) or (None, "")
        if OVERRULED.get(name) in settings:
            continue
        if refused is not None and refused(value):
            raise ConfigError(f"{where}: {name}={value} cannot be obeyed: {remedy}")
        key = KEYS.get(name)
        if key is None:
            continue
        try:
            yield key.target, key.convert(value)
        except ValueError as error:
            raise ConfigError(f"{where}: {written.get(name, name)} must be {error}, not {value!r}") from None


def _idle(name: str) -> bool:
    return name in NO_EFFECT or re.fullmatch(r"server\.\d+", name) is not None


__all__ = [
    "KEYS",
    "NO_EFFECT",
    "Config",
    "ConfigError",
    "Setting",
    "build",
    "parse_definitions",
    "parse_properties",
    "read_environment",
    "read_file",
]
