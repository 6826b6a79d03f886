"""The table of configuration keys, one row each.

The parser, the command line, the messages and ``docs/configuration.md`` are generated from it.

To add a key, add a row. Add its field to ``EngineSettings`` (server/core), ``ServerConfig``, or, as ``tls.name``,
``TlsSettings`` (server/net). Then run ``make docs``. If a field depends on several keys, compute it in ``load.py``.

Source: QuorumPeerConfig.parseProperties; ZooKeeper Administrator's Guide, "Configuration Parameters".
"""

from __future__ import annotations

import re
from enum import Enum, auto
from operator import attrgetter
from typing import Final, NamedTuple

from . import jaas
from .config import ServerConfig
from .converters import (
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


class KeyStatus(Enum):
    """The treatment of a key that is set."""

    HONOURED = auto()
    """The key sets a field of the configuration."""
    IGNORED = auto()
    """The key has no effect here, although ZooKeeper supports it. One warning names all such keys that were set."""
    REFUSED = auto()
    """The key must not be ignored, because its user relies on it. An unsupported value is an error."""


_DEFAULTS: Final = ServerConfig()
_PLACEHOLDERS: Final = {"*": r"(?s:.*)", "<number>": r"\d+", "<name>": r"\w+"}
"""The patterns of the placeholders that may end the name of a family of keys."""


class Key(NamedTuple):
    """One key, or a family of keys.

    Args:
        name: The key without ``zookeeper.``. A family ends with ``<number>``, ``<name>`` (letters, digits and
            underscores) or ``*`` (anything).
        field: The field of :class:`ServerConfig` that the key sets, such as ``port`` or ``settings.tick_time``.
        converter: The type of the value.
        help: Description of the effect, in sentences. For an ignored key, the reason why it has no effect. For a
            refused key, the end of the message "... is not supported; ...".
        example: A value other than the default.
        status: The treatment of the key.
        default_note: The condition for a different default, or the meaning of the default.
        fallback: The default value, if it differs from the default of the field.
        option: The command-line option that sets the key.
        requires: The keys that must also be set, unless the value requires nothing (false or empty).
        overruled_by: The key that overrides this one, as in ZooKeeper.
        supported: The values of a refused key that are accepted.
        dynamic: Whether the key is allowed in a dynamicConfigFile.
    """

    name: str
    field: str = ""
    converter: Converter = TEXT
    help: str = ""
    example: str = ""
    status: KeyStatus = KeyStatus.HONOURED
    default_note: str = ""
    fallback: str = ""
    option: str | None = None
    requires: tuple[str, ...] = ()
    overruled_by: str | None = None
    supported: tuple[object, ...] = ()
    dynamic: bool = False

    @property
    def label(self) -> str:
        """The name of the key for messages, followed by its command-line option if there is one."""
        return f"{self.name} ({self.option})" if self.option else self.name

    @property
    def default(self) -> str:
        """The default value as text; empty if the key has no default."""
        return self.fallback or self.converter.show(attrgetter(self.field)(_DEFAULTS))

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
        Key("clientPort", "port", PORT,
            "The port to listen on. 0 picks a free port.",
            "2182", option="--port", default_note="not opened if only `secureClientPort` is set"),
        Key("clientPortAddress", "host", ADDRESSES,
            "The address to listen on, or several addresses separated by commas, such as `127.0.0.1,::1`. `0.0.0.0` "
            "and `::` mean all addresses, IPv4 and IPv6. In a list, `0.0.0.0` means only IPv4, and `::` only IPv6. "
            "ZooKeeper accepts only one address.",
            "192.0.2.10", option="--host",
            default_note="all addresses if `clientPort` is set in any way other than `--port`"),
        Key("dynamicConfigFile", "port", FILE,
            "A file with the `server.<number>` line of this server. The port and address after its semicolon are "
            "used unless `clientPort` is set.",
            "/etc/zookeeper/zoo.cfg.dynamic"),
        Key("zoolet.unixSocket", "unix_socket", SOCKET,
            "Also listen on a Unix socket. The permissions of its folder and the umask decide which users can "
            "connect. Clients address it as `unix:/run/zoolet.sock`. Such a client has no address, so an ACL of the "
            "scheme `ip` never matches it.",
            "/run/zoolet.sock"),
        Key("clientPortListenBacklog", "backlog", number(-1, unit="connections"),
            "Connections that may wait to be accepted. 0 and -1 use the default.",
            "1024"),
        Key("maxClientCnxns", "max_client_cnxns", CONNECTIONS,
            "Connections per client address. 0 or less disables the limit.",
            "0"),
        Key("maxCnxns", "max_cnxns", number(0, unit="connections"),
            "Connections in total. 0 disables the limit.",
            "1000"),
        Key("4lw.commands.whitelist", "whitelist", NAMES,
            "The four-letter commands that clients may run. `*` allows all.",
            "ruok, srvr, mntr"),
        Key("readonlymode.enabled", "isro", BOOLEAN,
            "Also answer the four-letter command `isro`. A single server never enters read-only mode on its own.",
            "true"),
    ),
    "Sessions": (
        Key("tickTime", "settings.tick_time", milliseconds(1),
            "The unit of session expiry: sessions expire at multiples of it.",
            "500"),
        Key("minSessionTimeout", "settings.min_session_timeout", milliseconds(-1),
            "The shortest session timeout that the server grants.",
            "1000", default_note="twice `tickTime`, also for -1"),
        Key("maxSessionTimeout", "settings.max_session_timeout", milliseconds(-1),
            "The longest session timeout that the server grants.",
            "60000", default_note="twenty times `tickTime`, also for -1"),
        Key("nio.sessionlessCnxnTimeout", "settings.sessionless_timeout", milliseconds(1),
            "A connection is closed if it has not opened a session within this time. The server checks connections at "
            "this interval, so it can take up to twice as long.",
            "5000"),
        Key("connection_throttle_tokens", "settings.throttle_tokens", number(0, unit="sessions"),
            "Sessions that may be opened in a burst before new ones are rejected. 0 disables the limit.",
            "100"),
        Key("connection_throttle_fill_time", "settings.throttle_fill_time", milliseconds(1),
            "The time between two refills of `connection_throttle_tokens`.",
            "10"),
        Key("connection_throttle_fill_count", "settings.throttle_fill_count", number(1, unit="sessions"),
            "Tokens added by each refill.",
            "5"),
    ),
    "Files": (
        Key("dataDir", "storage.data_dir", DIRECTORY,
            "Keep the data in this directory, in ZooKeeper's snapshots and transaction logs. Without it, all data "
            "is in memory and is lost when the server stops.",
            "/var/lib/zoolet", option="--data-dir"),
        Key("dataLogDir", "storage.log_dir", DIRECTORY,
            "Keep the transaction logs in this directory instead of `dataDir`.",
            "/var/log/zookeeper", default_note="`dataDir`"),
        Key("zoolet.fsync", "storage.fsync", one_of("always", "interval", "never"),
            "When a write is safe from a power failure: `always` before its reply, `interval` within a second, "
            "`never` when the operating system writes it. With all three, a write survives a crash of the process.",
            "interval"),
        Key("forceSync", "storage.fsync", FORCE_SYNC,
            "ZooKeeper's key for `zoolet.fsync`. `no` means `never`.",
            "no", overruled_by="zoolet.fsync"),
        Key("snapCount", "storage.snap_count", at_least(2, unit="transactions"),
            "Transactions between two snapshots, at least 2.",
            "10000"),
        Key("snapSizeLimitInKb", "storage.log_size", number(0, unit="kilobytes"),
            "Size of the transactions between two snapshots.",
            "4194304", default_note="four times the last snapshot, at least 262144"),
        Key("preAllocSize", "storage.preallocated", number(0, unit="kilobytes"),
            "Space reserved for a log in one step. 0 reserves none. A log reserves space when it is created, and again "
            "when less than a quarter of this is left. If the disk has less free space, writes are rejected until that "
            "changes, so choose a smaller value on a small disk.",
            "1024"),
        Key("autopurge.snapRetainCount", "storage.retained", at_least(3, unit="snapshots"),
            "Snapshots that are kept, at least 3, with the logs that they need.",
            "5"),
        Key("autopurge.purgeInterval", "storage.purge", number(0, unit="hours"),
            "0 keeps all snapshots and logs. With any other number, unneeded files are deleted whenever a snapshot "
            "is written. ZooKeeper's default is 0.",
            "0"),
        Key("snapshot.trust.empty", "storage.trust_empty", BOOLEAN,
            "Start from transaction logs without a snapshot, as ZooKeeper 3.4 may leave them. Set this for one start "
            "only: if the snapshots were lost, the server starts without the data in them.",
            "true"),
        Key("zoolet.keyedPasswords", "storage.keyed_passwords", BOOLEAN,
            "Compute session passwords with a key that is stored in the directory, and that Apache ZooKeeper does not "
            "know. See [Limitations](security.md#limitations).",
            "true"),
    ),
    "Data": (
        Key("jute.maxbuffer", "settings.max_frame", BUFFER,
            "The longest request. The connection of a client that sends a longer request is closed.",
            "4194304"),
        Key("extendedTypesEnabled", "settings.extended_types", BOOLEAN,
            "Support TTL nodes. Container nodes are always supported.",
            "false"),
        Key("znode.container.checkIntervalMs", "settings.container_check_interval", milliseconds(1),
            "The time between two searches for expired container and TTL nodes.",
            "10000"),
        Key("znode.container.maxPerMinute", "settings.container_max_per_minute", number(1, unit="nodes"),
            "Container and TTL nodes deleted per minute, at most.",
            "600"),
        Key("znode.container.maxNeverUsedIntervalMs", "settings.container_never_used", milliseconds(0),
            "A container that never had a child is deleted after this time. 0 disables it.",
            "3600000"),
        Key("enforceQuota", "settings.enforce_quota", BOOLEAN,
            "Reject writes that exceed a hard quota.",
            "true"),
        Key("reconfigEnabled", "settings.reconfig_enabled", BOOLEAN,
            "Answer `reconfig` like the only voter of an ensemble. If false, it is rejected.",
            "true"),
    ),
    "Authentication and access": (
        Key("skipACL", "settings.skip_acl", YES,
            "Do not check ACLs: every client may do everything.",
            "yes"),
        Key("DigestAuthenticationProvider.enabled", "settings.digest_enabled", BOOLEAN,
            "Accept authentication with scheme `digest`.", "false"),
        Key("DigestAuthenticationProvider.superDigest", "settings.super_digest", TEXT,
            "The user of the scheme `digest` who may do everything, as `user:hash`.",
            "super:BASE64-OF-THE-HASH="),
        Key("DigestAuthenticationProvider.digestAlg", "settings.digest_algorithm", ALGORITHM,
            "The hash function for passwords of the scheme `digest`.",
            "SHA-256"),
        Key("java.security.auth.login.config", "settings.sasl_users", FILE,
            "A JAAS file with the users of SASL DIGEST-MD5 and their passwords. Without it, SASL is disabled.",
            "/etc/zookeeper/jaas.conf"),
        Key("sasl.serverconfig", "settings.sasl_users", TEXT,
            "The section of the JAAS file that lists the users.",
            "Broker", fallback=jaas.SECTION, requires=("java.security.auth.login.config",)),
        Key("superUser", "settings.super_users", TEXT,
            "The name of a SASL user who may do everything.",
            "admin"),
        Key("superUser.<name>", "settings.super_users", TEXT,
            "The name of an additional SASL user who may do everything.",
            "operator"),
        Key("X509AuthenticationProvider.superUser", "settings.x509_super", DISTINGUISHED_NAME,
            "The subject of the client certificate that may do everything, in the notation of RFC 2253. On the TLS "
            "port, a client's certificate is its identity of the scheme `x509`.",
            "CN=admin,O=Example", requires=("ssl.trustStore.location",)),
        Key("allowSaslFailedClients", "settings.allow_failed_sasl", BOOLEAN,
            "Keep the connection of a client whose SASL authentication failed, without an identity.",
            "true"),
        Key("sessionRequireClientSASLAuth", "settings.require_auth", BOOLEAN,
            "Reject every request until the client has authenticated with SASL. This key overrides "
            "`enforce.auth.enabled`.",
            "true"),
        Key("enforce.auth.enabled", "settings.require_auth", BOOLEAN,
            "Reject every request until the client has authenticated with one of the schemes in "
            "`enforce.auth.schemes`.",
            "true", requires=("enforce.auth.schemes",)),
        Key("enforce.auth.schemes", "settings.require_auth", SCHEMES,
            "The schemes for `enforce.auth.enabled`, separated by commas.",
            "sasl, digest"),
    ),
    "TLS": (
        Key("secureClientPort", "secure_port", PORT,
            "The port for connections over TLS. 0 picks a free port.",
            "2281", option="--secure-port", requires=("ssl.keyStore.location",)),
        Key("secureClientPortAddress", "secure_host", ADDRESSES,
            "The address to listen on for TLS, or several addresses separated by commas.",
            "192.0.2.10", requires=_TLS,
            default_note="the address in `--host` if `--host` or `--secure-port` is "
            "given, otherwise all addresses if `secureClientPort` is set"),
        Key("ssl.keyStore.location", "tls.key_store", KEY_STORE,
            "A PEM file or Java key store with the server's certificate, the intermediate certificates and the "
            "private key.",
            "/etc/zookeeper/server.pem", option="--tls-cert", requires=_TLS),
        Key("ssl.keyStore.password", "tls.key_store_password", TEXT,
            "The password of the key store, or of the key in it.",
            "secret", requires=_TLS, overruled_by="ssl.keyStore.passwordPath"),
        Key("ssl.keyStore.passwordPath", "tls.key_store_password_path", PASSWORD_FILE,
            "A file with the password of the key store. It is read together with the certificates, including on "
            "SIGHUP.",
            "/etc/zookeeper/keystore.password", requires=_TLS),
        Key("ssl.keyStore.type", "tls.key_store_type", STORE_TYPE,
            "The type of the key store.",
            "PKCS12", default_note="by the file name: `.pem`, `.jks`, `.p12`, `.pfx`, otherwise PEM", requires=_TLS),
        Key("ssl.keyStore.key.location", "tls.key", FILE,
            "A PEM file with the private key, if it is not in the file of the certificate. ZooKeeper does not have "
            "this key.",
            "/etc/zookeeper/server-key.pem", option="--tls-key", requires=_TLS),
        Key("ssl.trustStore.location", "tls.trust_store", KEY_STORE,
            "A PEM file or Java key store with the authorities that verify client certificates.",
            "/etc/zookeeper/clients.pem", option="--tls-ca", requires=_TLS),
        Key("ssl.trustStore.password", "tls.trust_store_password", TEXT, "The password of the trust store.", "secret",
            requires=_TLS, overruled_by="ssl.trustStore.passwordPath"),
        Key("ssl.trustStore.passwordPath", "tls.trust_store_password_path", PASSWORD_FILE,
            "A file with the password of the trust store. It is read together with the certificates, including on "
            "SIGHUP.",
            "/etc/zookeeper/truststore.password", requires=_TLS),
        Key("ssl.trustStore.type", "tls.trust_store_type", STORE_TYPE, "The type of the trust store.", "JKS",
            default_note="as for the key store", requires=_TLS),
        Key("ssl.clientAuth", "tls.client_auth", one_of("need", "want", "none"),
            "Whether clients must (`need`), may (`want`) or need not (`none`) present a certificate.",
            "want", default_note="`need` if a trust store is set",
            requires=("secureClientPort", "ssl.trustStore.location")),
        Key("ssl.enabledProtocols", "tls.protocols", PROTOCOLS,
            "The versions of TLS that the server accepts.",
            "TLSv1.3", requires=_TLS),
        Key("ssl.protocol", "tls.protocols", PROTOCOLS,
            "A different name for `ssl.enabledProtocols`.",
            "TLSv1.2", requires=_TLS, overruled_by="ssl.enabledProtocols"),
        Key("ssl.ciphersuites", "tls.cipher_suites", NAMES,
            "The cipher suites that the server accepts, with their names in Java or OpenSSL.",
            "TLS_AES_256_GCM_SHA384", default_note="OpenSSL's choice", requires=_TLS),
    ),
    "Admin port and metrics": (
        Key("admin.enableServer", "admin.enabled", BOOLEAN,
            "Listen on the admin port, which serves the console, ZooKeeper's commands, `/metrics`, `/healthz` and "
            "`/readyz` over HTTP. It needs h11, the extra `admin`.",
            "true", default_note="true if `admin.serverPort` is set"),
        Key("admin.serverPort", "admin.port", PORT,
            "The HTTP port for the console, metrics and health checks, which requires the extra admin. 0 picks a free "
            "port.",
            "8080", option="--admin-port", default_note="8080 if `admin.enableServer` is true"),
        Key("admin.serverAddress", "admin.host", ADDRESS,
            "The address of the admin port. Anyone who can connect to it can read metrics, sessions, addresses and "
            "paths, and on loopback also data that everyone may read. If you change it, protect the port by other "
            "means.",
            "192.0.2.10"),
        Key("zoolet.adminHosts", "admin.hosts", NAMES,
            "Host names that clients may use for the admin port and the metrics port, in addition to addresses, "
            "names of this machine, and names without a dot or with a private suffix. Other names are rejected, "
            "because they may come from a malicious web page (DNS rebinding).",
            "zookeeper.example.org"),
        Key("admin.commandURL", "admin.prefix", URL_PATH,
            "The path of the commands.",
            "/admin"),
        Key("admin.idleTimeout", "admin.idle_timeout", milliseconds(1),
            "The time that a connection may wait for its next request.",
            "5000"),
        Key("zoolet.adminTokenFile", "admin.token", TOKEN_FILE,
            "A file with the admin token of at least 16 characters. Requests that change data or show all data "
            "must send it as `Authorization: Bearer TOKEN`.",
            "/etc/zookeeper/admin.token", option="--admin-token-file",
            default_note="a new token is generated and printed at each start", requires=("admin.serverPort",)),
        Key("metricsProvider.className", "admin.metrics", METRICS_PROVIDER,
            "With ZooKeeper's provider for Prometheus, `/metrics` is also served on a separate port.",
            "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"),
        Key("metricsProvider.httpHost", "admin.metrics_host", ADDRESS,
            "The address of the separate port for metrics.",
            "127.0.0.1", default_note="all addresses"),
        Key("metricsProvider.httpPort", "admin.metrics_port", PORT,
            "The separate port for metrics. 0 picks a free port.",
            "9141"),
    ),
    "Logs": (
        Key("audit.enable", "admin.audit", BOOLEAN,
            "Write a line with user, address, operation and result for each write, and for each ephemeral node that "
            "is deleted with its session. Starts and stops also get a line.",
            "true"),
        Key("zoolet.auditFile", "admin.audit_file", FILE,
            "The file for the lines of `audit.enable`. It is rotated at 10 MB, and ten old files are kept.",
            "/var/log/zookeeper/audit.log", default_note="the log of the process", requires=("audit.enable",)),
        Key("zoolet.history", "admin.history", number(0, 100_000, unit="transactions"),
            "Number of transactions that the console keeps, in at most 64 MB. 0 disables the history.",
            "50000"),
        Key("zoolet.slowRequestMs", "admin.slow", milliseconds(0),
            "Log each batch of requests that takes at least this long. 0 disables it.",
            "100"),
    ),
    "Limits": (
        Key("zoolet.maxAclEntries", "settings.max_acl_entries", number(1, unit="entries"),
            "Entries of one ACL, after `auth` has been replaced with the client's identities. Together, they may "
            "take at most `jute.maxbuffer` bytes.",
            "1000"),
        Key("zoolet.maxIdentities", "settings.max_identities", number(1, unit="identities"),
            "Identities per connection.",
            "16"),
        Key("zoolet.maxWatches", "settings.max_watches", number(1, unit="watches"),
            "Watches of all connections. A watch on a path of more than 128 characters counts once for each 128.",
            "1000000"),
        Key("zoolet.maxWatchesPerConnection", "settings.max_watches_per_connection", number(1, unit="watches"),
            "Watches per connection, counted in the same way.",
            "10000"),
        Key("zoolet.maxSetWatches", "settings.max_set_watches", number(1, unit="watches"),
            "Watches in one `setWatches` request. The Java client sends at most 128 kB in one request.",
            "50000"),
        Key("zoolet.maxMultiOperations", "settings.max_multi_operations", number(1, unit="operations"),
            "Operations in one multi or multiRead. The server cannot interrupt these requests.",
            "1000"),
        Key("zoolet.maxMultiReadBytes", "settings.max_multi_read", number(1, unit="bytes"),
            "Bytes in the result of one multiRead. The Java client accepts at most 4 MB by default.",
            "1048576"),
        Key("zoolet.maxUnreadBytes", "settings.max_unread_bytes", number(1, unit="bytes"),
            "Bytes of unread events per client. A client with more is disconnected.",
            "1048576"),
        Key("zoolet.maxUnreadBytesTotal", "settings.max_unread_bytes_total", number(1, unit="bytes"),
            "Bytes of unread replies and events of all clients.",
            "1073741824"),
        Key("zoolet.maxPartialRequestBytes", "settings.max_partial_request_bytes", number(1, unit="bytes"),
            "Bytes of unfinished requests of all connections.",
            "1073741824"),
    ),
}
"""The keys that are honoured, in the order and under the headings of the documentation."""
# fmt: on


