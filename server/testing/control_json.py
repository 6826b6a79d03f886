"""What commands have as JSON: data, session ids and trees as parameters, views as results.

JSON has no bytes: data is text, or ``{"base64": "..."}`` if it is not UTF-8. Session ids are text, ``"0x1a2b"``, since
they exceed what JavaScript can count to; numbers are accepted as well.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, cast

from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList, Id
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import ErrorCode
from zoolet.server.testing.populate import Znode
from zoolet.server.testing.recording import Recording
from zoolet.server.testing.requests import session_name

_PERMISSIONS: Final = {"c": Perm.CREATE, "d": Perm.DELETE, "r": Perm.READ, "w": Perm.WRITE, "a": Perm.ADMIN}
_SETTINGS: Final = ("$data", "$base64", "$ttl", "$container", "$acl", "$children_created")


class UsageError(ValueError):
    """A command is unknown, or a parameter is missing, unknown or invalid."""


# --- JSON in ---


def data_of(value: object) -> bytes | None:
    """Return the data that a JSON value stands for.

    Raises:
        UsageError: It is neither text, null nor ``{"base64": "..."}``.
    """
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise UsageError(f"{value['base64']!r} is not base64: {error}") from None
    raise UsageError(f'data is {value!r}; it must be text, null, or {{"base64": "..."}}')


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
    """Return the nodes that a JSON object stands for, as ``populate`` expects them.

    A node is its data, or an object: of its children by name, and with ``$data`` (or ``$base64``), ``$ttl`` (seconds),
    ``$container``, ``$acl`` (a list of ``scheme:id:permissions``) and ``$children_created`` (as of a ``Znode``).
    :func:`node_json` writes one.

    Raises:
        UsageError: It is not such an object.
    """
    if not isinstance(value, dict):
        raise UsageError(f"{above or 'the tree'} is {value!r}; it must be an object of nodes by path or name")
    if unknown := [name for name in value if name.startswith("$")]:
        raise UsageError(f"{above or 'the tree'} has {', '.join(unknown)}, which belongs to a node")
    return {name: _node(node, f"{above}/{name}".replace("//", "/")) for name, node in value.items()}


def _node(value: object, path: str) -> Any:
    if not isinstance(value, dict) or set(value) == {"base64"}:
        return data_of(value)
    settings = {name: value[name] for name in value if name.startswith("$")}
    if unknown := sorted(set(settings) - set(_SETTINGS)):
        raise UsageError(f"{path} has {', '.join(unknown)}; a node has {', '.join(_SETTINGS)}, and children")
    if not isinstance(settings.get("$container", False), bool):
        raise UsageError(f"{path}: $container is {settings['$container']!r}; it must be true or false")
    ttl = settings.get("$ttl")
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < 1e9):
        raise UsageError(f"{path}: $ttl is {ttl!r}; it must be a number of seconds above 0")
    children = tree_of({name: value[name] for name in value if name not in settings}, path)
    encoded = {"base64": settings["$base64"]} if "$base64" in settings else settings.get("$data", "")
    return Znode(
        data_of(encoded),
        children,
        acl=_acl(settings["$acl"], path) if "$acl" in settings else Znode.acl,
        container=settings.get("$container", False),
        ttl=ttl,
        children_created=settings.get("$children_created", 0),
    )


def _acl(value: object, path: str) -> AclList:
    entries = []
    for entry in value if isinstance(value, list) else [value]:
        scheme, colon, rest = entry.partition(":") if isinstance(entry, str) else ("", "", "")
        name, _, letters = rest.rpartition(":")
        if not colon or not name or not letters or set(letters) - set(_PERMISSIONS):
            raise UsageError(
                f"{path}: $acl has {entry!r}; an entry is scheme:id:permissions, such as world:anyone:cdrwa"
            )
        entries.append(ACL(sum(_PERMISSIONS[letter] for letter in set(letters)), Id(scheme, name)))
    return tuple(entries)


# --- JSON out ---


def json_of(value: object) -> Any:
    """Return a result as JSON."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, ACL):
        return _acl_text(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _field(field.name, getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {session_name(key) if isinstance(key, int) else key: json_of(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | Recording):
        return [json_of(entry) for entry in value]
    return value


def node_json(data: bytes | None, *, ttl: float | None, container: bool, acl: AclList, children_created: int) -> Any:
    """Return a node, without its children, as :func:`tree_of` reads it; the arguments are those of a ``Znode``."""
    encoded = json_of(data)
    settings = {"$base64": encoded["base64"]} if isinstance(encoded, dict) else {"$data": encoded}
    if ttl is not None:
        settings["$ttl"] = ttl
    if container:
        settings["$container"] = True
    if acl != OPEN_ACL_UNSAFE:
        settings["$acl"] = [_acl_text(entry) for entry in acl]
    if children_created:
        settings["$children_created"] = children_created
    return encoded if list(settings) == ["$data"] else settings


def _acl_text(acl: ACL) -> str:
    letters = "".join(letter for letter, permission in _PERMISSIONS.items() if acl.perms & permission)
    return f"{acl.id.scheme}:{acl.id.id}:{letters}"


def _field(name: str, value: object) -> Any:
    if isinstance(value, int) and (name in ("id", "session", "ephemeral_owner") or (name == "client" and value)):
        return session_name(value)
    if name == "error" and isinstance(value, int):
        known = value in ErrorCode.__members__.values()
        return "" if value == 0 else ErrorCode(value).name if known else str(value)
    return json_of(value)
