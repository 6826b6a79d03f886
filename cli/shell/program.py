"""``zoolet shell``: zkCli commands, interactively, from a script or one at a time."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..options import OptionError, add_connection, add_max_request, make_tls_context, parse_auth, read_max_request
from ..usage import Parser, add_example, is_dumb_terminal, whole_number

if TYPE_CHECKING:  # a daemon imports this module for its parser
    from .output import ShellOutput
    from .shell import ConnectionSettings

DESCRIPTION = (
    "Run zkCli commands and more on any ZooKeeper server: interactively, from a script on stdin, or as a single "
    "command. The last command sets the exit code: 0 success, 1 failure, 127 unknown command. The command 'help' lists "
    "all commands."
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "shell",
        help="run zkCli commands, interactively or one at a time",
        description=DESCRIPTION,
        allow_abbrev=False,
    )
    _add_options(parser)
    parser.set_defaults(command=lambda options, definitions: _run(options))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "zoolet shell [options] [HOST:PORT] [COMMAND [ARG ...]]"
    add_example(parser, "zoolet shell localhost:2181 ls -R /app")
    parser.add_argument(
        "-server",
        "--server",
        default="localhost:2181",
        metavar="HOSTS",
        help="servers, as HOST:PORT,HOST:PORT[/CHROOT] (default localhost:2181)",
    )
    parser.add_argument(
        "-timeout",
        "--timeout",
        type=whole_number(1, (1 << 31) - 1),
        default=30000,
        metavar="MS",
        help="session timeout in milliseconds (default 30000)",
    )
    parser.add_argument("-r", action="store_true", help="ignored: read-only servers are always accepted")
    parser.add_argument(
        "-waitforconnection", action="store_true", help="wait for a connection for up to the session timeout"
    )
    parser.add_argument("--json", action="store_true", help="print each result as one line of JSON")
    parser.add_argument("--no-colour", action="store_true", help="disable colours, as NO_COLOR does")
    add_connection(parser)
    add_max_request(parser)
    parser.add_argument(
        "words",
        metavar="COMMAND",
        nargs=argparse.REMAINDER,
        help="command to run (default: read commands from stdin); HOST:PORT before the command replaces -server",
    )


_ADDRESSES_PATTERN = re.compile(r"[^\s,/]+:\d+(,[^\s,/]+:\d+)*(/.*)?")
"""Pattern of HOST:PORT,HOST:PORT/PATH, which cannot be the name of a command."""


def main(arguments: Sequence[str]) -> int:
    """Run ``zoolet shell`` without the parser of all commands, whose import would take longer than a command."""
    parser = Parser(prog="zoolet shell", description=DESCRIPTION, allow_abbrev=False)
    _add_options(parser)
    return _run(parser.parse_args(list(arguments)))


def _run(options: argparse.Namespace) -> int:
    from ...client.wire.hosts import Hosts

    if options.words and _ADDRESSES_PATTERN.fullmatch(options.words[0]):  # servers come first, as in other commands
        options.server, *words = options.words
        parser = Parser(prog="zoolet shell", description=DESCRIPTION, allow_abbrev=False)
        _add_options(parser)
        parser.parse_args(words, options)  # more options may follow the address
    from ...protocol.messages import file_error_reason
    from ..options import INTERRUPTED_EXIT_CODE
    from .output import ShellOutput
    from .shell import ConnectionSettings

    try:
        Hosts.parse(options.server)
        settings = ConnectionSettings(
            options.server,
            options.timeout / 1000,
            parse_auth(options),
            make_tls_context(options),
            waits_first=options.waitforconnection,
            max_request=read_max_request(options),
        )
    except (OptionError, ValueError) as error:
        print(f"zoolet shell: {error}", file=sys.stderr)
        return 2
    logging.getLogger("zoolet").addHandler(logging.NullHandler())  # the shell itself reports failures
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # missing if a test replaced the stream
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="surrogateescape")  # the data of nodes need not be text
    colour = not (options.no_colour or os.environ.get("NO_COLOR") or is_dumb_terminal())
    out = ShellOutput(sys.stdout, sys.stderr, as_json=options.json, colour=colour)
    try:
        return _execute(options, settings, out)
    except KeyboardInterrupt:  # before the event loop ran, or in the interactive shell
        return INTERRUPTED_EXIT_CODE
    except OSError as error:  # the input cannot be read
        print(f"zoolet shell: {file_error_reason(error)}", file=sys.stderr)
        return 1


def _execute(options: argparse.Namespace, settings: ConnectionSettings, out: ShellOutput) -> int:
    if options.words:
        from .interpreter import run_once, run_until_interrupted

        return asyncio.run(run_until_interrupted(run_once(settings, out, options.words)))
    if sys.stdin.isatty():
        from .terminal import run_terminal

        return run_terminal(settings, out)
    from .interpreter import run_script, run_until_interrupted

    return asyncio.run(run_until_interrupted(run_script(settings, out, sys.stdin.readline)))
