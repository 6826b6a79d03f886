"""``zoolet run``: run a command with a server that stops when the command ends."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from random import SystemRandom
from typing import Final

from zoolet.server.app import assemble
from zoolet.server.cli.loop import run_loop
from zoolet.server.config import Config, ConfigError, Setting, build, parse_definitions
from zoolet.server.net.clock import RealClock

FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that are forwarded to the command."""
DEFAULTS: Final = {"maxClientCnxns": "0", "4lw.commands.whitelist": "*"}
"""The configuration, which -D options override."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "run",
        help="run a command with a server of its own",
        description="Run a command with a server on a free port, which ZOOLET_HOSTS and ZOOKEEPER_HOSTS name. "
        "Signals are forwarded, and the exit code is the command's.",
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- CMD ARG...", help="the command")
    parser.set_defaults(command=_run)


def start_of_command(words: Sequence[str]) -> int:
    """Return the index of the user's command among the arguments of ``zoolet``; only -D options may precede it."""
    return next((place for place, word in enumerate(words) if place and not word.startswith("-D")), len(words))


def _run(options: argparse.Namespace, definitions: list[str]) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise ConfigError("run: no command is given; zoolet run -- CMD ARG...")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    settings = {name: Setting(value, "zoolet run") for name, value in DEFAULTS.items()}
    config = build(settings, parse_definitions(definitions, "command line"), strict=True)
    if config.secure_port is not None:
        raise ConfigError("zoolet run does not support secureClientPort; zoolet serve does.")
    return run_loop(_run_with_server(config, words))


async def _run_with_server(config: Config, words: list[str]) -> int:
    """Serve while a command runs.

    Returns:
        The exit code of the command; as in a shell, 128 plus the number of the signal that killed it.
    """
    daemon = assemble(config, clock=RealClock(), rng=SystemRandom())
    hosts = f"127.0.0.1:{await daemon.start('127.0.0.1', 0)}"
    signals = _Signals()
    try:
        environment = {**os.environ, "ZOOLET_HOSTS": hosts, "ZOOKEEPER_HOSTS": hosts}
        command = await asyncio.create_subprocess_exec(*words, env=environment)
    except OSError as error:
        print(f"zoolet: cannot run {words[0]}: {error.strerror}", file=sys.stderr)
        await daemon.stop(gracefully=False)
        return 127 if isinstance(error, FileNotFoundError) else 126
    signals.forward_to(command)
    code = await command.wait()
    await daemon.stop(gracefully=False)
    return code if code >= 0 else 128 - code


class _Signals:
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
