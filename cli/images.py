"""The variables of the official, Bitnami and Confluent images of ZooKeeper, as settings.

Every variable about security is applied or refused. A server that starts without a protection that its user has set
looks exactly like a protected one.

Source: the entry points of zookeeper:3.9, bitnami/zookeeper and confluentinc/cp-zookeeper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ..protocol.members import MemberLine
from ..server.config import ConfigError, ServerConfig, Setting, SettingSource, find, properties, read_environment
from ..server.config.keys import is_misspelt, nearest
from ..server.config.messages import suggestion
from ..server.config.properties import JVM_VARIABLES

_PROMETHEUS: Final = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
_SASL_PROVIDER: Final = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
# fmt: off
OFFICIAL_KEYS: Final = {
    "ZOO_DATA_DIR": "dataDir", "ZOO_DATA_LOG_DIR": "dataLogDir", "ZOO_TICK_TIME": "tickTime",
    "ZOO_INIT_LIMIT": "initLimit", "ZOO_SYNC_LIMIT": "syncLimit",
    "ZOO_AUTOPURGE_SNAPRETAINCOUNT": "autopurge.snapRetainCount",
    "ZOO_AUTOPURGE_PURGEINTERVAL": "autopurge.purgeInterval", "ZOO_MAX_CLIENT_CNXNS": "maxClientCnxns",
    "ZOO_STANDALONE_ENABLED": "standaloneEnabled", "ZOO_ADMINSERVER_ENABLED": "admin.enableServer",
    "ZOO_4LW_COMMANDS_WHITELIST": "4lw.commands.whitelist", "ZOO_PORT": "clientPort",
}
"""Keys by variables of the official image."""
BITNAMI_KEYS: Final = {
    "ZOO_PORT_NUMBER": "clientPort", "ZOO_MAX_CNXNS": "maxCnxns", "ZOO_MAX_SESSION_TIMEOUT": "maxSessionTimeout",
    "ZOO_AUTOPURGE_INTERVAL": "autopurge.purgeInterval", "ZOO_AUTOPURGE_RETAIN_COUNT": "autopurge.snapRetainCount",
    "ZOO_PRE_ALLOC_SIZE": "preAllocSize", "ZOO_SNAPCOUNT": "snapCount",
    "ZOO_ADMIN_SERVER_ADDRESS": "admin.serverAddress", "ZOO_ADMIN_SERVER_PORT_NUMBER": "admin.serverPort",
    "ZOO_PROMETHEUS_METRICS_PORT_NUMBER": "metricsProvider.httpPort",
}
"""Keys by variables of the Bitnami image."""
BITNAMI_TLS_KEYS: Final = {
    "ZOO_TLS_CLIENT_KEYSTORE_FILE": "ssl.keyStore.location", "ZOO_TLS_CLIENT_KEYSTORE_TYPE": "ssl.keyStore.type",
    "ZOO_TLS_CLIENT_KEYSTORE_PASSWORD": "ssl.keyStore.password",
    "ZOO_TLS_CLIENT_TRUSTSTORE_FILE": "ssl.trustStore.location",
    "ZOO_TLS_CLIENT_TRUSTSTORE_TYPE": "ssl.trustStore.type",
    "ZOO_TLS_CLIENT_TRUSTSTORE_PASSWORD": "ssl.trustStore.password", "ZOO_TLS_CLIENT_AUTH": "ssl.clientAuth",
    "ZOO_TLS_PORT_NUMBER": "secureClientPort",
}
"""Keys by variables of the Bitnami image that apply if ``ZOO_TLS_CLIENT_ENABLE`` is yes."""
CONFLUENT_KEYS: Final = {
    "ZOOKEEPER_CLIENT_PORT": "clientPort", "ZOOKEEPER_CLIENT_PORT_ADDRESS": "clientPortAddress",
    "ZOOKEEPER_TICK_TIME": "tickTime", "ZOOKEEPER_INIT_LIMIT": "initLimit", "ZOOKEEPER_SYNC_LIMIT": "syncLimit",
    "ZOOKEEPER_MAX_CLIENT_CNXNS": "maxClientCnxns", "ZOOKEEPER_MIN_SESSION_TIMEOUT": "minSessionTimeout",
    "ZOOKEEPER_MAX_SESSION_TIMEOUT": "maxSessionTimeout", "ZOOKEEPER_SNAP_COUNT": "snapCount",
    "ZOOKEEPER_PRE_ALLOC_SIZE": "preAllocSize", "ZOOKEEPER_FORCE_SYNC": "forceSync",
    "ZOOKEEPER_JUTE_MAX_BUFFER": "jute.maxbuffer", "ZOOKEEPER_SKIP_ACL": "skipACL",
    "ZOOKEEPER_GLOBAL_OUTSTANDING_LIMIT": "globalOutstandingLimit",
    "ZOOKEEPER_FSYNC_WARNING_THRESHOLDMS": "fsync.warningthresholdms",
    "ZOOKEEPER_AUTOPURGE_SNAP_RETAIN_COUNT": "autopurge.snapRetainCount",
    "ZOOKEEPER_AUTOPURGE_PURGE_INTERVAL": "autopurge.purgeInterval",
    "ZOOKEEPER_SYNC_ENABLED": "syncEnabled", "ZOOKEEPER_LEADER_SERVES": "leaderServes",
    "ZOOKEEPER_ELECTION_ALG": "electionAlg", "ZOOKEEPER_CNX_TIMEOUT": "cnxTimeout",
    "ZOOKEEPER_QUORUM_LISTEN_ON_ALL_IPS": "quorumListenOnAllIPs",
    "ZOOKEEPER_CLIENT_CNXN_SOCKET": "clientCnxnSocket", "ZOOKEEPER_SERVER_CNXN_FACTORY": "serverCnxnFactory",
    "ZOOKEEPER_TCP_KEEP_ALIVE": "tcpKeepAlive",
    "ZOOKEEPER_ADMIN_ENABLE_SERVER": "admin.enableServer", "ZOOKEEPER_ADMIN_SERVER_PORT": "admin.serverPort",
    "ZOOKEEPER_ADMIN_SERVER_ADDRESS": "admin.serverAddress", "ZOOKEEPER_ADMIN_IDLE_TIMEOUT": "admin.idleTimeout",
    "ZOOKEEPER_ADMIN_COMMAND_URL": "admin.commandURL",
    "ZOOKEEPER_SECURE_CLIENT_PORT": "secureClientPort",
    "ZOOKEEPER_CLIENT_PORT_UNIFICATION": "client.portUnification",
    "ZOOKEEPER_SSL_KEYSTORE_LOCATION": "ssl.keyStore.location",
    "ZOOKEEPER_SSL_KEYSTORE_PASSWORD": "ssl.keyStore.password", "ZOOKEEPER_SSL_KEYSTORE_TYPE": "ssl.keyStore.type",
    "ZOOKEEPER_SSL_TRUSTSTORE_LOCATION": "ssl.trustStore.location",
    "ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD": "ssl.trustStore.password",
    "ZOOKEEPER_SSL_TRUSTSTORE_TYPE": "ssl.trustStore.type", "ZOOKEEPER_SSL_CLIENT_AUTH": "ssl.clientAuth",
    "ZOOKEEPER_SSL_AUTH_PROVIDER": "ssl.authProvider", "ZOOKEEPER_SSL_ENABLED_PROTOCOLS": "ssl.enabledProtocols",
    "ZOOKEEPER_SSL_CIPHER_SUITES": "ssl.ciphersuites", "ZOOKEEPER_SSL_CRL": "ssl.crl",
    "ZOOKEEPER_SSL_OCPS": "ssl.ocsp", "ZOOKEEPER_SSL_HOSTNAME_VERIFICATION": "ssl.hostnameVerification",
    "ZOOKEEPER_SSL_CONTEXT_SUPPLIER_CLASS": "ssl.context.supplier.class",
    "ZOOKEEPER_SSL_HANDSHAKE_DETECTION_TIMEOUT_MILLIS": "ssl.handshakeDetectionTimeoutMillis",
    "ZOOKEEPER_X509_AUTHENTICATION_PROVIDER_SUPER_USER": "X509AuthenticationProvider.superUser",
    "ZOOKEEPER_AUTH_PROVIDER_X509": "authProvider.x509", "ZOOKEEPER_AUTH_PROVIDER_SASL": "authProvider.sasl",
    "ZOOKEEPER_SSL_QUORUM": "sslQuorum",
    **{f"ZOOKEEPER_SSL_QUORUM_{name}": f"ssl.quorum.{key}" for name, key in (
        ("CLIENT_AUTH", "clientAuth"), ("KEYSTORE_LOCATION", "keyStore.location"),
        ("KEYSTORE_PASSWORD", "keyStore.password"), ("KEYSTORE_TYPE", "keyStore.type"),
        ("TRUSTSTORE_LOCATION", "trustStore.location"), ("TRUSTSTORE_PASSWORD", "trustStore.password"),
        ("TRUSTSTORE_TYPE", "trustStore.type"), ("ENABLED_PROTOCOLS", "enabledProtocols"),
        ("CIPHER_SUITES", "ciphersuites"), ("CONTEXT_SUPPLIER_CLASS", "context.supplier.class"),
        ("HOSTNAME_VERIFICATION", "hostnameVerification"), ("CRL", "crl"), ("OCPS", "ocsp"),
        ("HANDSHAKE_DETECTION_TIMEOUT_MILLIS", "handshakeDetectionTimeoutMillis"),
    )},
}
"""Variables of the Confluent image, and the key that each sets."""
SWITCHES: Final = {
    "ZOO_ENABLE_ADMIN_SERVER": ("admin.enableServer", "true"),
    "ZOO_ENABLE_PROMETHEUS_METRICS": ("metricsProvider.className", _PROMETHEUS),
    "ZOO_RECONFIG_ENABLED": ("reconfigEnabled", "true"), "ZOO_LISTEN_ALLIPS_ENABLED": ("quorumListenOnAllIPs", "true"),
    "ZOO_TLS_QUORUM_ENABLE": ("sslQuorum", "true"), "ZOO_ENABLE_QUORUM_AUTH": ("quorum.auth.enableSasl", "true"),
}
"""Settings by variables whose value is yes or no. The setting applies to yes."""
OTHER_SWITCHES: Final = (
    "ZOO_ENABLE_AUTH", "ZOO_TLS_CLIENT_ENABLE", "ZOO_FIPS_MODE", "ALLOW_EMPTY_PASSWORD", "ALLOW_ANONYMOUS_LOGIN",
    "ZOOKEEPER_SASL_ENABLED",
)
"""Other variables whose value is yes or no. Each is handled by its own code."""
OTHER_VARIABLES: Final = (
    "ZOO_CONF_DIR", "ZOO_LOG_DIR", "ZOO_SERVERS", "ZOO_MY_ID", "ZOO_SERVER_ID", "ZOO_PEER_TYPE", "ZOO_SERVER_USERS",
    "ZOO_SERVER_PASSWORDS", "ZOO_CLIENT_USER", "ZOO_CLIENT_PASSWORD", "ZOO_LOG_LEVEL", "ZOO_HEAP_SIZE",
    "ZOO_HC_TIMEOUT", "ZOO_USER", "ZOO_DAEMON_USER", "ZOO_DAEMON_GROUP", "ZOO_QUORUM_LEARNER_USER",
    "ZOO_QUORUM_LEARNER_PASSWORD", "ZOO_QUORUM_SERVER_USERS", "ZOO_QUORUM_SERVER_PASSWORDS",
    "ZOO_TLS_QUORUM_KEYSTORE_FILE", "ZOO_TLS_QUORUM_KEYSTORE_TYPE", "ZOO_TLS_QUORUM_KEYSTORE_PASSWORD",
    "ZOO_TLS_QUORUM_TRUSTSTORE_FILE", "ZOO_TLS_QUORUM_TRUSTSTORE_TYPE", "ZOO_TLS_QUORUM_TRUSTSTORE_PASSWORD",
    "ZOO_TLS_QUORUM_CLIENT_AUTH", "ZOOKEEPER_SERVER_ID", "ZOOKEEPER_SERVERS",
)
"""Known variables without a key. Each is handled by its own code, or is meaningless without a JVM or an ensemble."""
JAVA_VARIABLES: Final = (
    "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS",
    "KAFKA_JMX_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", *JVM_VARIABLES, "_JAVA_OPTIONS",
)
"""Variables with options of Java, such as ``-Dzookeeper.NAME=VALUE``. As in Java, later variables take precedence."""
# fmt: on
_KEY_OF_VARIABLE: Final = OFFICIAL_KEYS | BITNAMI_KEYS | CONFLUENT_KEYS
_KNOWN_VARIABLES: Final = frozenset(
    (*_KEY_OF_VARIABLE, *BITNAMI_TLS_KEYS, *SWITCHES, *OTHER_SWITCHES, *OTHER_VARIABLES, "ZOO_CFG_EXTRA")
)
BITNAMI_PREFIXES: Final = ("ALLOW_EMPTY_PASSWORD", "ALLOW_ANONYMOUS_LOGIN", "ZOO_ENABLE_", "ZOO_SERVER_ID", "ZOO_TLS_")
"""Prefixes of variables that exist only in the Bitnami image."""
DEFAULT_SOURCE: Final = "the default of zoolet container"
_YES_WORDS: Final = frozenset({"yes", "true", "1"})
_NO_WORDS: Final = frozenset({"no", "false", "0"})
_PROTECTION_PATTERN: Final = (
    "(?i)ssl|tls|secur|secret|auth|sasl|kerberos|krb5|jaas|(?<![a-z])acl|skipacl|passw|user|login|anonymous|digest|cert"
    "|keystore|truststore|x509|cipher|fips|super"
)
"""Pattern for names of variables and keys that protect data."""
_SECURITY_PATTERN: Final = f"{_PROTECTION_PATTERN}|whitelist|address|admin"
"""Matches the names of variables and keys about security: protection, whitelists, addresses, administration."""
_HARMLESS_VARIABLES: Final = frozenset(
    ("ZOO_CLIENT_USER", "ZOO_CLIENT_PASSWORD", "ZOO_USER", "ZOO_DAEMON_USER", "ZOO_DAEMON_GROUP")
) | {name for name in _KNOWN_VARIABLES if "QUORUM" in name}
"""Variables that match :data:`_SECURITY_PATTERN`, but protect nothing in a single server."""
_KUBERNETES_PATTERN: Final = r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"


class ImageSettings(NamedTuple):
    """The settings of a container.

    Args:
        sources: The defaults of the container, the Java options and the variables. Later ones take precedence.
        users: The passwords of the SASL users; None to read them from a JAAS file.
    """

    sources: tuple[dict[str, Setting], dict[str, Setting], dict[str, Setting]]
    users: dict[str, str] | None


def expand_file_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the contents of files: a file in ``NAME_FILE`` becomes the value of ``NAME``.

    As in the Bitnami image, the file takes precedence. The result omits empty variables and variables of Kubernetes
    services.

    Raises:
        ConfigError: A file cannot be read.
    """
    found = {
        name: value if "PASSWORD" in name else value.strip()
        for name, value in environment.items()
        if value.strip() and not _is_kubernetes_variable(name, value)
    }
    for name, path in list(found.items()):
        plain = name.removesuffix("_FILE")
        if plain != name and (plain in _KNOWN_VARIABLES or plain in JAVA_VARIABLES):
            try:
                content = Path(path).read_text(encoding="utf-8-sig").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise ConfigError(f"{name}: cannot read {path}: {reason}") from None
            if content.strip():
                found[plain] = content if "PASSWORD" in plain else content.strip()
    return found


