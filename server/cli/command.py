"""The user's command of ``zoolet run`` and ``zoolet proxy``: its signals, its exit code, and the control API for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from zoolet.server.cli.addresses import shown, why_not
from zoolet.server.config import ConfigError

if TYPE_CHECKING:
    from zoolet.server.testing.control.http import ControlServer
    from zoolet.server.testing.endpoint import Endpoint

FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that are forwarded to the command."""


def control_server(endpoint: Endpoint, host: str = "127.0.0.1", port: int = 0) -> ControlServer:
    """Return the control API for a server or proxy, on an address and a port.

    Raises:
        ConfigError: h11 is not installed.
    """
    try:
        from zoolet.server.testing.control import opening
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        raise ConfigError("--admin needs h11, the extra 'admin': install it") from None
    return opening.control_server(endpoint, host, port)


def cannot_listen(host: str, port: int, error: Exception) -> OSError:
    """Return the error for an address that cannot be listened on."""
    return OSError(getattr(error, "errno", None) or 0, f"cannot listen on {shown(host, port)}: {why_not(error)}")


async def serve_command(words: Sequence[str], environment: Mapping[str, str], signals: Signals | None) -> int:
    """Run a command while a server serves it; without one, say where the server is, and wait for a signal.

    Args:
        words: The command.
        environment: What is added to its environment.
        signals: Those that have arrived for it; None without a command.

    Returns:
        The exit code.
    """
    if signals is not None:
        return await run_command(words, environment, signals)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(f"zoolet ready on {environment['ZOOLET_HOSTS']}", flush=True)
    if "ZOOLET_ADMIN" in environment:
        print(f"zoolet control on {environment['ZOOLET_ADMIN']}", flush=True)
    await stop.wait()
    return 0


async def run_command(words: Sequence[str], environment: Mapping[str, str], signals: Signals) -> int:
    """Run a command with more variables in its environment.

    Returns:
        Its exit code; as in a shell, 128 plus the number of the signal that killed it, or 126 or 127 if it cannot run.
    """
    try:
        command = await asyncio.create_subprocess_exec(*words, env={**os.environ, **environment})
    except OSError as error:
        print(f"zoolet: cannot run {words[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    signals.forward_to(command)
    code = await command.wait()
    return code if code >= 0 else 128 - code


class Signals:
    """Forwards signals to a command, including those that arrive before it runs."""

    def __init__(self) -> None:
        self._command: asyncio.subprocess.Process | None = None
        self._pending: list[signal.Signals] = []
        typed = {signal.SIGINT, signal.SIGQUIT} if _shares_terminal() else set()
        for number in FORWARDED:
            handler = self._ignore if number in typed else self._forward
            asyncio.get_running_loop().add_signal_handler(number, handler, number)

    def forward_to(self, command: asyncio.subprocess.Process) -> None:
        """Forward the signals that have arrived, and all later ones, to this command."""
        self._command = command
        for number in self._pending:
            self._forward(number)

    def _ignore(self, number: signal.Signals) -> None:
        """Do nothing: the terminal has sent the signal to the command as well."""

    def _forward(self, number: signal.Signals) -> None:
        if self._command is None:
            self._pending.append(number)
            return
        with contextlib.suppress(ProcessLookupError):  # the command has just ended
            self._command.send_signal(number)


def _shares_terminal() -> bool:
    """Return whether a signal typed at a terminal, such as Ctrl-C, reaches this process and its command alike."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # stdin is closed or not a terminal
        return False