def _ignored(why: str, *names: str, dynamic: bool = False) -> tuple[Key, ...]:
    return tuple(Key(name, help=why, status=KeyStatus.IGNORED, dynamic=dynamic) for name in names)


def _refused(name: str, remedy: str, *supported: object, converter: Converter = TEXT, dynamic: bool = False) -> Key:
    return Key(name, "", converter, remedy, status=KeyStatus.REFUSED, supported=supported, dynamic=dynamic)


_SINGLE_SERVER_REASON: Final = "This is a single server."
_PROVIDERS: Final = "org.apache.zookeeper.server.auth.{}AuthenticationProvider"

# fmt: off
IGNORED: Final[tuple[Key, ...]] = (
    *_ignored("Only one such line is allowed, for this server. Only its client port and address are used.",
              "server.<number>", dynamic=True),
    *_ignored(_SINGLE_SERVER_REASON, "version", dynamic=True),
    *_ignored(
        _SINGLE_SERVER_REASON,
        "standaloneEnabled", "initLimit", "syncLimit", "syncEnabled", "connectToLearnerMasterLimit", "leaderServes",
        "leader.*", "learner.*", "observer.*", "follower.*", "fastleader.*", "observerMasterPort", "cnxTimeout",
        "electionPort*", "electionPortBindRetry", "maxTimeToWaitForEpoch", "quorum.*", "quorumListenOnAllIPs",
        "quorumCnxnTimeoutMs", "multiAddress.*", "sslQuorum*", "ssl.quorum.*", "portUnification", "forceSnapshotSync",
        "localSessionsEnabled", "localSessionsUpgradingEnabled",
    ),
    *_ignored(
        "The format of the files is fixed: a missing directory is created, snapshots are not compressed, and neither "
        "snapshots nor logs contain digests of the tree.",
        "datadir.autocreate", "db.autocreate", "snapshot.*", "snapshotSizeFactor",
        "txnLogSizeLimitInKb", "commitLogCount", "fsync.*", "flushDelay", "maxBatchSize",
        "maxWriteQueuePollTime", "serializeLastProcessedZxid.*", "digest.enabled", "emulate353TTLNodes",
    ),
    *_ignored(
        "These keys configure the admin server, the metrics and the logs of Java.",
        "admin.*", "metricsProvider.*", "jmx.*", "jvm.pause.*", "log.*",
        "root.logger", "console.threshold", "tracelog.*", "requestTraceFile", "messageTracker.*", "pathStats.*",
        "audit.*",
    ),
    *_ignored(
        "These keys tune threads, queues and caches that this server does not have.",
        "serverCnxnFactory", "server.cnxn*", "netty.*", "nio.numSelectorThreads", "nio.numWorkerThreads",
        "nio.directBufferBytes", "nio.shutdownTimeout", "commitProcessor.*", "globalOutstandingLimit",
        "request_throttle*", "request_stale*", "throttled_op_wait_time", "largeRequest*", "connection_throttle_*",
        "intBufferStartingSizeBytes", "jute.maxbuffer.extrasize", "bitHashCacheSize", "watchManagerName",
        "watcherClean*", "maxInProcessingDeadWatchers", "maxResponseCacheSize", "maxGetChildrenResponseCacheSize",
        "closeSessionTxn.enabled", "clientTcpKeepAlive", "tcpKeepAlive",
    ),
    *_ignored(
        "These keys configure kinds of authentication that this server does not have.",
        "kerberos.*", "kinit", "jaasLoginRenew", "requireClientAuthScheme", "enableEagerACLCheck",
        "IPAuthenticationProvider.usexforwardedfor",
    ),
    *_ignored(
        "These keys configure the TLS of Java.",
        "ssl.hostnameVerification", "ssl.handshakeDetectionTimeoutMillis", "ssl.sslProvider", "ssl.tcnative*",
        "fips-mode",
    ),
    *_ignored("These keys are for clients, or for the tests of ZooKeeper.",
              "client.secure", "clientCnxnSocket", "sasl.client*", "test.*"),
)
"""ZooKeeper's keys without effect in zoolet, because it is a single server written in Python."""

