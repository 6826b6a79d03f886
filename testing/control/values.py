"""The values of commands in JSON: data, session ids and trees as parameters, views as results.

JSON has no bytes, so data is text, or ``{"base64": "..."}`` if it is not UTF-8. Session ids are text, ``"0x1a2b"``,
because they exceed the range of JavaScript's integers. As parameters, numbers are accepted as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from ...protocol import node_json
from ...protocol.acl import ACL
from ...protocol.errors import ErrorCode
from ...protocol.hexadecimal import hexadecimal
from ...protocol.node_json import NodeJsonError
from ..state.populate import Znode


class UsageError(ValueError):
    """A command is unknown, or a parameter is missing, unknown or invalid."""


class MismatchError(UsageError):
    """A value of the wrong kind. The message starts with "must be", and the caller adds the name of the parameter.

    Args:
        expected: Kind of the expected value.
        value: The value.
    """

    def __init__(self, expected: str, value: object) -> None:
        super().__init__(f"must be {expected}, not {value!r}")


# --- JSON parameters ---


def parse_data(value: object) -> bytes | None:
    """Return the data that a JSON value stands for.

    Raises:
        UsageError: The value is neither text, null nor ``{"base64": "..."}``.
    """
    try:
        return node_json.parse_data(value)
    except NodeJsonError as error:
        raise UsageError(str(error)) from None


def parse_session(value: object) -> Any:
    """Return the session id that a JSON value stands for, or ``"all"``.

    Raises:
        MismatchError: The value is neither a number, hexadecimal text nor "all".
    """
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    try:
        return int(cast(str, value), 0)
    except (ValueError, TypeError):
        raise MismatchError('a session id, such as "0x1a2b", or "all"', value) from None


def parse_tree(value: object, above: str = "") -> dict[str, Any]:
    """Convert a JSON object in the form of :mod:`zoolet.protocol.node_json` to nodes for ``populate``.

    Raises:
        UsageError: The value does not have this form.
    """
    try:
        tree = node_json.check_tree(value, above)
        return {name: _znode(node, f"{above}/{name}".replace("//", "/")) for name, node in tree.items()}
    except NodeJsonError as error:
        raise UsageError(str(error)) from None


def _znode(value: object, path: str) -> Any:
    node, children = node_json.parse_node(value, path)
    if not isinstance(value, dict) or set(value) == {"base64"}:
        return node.data
    return Znode(
        node.data,
        parse_tree(children, path),
        acl=Znode.acl if node.acl is None else node.acl,
        container=node.container,
        ttl=node.ttl,
        children_created=node.children_created,
    )


# --- JSON results ---


def to_json(value: object) -> Any:
    """Return the result of a command as JSON. Bytes, ids and zxids become text or objects."""
    if isinstance(value, bytes):
        return node_json.data_json(value)
    if isinstance(value, ACL):
        return node_json.acl_text(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _field_json(field.name, getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {hexadecimal(key) if isinstance(key, int) else key: to_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    return value


def _field_json(name: str, value: object) -> Any:
    if isinstance(value, int) and (name in ("id", "session", "ephemeral_owner") or (name == "client" and value)):
        return hexadecimal(value)
    if isinstance(value, int) and name.endswith("zxid"):
        return hexadecimal(value)  # JavaScript numbers have only 53 bits
    if name == "error" and isinstance(value, int):
        known = value in ErrorCode.__members__.values()
        return "" if value == 0 else ErrorCode(value).name if known else str(value)
    return to_json(value)


def unknown_parameter_message(name: str, unknown: Collection[str], known: Collection[str]) -> str:
    """Return the message about unknown parameters of the command or fault *name*."""
    if not known:
        return f"{name} has no parameters; found {', '.join(unknown)}"
    return f"{name} has no parameter {', '.join(map(repr, unknown))}; its parameters are {', '.join(known)}"
