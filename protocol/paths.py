"""Validate, split and join paths.

Source: PathUtils.validatePath; PrepRequestProcessor.validatePath.
"""

from __future__ import annotations

import re
from typing import Final

ROOT: Final = "/"
ZOOKEEPER: Final = "/zookeeper"
QUOTA: Final = "/zookeeper/quota"
CONFIG: Final = "/zookeeper/config"
"""The nodes that every server has."""
# Ranges of UTF-16 units: ED A0.. (surrogates) puts every supplementary character into the third.
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_DOTS: Final = frozenset({"", ".", ".."})


def is_valid_name(name: str) -> bool:
    """Return whether *name* is allowed as a part of a path."""
    if name.isascii():
        return name.isprintable() and name not in _DOTS  # of ASCII, exactly the printable characters are allowed
    return _FORBIDDEN.search(name) is None


def path_error(path: str | None) -> str | None:
    """Return what is wrong with a path; None if it is valid."""
    if path is None:
        return "a path must not be null"
    if not path.startswith("/"):
        return "a path must start with /"
    if path == "/":
        return None
    for name in path[1:].split("/"):
        if not name:
            return "a path must not end with / nor have an empty part"
        if name in _DOTS:
            return f"a path must not have the part {name!r}"
        if not is_valid_name(name):
            return f"the part {name!r} has a character that is not allowed"
    return None


def check(path: str) -> str:
    """Return *path* if it is valid.

    Raises:
        ValueError: It is not valid; the message says why.
    """
    if (why := path_error(path)) is not None:
        raise ValueError(f"bad path {path!r}: {why}")
    return path


def name(path: str) -> str:
    """Return the last part of a path; empty for the root."""
    return path.rpartition("/")[2]


def parent(path: str) -> str:
    """Return the path of the parent; the root is its own parent."""
    return path[: path.rindex("/")] or "/"


def join(parent_path: str, name: str) -> str:
    """Return the path of the child *name* of *parent_path*."""
    return f"/{name}" if parent_path in ("/", "") else f"{parent_path}/{name}"


def sequence_suffix(number: int) -> str:
    """Return what a sequential create appends: at least ten characters, padded with zeros, a sign included."""
    return f"{number:010d}"
