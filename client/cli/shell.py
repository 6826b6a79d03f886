"""``zoolet shell``: ZooKeeper's commands, typed, in a script, or one of them."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoolet.client.cli.options import OptionError, add_connection, auth_of, tls_of
from zoolet.usage import Parser

if TYPE_CHECKING:  # a daemon imports this module for its parser
    from zoolet.client.shell.output import Output
    from zoolet.client.shell.shell import Settings

DESCRIPTION = (
    "ZooKeeper's own commands and more, on any ZooKeeper server: typed at a terminal, read from a script on stdin, or "
    "one of them. The exit code is that of the last command: 0 fine, 1 it failed, 127 there is no such command. "
    "'help' lists the commands."
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "shell", help="zkCli's commands, interactive or one", description=DESCRIPTION, allow_abbrev=False
    )
    _add_options(parser)
    parser.set_defaults(command=lambda options, definitions: _run(options))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-server",
        "--server",
        default="localhost:2181",
        metavar="HOSTS",
        help="HOST:PORT,HOST:PORT/PATH (default localhost:2181)",
    )
    parser.add_argument(
        "-timeout",
        "--timeout",
        type=int,
        default=30000,
        metavar="MS",
        help="the session timeout, in milliseconds (default 30000)",
    )
    parser.add_argument("-r", action="store_true", dest="read_only", help="accept a server that is read-only")
    parser.add_argument(
        "-waitforconnection", action="store_true", help="wait for a connection as long as the session timeout"
    )
    parser.add_argument("--json", action="store_true", help="print each result as a line of JSON")
    parser.add_argument("--no-colour", action="store_true", help="print no colours; NO_COLOR does the same")
    add_connection(parser)
    parser.add_argument(
        "words",
        metavar="COMMAND",
        nargs=argparse.REMAINDER,
        help="a command and its words, also after HOST:PORT in place of -server; without one, a shell",
    )


_ADDRESSES = re.compile(r"[^\s,/]+:\d+(,[^\s,/]+:\d+)*(/.*)?")
"""HOST:PORT,HOST:PORT/PATH, which no command is called."""


def main(arguments: Sequence[str]) -> int:
    """Run the command without the parser of all the others, which would take longer than the command itself."""
    parser = Parser(prog="zoolet shell", description=DESCRIPTION, allow_abbrev=False)
    _add_options(parser)
    return _run(parser.parse_args(list(arguments)))


def _run(options: argparse.Namespace) -> int:
    from zoolet.client.wire.hosts import Hosts

    if options.words and _ADDRESSES.fullmatch(options.words[0]):  # as the other commands take them
        options.server, *words = options.words
        parser = Parser(prog="zoolet shell", description=DESCRIPTION, allow_abbrev=False)
        _add_options(parser)
        parser.parse_args(words, options)  # there may be options behind it
    from zoolet.client.shell.errors import INTERRUPTED
    from zoolet.client.shell.output import Output
    from zoolet.client.shell.shell import Settings

    try:
        Hosts.parse(options.server)
        settings = Settings(
            options.server,
            max(1, options.timeout) / 1000,
            options.read_only,
            auth_of(options),
            tls_of(options),
            waits_first=options.waitforconnection,
        )
    except (OptionError, ValueError) as error:
        print(f"zoolet: {error}", file=sys.stderr)
        return 2
    logging.getLogger("zoolet").addHandler(logging.NullHandler())  # the shell itself says what happens
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # a test's stream has none
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="surrogateescape")  # what nodes hold need not be text
    colour = not (options.no_colour or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb")
    out = Output(sys.stdout, sys.stderr, as_json=options.json, colour=colour)
    try:
        return _execute(options, settings, out)
    except KeyboardInterrupt:  # before the loop runs, or at a terminal
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _execute(options: argparse.Namespace, settings: Settings, out: Output) -> int:
    if options.words:
        from zoolet.client.shell.interpreter import interruptible, run_once

        return asyncio.run(interruptible(run_once(settings, out, options.words)))
    if sys.stdin.isatty():
        from zoolet.client.shell.terminal import run_terminal

        return run_terminal(settings, out)
    from zoolet.client.shell.interpreter import interruptible, run_script

    return asyncio.run(interruptible(run_script(settings, out, sys.stdin.readline)))
