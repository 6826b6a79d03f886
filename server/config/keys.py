"""The table of configuration keys, one row each: the parser, the command line, the messages and
``docs/configuration.md`` are generated from it.

To add a key, add a row and the field that it sets in ``Settings`` (server/core), ``Config``, or, as ``tls.name``,
``TlsSettings`` (server/net), then run ``make docs``; if a field depends on several keys, compute it in ``load.py``.

Source: QuorumPeerConfig.parseProperties; ZooKeeper Administrator's Guide, "Configuration Parameters".
"""

from __future__ import annotations

import re
from enum import Enum, auto
from operator import attrgetter
from typing import Final, NamedTuple

from zoolet.server.config import jaas
from zoolet.server.config.config import Config
from zoolet.server.config.converters import (
    ADDRESS,
    ADDRESSES,
    ALGORITHM,
    BOOLEAN,
    BUFFER,
    CONNECTIONS,
    DIRECTORY,
    DISTINGUISHED_NAME,
    FILE,
    FORCE_SYNC,
    KEY_STORE,
    METRICS_PROVIDER,
    NAMES,
    PASSWORD_FILE,
    PORT,
    PROTOCOLS,
    SCHEMES,
    SOCKET,
    STORE_TYPE,
    TEXT,
    TOKEN_FILE,
    URL_PATH,
    YES,
    Converter,
    at_least,
    milliseconds,
    number,
    one_of,
)


class Status(Enum):
    """How a key is treated when it is set."""

    HONOURED = auto()
    """It sets a field of the configuration."""
    IGNORED = auto()
    """It is known to ZooKeeper and has no effect here; one warning names those that were set."""
    REFUSED = auto()
    """It must not be ignored, because its user relies on it: an unsupported value is an error."""


_PLACEHOLDERS: Final = {"*": r"(?s:.*)", "<number>": r"\d+", "<name>": r"\w+"}
"""The pattern that each placeholder at the end of a family's name stands for."""


class Key(NamedTuple):
    """One key, or a family of keys.

    Args:
        name: The key without ``zookeeper.``. A family ends with ``<number>``, ``<name>`` (letters, digits and
            underscores) or ``*`` (anything).
        field: The field of :class:`Config` that it sets, such as ``port`` or ``settings.tick_time``.
        converter: How its value is read.
        help: What it does, in sentences; for an ignored key why it has no effect; for a refused key what follows the
            words "is not supported;" in the message.
        example: A value other than the default.
        status: How it is treated.
        default_note: When a value other than the default applies, or what the default means.
        fallback: The default value, if it is not that of the field.
        option: The command-line option that sets it.
        requires: The keys that must be set, too, unless the value requires nothing (false or empty).
        overruled_by: The key that overrides this one, as in ZooKeeper.
        supported: The values of a refused key that are accepted.
        dynamic: Whether it is allowed in a dynamicConfigFile.
    """

    name: str
    field: str = ""
    converter: Converter = TEXT
    help: str = ""
    example: str = ""
    status: Status = Status.HONOURED
    default_note: str = ""
    fallback: str = ""
    option: str | None = None
    requires: tuple[str, ...] = ()
    overruled_by: str | None = None
    supported: tuple[object, ...] = ()
    dynamic: bool = False

    @property
    def label(self) -> str:
        """The key, and its option if it has one, for messages."""
        return f"{self.name} ({self.option})" if self.option else self.name

    @property
    def default(self) -> str:
        """The value in an empty configuration, as text; empty for none."""
        return self.fallback or self.converter.show(attrgetter(self.field)(Config()))

    @property
    def is_family(self) -> bool:
        """Whether this row describes more than one key."""
        return self.name.endswith(tuple(_PLACEHOLDERS))

    def matches(self, name: str) -> bool:
        """Return whether this row describes the key *name*."""
        for placeholder, pattern in _PLACEHOLDERS.items():
            if self.name.endswith(placeholder):
                prefix = self.name.removesuffix(placeholder)
                return name.startswith(prefix) and re.fullmatch(pattern, name.removeprefix(prefix)) is not None
        return name == self.name


_TLS: Final = ("secureClientPort",)

