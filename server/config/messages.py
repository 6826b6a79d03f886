"""The messages about an invalid configuration: one function for each kind.

A message starts with the place, such as ``zoo.cfg:12``, ``command line`` or ``environment variable JVMFLAGS``, and
contains the key as it was written there. An option, such as ``--port``, names its place itself.
"""

from __future__ import annotations

from ...protocol.messages import file_error_reason, one_line


class ConfigError(ValueError):
    """A configuration is invalid. The message names the place and the expected value."""


def invalid(where: str, key: str, value: str, expected: str) -> ConfigError:
    """Return the error for a value that is not of the key's type, or out of its range."""
    return ConfigError(f"{_at(where, key)} must be {expected}, not {value!r}")


def _at(where: str, key: str) -> str:
    """Return a key after its place. An option such as ``--port`` already names its place."""
    return key if key.startswith("--") else f"{where}: {key}"


def unsupported_value(where: str, key: str, value: str, remedy: str) -> ConfigError:
    """Return the error for a value that ZooKeeper supports and this server does not."""
    return ConfigError(f"{where}: {one_line(key)}={one_line(value)} is not supported; {remedy}")


def incomplete(where: str, key: str, missing: str) -> ConfigError:
    """Return the error for a key that requires a second key, which is missing."""
    return ConfigError(f"{_at(where, key)} requires {missing}")


def unreadable(where: str, key: str, path: str, error: OSError | UnicodeDecodeError) -> ConfigError:
    """Return the error for an unreadable file in the value of a key."""
    return ConfigError(f"{where}: {key}: cannot read {one_line(path)}: {reason(error)}")


def unknown_key(where: str, key: str, nearest: str | None) -> ConfigError:
    """Return the error for an unknown key."""
    return ConfigError(f"{where}: unknown key {one_line(key)}{suggestion(nearest)}")


def suggestion(nearest: str | None) -> str:
    """Return the end of a message, which suggests the nearest known key; empty if no key is similar."""
    return f"; did you mean {nearest}?" if nearest else ""


def reason(error: OSError | UnicodeDecodeError) -> str:
    """Return the reason for a failed read, without the file's name."""
    if isinstance(error, UnicodeDecodeError):
        return f"not valid {error.encoding.upper()} text"
    return file_error_reason(error)
