"""The user's command of ``zoolet run``, ``proxy`` and ``fault``: its signals, exit code and control API."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ..server.admin.descriptors import restore_limit
from .addresses import shown, why_not
from .options import STOPPED, CannotRunError, needs_h11

if TYPE_CHECKING:
    from ..testing.cluster.cluster import Cluster
    from ..testing.proxy import Proxy
    from ..testing.server import Server

FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are forwarded to the command."""


@contextlib.asynccontextmanager
async def listening(endpoint: Server | Cluster | Proxy, options: argparse.Namespace) -> AsyncIterator[str]:
    """Run a server or a proxy; yield the URL of its control API, which is empty without ``--admin``.

    Raises:
        OSError: An address cannot be listened on.
        OptionError: h11 is not installed.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(endpoint)
        except OSError as error:
            raise cannot_listen(options.host, options.port, error) from None
        if not options.admin and options.admin_port is None:
            yield ""
            return
        from ..testing.control.control import Control

        try:
            from ..testing.control.http import ControlServer
        except ModuleNotFoundError as error:
            if error.name != "h11":
                raise
            raise needs_h11("--admin") from None
        control = ControlServer(Control(endpoint), options.admin_port or 0, options.host)
        try:
            await stack.enter_async_context(control)
        except OSError as error:
            raise cannot_listen(options.host, options.admin_port or 0, error, " for HTTP") from None
        yield control.url


def cannot_listen(host: str, port: int, error: Exception, purpose: str = "") -> OSError:
    """Return the error for an address that cannot be listened on."""
    reason = f"cannot listen on {shown(host, port)}{purpose}: {why_not(error)}"
    return OSError(getattr(error, "errno", None) or 0, reason)


async def serve_command(words: Sequence[str], hosts: str, control: str, signals: Signals | None) -> int:
    """Run a command that uses a server. Without a command, print the server's address and wait for a signal.

    Args:
        words: The command.
        hosts: Address of the server, for the command's environment.
        control: URL of the control API, for the command's environment; empty for none.
        signals: Signals for the command; None without a command.

    Returns:
        The exit code of the command; without a command, 0 after SIGTERM and 130 after SIGINT.
    """
    if signals is not None:
        environment = {"ZOOLET_HOSTS": hosts, "ZOOKEEPER_HOSTS": hosts}
        if control:
            environment["ZOOLET_ADMIN"] = control
        return await run_command(words, environment, signals)
    loop = asyncio.get_running_loop()
    code: asyncio.Future[int] = loop.create_future()

    def stop(with_code: int) -> None:
        if not code.done():
            code.set_result(with_code)

    for number, stopped in STOPPED.items():
        loop.add_signal_handler(number, stop, stopped)
    print(f"zoolet ready on {hosts}", flush=True)
    if control:
        print(f"zoolet control on {control}", flush=True)
    return await code


async def run_command(words: Sequence[str], environment: Mapping[str, str], signals: Signals) -> int:
    """Run a command with additional environment variables.

    Returns:
        The exit code of the command. As in a shell, it is 128 plus the number of the signal that killed the command.

    Raises:
        CannotRunError: The command cannot be run.
    """
    try:
        command = await asyncio.create_subprocess_exec(
            *words, env={**os.environ, **environment}, preexec_fn=restore_limit
        )
    except OSError as error:
        raise CannotRunError(words[0], error) from None
    signals.forward_to(command)
    code = await command.wait()
    return code if code >= 0 else 128 - code


class Signals:
    """Forwards signals to a command, including signals that arrive before it runs."""

    def __init__(self) -> None:
        self._command: asyncio.subprocess.Process | None = None
        self._pending: list[signal.Signals] = []
        typed = {signal.SIGINT, signal.SIGQUIT} if _shares_terminal() else set()
        for number in FORWARDED:
            handler = self._ignore if number in typed else self._forward
            asyncio.get_running_loop().add_signal_handler(number, handler, number)

    def forward_to(self, command: asyncio.subprocess.Process) -> None:
        """Forward the signals that have arrived, and all later signals, to this command."""
        self._command = command
        for number in self._pending:
            self._forward(number)

    def _ignore(self, number: signal.Signals) -> None:
        """Do nothing, because the terminal has also sent the signal to the command."""

    def _forward(self, number: signal.Signals) -> None:
        if self._command is None:
            self._pending.append(number)
            return
        with contextlib.suppress(ProcessLookupError):  # the command has just exited
            self._command.send_signal(number)


def _shares_terminal() -> bool:
    """Return whether a signal typed at a terminal, such as Ctrl-C, reaches both this process and its command."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # stdin is closed or not a terminal
        return False