REFUSED: Final[tuple[Key, ...]] = (
    _refused("authProvider*", "only the providers for digest, ip, SASL and x509 are built in",
             *map(_PROVIDERS.format, ("Digest", "IP", "SASL", "X509"))),
    _refused("ssl.authProvider", "only x509 is built in", "", "x509"),
    _refused("X509AuthenticationProvider.*", "the subject of a certificate is its identity"),
    _refused("X509AuthenticationProvider.clientCertIdType", "the subject of a certificate is its identity", "SUBJECT"),
    _refused("ensembleAuthName", "the ensemble provider is not available"),
    _refused("requireKerberosConfig", "Kerberos is not available", False, converter=BOOLEAN),
    _refused("client.certReload", "remove it, and send SIGHUP to read the certificates again",
             False, converter=BOOLEAN),
    _refused("client.portUnification", "use separate ports for TLS and plain text", False, converter=BOOLEAN),
    _refused("ssl.crl", "remove it: revocation lists are not checked", False, converter=BOOLEAN),
    _refused("ssl.ocsp", "remove it: the status of certificates is not checked", False, converter=BOOLEAN),
    _refused("ssl.clientHostnameVerification", "the host names of clients are not verified",
             False, converter=BOOLEAN),
    _refused("ssl.context.supplier.class", "Java classes cannot be loaded"),
    *(_refused(f"admin.{name}", "use a proxy in front of the admin port for TLS", False, converter=BOOLEAN)
      for name in ("forceHttps", "needClientAuth", "portUnification")),
    _refused("electionAlg", "only 3 is supported", "3"),
    _refused("peerType", "remove the key, because zoolet runs a single server",
             "participant", converter=one_of("participant", "observer")),
    _refused("group.*", "remove it: a single server has no groups", dynamic=True),
    _refused("weight.*", "remove it: a single server has no weights", dynamic=True),
    _refused("oraclePath", "remove it: a single server has no oracle"),
)
"""ZooKeeper's keys that must not be ignored, because they affect security, or because an ensemble's answers depend on
them.
"""
# fmt: on

