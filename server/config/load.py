"""The construction of a :class:`ServerConfig` from files, options and the environment.

Options override the file, and the file overrides the environment. In zoo.cfg, a key may be written with or without
ZooKeeper's prefix ``zookeeper.``. On the command line and in ``SERVER_JVMFLAGS`` or ``JVMFLAGS``, it may be written as
``-Dzookeeper.KEY=VALUE`` or ``-DKEY=VALUE``.

Steps of :func:`build`:

1. Merge the sources into one mapping of entries, each with the row of its key.
2. Reject an ensemble.
3. Convert the values.
4. Check that the keys that other keys require are set.
5. Turn the values into the fields of the result.

Source: QuorumPeerConfig.parseProperties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...protocol.members import OBSERVER, MemberLine
from ...protocol.messages import one_line
from ..core.compat import BY_NAME, NEWEST
from ..core.settings import EngineSettings
from ..net.tls_settings import TlsSettings
from ..storage.settings import StorageSettings
from . import jaas, properties
from .config import AdminSettings, ServerConfig, UnknownKey
from .converters import FILE, PORT, read_text
from .keys import Key, KeyStatus, find, is_misspelt, nearest
from .messages import (
    ConfigError,
    incomplete,
    invalid,
    reason,
    suggestion,
    unknown_key,
    unreadable,
    unsupported_value,
)
from .properties import Setting, SettingSource, parse_properties


class KeyedSetting(NamedTuple):
    """A setting with the row of its key.

    Args:
        key: The row; None for an unknown key.
        written: The key as it was written, for messages: ``tickTime``, ``-Dzookeeper.tickTime`` or ``--port``.
        value: The text after the key.
        where: The place, for messages.
        source: The kind of place.
    """

    key: Key | None
    written: str
    value: str
    where: str
    source: SettingSource

    @property
    def is_for_zookeeper(self) -> bool:
        """Whether the setting can only be meant for this server, as a -D option with ZooKeeper's or zoolet's prefix."""
        return not self.written.startswith("-D") or self.written.startswith(("-Dzookeeper.", "-Dzoolet."))


Entries = Mapping[str, KeyedSetting]
"""Entries by key, without ``zookeeper.``."""
_BYTE_ORDER_MARK: Final = "\xef\xbb\xbf"
"""The mark that some editors write at the start of a UTF-8 file, in Latin-1, the encoding of Java properties."""
ADMIN_PORT: Final = 8080
"""The admin port if it is enabled and no port is set."""
Values = Mapping[str, Any]
"""Converted values by key."""


def read_environment(
    environ: Mapping[str, str], variables: Sequence[str] = properties.JVM_VARIABLES
) -> dict[str, Setting]:
    """Read the -D options of environment variables. Later variables override earlier ones.

    Raises:
        ConfigError: A quotation mark is not closed.
    """
    try:
        return properties.parse_environment(environ, variables)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def read_file(path: str) -> dict[str, Setting]:
    """Return the settings in a zoo.cfg.

    Raises:
        ConfigError: The file cannot be read, or contains no key of a zoo.cfg.
    """
    try:
        settings = _read_properties(path)
    except OSError as error:
        raise ConfigError(f"cannot read {one_line(path)}: {reason(error)}") from None
    names = [name.removeprefix("zookeeper.") for name in settings]
    if not any(find(name) or nearest(name) for name in names):
        raise ConfigError(f"{one_line(path)} does not look like a zoo.cfg: found no key such as clientPort")
    return settings


def build(
    *sources: Mapping[str, Setting], compat: str = NEWEST, strict: bool = False, file: str | None = None
) -> ServerConfig:
    """Build a configuration from settings. Later sources override earlier ones.

    Args:
        sources: The settings by key.
        compat: The ZooKeeper release to reproduce, such as ``3.9``.
        strict: Reject an unknown key. Otherwise the result contains it, for a warning.
        file: The text of the zoo.cfg, for the admin port.

    Raises:
        ConfigError: A value is invalid, a value is not supported and must not be ignored, or a key is set without a key
            that it requires.
    """
    entries = _merge(sources)
    if dynamic := entries.pop("dynamicConfigFile", None):
        entries |= _merge([_read_dynamic_file(dynamic)])
    client_address = _reject_ensemble(entries)
    values = _convert(entries)
    _check_requirements(entries, values)
    fields = _default_addresses(sources, entries, client_address) | _fields(entries, values)
    config = ServerConfig(
        **{name: value for name, value in fields.items() if "." not in name},
        settings=_settings(entries, fields, compat),
        tls=TlsSettings(**_select_fields(fields, "tls")),
        storage=StorageSettings(**_select_fields(fields, "storage")),
        admin=AdminSettings(**_select_fields(fields, "admin")),
        file=file,
        ignored=_ignored_keys(entries),
        unknown=_unknown_keys(entries),
    )
    if strict and config.unknown:
        raise unknown_key(config.unknown[0].where, config.unknown[0].name, config.unknown[0].nearest)
    if config.secure_port is not None:
        _complete_tls(config, entries)
    if values.get("admin.enableServer") is False:
        config.admin.port = None
    elif config.admin.enabled and config.admin.port is None:
        config.admin.port = ADMIN_PORT
    return config


# --- entries ---


def _merge(sources: Sequence[Mapping[str, Setting]]) -> dict[str, KeyedSetting]:
    entries: dict[str, KeyedSetting] = {}
    for source in sources:
        for written, setting in source.items():
            name = written.removeprefix("zookeeper.")
            key = find(name)
            if key is not None and key.is_family and key.status is KeyStatus.IGNORED and is_misspelt(name):
                key = None  # an ignored family must not hide a misspelled key
            entries[name] = KeyedSetting(key, _written_key(written, setting, key), *setting)
    return entries


def _written_key(name: str, setting: Setting, key: Key | None) -> str:
    if setting.source is SettingSource.OPTION and key is not None and key.option is not None:
        return key.option
    return f"-D{name}" if setting.source in (SettingSource.DEFINITION, SettingSource.ENVIRONMENT) else name


def _read_properties(path: str) -> dict[str, Setting]:
    return parse_properties(read_text(path, "latin-1").removeprefix(_BYTE_ORDER_MARK), path)


def _read_dynamic_file(entry: KeyedSetting) -> dict[str, Setting]:
    """Read the file in the value of dynamicConfigFile. It may contain only members of the ensemble.

    Raises:
        ConfigError: The file cannot be read, or contains a key that is not allowed there.
    """
    try:
        settings = _read_properties(FILE.convert(entry.value))
    except OSError as error:
        raise unreadable(entry.where, entry.written, entry.value, error) from None
    except ValueError:
        raise invalid(entry.where, entry.written, entry.value, FILE.expected) from None
    for name, setting in settings.items():
        if (key := find(name)) is None or not key.dynamic:
            raise ConfigError(
                f"{setting.where}: expected a server.N line in the dynamicConfigFile, found {one_line(name)}"
            )
    return settings


def _reject_ensemble(entries: Entries) -> tuple[str | None, int] | None:
    """Check that at most one server is configured. Return the client address and port in its line, if there are any.

    Address and port follow the semicolon of the line. ZooKeeper's official image configures its port only there.

    Raises:
        ConfigError: The configuration lists several servers, or an observer. A single server that started in place of
            an ensemble member would silently split the ensemble.
    """
    servers = {name: entry for name, entry in entries.items() if entry.key and entry.key.name == "server.<number>"}
    address = None
    for entry in servers.values():
        try:
            member = MemberLine.parse(entry.value)
            port = PORT.convert(member.port) if member.port else None
        except ValueError:
            expected = "host:port:port[:participant][;[host:]port]"
            raise invalid(entry.where, entry.written, entry.value, expected) from None
        if member.role == OBSERVER:
            raise unsupported_value(
                entry.where, entry.written, entry.value, "remove the key, because zoolet runs a single server"
            )
        if port is not None:
            address = (member.host or "").strip("[]") or None, port
    if len(servers) > 1:
        where, names = next(iter(servers.values())).where, ", ".join(sorted(servers))
        raise ConfigError(
            f"{where}: {len(servers)} servers are configured ({names}), but zoolet runs a single server; keep one line"
        )
    return address


def _ignored_keys(entries: Entries) -> tuple[str, ...]:
    """Return the keys without effect that are certainly meant for this server."""
    return tuple(
        sorted(
            name
            for name, entry in entries.items()
            if entry.key and entry.key.status is KeyStatus.IGNORED and entry.is_for_zookeeper
        )
    )


def _unknown_keys(entries: Entries) -> tuple[UnknownKey, ...]:
    """Return the unknown keys that are meant for this server.

    A key is meant for this server if its place or prefix shows it, if it resembles a known key, or if it has no dot.
    Properties of Java have dots.
    """
    unknown_keys = []
    for name, entry in entries.items():
        if entry.key is None and (entry.is_for_zookeeper or "." not in name or is_misspelt(name)):
            unknown_keys.append(UnknownKey(entry.written, entry.where, nearest(name)))
    return tuple(unknown_keys)


# --- values ---


def _convert(entries: Entries) -> dict[str, Any]:
    """Return the values of the keys that are honoured and not overridden by a different key.

    Raises:
        ConfigError: A value is invalid, or not supported where it must not be ignored.
    """
    values = {}
    for name, entry in entries.items():
        key = entry.key
        if key is None or key.status is KeyStatus.IGNORED or key.overruled_by in entries:
            continue
        try:
            value = key.converter.convert(entry.value)
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(entry.where, entry.written, entry.value, error) from None
        except ValueError:
            raise invalid(entry.where, entry.written, entry.value, key.converter.expected) from None
        if key.status is KeyStatus.HONOURED:
            values[name] = value
        elif value not in key.supported:
            hint = suggestion(nearest(name)) if key.is_family and is_misspelt(name) else ""
            raise unsupported_value(entry.where, entry.written, entry.value, key.help + hint)
    if values.get("sessionRequireClientSASLAuth"):  # ZooKeeper's AuthenticationHelper does the same
        values |= {"enforce.auth.enabled": True, "enforce.auth.schemes": frozenset({"sasl"})}
    return values


def _check_requirements(entries: Entries, values: Values) -> None:
    """Check that all keys that other keys require are set.

    Without this check a server could start in plain text although certificates are configured, or without
    authentication although a scheme was to be enforced.

    Raises:
        ConfigError: A required key is missing or empty.
    """
    for name, entry in entries.items():
        value = values.get(name, entry.value)  # an overridden value also has requirements
        if entry.key is None or value is False or (name, value) == ("ssl.clientAuth", "none"):
            continue  # a value such as false requires nothing
        without_tls = "secureClientPort" in entry.key.requires and "secureClientPort" not in entries
        if without_tls and entry.source is SettingSource.ENVIRONMENT:
            continue  # JVMFLAGS may be set for clients, which also read it
        for required in entry.key.requires:
            if values.get(required) in (None, "", frozenset()):
                key = find(required)
                label = required if key is None else key.label
                if key is not None and key.option and entry.written.startswith("--"):
                    label = key.option
                raise incomplete(entry.where, entry.written, label)


def _fields(entries: Entries, values: Values) -> dict[str, Any]:
    """Return the values by field, including the fields that depend on several keys.

    Raises:
        ConfigError: The JAAS file cannot be read or is invalid.
    """
    rows = {name: entry.key for name, entry in entries.items() if entry.key and name in values}
    fields = {row.field: values[name] for name, row in rows.items()}
    if "secureClientPort" not in values:
        fields.pop("secure_host", None)  # JVMFLAGS may set the address for clients
    # The fields below depend on several keys:
    enforced = values.get("enforce.auth.enabled", False)
    fields["settings.require_auth"] = values["enforce.auth.schemes"] if enforced else frozenset()
    fields["settings.sasl_users"] = _sasl_users(entries, values)
    fields["settings.x509"] = "secureClientPort" in values
    fields["settings.super_users"] = frozenset(
        values[name] for name, row in rows.items() if row.field == "settings.super_users"
    )
    return fields


def _sasl_users(entries: Entries, values: Values) -> dict[str, str] | None:
    if "java.security.auth.login.config" not in values:
        return None
    entry, section = entries["java.security.auth.login.config"], entries.get("sasl.serverconfig")
    try:
        users = jaas.read_users(entry.value, section.value if section else jaas.SECTION)
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(entry.where, entry.written, entry.value, error) from None
    except ValueError as error:
        raise ConfigError(f"{entry.where}: {error}") from None
    if users is None and section is not None:
        raise invalid(section.where, section.written, section.value, f"a section of {one_line(entry.value)}")
    return users


# --- fields ---


def _select_fields(fields: Mapping[str, Any], part: str) -> dict[str, Any]:
    return {name.removeprefix(f"{part}."): value for name, value in fields.items() if name.startswith(f"{part}.")}


def _settings(entries: Entries, fields: Mapping[str, Any], compat: str) -> EngineSettings:
    try:
        return EngineSettings(compat=BY_NAME[compat], **_select_fields(fields, "settings"))
    except ValueError as error:  # the minimum session timeout is above the maximum, so one of the two was set
        entry = entries.get("maxSessionTimeout") or entries["minSessionTimeout"]
        raise ConfigError(f"{entry.where}: {error}") from None


def _default_addresses(
    sources: Sequence[Mapping[str, Setting]], entries: Entries, client_address: tuple[str | None, int] | None
) -> dict[str, Any]:
    """Return the default address and port, which apply unless their keys are set.

    As in ZooKeeper, a port without an address means all addresses. ``--port`` is the exception: on its own, it does not
    open the server to the network.
    """
    names_port = any(
        written.removeprefix("zookeeper.") == "clientPort" and setting.source is not SettingSource.OPTION
        for source in sources
        for written, setting in source.items()
    )
    if names_port:
        return {"host": None}
    if client_address is not None:
        return {"host": client_address[0], "port": client_address[1]}
    return {"port": None} if "secureClientPort" in entries else {}


def _complete_tls(config: ServerConfig, entries: Entries) -> None:
    """Set the defaults of the TLS address and of client authentication, which depend on other keys."""
    if config.tls.trust_store is not None and "ssl.clientAuth" not in entries:
        config.tls.client_auth = "need"  # ZooKeeper uses the same default
    if "secureClientPortAddress" in entries:
        return
    address = entries.get("clientPortAddress")
    by_option = entries["secureClientPort"].source is SettingSource.OPTION or (
        address and address.source is SettingSource.OPTION
    )
    config.secure_host = config.host if by_option else None


_SECRET_NAME_PATTERN: Final = "(?i)password|digest|secret|token|jaas|users?"


def masked_lines(settings: Mapping[str, Setting]) -> str:
    """Return the lines of a zoo.cfg without comments. Secrets and the values of unknown keys are masked."""
    shown = {
        name: setting.value
        if find(name.removeprefix("zookeeper.")) and not re.search(_SECRET_NAME_PATTERN, name)
        else "***"
        for name, setting in settings.items()
    }
    return "".join(f"{one_line(name)}={one_line(value)}\n" for name, value in shown.items())