def _is_kubernetes_variable(name: str, value: str) -> bool:
    is_url = name.endswith("_PORT") and value.startswith(("tcp://", "udp://", "sctp://"))
    return is_url or re.fullmatch(_KUBERNETES_PATTERN, name) is not None


def java_options(environment: Mapping[str, str]) -> dict[str, Setting]:
    """Return the ZooKeeper properties in the variables with options of Java.

    Raises:
        ConfigError: A quotation mark is not closed, or an unknown property concerns security.
    """
    options = read_environment(environment, JAVA_VARIABLES)
    _refuse_unknown_keys(options)
    if "zookeeper.client.secure" in options:  # the TLS options may be meant for clients in this container
        return options
    return {name: each._replace(source=SettingSource.DEFINITION) for name, each in options.items()}


def read_settings(environment: Mapping[str, str]) -> ImageSettings:
    """Return the settings in the variables of any of the three images.

    Raises:
        ConfigError: A variable about security is unknown, invalid or incomplete.
    """
    refuse_unknown_variables(environment)
    switches = {name: _read_switch(environment, name) for name in (*SWITCHES, *OTHER_SWITCHES)}
    options, settings = java_options(environment), dict[str, Setting]()

    def put(key: str, value: str, name: str) -> None:
        properties.set_as_last(settings, key, Setting(value, f"environment variable {name}"))

    for name, key in _KEY_OF_VARIABLE.items():
        if name in environment:
            put(key, environment[name], name)
    for name, (key, value) in SWITCHES.items():
        if switches[name]:
            put(key, value, name)
    if not switches["ZOO_ENABLE_ADMIN_SERVER"] and "ZOO_ADMIN_SERVER_PORT_NUMBER" in environment:
        settings.setdefault("admin.enableServer", Setting("false", "environment variable ZOO_ENABLE_ADMIN_SERVER"))
    elif switches["ZOO_ENABLE_ADMIN_SERVER"] is False:
        put("admin.enableServer", "false", "ZOO_ENABLE_ADMIN_SERVER")
    is_secure_only = _put_tls(environment, switches["ZOO_TLS_CLIENT_ENABLE"], put) or (
        "ZOOKEEPER_SECURE_CLIENT_PORT" in environment and "ZOOKEEPER_CLIENT_PORT" not in environment
    )
    if is_secure_only:
        _close_plain_port(options, settings)
    _put_servers(environment, is_secure_only, put)
    users = _read_users(environment, switches)
    if users is not None:
        put("authProvider.1", _SASL_PROVIDER, "ZOO_ENABLE_AUTH")
        put("sessionRequireClientSASLAuth", "true", "ZOO_ENABLE_AUTH")
    _put_keys(environment, put)
    _refuse_unknown_keys(settings)
    for name, setting in settings.items() if users is not None else ():
        if name.removeprefix("zookeeper.") == "sessionRequireClientSASLAuth" and setting.value != "true":
            raise ConfigError(f"{setting.where}: {name} must be true if ZOO_ENABLE_AUTH is yes")
    return ImageSettings((_defaults(environment, is_secure_only, options | settings), options, settings), users)