KEYS: Final[tuple[Key, ...]] = (*(key for section in SECTIONS.values() for key in section), *IGNORED, *REFUSED)
"""All rows of the table: the honoured, the ignored and the refused keys."""
_SINGLE_KEYS: Final = {key.name: key for key in KEYS if not key.is_family}
_FAMILIES: Final = tuple(key for key in KEYS if key.is_family)


def find(name: str) -> Key | None:
    """Return the row of a key, or None if the key is unknown. An exact match takes precedence over a family.

    Args:
        name: The key without the prefix ``zookeeper.``.
    """
    return _SINGLE_KEYS.get(name) or next((key for key in _FAMILIES if key.matches(name)), None)


def nearest(name: str) -> str | None:
    """Return the known key with the most similar spelling; None if no key is similar."""
    from difflib import get_close_matches  # the import takes 2 ms, and most configurations have no unknown key

    names = {key.name.lower(): key.name for key in KEYS}
    close = get_close_matches(name.lower(), names, 1, 0.75)
    return names[close[0]] if close else None


def is_misspelt(name: str) -> bool:
    """Return whether a name is nearly the name of an honoured key (not of a family), such as ``admin.severPort``."""
    from difflib import get_close_matches

    honoured = [key.name for section in SECTIONS.values() for key in section if not key.is_family]
    return bool(get_close_matches(name, honoured, 1, 0.9))
