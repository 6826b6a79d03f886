"""Validation of the arguments of :class:`~zoolet.server.testing.server.Server`, and the configuration from them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_args

from zoolet.server import config as configuration
from zoolet.server.config import Config, Setting
from zoolet.server.core.compat import BY_NAME
from zoolet.server.net.clock import Clock, RealClock
from zoolet.server.testing.signatures import Direction
from zoolet.server.testing.state.clock import MANUAL_CLOCK_START, ManualClock

DEFAULTS: Final = {
    "tickTime": "200",
    "minSessionTimeout": "100",
    "maxSessionTimeout": "86400000",
    "maxClientCnxns": "0",
    "4lw.commands.whitelist": "*",
}
"""The default configuration of a server for tests: short ticks, and any session timeout."""
MAX_ZXID: Final = (1 << 63) - 1


def invalid(name: str, value: object, expected: str) -> ValueError:
    """Return the error for an argument: ``port is -1; it must be ...``."""
    return ValueError(f"{name} is {value!r}; it must be {expected}")


def check_address(host: object, port: object) -> None:
    """Raise a ValueError unless these are an address and a port to listen on."""
    if not isinstance(host, str) or not host:
        raise invalid("host", host, "an address to listen on")
    if not _is_int(port, 0, 65535):
        raise invalid("port", port, "from 0, for a free one, to 65535")


def read_servers(servers: object) -> list[tuple[str, int]]:
    """Return the addresses in a connection string.

    Raises:
        ValueError: It is not ``host:port`` joined with commas; a chroot is the clients' business.
    """
    addresses = []
    for server in servers.split(",") if isinstance(servers, str) else [""]:
        host, _, port = server.strip().rpartition(":")
        if not host.strip("[]") or not port.isdecimal() or not 0 < int(port) < 65536:
            raise invalid("servers", servers, "host:port, or several joined with commas, without a chroot")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def make_clock(kind: object, seed: int | None) -> Clock:
    """Return a ``"real"`` or a ``"manual"`` clock; with a *seed* the manual one always starts at the same time.

    Raises:
        ValueError: *kind* is neither.
    """
    if kind == "real":
        return RealClock()
    if kind == "manual":
        return ManualClock(MANUAL_CLOCK_START if seed is not None else time.time_ns() // 1_000_000)
    raise invalid("clock", kind, "'real' or 'manual'")


def check_numbers(seed: object, initial_zxid: object) -> None:
    """Raise a ValueError unless these are a seed and a zxid, or None."""
    if seed is not None and not isinstance(seed, int):
        raise invalid("seed", seed, "an int")
    if initial_zxid is not None and not _is_int(initial_zxid, 0, MAX_ZXID):
        raise invalid("initial_zxid", initial_zxid, "from 0 to 2**63 - 1")


def check_directories(data_dir: object, begin_from: object) -> None:
    """Raise a ValueError unless *begin_from* is None or a directory, and *data_dir* None or a path; not both."""
    if data_dir is not None and (not isinstance(data_dir, str | os.PathLike) or not os.fspath(data_dir)):
        raise invalid("data_dir", data_dir, "the path of a directory")
    if begin_from is not None and not (isinstance(begin_from, str | os.PathLike) and os.path.isdir(begin_from)):
        raise invalid("begin_from", begin_from, "a directory with ZooKeeper's files")
    if data_dir is not None and begin_from is not None:
        raise ValueError("data_dir and begin_from exclude each other: a directory of its own has its own beginning")


def check_direction(direction: object) -> None:
    """Raise a ValueError unless this is a direction of :meth:`Endpoint.pause`."""
    if direction not in (directions := get_args(Direction)):
        raise invalid("direction", direction, "one of " + ", ".join(map(repr, directions)))


def check_users(users: object) -> None:
    """Raise a ValueError unless this is None, or passwords by the names of users."""
    pairs = users.items() if isinstance(users, Mapping) else [(None, None)]
    if users is not None and not all(isinstance(word, str) for pair in pairs for word in pair):
        raise invalid("sasl_users", users, "a dict of passwords by the names of users")


MAX_SECONDS: Final = 1e9
"""The most seconds of any argument: 31 years."""


def check_seconds(call: str, seconds: object, low: float = 0.0) -> None:
    """Raise a ValueError unless this is a number of seconds from *low* to :data:`MAX_SECONDS`."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not low <= seconds <= MAX_SECONDS:  # type: ignore[operator] # it is a number
        raise ValueError(f"{call} is invalid; the seconds must be from {low:g} to {MAX_SECONDS:g}")


def check_counts(**counts: object) -> None:
    """Raise a ValueError unless each of these is None, or an int of 0 or more."""
    for name, count in counts.items():
        if count is not None and not (isinstance(count, int) and count >= 0):
            raise invalid(name, count, "0 or more, or None for all")


def _is_int(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def read_config(config: str | os.PathLike[str] | Mapping[str, object] | None, compat: str | None) -> Config:
    """Return the configuration from a zoo.cfg's path or a dict, with :data:`DEFAULTS`.

    Args:
        config: A path; or values by key, where True and False stand for ``true`` and ``false``; or None.
        compat: The release whose behaviour to reproduce; None for the newest.

    Raises:
        ValueError: A key is unknown, a value is invalid, or a key is for the daemon only.
    """
    if compat is not None and compat not in BY_NAME:
        raise invalid("compat", compat, " or ".join(map(repr, sorted(BY_NAME))))
    sources = [_settings(DEFAULTS, "Server's defaults")]
    if isinstance(config, Mapping):
        sources.append(_settings(config, "Server's config"))
    elif isinstance(config, str | os.PathLike):
        sources.append(configuration.read_file(str(Path(config))))
    elif config is not None:
        raise invalid("config", config, "a zoo.cfg's path or a dict of its keys")
    built = configuration.build(*sources, compat=compat or "3.9", strict=True)
    if built.secure_port is not None:
        raise ValueError("secureClientPort is for the daemon; this server does not speak TLS")
    return built


def _settings(values: Mapping[str, object], source: str) -> dict[str, Setting]:
    settings = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise ValueError(f"config has the key {name!r}; the keys are those of zoo.cfg")
        settings[name] = Setting(str(value).lower() if isinstance(value, bool) else str(value), source)
    return settings