# fmt: off
SECTIONS: Final[dict[str, tuple[Key, ...]]] = {
    "Addresses and connections": (
        Key("clientPort", "port", PORT, "The port to listen on; 0 takes a free one.", "2182", option="--port",
            default_note="not opened where `secureClientPort` is set and this is not"),
        Key("clientPortAddress", "host", ADDRESSES, "The address to listen on, or several, with commas between them: "
            "`127.0.0.1,::1`. ZooKeeper takes one.", "192.0.2.10", option="--host",
            default_note="all addresses where `clientPort` is set other than by `--port`"),
        Key("dynamicConfigFile", "port", FILE, "A file with the `server.<number>` line of this server. The port and "
            "address behind its semicolon are used unless `clientPort` is set.", "/etc/zookeeper/zoo.cfg.dynamic"),
        Key("zoolet.unixSocket", "unix_socket", SOCKET, "Listen on a unix socket, too. The permissions of its folder "
            "and the umask decide who may connect; clients name it `unix:/run/zoolet.sock`. A client there has no "
            "address, so that no ACL of scheme `ip` allows it anything.", "/run/zoolet.sock"),
        Key("clientPortListenBacklog", "backlog", number(-1, unit="connections"),
            "Connections that may wait to be accepted; with 0 or -1, as many as by default.", "1024"),
        Key("maxClientCnxns", "max_client_cnxns", CONNECTIONS,
            "Connections that one address may have; 0 or less for no limit.", "0"),
        Key("maxCnxns", "max_cnxns", number(0, unit="connections"), "Connections in all; 0 for no limit.", "1000"),
        Key("4lw.commands.whitelist", "whitelist", NAMES, "The four-letter commands that are answered; `*` for all.",
            "ruok, srvr, mntr"),
        Key("readonlymode.enabled", "isro", BOOLEAN, "Answer the four-letter command `isro` too. A single server is "
            "never read-only by itself.", "true"),
    ),
    "Sessions": (
        Key("tickTime", "settings.tick_time", milliseconds(1), "The unit of session expiry: sessions expire at "
            "multiples of it.", "500"),
        Key("minSessionTimeout", "settings.min_session_timeout", milliseconds(-1),
            "The shortest session timeout that a client can get.", "1000",
            default_note="twice `tickTime`, also for -1"),
        Key("maxSessionTimeout", "settings.max_session_timeout", milliseconds(-1),
            "The longest session timeout that a client can get.", "60000",
            default_note="twenty times `tickTime`, also for -1"),
        Key("nio.sessionlessCnxnTimeout", "settings.sessionless_timeout", milliseconds(1),
            "A connection that has not opened a session by then is closed.", "5000"),
        Key("connection_throttle_tokens", "settings.throttle_tokens", number(0, unit="sessions"),
            "Sessions that may be opened at once before clients are turned away; 0 for no limit.", "100"),
        Key("connection_throttle_fill_time", "settings.throttle_fill_time", milliseconds(1),
            "The time between two refills of the tokens.", "10"),
        Key("connection_throttle_fill_count", "settings.throttle_fill_count", number(1, unit="sessions"),
            "Tokens in one refill.", "5"),
    ),
    "Files": (
        Key("dataDir", "storage.data_dir", DIRECTORY, "Keep the data in this directory: snapshots and transaction logs "
            "of ZooKeeper's formats. Without it everything is in memory, and nothing touches the disk.",
            "/var/lib/zookeeper", option="--data-dir"),
        Key("dataLogDir", "storage.log_dir", DIRECTORY, "Keep the logs in another directory.", "/var/log/zookeeper",
            default_note="`dataDir`"),
        Key("zoolet.fsync", "storage.fsync", one_of("always", "interval", "never"), "When a write is certain to "
            "outlive a loss of power: before its reply, within a second, or when the operating system writes it. With "
            "all three it outlives the end of the process.", "interval"),
        Key("forceSync", "storage.fsync", FORCE_SYNC, "ZooKeeper's key for the same: `no` means `never`.", "no",
            overruled_by="zoolet.fsync"),
        Key("snapCount", "storage.snap_count", at_least(2, unit="transactions"),
            "Transactions after which the next snapshot is written; 2 at least.", "10000"),
        Key("snapSizeLimitInKb", "storage.log_size", number(0, unit="kilobytes"), "Transactions after which the next "
            "snapshot is written, by their size.", "4194304", default_note="four times the last snapshot, at least "
            "262144"),
        Key("preAllocSize", "storage.preallocated", number(0, unit="kilobytes"), "Space that is reserved for a log at "
            "a time; 0 for none. If so much is not free, writes are refused: choose less on a small disk.", "1024"),
        Key("autopurge.snapRetainCount", "storage.retained", at_least(3, unit="snapshots"), "Snapshots that are "
            "kept, 3 at least, with the logs that they need.", "5"),
        Key("autopurge.purgeInterval", "storage.purge", number(0, unit="hours"), "0 keeps all snapshots and logs; with "
            "any other number, those that are not needed are deleted whenever a snapshot is written. ZooKeeper's "
            "default is 0.", "0"),
        Key("zoolet.keyedPasswords", "storage.keyed_passwords", BOOLEAN, "Compute session passwords with a key that "
            "is kept in the directory, so that nobody can work them out; ZooKeeper's own servers, which take over the "
            "directory, do not know them, and sessions expire then.", "true"),
    ),
    "Data": (
        Key("jute.maxbuffer", "settings.max_frame", BUFFER,
            "The longest request; the connection of a client that sends a longer one is closed.", "4194304"),
        Key("extendedTypesEnabled", "settings.extended_types", BOOLEAN,
            "Offer TTL nodes. Container nodes are always offered.", "false"),
        Key("znode.container.checkIntervalMs", "settings.container_check_interval", milliseconds(1),
            "The time between two searches for container and TTL nodes that are due.", "10000"),
        Key("znode.container.maxPerMinute", "settings.container_max_per_minute", number(1, unit="nodes"),
            "Container and TTL nodes that are deleted in one minute at most.", "600"),
        Key("znode.container.maxNeverUsedIntervalMs", "settings.container_never_used", milliseconds(0),
            "A container that never had a child is deleted after this time; 0 for never.", "3600000"),
        Key("enforceQuota", "settings.enforce_quota", BOOLEAN, "Refuse writes that exceed a hard quota.", "true"),
        Key("reconfigEnabled", "settings.reconfig_enabled", BOOLEAN,
            "Answer reconfig as the only voter of an ensemble does; otherwise it is refused.", "true"),
    ),
    "Authentication and access": (
        Key("skipACL", "settings.skip_acl", YES, "Check no ACLs: every client may do everything.", "yes"),
        Key("DigestAuthenticationProvider.enabled", "settings.digest_enabled", BOOLEAN,
            "Accept authentication with scheme `digest`.", "false"),
        Key("DigestAuthenticationProvider.superDigest", "settings.super_digest", TEXT,
            "The user with scheme `digest` who may do everything, as `user:hash`.",
            "super:BASE64-OF-THE-HASH="),
        Key("DigestAuthenticationProvider.digestAlg", "settings.digest_algorithm", ALGORITHM,
            "The digest with which scheme `digest` hashes passwords.", "SHA-256"),
        Key("java.security.auth.login.config", "settings.sasl_users", FILE,
            "A JAAS file that names the users of SASL DIGEST-MD5 and their passwords. Without it there is no SASL.",
            "/etc/zookeeper/jaas.conf"),
        Key("sasl.serverconfig", "settings.sasl_users", TEXT, "The section of the JAAS file.", "Broker",
            fallback=jaas.SECTION, requires=("java.security.auth.login.config",)),
        Key("superUser", "settings.super_users", TEXT, "A SASL user who may do everything.", "admin"),
        Key("superUser.<name>", "settings.super_users", TEXT, "One more SASL user who may do everything.", "operator"),
        Key("X509AuthenticationProvider.superUser", "settings.x509_super", DISTINGUISHED_NAME, "Whose certificate may "
            "do everything, as RFC 2253 writes it. The certificate of a client on the TLS port is its identity of "
            "scheme `x509`.", "CN=admin,O=Example", requires=("ssl.trustStore.location",)),
        Key("allowSaslFailedClients", "settings.allow_failed_sasl", BOOLEAN,
            "Keep the connection of a client whose SASL authentication failed, without an identity.", "true"),
        Key("sessionRequireClientSASLAuth", "settings.require_auth", BOOLEAN,
            "Refuse every request until the client has authenticated with SASL. It overrules `enforce.auth.enabled`.",
            "true"),
        Key("enforce.auth.enabled", "settings.require_auth", BOOLEAN, "Refuse every request until the client has "
            "authenticated with one of the schemes in `enforce.auth.schemes`.", "true",
            requires=("enforce.auth.schemes",)),
        Key("enforce.auth.schemes", "settings.require_auth", SCHEMES,
            "The schemes for `enforce.auth.enabled`.", "sasl, digest"),
    ),
    "TLS": (
        Key("secureClientPort", "secure_port", PORT, "The port for connections over TLS; 0 takes a free one.", "2281",
            option="--secure-port", requires=("ssl.keyStore.location",)),
        Key("secureClientPortAddress", "secure_host", ADDRESSES, "The address to listen on for TLS, or several.",
            "192.0.2.10", requires=_TLS, default_note="that of `--host` where `--host` or `--secure-port` is given, "
            "otherwise all addresses where `secureClientPort` is set"),
        Key("ssl.keyStore.location", "tls.key_store", KEY_STORE, "The certificate of the server, the certificates "
            "between it and its authority, and its key: a PEM file, or a Java key store.",
            "/etc/zookeeper/server.pem", option="--tls-cert", requires=_TLS),
        Key("ssl.keyStore.password", "tls.key_store_password", TEXT,
            "The password of the key store, or of the key in it.", "secret",
            requires=_TLS, overruled_by="ssl.keyStore.passwordPath"),
        Key("ssl.keyStore.passwordPath", "tls.key_store_password_path", PASSWORD_FILE,
            "A file with that password. It is read whenever the certificates are, also on SIGHUP.",
            "/etc/zookeeper/keystore.password", requires=_TLS),
        Key("ssl.keyStore.type", "tls.key_store_type", STORE_TYPE, "The type of the key store.", "PKCS12",
            default_note="by the end of its name: `.pem`, `.jks`, `.p12`, `.pfx`, otherwise PEM", requires=_TLS),
        Key("ssl.keyStore.key.location", "tls.key", FILE, "A PEM file with the key, where it is not in the file of "
            "the certificate. ZooKeeper does not have this key.", "/etc/zookeeper/server-key.pem",
            option="--tls-key", requires=_TLS),
        Key("ssl.trustStore.location", "tls.trust_store", KEY_STORE, "The authorities that the certificates of clients "
            "are verified with: a PEM file, or a Java key store.", "/etc/zookeeper/clients.pem",
            option="--tls-ca", requires=_TLS),
        Key("ssl.trustStore.password", "tls.trust_store_password", TEXT, "The password of the trust store.", "secret",
            requires=_TLS, overruled_by="ssl.trustStore.passwordPath"),
        Key("ssl.trustStore.passwordPath", "tls.trust_store_password_path", PASSWORD_FILE,
            "A file with that password. It is read whenever the certificates are, also on SIGHUP.",
            "/etc/zookeeper/truststore.password", requires=_TLS),
        Key("ssl.trustStore.type", "tls.trust_store_type", STORE_TYPE, "The type of the trust store.", "JKS",
            default_note="as for the key store", requires=_TLS),
        Key("ssl.clientAuth", "tls.client_auth", one_of("need", "want", "none"), "Whether a client has to show a "
            "certificate: it must, it may, or it is not asked.", "want", default_note="need with a trust store",
            requires=("secureClientPort", "ssl.trustStore.location")),
        Key("ssl.enabledProtocols", "tls.protocols", PROTOCOLS, "The versions of TLS that are offered.", "TLSv1.3",
            requires=_TLS),
        Key("ssl.protocol", "tls.protocols", PROTOCOLS, "The same by another name.", "TLSv1.2",
            requires=_TLS, overruled_by="ssl.enabledProtocols"),
        Key("ssl.ciphersuites", "tls.cipher_suites", NAMES, "The cipher suites that are offered, by the names of Java "
            "or OpenSSL.", "TLS_AES_256_GCM_SHA384", default_note="as OpenSSL chooses", requires=_TLS),
    ),
    "Admin port and metrics": (
        Key("admin.enableServer", "admin.enabled", BOOLEAN, "Listen on the admin port: ZooKeeper's commands, "
            "`/metrics`, `/healthz` and `/readyz` over HTTP. It needs h11, the extra `admin`.", "true",
            default_note="true where `admin.serverPort` is set"),
        Key("admin.serverPort", "admin.port", PORT, "The admin port; 0 takes a free one.", "8080",
            option="--admin-port", default_note="8080 where `admin.enableServer` is true"),
        Key("admin.serverAddress", "admin.host", ADDRESS, "The address of the admin port. Everybody who reaches it "
            "can read everything but the data: leave it, or protect it by other means.", "192.0.2.10"),
        Key("zoolet.adminHosts", "admin.hosts", NAMES, "Names by which clients may call the admin port and that for "
            "metrics, if another machine calls them by a name with a dot: a name that is not expected may be that of a "
            "web page which leads here.", "zookeeper.example.org"),
        Key("admin.commandURL", "admin.prefix", URL_PATH, "The path of the commands.", "/admin"),
        Key("admin.idleTimeout", "admin.idle_timeout", milliseconds(1),
            "The time for which a connection may wait for its next request.", "5000"),
        Key("zoolet.adminTokenFile", "admin.token", TOKEN_FILE, "A file with the token that a request has to show "
            "which changes something, of 16 characters or more. It is sent as `Authorization: Bearer TOKEN`.",
            "/etc/zookeeper/admin.token", option="--admin-token-file", default_note="one is made and printed at the "
            "start", requires=("admin.serverPort",)),
        Key("metricsProvider.className", "admin.metrics", METRICS_PROVIDER, "With ZooKeeper's provider for "
            "Prometheus, `/metrics` is also on a port of its own, which has nothing else.",
            "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"),
        Key("metricsProvider.httpHost", "admin.metrics_host", ADDRESS, "The address of that port.", "127.0.0.1",
            default_note="all addresses"),
        Key("metricsProvider.httpPort", "admin.metrics_port", PORT, "That port; 0 takes a free one.", "9141"),
    ),
    "Logs": (
        Key("audit.enable", "admin.audit", BOOLEAN, "Write a line for each write: who, from where, what, and "
            "whether it was done.", "true"),
        Key("zoolet.auditFile", "admin.audit_file", FILE, "The file for these lines, which is followed by another when "
            "it has 10 MB; ten are kept.", "/var/log/zookeeper/audit.log", default_note="the log of the process",
            requires=("audit.enable",)),
        Key("zoolet.history", "admin.history", number(0, 100_000, unit="transactions"), "The last transactions that "
            "the console of the admin port shows, of 64 MB at most; 0 for none.", "50000"),
        Key("zoolet.slowRequestMs", "admin.slow", milliseconds(0), "Log a batch of requests that takes so long; 0 for "
            "never.", "100"),
    ),
    "Limits": (
        Key("zoolet.maxAclEntries", "settings.max_acl_entries", number(1, unit="entries"), "Entries of one ACL, once "
            "`auth` is replaced by the identities that it stands for; they may have `jute.maxbuffer` bytes together.",
            "1000"),
        Key("zoolet.maxIdentities", "settings.max_identities", number(1, unit="identities"),
            "Identities that one connection may have.", "16"),
        Key("zoolet.maxWatches", "settings.max_watches", number(1, unit="watches"), "Watches that all connections may "
            "have together. One on a path of more than 128 characters counts as several, one for each 128.", "1000000"),
        Key("zoolet.maxWatchesPerConnection", "settings.max_watches_per_connection", number(1, unit="watches"),
            "The same for one connection.", "10000"),
        Key("zoolet.maxSetWatches", "settings.max_set_watches", number(1, unit="watches"),
            "Watches of one setWatches request. The Java client sends at most 128 kB at a time.", "50000"),
        Key("zoolet.maxMultiOperations", "settings.max_multi_operations", number(1, unit="operations"),
            "Operations of one multi or multiRead, which cannot be interrupted.", "1000"),
        Key("zoolet.maxMultiReadBytes", "settings.max_multi_read", number(1, unit="bytes"),
            "The results of one multiRead.", "1048576"),
        Key("zoolet.maxUnreadBytes", "settings.max_unread_bytes", number(1, unit="bytes"),
            "Events that may wait for one client to read them before it is disconnected.", "1048576"),
        Key("zoolet.maxUnreadBytesTotal", "settings.max_unread_bytes_total", number(1, unit="bytes"),
            "Replies and events that may wait for all clients together.", "1073741824"),
        Key("zoolet.maxPartialRequestBytes", "settings.max_partial_request_bytes", number(1, unit="bytes"),
            "Unfinished requests that may be kept for all connections together.", "1073741824"),
    ),
}
"""The keys that are honoured, in the order and under the headings of the documentation."""
# fmt: on


