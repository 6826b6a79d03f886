"""What a server can be told, and where it is told: options beat the file, the file beats the environment.

Every setting is one row of :data:`KEYS`. A key may be written in zoo.cfg as it stands or with ZooKeeper's prefix
``zookeeper.``, and as ``-Dzookeeper.KEY=VALUE`` or ``-DKEY=VALUE`` on the command line or in ``SERVER_JVMFLAGS`` or
``JVMFLAGS``.

Source: QuorumPeerConfig.parseProperties; java.util.Properties.load; zkServer.sh.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from zoolet.server import jaas
from zoolet.server.core.compat import BY_NAME
from zoolet.server.core.settings import Settings


class ConfigError(ValueError):
    """Something that the server was told makes no sense; the message says what, where, and what would."""


class Setting(NamedTuple):
    """One value, and where it was said, for messages."""

    value: str
    where: str


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
        settings: What the core is told.
        ignored: Keys that are known and do nothing here, for one warning.
    """

    host: str | None = "127.0.0.1"
    port: int = 2181
    max_client_cnxns: int = 60
    max_cnxns: int = 0
    backlog: int = 128
    whitelist: tuple[str, ...] = ("srvr",)
    settings: Settings = field(default_factory=Settings)
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
    "jute.maxbuffer": Key(_number(0), "settings.max_frame"),
    "nio.sessionlessCnxnTimeout": Key(_number(1), "settings.sessionless_timeout"),
    "reconfigEnabled": Key(_true, "settings.reconfig_enabled"),
    "java.security.auth.login.config": Key(jaas.users, "settings.sasl_users"),
    "superUser": Key(lambda text: frozenset({text}), "settings.super_users"),
    "sessionRequireClientSASLAuth": Key(
        lambda text: frozenset({"sasl"} if _true(text) else ()), "settings.require_auth"
    ),
    "enforce.auth.schemes": Key(lambda text: frozenset(_words(text)), "schemes"),
    "enforce.auth.enabled": Key(_true, "enforced"),
    "allowSaslFailedClients": Key(_true, "settings.allow_failed_sasl"),
    "znode.container.checkIntervalMs": Key(_number(1), "settings.container_check_interval"),
    "znode.container.maxPerMinute": Key(_number(1), "settings.container_max_per_minute"),
    "znode.container.maxNeverUsedIntervalMs": Key(_number(0), "settings.container_never_used"),
    "connection_throttle_tokens": Key(_number(0), "settings.throttle_tokens"),
    "connection_throttle_fill_time": Key(_number(1), "settings.throttle_fill_time"),
    "connection_throttle_fill_count": Key(_number(1), "settings.throttle_fill_count"),
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
        "secureClientPort",
        "snapCount",
    }
)
"""Keys that people set and that mean something in ZooKeeper, but nothing in a server in memory, or nothing yet."""


# --- where it is said ---

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    return re.sub(
        r"\\(u[0-9a-fA-F]{4}|.)",
        lambda m: chr(int(m[1][1:], 16)) if m[1][0] == "u" and len(m[1]) == 5 else _ESCAPES.get(m[1], m[1]),
        text,
    )


def parse_properties(text: str, name: str) -> dict[str, Setting]:
    """Read a Java properties file: ``key=value``, ``key: value`` or ``key value``; comments, escapes, continued lines.

    Args:
        text: The file's text.
        name: Its name, for messages.
    """
    settings: dict[str, Setting] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        start = number
        while len(line) - len(line.rstrip("\\")) & 1:
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip(" \t\f")
        match = re.match(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
        assert match is not None  # the pattern matches every line
        settings[_unescape(match[1])] = Setting(_unescape(match[2]).strip(), f"{name}, line {start}")
    return settings


def parse_definitions(arguments: list[str], where: str) -> dict[str, Setting]:
    """Read ``-Dname=value`` options; others are left out."""
    settings = {}
    for argument in arguments:
        if argument.startswith("-D"):
            name, _, value = argument[2:].partition("=")
            settings[name] = Setting(value, f"{where}: {argument}")
    return settings


def read_environment(environ: Mapping[str, str]) -> dict[str, Setting]:
    """Read the -D options of ``JVMFLAGS`` and ``SERVER_JVMFLAGS``, as zkServer.sh does.

    Raises:
        ConfigError: A quotation mark is not closed.
    """
    settings: dict[str, Setting] = {}
    for name in ("JVMFLAGS", "SERVER_JVMFLAGS"):
        try:
            settings |= parse_definitions(shlex.split(environ.get(name, "")), f"environment variable {name}")
        except ValueError as error:
            raise ConfigError(f"environment variable {name}: {error}") from None
    return settings


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


def build(*sources: Mapping[str, Setting], compat: str = "3.9") -> Config:
    """Put a configuration together; later sources beat earlier ones.

    Raises:
        ConfigError: A value makes no sense.
    """
    config, ignored = Config(), set()
    plain: dict[str, Any] = {}
    core: dict[str, Any] = {"compat": BY_NAME[compat]}
    for source in sources:
        for written, setting in source.items():
            name = written.removeprefix("zookeeper.")
            if name.startswith("server.") and ":" in setting.value:
                ignored.add(name)
            if name in NO_EFFECT:
                ignored.add(name)
            key = KEYS.get(name)
            if key is None:
                continue
            try:
                value = key.convert(setting.value)
            except ValueError as error:
                raise ConfigError(f"{setting.where}: {written} must be {error}, not {setting.value!r}") from None
            if key.target.startswith("settings."):
                core[key.target.removeprefix("settings.")] = value
            else:
                plain[key.target] = value
    servers = [name for name in ignored if name.startswith("server.")]
    if len(servers) > 1:
        raise ConfigError(
            f"this server is a single node, and {len(servers)} servers are configured: {', '.join(sorted(servers))}"
        )
    if any("clientPort" in source for source in sources) and "host" not in plain:
        plain["host"] = None  # as ZooKeeper: a file that names a port means all addresses
    schemes = plain.pop("schemes", frozenset())
    if plain.pop("enforced", False):
        if not schemes:
            raise ConfigError("enforce.auth.enabled is true, and enforce.auth.schemes names no scheme")
        core["require_auth"] = schemes
    for name, value in plain.items():
        setattr(config, name, value)
    try:
        config.settings = Settings(**core)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    config.ignored = tuple(sorted(ignored))
    return config
