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
from pathlib import Path
from typing import Any, Final, NamedTuple

from zoolet.server import jaas, properties
from zoolet.server.core.compat import BY_NAME
from zoolet.server.core.settings import Settings
from zoolet.server.properties import Setting, parse_definitions, parse_properties


class ConfigError(ValueError):
    """Something that the server was told makes no sense; the message says what, where, and what would."""


@dataclass(slots=True)
class Config:
    """All that a daemon is told. Times are milliseconds, sizes bytes.

    Args:
        host: The address to listen on; None for all of the machine's.
        port: The port; 0 for a free one.
        max_client_cnxns: Connections one address may have; 0 for no limit.
        max_cnxns: Connections in all; 0 for no limit.
        backlog: Connections that may wait to be accepted.
        whitelist: The four-letter words that are answered.
        isro: Answer the word ``isro`` too; a single server is never read-only by itself.
        settings: What the core is told.
        secure_port: A port for connections over TLS; None for none, 0 for a free one.
        tls_certificate: A PEM file with the server's certificate, and those between it and its authority; and with its
            key, unless *tls_key* is another file.
        tls_key: A PEM file with the key.
        tls_authority: A PEM file with the authorities whose certificates clients must show; None asks for none.
        ignored: Keys that are known and do nothing here, for one warning.
    """

    host: str | None = "127.0.0.1"
    port: int = 2181
    max_client_cnxns: int = 60
    max_cnxns: int = 0
    backlog: int = 128
    whitelist: tuple[str, ...] = ("srvr",)
    isro: bool = False
    settings: Settings = field(default_factory=Settings)
    secure_port: int | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_authority: str | None = None
    ignored: tuple[str, ...] = ()


# --- one row a setting ---


def _number(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return convert


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


def _pem(text: str) -> str:
    if text.lower().endswith((".jks", ".p12", ".pfx", ".bcfks")):
        raise ValueError("a PEM file; Java keystores cannot be read")
    return text


class Key(NamedTuple):
    """How one key is read, and which field of Config or Settings it sets."""

    convert: Callable[[str], object]
    target: str


KEYS: Final[dict[str, Key]] = {
    "clientPort": Key(_number(0, 65535), "port"),
    "clientPortAddress": Key(lambda text: text.strip("[]") or None, "host"),
    "clientPortListenBacklog": Key(_number(-1), "backlog"),
    "maxClientCnxns": Key(_number(0), "max_client_cnxns"),
    "maxCnxns": Key(_number(0), "max_cnxns"),
    "4lw.commands.whitelist": Key(_words, "whitelist"),
    "tickTime": Key(_number(1), "settings.tick_time"),
    "minSessionTimeout": Key(_number(-1), "settings.min_session_timeout"),
    "maxSessionTimeout": Key(_number(-1), "settings.max_session_timeout"),
    "secureClientPort": Key(_number(0, 65535), "secure_port"),
    "ssl.keyStore.location": Key(_pem, "tls_certificate"),
    "ssl.keyStore.key.location": Key(_pem, "tls_key"),
    "ssl.trustStore.location": Key(_pem, "tls_authority"),
    "jute.maxbuffer": Key(_number(0), "settings.max_frame"),
    "nio.sessionlessCnxnTimeout": Key(_number(1), "settings.sessionless_timeout"),
    "reconfigEnabled": Key(_flag, "settings.reconfig_enabled"),
    "java.security.auth.login.config": Key(jaas.users, "settings.sasl_users"),
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
    "DigestAuthenticationProvider.superDigest": Key(_text, "settings.super_digest"),
    "DigestAuthenticationProvider.digestAlg": Key(_algorithm, "settings.digest_algorithm"),
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
    }
)
"""Keys that people set and that mean something in ZooKeeper, but nothing in a server in memory, or nothing yet."""


REFUSED: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "electionAlg": (lambda text: text != "3", "3 is the only one there is"),
    "peerType": (lambda text: text != "participant", "this server is a single node; leave it out"),
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


_SERVER: Final = re.compile(r"(?:\[[^\]]+\]|[^:;|\[\]]+):\d+:\d+(?::(?P<role>\w+))?(?:[;|].*)?")


def _alone(settings: Mapping[str, Setting]) -> None:
    """Do nothing if at most one server is named, and that one makes sense.

    Raises:
        ConfigError: There are several, or an observer: answering for an ensemble would split it without a word.
    """
    servers = {name: one for name, one in settings.items() if re.fullmatch(r"server\.\d+", name)}
    for name, (value, where) in servers.items():
        match = _SERVER.fullmatch(value)
        if match is None or match["role"] not in (None, "participant", "observer"):
            raise ConfigError(f"{where}: {name} must be host:port:port[:participant][;[host:]port], not {value!r}")
        if match["role"] == "observer":
            raise ConfigError(f"{where}: {name} is an observer, and this server is a single node")
    if len(servers) > 1:
        names, (_, where) = ", ".join(sorted(servers)), next(iter(servers.values()))
        raise ConfigError(f"{where}: this server is a single node, and {len(servers)} servers are configured: {names}")


def build(*sources: Mapping[str, Setting], compat: str = "3.9") -> Config:
    """Put a configuration together; later sources beat earlier ones.

    Raises:
        ConfigError: A value makes no sense.
    """
    settings: dict[str, Setting] = {}
    written: dict[str, str] = {}
    for source in sources:
        for name, setting in source.items():
            settings[name.removeprefix("zookeeper.")] = setting
            written[name.removeprefix("zookeeper.")] = name
    if dynamic := settings.get("dynamicConfigFile"):
        settings |= read_file(dynamic.value)
    _alone(settings)
    told = dict(_told(settings, written))
    core: dict[str, Any] = {"compat": BY_NAME[compat]}
    core |= {name.removeprefix("settings."): value for name, value in told.items() if name.startswith("settings.")}
    if told.get("enforced"):
        if not told.get("schemes"):
            where = settings["enforce.auth.enabled"].where
            raise ConfigError(f"{where}: enforce.auth.enabled is true, and enforce.auth.schemes names no scheme")
        core["require_auth"] = told["schemes"]
    try:
        made = Settings(**core)
    except ValueError as error:
        said = settings.get("maxSessionTimeout") or settings.get("minSessionTimeout")
        raise ConfigError(f"{said.where}: {error}" if said else str(error)) from None
    config = Config(settings=made, ignored=tuple(sorted(name for name in settings if _idle(name))))
    if "clientPort" in settings:
        config.host = None  # as ZooKeeper: who names a port and no address means all addresses
    for name in (
        *("host", "port", "max_client_cnxns", "max_cnxns", "backlog", "whitelist", "isro"),
        *("secure_port", "tls_certificate", "tls_key", "tls_authority"),
    ):
        if name in told:
            setattr(config, name, told[name])
    if config.secure_port is not None and config.tls_certificate is None:
        said = settings["secureClientPort"]
        raise ConfigError(f"{said.where}: secureClientPort needs ssl.keyStore.location, a PEM file with a certificate")
    return config


def _told(settings: Mapping[str, Setting], written: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    for name, (value, where) in settings.items():
        refused, remedy = REFUSED.get(name.partition(".")[0], (None, ""))
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
