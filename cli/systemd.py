"""Notifications to systemd (``Type=notify``): a daemon is ready, alive or stopping, and its status.

Each message is a datagram to the socket in ``NOTIFY_SOCKET``. With ``WatchdogSec=`` the event loop sends a message
twice in that time. If the messages stop, systemd restarts the daemon.

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
STATUS_INTERVAL_S: Final = 5.0
"""Seconds between two checks of the daemon's status."""


class Systemd:
    """A context manager that notifies systemd: the daemon is ready at the start of the block, and stopping at its end.

    If the process was not started by systemd, nothing is sent.

    Args:
        environment: The environment of the process.
        status: Function that returns the daemon's status in one line.
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
        delay = min(self._interval or STATUS_INTERVAL_S, STATUS_INTERVAL_S)
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _send(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as link:
                link.sendto(text.encode(), self._address)
        except OSError as error:
            _log.warning("cannot notify systemd at %s: %s", self._address.replace("\0", "@"), error)


def _watchdog_interval(environment: Mapping[str, str]) -> float:
    """Return half of systemd's watchdog timeout for this process in seconds, or 0 if no watchdog is configured."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return max(int(environment.get("WATCHDOG_USEC", "0")), 0) / 2e6
    except ValueError:
        return 0.0
