"""Checks of arguments: each returns its argument if it is valid, and raises before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from zoolet.client.serializers import Serializer
from zoolet.client.wire.backoff import Backoff
from zoolet.protocol import paths
from zoolet.protocol.acl import ACL, AclList, Id
from zoolet.protocol.enums import WatcherType

N = TypeVar("N", int, float)
H = TypeVar("H")
C = TypeVar("C", bound=str)


def checked_timeout(timeout: float | None) -> float | None:
    """Return the timeout, in seconds, or None for no limit.

    Raises:
        ValueError: It is negative, or not a number.
    """
    if timeout is not None and (not isinstance(timeout, int | float) or not timeout >= 0):
        raise ValueError(f"timeout is {timeout!r} s; it must be 0 or more, or None")
    return timeout


def checked_session_timeout(timeout: float) -> float:
    """Return the session timeout, in seconds.

    Raises:
        ValueError: It is too short or too long.
    """
    if not isinstance(timeout, int | float) or not 0.001 <= timeout <= 2_147_483:
        raise ValueError(f"timeout is {timeout!r} s; it must be from 0.001 to 2,147,483")
    return timeout


def checked_operation_timeout(timeout: float) -> float:
    """Return the operation timeout, in seconds.

    Raises:
        ValueError: It is negative or not a number.
    """
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise ValueError(f"operation_timeout is {timeout!r} s; it must be 0 or more")
    return timeout


def checked_serializer(serializer: Serializer) -> Serializer:
    """Return the serializer.

    Raises:
        TypeError: It is not one.
    """
    if not isinstance(serializer, Serializer):
        raise TypeError(f"serializer must be a zoolet.client.serializers.Serializer, not {serializer!r}")
    return serializer


def checked_hook(hook: H | None) -> H | None:
    """Return the hook.

    Raises:
        TypeError: It cannot be called.
    """
    if hook is not None and not callable(hook):
        raise TypeError(f"on_request must be a function, not {hook!r}")
    return hook


def checked_backoff(backoff: Backoff) -> Backoff:
    """Return the back-off.

    Raises:
        TypeError: It is not one.
    """
    if not isinstance(backoff, Backoff):
        raise TypeError(f"backoff must be a zoolet.client.Backoff, not {backoff!r}")
    return backoff


def checked_max_request(size: int) -> int:
    """Return the limit of a request, in bytes.

    Raises:
        ValueError: It is too low.
    """
    if not isinstance(size, int) or size < 100:
        raise ValueError(f"max_request is {size!r} bytes; it must be 100 or more")
    return size


def checked_login(login: tuple[str, str] | None) -> tuple[str, str] | None:
    """Return the login for SASL.

    Raises:
        TypeError: It is not a user and a password.
    """
    if login is not None and not (len(login) == 2 and all(isinstance(part, str) for part in login)):
        raise TypeError(f"login must be a user and a password, both text, not {login!r}")
    return login


def checked_auth(auth: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    """Return the credentials.

    Raises:
        TypeError: They are not pairs of text and bytes.
    """
    if not isinstance(auth, tuple | list) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], bytes)
        for pair in auth
    ):
        raise TypeError(f"auth must be pairs of a scheme and bytes, like ('digest', b'user:password'), not {auth!r}")
    return tuple(auth)


def checked_acl(acl: Iterable[ACL] | None) -> AclList | None:
    """Return the ACL list, as a tuple, or None. Entries may be kazoo's, too.

    Raises:
        TypeError: It is not one.
    """
    if acl is None:
        return None
    try:
        return tuple(entry if isinstance(entry, ACL) else _acl_of(entry) for entry in acl)
    except (AttributeError, TypeError):
        reason = "it must be some of what zoolet.client.acl makes, such as acl.CREATOR_ALL or (acl.ip(...), ...)"
        raise TypeError(f"acl is {acl!r}; {reason}") from None


def _acl_of(entry: Any) -> ACL:
    """Return an entry of another library, which has the same attributes."""
    perms, scheme, who = entry.perms, entry.id.scheme, entry.id.id
    if not (isinstance(perms, int) and isinstance(scheme, str) and isinstance(who, str)):
        raise TypeError
    return ACL(perms, Id(scheme, who))


def checked_version(version: int) -> int:
    """Return the version.

    Raises:
        TypeError: It is not an int.
        ValueError: It is out of range.
    """
    if not isinstance(version, int) or isinstance(version, bool):
        raise TypeError(f"version must be an int, not {version!r}; -1 is for any")
    if not -0x80000000 <= version <= 0x7FFFFFFF:
        raise ValueError(f"version {version} does not fit into 32 bits")
    return version


def checked_watcher_type(kind: WatcherType) -> WatcherType:
    """Return the WatcherType.

    Raises:
        TypeError: It is not a number.
        ValueError: There is no such type.
    """
    if not isinstance(kind, int):
        raise TypeError(f"kind must be a WatcherType, not {kind!r}")
    return WatcherType(kind)


def checked_count(name: str, number: N, least: N) -> N:
    """Return a number of something.

    Raises:
        ValueError: It is less than the least that is valid.
    """
    kinds = int if isinstance(least, int) else int | float
    if not isinstance(number, kinds) or number < least:
        raise ValueError(f"{name} is {number!r}; it must be {least} or more")
    return number


def checked_choice(name: str, choice: C, choices: Iterable[str]) -> C:
    """Return one of several words.

    Raises:
        ValueError: It is none of them.
    """
    if choice not in choices:
        raise ValueError(f"{name} {choice!r} is unknown; it must be one of {', '.join(choices)}")
    return choice


def checked_bytes(name: str, value: bytes) -> bytes:
    """Return what a recipe stores as it is.

    Raises:
        TypeError: It is not bytes.
    """
    if not isinstance(value, bytes):
        hint = f"; {value.encode()!r} is" if isinstance(value, str) and value.isascii() else ""
        raise TypeError(f"{name} must be bytes, not {value!r}{hint}")
    return value


def checked_node_name(name: str) -> str:
    """Return the name of a node: the last part of a path.

    Raises:
        ValueError: A node cannot have this name.
    """
    if "/" in name or not name or paths.path_error(f"/{name}") is not None:
        raise ValueError(f"name is {name!r}, which cannot be the name of a node")
    return name