def _close_plain_port(options: dict[str, Setting], settings: dict[str, Setting]) -> None:
    """Remove the plain port from the settings. Its address becomes the TLS address, unless one is set."""
    for prefix in ("", "zookeeper."):
        for source in (options, settings):
            source.pop(f"{prefix}clientPort", None)
            if (address := source.get(f"{prefix}clientPortAddress")) is not None:
                source.setdefault("secureClientPortAddress", address._replace(source=SettingSource.DEFINITION))


def _put_keys(environment: Mapping[str, str], put: Callable[[str, str, str], None]) -> None:
    """Set the keys in ``ZOO_CFG_EXTRA``, and the key of each ``ZOO_CFG_KEY``, whose underscores stand for dots."""
    for name, value in environment.items():
        if name.startswith("ZOO_CFG_") and name != "ZOO_CFG_EXTRA":
            put(name.removeprefix("ZOO_CFG_").replace("_", "."), value, name)
    for word in environment.get("ZOO_CFG_EXTRA", "").split():
        key, _, value = word.partition("=")
        put(key, value, "ZOO_CFG_EXTRA")


def _defaults(
    environment: Mapping[str, str], is_secure_only: bool, settings: Mapping[str, Setting]
) -> dict[str, Setting]:
    folder = "/data"
    if any(name in BITNAMI_KEYS or name.startswith(BITNAMI_PREFIXES) for name in environment):
        folder = "/bitnami/zookeeper/data"
    elif any(name in CONFLUENT_KEYS for name in environment):
        folder = "/var/lib/zookeeper/data"
    words = {"dataDir": folder, "4lw.commands.whitelist": "srvr, ruok, mntr", "admin.serverAddress": "0.0.0.0"}
    names_port = any(name.startswith("server.") and _has_client_port(each.value) for name, each in settings.items())
    if is_secure_only:  # the health check uses the admin port, and needs only this address
        words |= {"admin.serverPort": "8080", "admin.serverAddress": "127.0.0.1"}
    elif not names_port and "dynamicConfigFile" not in settings:  # no line of a server sets the client port
        words["clientPort"] = "2181"
    return {key: Setting(value, DEFAULT_SOURCE) for key, value in words.items()}


