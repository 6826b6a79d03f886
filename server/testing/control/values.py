"""The values of commands in JSON: data, session ids and trees as parameters, views as results.

JSON has no bytes: data is text, or ``{"base64": "..."}`` if it is not UTF-8. Session ids are text, ``"0x1a2b"``, since
they exceed what JavaScript can count to; numbers are accepted as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from zoolet.protocol import node_json
from zoolet.protocol.acl import ACL
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.node_json import NodeJsonError
from zoolet.server.testing.recording.recording import Recording
from zoolet.server.testing.state.populate import Znode


class UsageError(ValueError):
    """A command is unknown, or a parameter is missing, unknown or invalid."""


# --- JSON in ---


def data_of(value: object) -> bytes | None:
    """Return the data that a JSON value stands for.

    Raises:
        UsageError: It is neither text, null nor ``{"base64": "..."}``.
    """
    try:
        return node_json.data_of(value)
    except NodeJsonError as error:
        raise UsageError(str(error)) from None


def session_of(value: object) -> Any:
    """Return the session id that a JSON value stands for, or ``"all"``.

    Raises:
        UsageError: It is neither a number, hexadecimal text nor "all".
    """
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    try:
        return int(cast(str, value), 0)
    except (ValueError, TypeError):
        raise UsageError(
            f'a session is {value!r}; it must be a session id, as "0x1a2b" or a number, or "all"'
        ) from None


def tree_of(value: object, above: str = "") -> dict[str, Any]:
    """Return the nodes that a JSON object stands for, as ``populate`` expects them; their form is that of
    :mod:`zoolet.protocol.node_json`.

    Raises:
        UsageError: It is not such an object.
    """
    try:
        tree = node_json.check_tree(value, above)
        return {name: _znode(node, f"{above}/{name}".replace("//", "/")) for name, node in tree.items()}
    except NodeJsonError as error:
        raise UsageError(str(error)) from None


def _znode(value: object, path: str) -> Any:
    if not isinstance(value, dict) or set(value) == {"base64"}:
        return data_of(value)
    node, children = node_json.node_of(value, path)
    return Znode(
        node.data,
        tree_of(children, path),
        acl=Znode.acl if node.acl is None else node.acl,
        container=node.container,
        ttl=node.ttl,
        children_created=node.children_created,
    )


# --- JSON out ---


def json_of(value: object) -> Any:
    """Return a result as JSON."""
    if isinstance(value, bytes):
        return node_json.data_json(value)
    if isinstance(value, ACL):
        return node_json.acl_text(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _field(field.name, getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {hexadecimal(key) if isinstance(key, int) else key: json_of(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | Recording):
        return [json_of(entry) for entry in value]
    return value


def _field(name: str, value: object) -> Any:
    if isinstance(value, int) and (name in ("id", "session", "ephemeral_owner") or (name == "client" and value)):
        return hexadecimal(value)
    if isinstance(value, int) and name.endswith("zxid"):
        return f"0x{value:x}"  # numbers of JavaScript have 53 bits
    if name == "error" and isinstance(value, int):
        known = value in ErrorCode.__members__.values()
        return "" if value == 0 else ErrorCode(value).name if known else str(value)
    return json_of(value)
