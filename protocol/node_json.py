"""The human-readable JSON format of nodes, for exports of a server or a data directory, and for loading such files.

A node is written as its data: text, null, or ``{"base64": "..."}`` if the data is not UTF-8. A node with settings is
written as an object with these keys:

- ``$data`` or ``$base64``: its data.
- ``$ttl``: its time to live, in seconds.
- ``$container``: whether it is a container.
- ``$acl``: a list of ``scheme:id:permissions``. Permissions are letters, or a number if letters cannot express them.
- ``$children_created``: the number of children that were created before the current ones.

All other keys of the object are names of children, so input may be nested. Output contains one key for each path.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final, NamedTuple

from .acl import ACL, OPEN_ACL_UNSAFE, AclList, Id
from .enums import PERM_LETTERS
from .node_spec import node_problem

_SETTING_KEYS: Final = ("$data", "$base64", "$ttl", "$container", "$acl", "$children_created")


class NodeJsonError(ValueError):
    """The error for JSON that does not describe nodes."""


class JsonNode(NamedTuple):
    """A node of a JSON file, without its path and its children.

    Args:
        data: Data of the node; None for null.
        acl: ACL list of the node; None if it is not specified.
        ttl: Time to live without a change, in seconds; None for a node without a ttl.
        container: Whether the node is a container.
        children_created: Number of children that were created below the node before its current children.
    """

    data: bytes | None
    acl: AclList | None = None
    ttl: float | None = None
    container: bool = False
    children_created: int = 0


# --- from JSON ---


def parse_data(value: object) -> bytes | None:
    """Return the data of a node that a JSON value describes.

    Raises:
        NodeJsonError: The value is not text, null or ``{"base64": "..."}``.
    """
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise NodeJsonError(f"data is not valid text: {error}") from None
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except ValueError as error:  # the error is a binascii.Error, or the text is not ASCII
            raise NodeJsonError(f"data is not valid base64: {value['base64']!r}: {error}") from None
    raise NodeJsonError(f'data must be text, null, or {{"base64": "..."}}, not {value!r}')


def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary, and reject duplicate keys. Use this as the *object_pairs_hook* of a parser.

    Raises:
        NodeJsonError: A key occurs twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise NodeJsonError(f"the key {max(names, key=names.count)!r} occurs twice in one object")
    return found


def check_tree(value: object, path: str = "") -> dict[str, Any]:
    """Check that a JSON value is an object whose keys can be paths or names of nodes. Return the object.

    The nodes themselves are not checked.

    Raises:
        NodeJsonError: The value is not an object, or a key starts with ``$``.
    """
    if not isinstance(value, dict):
        raise NodeJsonError(f"{path or 'the tree'} must be an object of nodes by path or name, not {value!r}")
    if unknown := [name for name in value if name.startswith("$")]:
        place = f"at {path}" if path else "at the top of the tree"
        raise NodeJsonError(f"only allowed inside a node, not {place}: {', '.join(unknown)}")
    return value


def parse_node(value: object, path: str) -> tuple[JsonNode, dict[str, Any]]:
    """Return the node that a JSON value describes, and the JSON values of its children by name.

    Raises:
        NodeJsonError: The value does not describe a node.
    """
    if not isinstance(value, dict) or set(value) == {"base64"}:
        try:
            return JsonNode(parse_data(value)), {}
        except NodeJsonError as error:
            raise NodeJsonError(f"{path}: {error}") from None
    settings = {name: value[name] for name in value if name.startswith("$")}
    if unknown := sorted(set(settings) - set(_SETTING_KEYS)):
        raise NodeJsonError(f"{path}: keys must be {', '.join(_SETTING_KEYS)} or children, not {', '.join(unknown)}")
    container, ttl = settings.get("$container", False), settings.get("$ttl")
    encoded = {"base64": settings["$base64"]} if "$base64" in settings else settings.get("$data", "")
    acl = parse_acl(settings["$acl"], path) if "$acl" in settings else None
    created = settings.get("$children_created", 0)
    if (problem := node_problem(None, ttl, container, created)) is not None:
        raise NodeJsonError(f"{path}: {problem}")
    try:
        node = JsonNode(parse_data(encoded), acl, ttl, container, created)
    except NodeJsonError as error:
        raise NodeJsonError(f"{path}: {error}") from None
    return node, {name: value[name] for name in value if name not in settings}


def parse_acl(value: object, path: str) -> AclList:
    """Return the ACL list that a JSON value describes: ``["scheme:id:permissions"]``, or one such text.

    Raises:
        NodeJsonError: The value is not an ACL list. The message names the path.
    """
    entries = []
    if value == []:
        raise NodeJsonError(f"{path}: $acl must be scheme:id:permissions, such as world:anyone:cdrwa, not []")
    for entry in value if isinstance(value, list) else [value]:
        scheme, colon, rest = entry.partition(":") if isinstance(entry, str) else ("", "", "")
        name, second, letters = rest.rpartition(":")
        if not colon or not second or (perms := _parse_permissions(letters)) is None:
            raise NodeJsonError(
                f"{path}: $acl must be scheme:id:permissions, such as world:anyone:cdrwa, not {entry!r}"
            )
        entries.append(ACL(perms, Id(scheme, name)))
    return tuple(entries)


def _parse_permissions(text: str) -> int | None:
    """Parse permissions: letters, or a decimal number of 32 bits. Return None if the text is neither."""
    if re.fullmatch(r"-?[0-9]{1,10}", text) and -(1 << 31) <= int(text) < 1 << 31:
        return int(text)
    if not text or set(text) - set(PERM_LETTERS):
        return None
    return sum(PERM_LETTERS[letter] for letter in set(text))


# --- to JSON ---


def data_json(data: bytes) -> str | dict[str, str]:
    """Return the JSON value for the data of a node: text, or an object with base64 if the data is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def perms_text(perms: int) -> str:
    """Return permissions as letters. If letters cannot express them, return a decimal number."""
    letters = "".join(letter for letter, permission in PERM_LETTERS.items() if perms & permission)
    return letters if letters and not perms & ~sum(PERM_LETTERS.values()) else str(int(perms))


def acl_text(acl: ACL) -> str:
    """Return an entry of an ACL list as ``scheme:id:permissions``."""
    return f"{acl.id.scheme}:{acl.id.id}:{perms_text(acl.perms)}"


def node_json(node: JsonNode) -> Any:
    """Return the JSON value that :func:`parse_node` reads as this node, without children."""
    encoded = None if node.data is None else data_json(node.data)
    settings: dict[str, Any] = {"$base64": encoded["base64"]} if isinstance(encoded, dict) else {"$data": encoded}
    if node.ttl is not None:
        settings["$ttl"] = node.ttl
    if node.container:
        settings["$container"] = True
    if node.acl is not None and node.acl != OPEN_ACL_UNSAFE:
        settings["$acl"] = [acl_text(entry) for entry in node.acl]
    if node.children_created:
        settings["$children_created"] = node.children_created
    return encoded if list(settings) == ["$data"] else settings