def _has_client_port(line: str) -> bool:
    """Return whether the line of a server is valid and sets its client port."""
    try:
        return MemberLine.parse(line).port is not None
    except ValueError:
        return False


def _put_tls(environment: Mapping[str, str], enabled: bool | None, put: Callable[[str, str, str], None]) -> bool:
    """Set the keys for TLS of the Bitnami image. Return whether the TLS port replaces the plain port.

    Raises:
        ConfigError: A variable about TLS is set, but ``ZOO_TLS_CLIENT_ENABLE`` is not.
    """
    given = {name: environment[name] for name in BITNAMI_TLS_KEYS if name in environment}
    if not enabled:
        if given and enabled is None:
            raise ConfigError(f"environment variable {next(iter(given))} requires ZOO_TLS_CLIENT_ENABLE=yes")
        return False
    # As in the Bitnami image, clients need a certificate unless ZOO_TLS_CLIENT_AUTH sets a different value.
    for name, value in ({"ZOO_TLS_PORT_NUMBER": "3181", "ZOO_TLS_CLIENT_AUTH": "need"} | given).items():
        put(BITNAMI_TLS_KEYS[name], value, name if name in given else f"ZOO_TLS_CLIENT_ENABLE (default of {name})")
    return True


def _put_servers(environment: Mapping[str, str], is_secure_only: bool, put: Callable[[str, str, str], None]) -> None:
    """Set the key ``server.N`` of each server. The official image sets whole lines, the others only addresses.

    If *is_secure_only*, the client port after the semicolon is omitted.
    """
    lines = []
    text = environment.get("ZOO_SERVERS", "")
    between = r"[\s,]+" if re.match(r"server\.\d+=", text) else r"[\s,;]+"  # official lines contain semicolons
    for number, word in enumerate(re.split(between, text), 1):
        if word.startswith("server."):
            key, _, value = word.partition("=")
            lines.append((key, value, "ZOO_SERVERS"))
        elif word:
            lines.append((f"server.{number}", re.sub(r"::\d+$", "", word), "ZOO_SERVERS"))
    for number, word in enumerate(environment.get("ZOOKEEPER_SERVERS", "").split(";"), 1):
        if word.strip():
            lines.append((f"server.{number}", word.strip(), "ZOOKEEPER_SERVERS"))
    for key, value, name in lines:
        put(key, value.partition(";")[0] if is_secure_only else value, name)