def _ignored(why: str, *names: str, dynamic: bool = False) -> tuple[Key, ...]:
    return tuple(Key(name, help=why, status=Status.IGNORED, dynamic=dynamic) for name in names)


def _refused(name: str, remedy: str, *supported: object, converter: Converter = TEXT, dynamic: bool = False) -> Key:
    return Key(name, "", converter, remedy, status=Status.REFUSED, supported=supported, dynamic=dynamic)


_SINGLE: Final = "This is a single server."
_PROVIDERS: Final = "org.apache.zookeeper.server.auth.{}AuthenticationProvider"

# fmt: off
IGNORED: Final[tuple[Key, ...]] = (
    *_ignored("There may be one such line, that of this server; only its client port and address are used.",
              "server.<number>", dynamic=True),
    *_ignored(_SINGLE, "version", dynamic=True),
    *_ignored(
        _SINGLE,
        "standaloneEnabled", "initLimit", "syncLimit", "syncEnabled", "connectToLearnerMasterLimit", "leaderServes",
        "leader.*", "learner.*", "observer.*", "follower.*", "fastleader.*", "observerMasterPort", "cnxTimeout",
        "electionPort*", "electionPortBindRetry", "maxTimeToWaitForEpoch", "quorum.*", "quorumListenOnAllIPs",
        "quorumCnxnTimeoutMs", "multiAddress.*", "sslQuorum*", "ssl.quorum.*", "portUnification", "forceSnapshotSync",
        "localSessionsEnabled", "localSessionsUpgradingEnabled",
    ),
    *_ignored(
        "The files are written in one way: a directory that is missing is created, snapshots are not compressed, and "
        "neither they nor the logs have digests of the tree.",
        "datadir.autocreate", "db.autocreate", "snapshot.*", "snapshotSizeFactor",
        "txnLogSizeLimitInKb", "commitLogCount", "fsync.*", "flushDelay", "maxBatchSize",
        "maxWriteQueuePollTime", "serializeLastProcessedZxid.*", "digest.enabled", "emulate353TTLNodes",
    ),
    *_ignored(
        "They belong to the admin server, the metrics and the logs of Java.",
        "admin.*", "metricsProvider.*", "jmx.*", "jvm.pause.*", "log.*",
        "root.logger", "console.threshold", "tracelog.*", "requestTraceFile", "messageTracker.*", "pathStats.*",
        "audit.*",
    ),
    *_ignored(
        "They tune threads, queues and caches that this server does not have.",
        "serverCnxnFactory", "server.cnxn*", "netty.*", "nio.numSelectorThreads", "nio.numWorkerThreads",
        "nio.directBufferBytes", "nio.shutdownTimeout", "commitProcessor.*", "globalOutstandingLimit",
        "request_throttle*", "request_stale*", "throttled_op_wait_time", "largeRequest*", "connection_throttle_*",
        "intBufferStartingSizeBytes", "jute.maxbuffer.extrasize", "bitHashCacheSize", "watchManagerName",
        "watcherClean*", "maxInProcessingDeadWatchers", "maxResponseCacheSize", "maxGetChildrenResponseCacheSize",
        "closeSessionTxn.enabled", "clientTcpKeepAlive", "tcpKeepAlive",
    ),
    *_ignored(
        "They belong to ways of authentication that this server does not have.",
        "kerberos.*", "kinit", "jaasLoginRenew", "requireClientAuthScheme", "enableEagerACLCheck",
        "IPAuthenticationProvider.usexforwardedfor",
    ),
    *_ignored(
        "They belong to the TLS of Java.",
        "ssl.hostnameVerification", "ssl.handshakeDetectionTimeoutMillis", "ssl.sslProvider", "ssl.tcnative*",
        "fips-mode",
    ),
    *_ignored("They are for clients, or for the tests of ZooKeeper.",
              "client.secure", "clientCnxnSocket", "sasl.client*", "test.*"),
)
"""The keys of ZooKeeper that have no effect in a single server in memory."""

