"""Validate, split and join paths.

Source: PathUtils.validatePath, PrepRequestProcessor.validatePath.
"""

from __future__ import annotations

import re
from typing import Final

ROOT: Final = "/"
ZOOKEEPER: Final = "/zookeeper"
QUOTA: Final = "/zookeeper/quota"
CONFIG: Final = "/zookeeper/config"
"""The nodes that exist on every server."""
# Java checks UTF-16 units. Supplementary characters are surrogates there, which are in the third range.
_FORBIDDEN: Final = "[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]"
_DOTS: Final = frozenset({"", ".", ".."})


def is_valid_name(name: str) -> bool:
    """Return whether *name* is allowed as a part of a path."""
    # The allowed ASCII characters are the printable ones.
    return name.isprintable() and name not in _DOTS if name.isascii() else re.search(_FORBIDDEN, name) is None


def path_error(path: str | None) -> str | None:
    """Return the reason why a path is invalid; None if it is valid."""
    if path is None:
        return "a path must not be null"
    if not path.startswith("/"):
        return "a path must start with /"
    if path == "/":
        return None
    for name in path[1:].split("/"):
        if not name:
            return "a path must neither end with / nor have an empty part"
        if name in _DOTS:
            return f"a path must not have the part {name!r}"
        if not is_valid_name(name):
            return f"the part {name!r} contains an invalid character"
    return None


def is_within(path: str, top: str) -> bool:
    """Return whether a node is *top* or below it. Both paths are valid; the root may also be empty."""
    return f"{path}/".startswith(f"{top.rstrip('/')}/")


def is_internal(path: str) -> bool:
    """Return whether a node belongs to the server itself: ``/zookeeper`` and all nodes below it."""
    return is_within(path, ZOOKEEPER)


def check(path: str) -> str:
    """Return *path* if it is valid.

    Raises:
        ValueError: The path is not valid. The message contains the reason.
    """
    if (why := path_error(path)) is not None:
        raise ValueError(f"invalid path {path!r}: {why}")
    return path


def name(path: str) -> str:
    """Return the last part of a path, which is empty for the root."""
    return path.rpartition("/")[2]


def parent(path: str) -> str:
    """Return the path of the parent. The root is its own parent.

    Raises:
        ValueError: The path contains no slash.
    """
    return path[: path.rindex("/")] or "/"


def join(parent_path: str, name: str) -> str:
    """Return the path of the child *name* of *parent_path*."""
    return f"/{name}" if parent_path in ("/", "") else f"{parent_path}/{name}"


SEQUENCE: Final = r"(-[0-9]{9,10}|[0-9]{10})"
"""Pattern of the number of a sequential node, after the path of its request."""


def sequence_suffix(number: int) -> str:
    """Return the suffix of a sequential create: at least ten characters, padded with zeros, including a sign."""
    return f"{number:010d}"


def sequence_number(path: str) -> int | None:
    """Return the number at the end of the path of a sequential node; None for other nodes.

    A number below -999,999,999 is read without its sign, because a name may end with a hyphen.
    """
    number = re.fullmatch("-[0-9]{9}|[0-9]{10}", path[-10:])
    return int(number[0]) if number is not None else None