def _read_users(environment: Mapping[str, str], switches: Mapping[str, bool | None]) -> dict[str, str] | None:
    """Return the passwords by SASL user, or None if ``ZOO_ENABLE_AUTH`` is not yes.

    Raises:
        ConfigError: The numbers of users and passwords differ or are 0, or the variables contradict each other.
    """
    if switches["ZOO_FIPS_MODE"]:
        raise ConfigError(
            "environment variable ZOO_FIPS_MODE=yes is not supported; zoolet's cryptography is not FIPS-certified"
        )
    if switches["ZOOKEEPER_SASL_ENABLED"]:  # Kafka brokers may share a file of variables with this server
        raise ConfigError(
            "environment variable ZOOKEEPER_SASL_ENABLED=yes is only for Kafka brokers; for this server, use KAFKA_OPTS"
        )
    if not switches["ZOO_ENABLE_AUTH"]:
        for name in ("ZOO_SERVER_USERS", "ZOO_SERVER_PASSWORDS"):
            if switches["ZOO_ENABLE_AUTH"] is None and environment.get(name):
                raise ConfigError(f"environment variable {name} requires ZOO_ENABLE_AUTH=yes")
        for name in ("ALLOW_EMPTY_PASSWORD", "ALLOW_ANONYMOUS_LOGIN"):
            if switches[name] is False:
                raise ConfigError(f"environment variable {name}=no requires ZOO_ENABLE_AUTH=yes")
        return None
    # As in the Bitnami image, several separators count as one. So no name and no password is empty.
    users = re.findall(r"[^;,\s]+", environment.get("ZOO_SERVER_USERS", ""))
    passwords = re.findall(r"[^;,\s]+", environment.get("ZOO_SERVER_PASSWORDS", ""))
    if not users or len(users) != len(passwords):
        raise ConfigError(
            f"ZOO_ENABLE_AUTH requires users, and a password for each: found {len(users)} in ZOO_SERVER_USERS, "
            f"{len(passwords)} in ZOO_SERVER_PASSWORDS"
        )
    if len(set(users)) < len(users):
        twice = max(users, key=users.count)
        raise ConfigError(f"ZOO_SERVER_USERS contains the user {twice!r} twice")
    return dict(zip(users, passwords, strict=True))


