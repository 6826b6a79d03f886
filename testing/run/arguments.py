"""The arguments of :class:`~zoolet.testing.server.Server`: their checks, and the configuration built from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Final, NoReturn, get_args

from ...protocol.addresses import parse_server_addresses
from ...server import config as configuration
from ...server.config import ServerConfig, Setting
from ...server.core.compat import BY_NAME, NEWEST
from ...server.core.state import MAX_ZXID
from ...server.net.clock import Clock
from ..signatures import Direction
from ..state.clock import MANUAL_CLOCK_START, ManualClock
from ..state.real_time import REAL, RealTimeClock

DEFAULTS: Final = {
    "tickTime": "200",
    "minSessionTimeout": "100",
    "maxSessionTimeout": "86400000",
    "maxClientCnxns": "0",
    "4lw.commands.whitelist": "*",
}
"""The default configuration for tests: ticks of 0.2 s, timeouts from 0.1 s to a day, unlimited connections."""


def invalid(name: str, value: object, expected: str) -> ValueError:
    """Return the error for an invalid argument, such as ``port must be ..., not -1``."""
    return ValueError(f"{name} must be {expected}, not {value!r:.80}")


def make_refusal(method: Callable[..., object], text: str) -> Callable[..., NoReturn]:
    """Return a replacement for a method that a server does not support. The replacement raises a ValueError."""

    @wraps(method)
    def raise_error(*_: object, **__: object) -> NoReturn:
        raise ValueError(text)

    return raise_error


def check_address(host: object, port: object) -> None:
    """Raise a ValueError unless *host* and *port* are an address and a port to listen on."""
    if not isinstance(host, str) or not host:
        raise invalid("host", host, "an address to listen on")
    if not _is_int(port, 0, 65535):
        raise invalid("port", port, "a number from 0 (any free port) to 65535")


def read_servers(servers: object) -> tuple[tuple[str, int], ...]:
    """Return the addresses in a connection string.

    Raises:
        ValueError: *servers* is not ``host:port``, or several joined with commas. A chroot is not allowed, because
            clients choose it.
    """
    if not isinstance(servers, str):
        raise invalid("servers", servers, "host:port, or several joined with commas")
    if "/" in servers:
        raise invalid("servers", servers, "host:port, or several joined with commas, without a chroot")
    return parse_server_addresses(servers)


def make_clock(kind: object, seed: int | None) -> Clock:
    """Return a ``"real"`` or a ``"manual"`` clock. With a *seed*, a manual clock starts at a fixed time.

    Raises:
        ValueError: *kind* is neither ``"real"`` nor ``"manual"``.
    """
    if kind == "real":
        return RealTimeClock()
    if kind == "manual":
        return ManualClock(MANUAL_CLOCK_START if seed is not None else REAL.now_ms())
    raise invalid("clock", kind, "'real' or 'manual'")


def check_numbers(seed: object, initial_zxid: object) -> None:
    """Raise a ValueError unless *seed* is an int or None, and *initial_zxid* is a zxid or None."""
    if seed is not None and not isinstance(seed, int):
        raise invalid("seed", seed, "an int")
    if initial_zxid is not None and not _is_int(initial_zxid, 0, MAX_ZXID):
        raise invalid("initial_zxid", initial_zxid, f"from 0 to {MAX_ZXID}")


def check_directories(data_dir: object, initial_data: object) -> None:
    """Raise a ValueError unless at most one argument is given: *data_dir* a path, or *initial_data* a directory."""
    if data_dir is not None and (not isinstance(data_dir, str | os.PathLike) or not os.fspath(data_dir)):
        raise invalid("data_dir", data_dir, "the path of a directory")
    if initial_data is not None and not (isinstance(initial_data, str | os.PathLike) and os.path.isdir(initial_data)):
        raise invalid("initial_data", initial_data, "a directory with ZooKeeper's files")
    if data_dir is not None and initial_data is not None:
        raise ValueError("data_dir and initial_data cannot be combined; use data_dir to keep changes")


def check_direction(direction: object) -> None:
    """Raise a ValueError unless *direction* is valid for :meth:`Endpoint.pause`."""
    if direction not in (directions := get_args(Direction)):
        raise invalid("direction", direction, "one of " + ", ".join(map(repr, directions)))


def check_users(users: object) -> None:
    """Raise a ValueError unless *users* is None, or a mapping of user names to passwords."""
    pairs = users.items() if isinstance(users, Mapping) else [(None, None)]
    if users is not None and not all(isinstance(word, str) for pair in pairs for word in pair):
        # The message must not contain the passwords.
        raise ValueError("sasl_users must be a dict of passwords by user name, both strings")


def check_flags(**flags: object) -> None:
    """Raise a TypeError unless all flags are bools."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, not {value!r}")


MAX_SECONDS: Final = 1_000_000_000
"""Maximum number of seconds of any argument: 31 years."""


def check_seconds(name: str, seconds: object, low: int = 0) -> None:
    """Raise a ValueError unless *seconds* is a number from *low* to :data:`MAX_SECONDS`.

    Args:
        name: Name of the argument, for the message.
        seconds: The value to check.
        low: Minimum number of seconds.
    """
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not low <= seconds <= MAX_SECONDS:  # type: ignore[operator] # seconds is a number here
        raise invalid(name, seconds, f"from {low:,} to {MAX_SECONDS:,} s")


def check_counts(**counts: object) -> None:
    """Raise a ValueError unless each count is None, or an int of 0 or more."""
    for name, count in counts.items():
        if count is not None and not (isinstance(count, int) and count >= 0):
            raise invalid(name, count, "0 or more, or None for all")


def _is_int(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def read_config(
    config: str | os.PathLike[str] | Mapping[str, object] | None, compat: str | None, *, exact: bool = False
) -> ServerConfig:
    """Return the configuration from a zoo.cfg's path or a dict, with :data:`DEFAULTS`.

    Args:
        config: A path, a dict of values by key, or None. True and False stand for ``true`` and ``false``.
        compat: The release whose behaviour to reproduce, or None for the newest release.
        exact: Whether sessions expire exactly at their deadlines, as a manual clock requires.

    Raises:
        ValueError: A key is unknown, a value is invalid, or a key is for the daemon only.
    """
    if compat is not None and compat not in BY_NAME:
        raise invalid("compat", compat, " or ".join(map(repr, sorted(BY_NAME))))
    sources = [_make_settings(DEFAULTS, "Server's defaults")]
    if isinstance(config, Mapping):
        sources.append(_make_settings(config, "Server's config"))
    elif isinstance(config, str | os.PathLike):
        sources.append(configuration.read_file(str(Path(config))))
    elif config is not None:
        raise invalid("config", config, "a zoo.cfg's path or a dict of its keys")
    built = configuration.build(*sources, compat=compat or NEWEST, strict=True)
    if built.secure_port is not None:
        raise ValueError("secureClientPort is only for the daemon; use tls=True for a test server with TLS")
    built.settings.exact_deadlines = exact
    return built


def _make_settings(values: Mapping[str, object], source: str) -> dict[str, Setting]:
    settings = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise invalid("config", values, "a zoo.cfg's path or a dict of its keys")
        settings[name] = Setting(str(value).lower() if isinstance(value, bool) else str(value), source)
    return settings
