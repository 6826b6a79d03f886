"""Tells systemd how a daemon is, with ``Type=notify``: it is ready, how it serves, it is alive, it stops.

Each message is a datagram to the socket that ``NOTIFY_SOCKET`` names. With ``WatchdogSec=`` the daemon says in half of
that time that its event loop runs; systemd restarts it if it does not.

Source: sd_notify(3).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final

_log = logging.getLogger("zoolet.server")
STATUS_EVERY: Final = 5.0
"""Seconds between two looks at how the daemon serves."""


class Systemd:
    """The messages of a daemon, as a context manager: entered it is ready, left it stops. Without systemd it is idle.

    Args:
        environment: The environment of the process.
        status: Returns how the daemon serves, in one line.
    """

    def __init__(self, environment: Mapping[str, str], status: Callable[[], str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._status = status
        self._shown = ""
        self._timer: asyncio.TimerHandle | None = None
        self._interval = _watchdog_interval(environment)

    def __enter__(self) -> Systemd:
        if self._address:
            self._shown = self._status()
            self._send(f"READY=1\nSTATUS={self._shown}")
            self._tick()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._address:
            self._send("STOPPING=1\nSTATUS=stopping")

    def _tick(self) -> None:
        lines = ["WATCHDOG=1"] if self._interval else []
        if (status := self._status()) != self._shown:
            self._shown = status
            lines.append(f"STATUS={status}")
        if lines:
            self._send("\n".join(lines))
        delay = min(self._interval or STATUS_EVERY, STATUS_EVERY)
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _send(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as link:
                link.sendto(text.encode(), self._address)
        except OSError as error:
            _log.warning("systemd was not notified at %s: %s", self._address.replace("\0", "@"), error)


def _watchdog_interval(environment: Mapping[str, str]) -> float:
    """Return half of the time in which systemd wants to hear from this process, in seconds; 0 for never."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return max(int(environment.get("WATCHDOG_USEC", "0")), 0) / 2e6
    except ValueError:
        return 0.0