def _read_switch(environment: Mapping[str, str], name: str) -> bool | None:
    """Return whether the value of a variable is yes, or None if the variable is empty or not set.

    Raises:
        ConfigError: The variable is neither yes nor no.
    """
    value = environment.get(name, "").lower()
    if value in _YES_WORDS or value in _NO_WORDS:
        return value in _YES_WORDS
    if value:
        raise ConfigError(f"environment variable {name} must be yes or no, not {environment[name]!r}")
    return None


# --- unknown variables and ineffective variables ---


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables whose prefix belongs to an image and whose name zoolet does not know."""
    names = [
        name for name in environment if name.startswith(("ZOO_", "ZOOKEEPER_")) and not name.startswith("ZOO_CFG_")
    ]
    return sorted(
        name for name in names if name not in _KNOWN_VARIABLES and name.removesuffix("_FILE") not in _KNOWN_VARIABLES
    )


def refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    """Refuse unknown variables that concern security, or whose name resembles a variable about security.

    Raises:
        ConfigError: One of these variables is set.
    """
    allowing = (name for name in environment if name.startswith("ALLOW_") and name not in _KNOWN_VARIABLES)
    for name in (*unknown_variables(environment), *allowing):
        near = _nearest_name(name, _KNOWN_VARIABLES)
        is_meant = not name.startswith("ALLOW_") and re.search(_PROTECTION_PATTERN, name)
        if is_meant or (near is not None and re.search(_SECURITY_PATTERN, near)):
            raise ConfigError(f"unknown environment variable {name}{suggestion(near)}")


def _refuse_unknown_keys(settings: Mapping[str, Setting]) -> None:
    """Refuse unknown keys about security, except Java properties of other software, which lack ZooKeeper's prefix.

    Raises:
        ConfigError: An unknown key about security is set.
    """
    for written, setting in settings.items():
        name = written.removeprefix("zookeeper.")
        is_for_zookeeper = setting.source is not SettingSource.ENVIRONMENT or name != written or is_misspelt(name)
        if find(name) is None and is_for_zookeeper and re.search(_SECURITY_PATTERN, f"{name} {nearest(name)}"):
            raise ConfigError(f"{setting.where}: unknown key {written}{suggestion(nearest(name))}")


def _nearest_name(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # the import takes 2 ms, and few containers have an unknown variable

    return next(iter(get_close_matches(name, sorted(known), 1, 0.85)), None)


def ineffective_variables(environment: Mapping[str, str], config: ServerConfig) -> list[str]:
    """Return the variables about security that have no effect, because a mounted zoo.cfg replaces them.

    Args:
        environment: The variables.
        config: The configuration in the file. Variables that agree with the file are not returned.
    """
    return sorted(name for name, value in environment.items() if _is_ineffective(name, value, config))


def _is_ineffective(name: str, value: str, config: ServerConfig) -> bool:
    is_no = value.lower() in _NO_WORDS
    if name in ("ALLOW_EMPTY_PASSWORD", "ALLOW_ANONYMOUS_LOGIN"):
        return is_no
    if name.startswith("ZOO_CFG_"):
        return re.search(_SECURITY_PATTERN, f"{name} {value}") is not None
    key = _KEY_OF_VARIABLE.get(name) or SWITCHES.get(name, ("",))[0]
    if key == "4lw.commands.whitelist":
        return "*" not in value and not {*config.whitelist} <= {*re.split(r"[\s,]+", value)}
    if key == "clientPortAddress":
        return config.port is not None and config.host != value
    if key.startswith("admin."):
        is_closing = (
            is_no if key == "admin.enableServer" else key == "admin.serverAddress" and value != config.admin.host
        )
        return is_closing and config.admin.port is not None
    if is_no and name in (*SWITCHES, *OTHER_SWITCHES):
        return False
    return (
        name in _KNOWN_VARIABLES and name not in _HARMLESS_VARIABLES and re.search(_SECURITY_PATTERN, name) is not None
    )
