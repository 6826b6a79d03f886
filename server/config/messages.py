"""The messages about an invalid configuration, in whole sentences: one function for each kind.

A message starts with the place, such as ``zoo.cfg:12``, ``command line`` or ``environment variable JVMFLAGS``, and
has the key as it was written there.
"""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration is invalid; the message says where, and what is expected instead."""


def invalid(where: str, key: str, value: str, expected: str) -> ConfigError:
    """Return the error for a value that is not of the key's type, or out of its range."""
    return ConfigError(f"{where}: {key} must be {expected}, not {value!r}.")


def unsupported(where: str, key: str, value: str, remedy: str) -> ConfigError:
    """Return the error for a value that ZooKeeper supports and this server does not."""
    return ConfigError(f"{where}: {one_line(key)}={one_line(value)} is not supported; {remedy}.")


def incomplete(where: str, key: str, missing: str) -> ConfigError:
    """Return the error for a key that needs another one."""
    return ConfigError(f"{where}: {key} needs {missing}.")


def unreadable(where: str, key: str, path: str, error: OSError | UnicodeDecodeError) -> ConfigError:
    """Return the error for a key that names a file which cannot be read."""
    return ConfigError(f"{where}: {key} names {one_line(path)}, which cannot be read: {reason(error)}.")


def unknown(where: str, key: str, nearest: str | None) -> ConfigError:
    """Return the error for an unknown key."""
    return ConfigError(f"{where}: {one_line(key)} is unknown{suggestion(nearest) or '.'}")


def suggestion(nearest: str | None) -> str:
    """Return the end of a sentence that offers the nearest known key; empty if there is none."""
    return f"; did you mean {nearest}?" if nearest else ""


def reason(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file could not be read, without its name."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not text in {error.encoding.upper()}"
    return error.strerror or str(error)


def one_line(text: str) -> str:
    """Return a text with its line breaks and other control characters escaped, so that a message stays one line."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
