"""The ``zoolet`` command: one module for each of its commands.

Exit codes: 0 for success, 1 for a failure, 2 for wrong usage or configuration. An error is one line on stderr that says
what is wrong and where.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from zoolet.server.cli import backup, check, container, datadir, fault, proxy, run, serve
from zoolet.server.config import ConfigError
from zoolet.server.console import command as console
from zoolet.server.storage.errors import StorageError
from zoolet.usage import Parser

__all__ = ["main", "parser"]

AddCommands = Callable[["argparse._SubParsersAction[argparse.ArgumentParser]"], None]  # noqa: SLF001 - has no public name
"""Adds commands to the parser."""


def main(arguments: Sequence[str] | None = None, more: AddCommands | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: What follows the name of the program; by default that of this process.
        more: Adds further commands to the parser.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    end = run.start_of_command(words) if words[:1] == ["run"] else (*words, "--").index("--")
    definitions = [word for word in words[:end] if word.startswith("-D")]
    if "-D" in definitions:
        parser(more).error("-D stands before a name, without a space: -DNAME=VALUE")
    others = [word for word in words[:end] if not word.startswith("-D")]
    options = parser(more).parse_args(others)
    options.words = words[end + (words[end : end + 1] == ["--"]) :]  # the user's command
    try:
        return int(options.command(options, definitions))
    except ConfigError as error:
        print(f"zoolet: {error}", file=sys.stderr)
        return 2
    except StorageError as error:
        print(f"zoolet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("zoolet: interrupted", file=sys.stderr)
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"zoolet: {where}{error.strerror or error}", file=sys.stderr)
        return 1


def _plain(parser: Parser) -> argparse.ArgumentParser:
    return parser  # of which the types of argparse make subcommands


def parser(more: AddCommands | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; ``-Dname=value`` is not among its options, because it may be anywhere."""
    program = _plain(Parser(prog="zoolet", description="A ZooKeeper-compatible coordination server."))
    program.add_argument("-V", "--version", action=_Version, nargs=0, help="show the version and exit")
    commands = program.add_subparsers(required=True, metavar="COMMAND")
    serve.add_command(commands)
    run.add_command(commands)
    proxy.add_command(commands)
    fault.add_command(commands)
    datadir.add_command(commands)
    backup.add_command(commands)
    check.add_command(commands)
    container.add_command(commands)
    console.add_command(commands)
    if more is not None:
        more(commands)
    return program


class _Version(argparse.Action):
    """Print the version; the module that finds it takes 20 ms to import, and is imported only here."""

    def __call__(self, parser: argparse.ArgumentParser, *ignored: object) -> None:
        from importlib.metadata import version

        print(f"zoolet {version('zoolet')}")
        parser.exit()
