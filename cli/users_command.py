"""The user's command of ``zoolet run``, ``proxy`` and ``fault``: its signals, exit code and control API."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ..server.admin.descriptors import restore_limit
from .addresses import format_address
from .options import STOP_EXIT_CODES, CannotRunError, cannot_listen_error, require_h11

if TYPE_CHECKING:
    from ..testing.cluster.cluster import Cluster
    from ..testing.proxy import Proxy
    from ..testing.server import Server

FORWARDED_SIGNALS: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals that are forwarded to the command."""
EXIT_AFTER_HANGUP: Final = 128 + signal.SIGHUP
"""Exit code after SIGHUP, which the kernel sends when the terminal closes."""
REAP_INTERVAL_S: Final = 0.5
"""Seconds between two searches for orphaned processes."""
_PR_SET_PDEATHSIG: Final = 1


@contextlib.asynccontextmanager
async def run_endpoint(endpoint: Server | Cluster | Proxy, options: argparse.Namespace) -> AsyncIterator[str]:
    """Run a server or a proxy for the block. Yield the URL of its control API, or an empty text if there is none.

    Raises:
        CommandError: An address cannot be listened on.
        OptionError: h11 is not installed.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(endpoint)
        except OSError as error:
            raise cannot_listen_error(format_address(options.host, options.port), error) from None
        if not options.admin and options.admin_port is None:
            yield ""
            return
        require_h11("--admin")
        from ..testing.control.control import Control
        from ..testing.control.http import ControlServer

        control = ControlServer(Control(endpoint), options.admin_port or 0, options.host)
        try:
            await stack.enter_async_context(control)
        except OSError as error:
            raise cannot_listen_error(
                f"{format_address(options.host, options.admin_port or 0)} for HTTP", error
            ) from None
        yield control.url


async def serve_command(words: Sequence[str], hosts: str, control: str, signals: Signals | None) -> int:
    """Run a command that uses a server. Without a command, print the server's address and wait for a signal.

    Args:
        words: The command.
        hosts: Address of the server, for the command's environment.
        control: URL of the control API, for the command's environment; empty without --admin.
        signals: The forwarder of signals to the command, or None if no command is given.

    Returns:
        The exit code of the command; without a command, 0 after SIGTERM, 130 after SIGINT and 129 after SIGHUP.
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

    for number, stopped in {**STOP_EXIT_CODES, signal.SIGHUP: EXIT_AFTER_HANGUP}.items():
        if not _is_ignored(number):
            loop.add_signal_handler(number, stop, stopped)
    print(f"zoolet ready on {hosts}", flush=True)
    if control:
        print(f"zoolet control on {control}", flush=True)
    return await code


async def run_command(words: Sequence[str], environment: Mapping[str, str], signals: Signals) -> int:
    """Run a command with additional environment variables, and forward signals to it.

    Returns:
        The exit code of the command. As in a shell, it is 128 plus the number of the signal that killed the command.

    Raises:
        CannotRunError: The command cannot be run.
    """
    command = _start_command(words, environment)
    signals.forward_to(command)
    reaping = asyncio.create_task(_reap_orphans(command.pid))
    try:
        code = await asyncio.get_running_loop().run_in_executor(None, command.wait)
    finally:
        reaping.cancel()
        if command.poll() is None:  # cancelled: the loop waits at its end for the thread, and so for the command
            command.terminate()
    return code if code >= 0 else 128 - code


def _start_command(words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command that inherits ignored signals. The subprocesses of uvloop would reset them.

    Raises:
        CannotRunError: The command cannot be run.
    """
    prepare = partial(_prepare_child, os.getpid(), _parent_death_signal())
    try:
        return subprocess.Popen(words, env={**os.environ, **environment}, preexec_fn=prepare)
    except OSError as error:
        raise CannotRunError(words[0], error) from None


def _parent_death_signal() -> Callable[[], object]:
    """Return a function that makes the kernel send SIGTERM to the calling process when its parent dies.

    The function is called between fork and exec, where nothing may be imported. The kernel watches the thread that
    forked, so this must be the main thread. The function does nothing on systems other than Linux.
    """
    if not sys.platform.startswith("linux"):
        return lambda: None
    import ctypes

    return partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM)


def _prepare_child(parent: int, die: Callable[[], object]) -> None:
    """Restore the limit of open files in a child process, and arrange that the child stops with its parent."""
    restore_limit()
    die()
    if os.getppid() != parent:  # the parent died before the call
        os._exit(1)


async def _reap_orphans(command: int) -> None:
    """Reap the orphans that this process inherits as the first process of a container, until cancelled.

    The orphans are polled, because uvloop reserves SIGCHLD. The command itself is left to :func:`run_command`.
    """
    while hasattr(os, "waitid"):  # missing on macOS before Python 3.13
        await asyncio.sleep(REAP_INTERVAL_S)
        _reap_now(command)


def _reap_now(command: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == command:
                break
            os.waitpid(ended.si_pid, 0)


def _is_ignored(number: int) -> bool:
    """Return whether a signal is ignored, as after nohup or in a background job of a shell."""
    return signal.getsignal(number) is signal.SIG_IGN


class Signals:
    """A forwarder of signals to a command. Signals that arrive before the command runs are forwarded at its start."""

    def __init__(self) -> None:
        self._command: subprocess.Popen[bytes] | None = None
        self._pending: list[signal.Signals] = []
        typed = {signal.SIGINT, signal.SIGQUIT} if _shares_terminal() else set()
        for number in FORWARDED_SIGNALS:
            if _is_ignored(number):  # the command inherits the ignored signal
                continue
            handler = self._ignore if number in typed else self._forward
            asyncio.get_running_loop().add_signal_handler(number, handler, number)

    def forward_to(self, command: subprocess.Popen[bytes]) -> None:
        """Forward the pending signals and all later signals to a command."""
        self._command = command
        for number in self._pending:
            self._forward(number)

    def _ignore(self, number: signal.Signals) -> None:
        """Do nothing, because the terminal has also sent the signal to the command."""

    def _forward(self, number: signal.Signals) -> None:
        if self._command is None:
            self._pending.append(number)
            return
        with contextlib.suppress(ProcessLookupError):  # the command may have exited
            self._command.send_signal(number)


def _shares_terminal() -> bool:
    """Return whether a signal typed at a terminal, such as Ctrl-C, reaches both this process and its command."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # stdin is closed or not a terminal
        return False
