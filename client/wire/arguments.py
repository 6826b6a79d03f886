"""Argument checks. Each function returns a valid argument, and raises for an invalid one before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TypeVar

from ...protocol import paths
from ...protocol.acl import ACL, AclList, acl_entries
from ...protocol.enums import WatcherType
from ..serializers import Serializer
from .backoff import Backoff

N = TypeVar("N", int, float)
H = TypeVar("H")
F = TypeVar("F", bound=object)
C = TypeVar("C", bound=str)


def checked_timeout(timeout: float | None) -> float | None:
    """Return *timeout* unchanged if it is valid: a time in seconds, or None for no limit.

    Raises:
        ValueError: *timeout* is negative or not a number.
    """
    if timeout is not None and (not isinstance(timeout, int | float) or not timeout >= 0):
        raise ValueError(f"timeout must be 0 or more seconds, or None, not {timeout!r}")
    return timeout


def checked_session_timeout(timeout: float) -> float:
    """Return *timeout* unchanged if it is a valid session timeout in seconds.

    Raises:
        ValueError: *timeout* is too short or too long, or not a number.
    """
    if not isinstance(timeout, int | float) or not 0.001 <= timeout <= 2_147_483:
        raise ValueError(f"timeout must be from 0.001 to 2,147,483 seconds, not {timeout!r}")
    return timeout


def checked_operation_timeout(timeout: float) -> float:
    """Return *timeout* unchanged if it is a valid operation timeout in seconds.

    Raises:
        ValueError: *timeout* is negative or not a number.
    """
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise ValueError(f"operation_timeout must be 0 or more seconds, not {timeout!r}")
    return timeout


def checked_serializer(serializer: Serializer[H]) -> Serializer[H]:
    """Return *serializer* unchanged if it is a Serializer.

    Raises:
        TypeError: *serializer* is not a ``Serializer``.
    """
    if not isinstance(serializer, Serializer):
        raise TypeError(f"serializer must be a zoolet.client.serializers.Serializer, not {serializer!r}")
    return serializer


def checked_hook(hook: H | None) -> H | None:
    """Return *hook* unchanged if it can be called.

    Raises:
        TypeError: *hook* is not callable.
    """
    if hook is not None and not callable(hook):
        raise TypeError(f"on_request must be a function, not {hook!r}")
    return hook


def checked_function(name: str, function: F) -> F:
    """Return *function* unchanged if it can be called.

    Raises:
        TypeError: *function* is not callable.
    """
    if not callable(function):
        raise TypeError(f"{name} must be a function, not {function!r}")
    return function


def checked_flag(name: str, flag: bool) -> bool:
    """Return *flag* unchanged if it is a bool.

    Raises:
        TypeError: *flag* is not a bool.
    """
    if not isinstance(flag, bool):
        raise TypeError(f"{name} must be True or False, not {flag!r}")
    return flag


def checked_backoff(backoff: Backoff) -> Backoff:
    """Return *backoff* unchanged if it is a Backoff.

    Raises:
        TypeError: *backoff* is not a ``Backoff``.
    """
    if not isinstance(backoff, Backoff):
        raise TypeError(f"backoff must be a zoolet.client.Backoff, not {backoff!r}")
    return backoff


def checked_retry(do: object, backoff: Backoff | None) -> Backoff:
    """Check the arguments of a retry, and return *backoff*, or the default of five attempts.

    Raises:
        TypeError: *do* is not a function, as in ``zk.retry(zk.get(path))``, or *backoff* is not a ``Backoff``, as in
            ``zk.retry(zk.get, path)``.
    """
    example = "for example: zk.retry(lambda: zk.get(path))"
    if isinstance(backoff, str):
        raise TypeError(f"backoff must be a zoolet.client.Backoff, not {backoff!r}; pass a function first, {example}")
    if not callable(do):
        if inspect.iscoroutine(do):  # otherwise Python would warn that it was never awaited
            do.close()
        raise TypeError(f"do must be a function, not {do!r:.60}; {example}")
    return Backoff(tries=5) if backoff is None else checked_backoff(backoff)


def checked_max_request(size: int) -> int:
    """Return *size* unchanged if it is a valid maximum size of requests in bytes.

    Raises:
        ValueError: *size* is too small or not an integer.
    """
    if not isinstance(size, int) or size < 100:
        raise ValueError(f"max_request must be 100 or more bytes, not {size!r}")
    return size


def checked_login(login: tuple[str, str] | None) -> tuple[str, str] | None:
    """Return *login* unchanged if it is a pair of strings or None.

    Raises:
        TypeError: *login* is not a pair of strings.
    """
    if login is not None and not (
        isinstance(login, tuple | list) and len(login) == 2 and all(isinstance(part, str) for part in login)
    ):
        raise TypeError("login must be a pair of strings: login=('user', 'password')")  # hides the password
    return login


def checked_auth(auth: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    """Return the credentials unchanged if they are pairs of a scheme and bytes.

    Raises:
        TypeError: *auth* does not consist of pairs of a string and bytes.
        ValueError: A scheme contains a colon, as if the credentials were a part of it.
    """
    if not isinstance(auth, tuple | list) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], bytes)
        for pair in auth
    ):
        raise TypeError("auth must be a sequence of pairs: auth=(('digest', b'user:password'),)")  # hides the password
    if any(":" in scheme for scheme, _ in auth):
        raise ValueError("the scheme in auth= must not contain a colon; expected auth=(('digest', b'user:password'),)")
    return tuple(auth)


def checked_acl(acl: Iterable[ACL] | None) -> AclList | None:
    """Return *acl* as a tuple; None for None. Nested lists and kazoo's ACL entries are also accepted.

    Raises:
        TypeError: *acl* is not a list of ACL entries.
    """
    if acl is None:
        return None
    try:
        return tuple(acl_entries(acl))
    except TypeError:
        example = "acl.CREATOR_ALL or acl.ip(...) from zoolet.client.acl"
        raise TypeError(f"acl must be a list of ACL entries, such as {example}, not {acl!r}") from None


def checked_version(version: int) -> int:
    """Return *version* unchanged if it is a valid node version, or -1 for any.

    Raises:
        TypeError: *version* is not an int.
        ValueError: *version* does not fit into 32 bits.
    """
    if not isinstance(version, int) or isinstance(version, bool):
        raise TypeError(f"version must be an int (-1 for any version), not {version!r}")
    if not -0x80000000 <= version <= 0x7FFFFFFF:
        raise ValueError(f"version must fit into 32 bits, not {version}")
    return version


def checked_watcher_type(kind: WatcherType) -> WatcherType:
    """Return *kind* as a WatcherType.

    Raises:
        TypeError: *kind* is not a number.
        ValueError: *kind* is not the number of a WatcherType.
    """
    if not isinstance(kind, int):
        raise TypeError(f"kind must be a WatcherType, not {kind!r}")
    return WatcherType(kind)


def checked_count(name: str, number: N, least: N) -> N:
    """Return *number* unchanged if it is at least *least*.

    Raises:
        ValueError: *number* is less than *least*, or has the wrong type.
    """
    kinds = int if isinstance(least, int) else int | float
    if not isinstance(number, kinds) or number < least:
        raise ValueError(f"{name} must be {least} or more, not {number!r}")
    return number


def checked_choice(name: str, choice: C, choices: Iterable[str]) -> C:
    """Return *choice* unchanged if it is one of *choices*.

    Raises:
        ValueError: *choice* is not in *choices*.
    """
    if choice not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {choice!r}")
    return choice


def checked_bytes(name: str, value: bytes) -> bytes:
    """Return *value* unchanged if it is bytes.

    Raises:
        TypeError: *value* is not bytes.
    """
    if not isinstance(value, bytes):
        hint = f"; use {value.encode()!r}" if isinstance(value, str) and value.isascii() else ""
        raise TypeError(f"{name} must be bytes, not {value!r}{hint}")
    return value


def checked_node_name(name: str) -> str:
    """Return *name* unchanged if it can be the name of a node, which is the last part of its path.

    Raises:
        ValueError: *name* is not a valid node name.
    """
    if "/" in name or not name or paths.path_error(f"/{name}") is not None:
        raise ValueError(f"name {name!r} is not a valid node name")
    return name
