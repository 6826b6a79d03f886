"""Functions that validate, split and join paths of nodes.

Source: PathUtils.validatePath, PrepRequestProcessor.validatePath.
"""

from __future__ import annotations

import re
from typing import Final

ROOT: Final = "/"
ZOOKEEPER: Final = "/zookeeper"
QUOTA: Final = "/zookeeper/quota"
CONFIG: Final = "/zookeeper/config"
"""Path of the node with the configuration. ROOT, ZOOKEEPER, QUOTA and CONFIG exist on every server."""
# Java checks UTF-16 units, so it rejects all supplementary characters: their surrogates are in the third range.
_FORBIDDEN: Final = "[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]"
_RESERVED_NAMES: Final = frozenset({"", ".", ".."})


def is_valid_name(name: str) -> bool:
    """Return whether *name* is allowed as a part of a path."""
    # Among the ASCII characters, exactly the printable ones are allowed.
    return name.isprintable() and name not in _RESERVED_NAMES if name.isascii() else re.search(_FORBIDDEN, name) is None


def path_error(path: str | None) -> str | None:
    """Return the reason why a path is invalid, or None if the path is valid."""
    if path is None:
        return "a path must not be null"
    if not path.startswith("/"):
        return "a path must start with /"
    if path == "/":
        return None
    for name in path[1:].split("/"):
        if not name:
            return "a path must neither end with / nor have an empty part"
        if name in _RESERVED_NAMES:
            return f"a path must not have the part {name!r}"
        if not is_valid_name(name):
            return f"the part {name!r} contains an invalid character"
    return None


def is_within(path: str, top: str) -> bool:
    """Return whether *path* is *top* or a path below it. Both must be valid, but an empty *top* also means the root."""
    return f"{path}/".startswith(f"{top.rstrip('/')}/")


def is_internal(path: str) -> bool:
    """Return whether a path is ``/zookeeper`` or below it. The server itself creates nodes there."""
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


SEQUENCE_PATTERN: Final = r"(-[0-9]{9,10}|[0-9]{10})"
"""Pattern of the suffix that the server appends to the requested path of a sequential node."""


def sequence_suffix(number: int) -> str:
    """Return a sequence number as a suffix: at least ten characters including a sign, padded with zeros."""
    return f"{number:010d}"


def sequence_number(path: str) -> int | None:
    """Return the sequence number at the end of a path, or None if there is none.

    The sign of a number below -999,999,999 is ignored: it could as well be a hyphen at the end of the requested name.
    """
    number = re.fullmatch("-[0-9]{9}|[0-9]{10}", path[-10:])
    return int(number[0]) if number is not None else None