REFUSED: Final[tuple[Key, ...]] = (
    _refused("authProvider*", "only the providers for digest, ip, SASL and x509 are built in",
             *map(_PROVIDERS.format, ("Digest", "IP", "SASL", "X509"))),
    _refused("ssl.authProvider", "only x509 is built in", "", "x509"),
    _refused("X509AuthenticationProvider.*", "the subject of a certificate is its identity"),
    _refused("X509AuthenticationProvider.clientCertIdType", "the subject of a certificate is its identity", "SUBJECT"),
    _refused("ensembleAuthName", "this server does not have the ensemble provider"),
    _refused("requireKerberosConfig", "Kerberos is not available", False, converter=BOOLEAN),
    _refused("client.certReload", "leave it out and send SIGHUP to have the certificates read again",
             False, converter=BOOLEAN),
    _refused("client.portUnification", "TLS and plain text need a port each", False, converter=BOOLEAN),
    _refused("ssl.crl", "leave it out, for revocation lists are not checked", False, converter=BOOLEAN),
    _refused("ssl.ocsp", "leave it out, for revoked certificates are not looked up", False, converter=BOOLEAN),
    _refused("ssl.clientHostnameVerification", "the host names of clients are not verified",
             False, converter=BOOLEAN),
    _refused("ssl.context.supplier.class", "Java classes cannot be loaded"),
    _refused("electionAlg", "only 3 is", "3"),
    _refused("peerType", "leave it out, for this is a single server",
             "participant", converter=one_of("participant", "observer")),
    _refused("group.*", "leave it out, for this is a single server and has no groups", dynamic=True),
    _refused("weight.*", "leave it out, for this is a single server and has no weights", dynamic=True),
    _refused("oraclePath", "leave it out, for this is a single server and asks no oracle"),
)
"""The keys of ZooKeeper that must not be ignored: those of security, and those of an ensemble that change answers."""
# fmt: on

KEYS: Final[tuple[Key, ...]] = (*(key for section in SECTIONS.values() for key in section), *IGNORED, *REFUSED)
"""The whole table."""
_SINGLE_KEYS: Final = {key.name: key for key in KEYS if not key.is_family}
_FAMILIES: Final = tuple(key for key in KEYS if key.is_family)


def find(name: str) -> Key | None:
    """Return the row of a key, given without ``zookeeper.``; a row of its own comes before that of a family."""
    return _SINGLE_KEYS.get(name) or next((key for key in _FAMILIES if key.matches(name)), None)


def nearest(name: str) -> str | None:
    """Return the known key that is spelled most like an unknown one, if one is."""
    from difflib import get_close_matches  # it takes 2 ms to import, and most configurations have no unknown key

    names = {key.name.lower(): key.name for key in KEYS}
    close = get_close_matches(name.lower(), names, 1, 0.75)
    return names[close[0]] if close else None


def is_misspelt(name: str) -> bool:
    """Return whether a key is nearly that of a row of its own which is honoured: ``admin.severPort``."""
    from difflib import get_close_matches

    honoured = [key.name for section in SECTIONS.values() for key in section if not key.is_family]
    return bool(get_close_matches(name, honoured, 1, 0.9))
