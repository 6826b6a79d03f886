"""The parser of all commands, and the function that runs one of them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from ..protocol.errors import ZooKeeperError
from ..protocol.messages import file_error_reason
from ..server.config import ConfigError
from ..server.storage.errors import NoDirectoryError, StorageError
from .options import INTERRUPTED, WRONG_PATH, CannotRunError, CommandError, OptionError
from .usage import Parser, brief, summaries

__all__ = ["main", "parser"]

GROUPS: Final = {
    "server": ("serve", "datadir", "backup", "container"),
    "any ZooKeeper server": ("status", "top", "shell", "locks", "console", "dump", "load", "push"),
    "testing": ("run", "proxy", "fault", "check"),
    "shell completion": ("completion",),
}
"""The commands by heading of the help screen, in its order."""
MODULES: Final = {
    **{name: name for names in GROUPS.values() for name in names},
    "shell": "shell.program",
    **dict.fromkeys(("dump", "load", "push"), "transfer.commands"),
    "completion": "pages",
}
"""The module of each command, which has a function that adds the command to the parser."""
READS: Final[dict[str, tuple[str, ...] | None]] = {
    **dict.fromkeys(("serve", "container", "run")),
    "console": ("zoolet.adminHosts",),
    "datadir": ("snapshot.trust.empty",),
}
"""The ZooKeeper properties that a command reads from ``-D``; None for all. Other commands read none."""
NOT_READ: Final = "-D is not supported by this command"
EPILOG: Final = (
    "Run 'zoolet COMMAND --help' for its options and an example.\n"
    "Exit codes: 0 success, 1 failure, 2 wrong usage or unreadable file,\n"
    "130 Ctrl-C. With a command after --, the exit code is the command's, or\n"
    "126 if it cannot be executed, 127 if it is not found."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: Words after the name of the program; by default those of this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        parser().print_help(sys.stderr)
        return 2
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    end = _end_of_options(words)
    definitions = [word for word in words[:end] if word.startswith("-D")]
    others = [word for word in words[:end] if not word.startswith("-D")]
    program = parser(words[0] if words[0] in MODULES else None)
    command = program.commands.choices.get(others[0], program) if others else program
    if wrong := [word for word in definitions if not word[2:].partition("=")[0]]:
        command.error(f"{wrong[0]} needs a name and a value, without a space after -D: -DNAME=VALUE")
    if others and others[0].startswith("-") and not any(flag.startswith(others[0]) for flag in program.flags()):
        program.error(f"unrecognized arguments: {others[0]}")
    options, unknown = program.parse_known_args(others)
    if unknown:
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.words = words[end + (words[end : end + 1] == ["--"]) :]  # the user's command

    def failed(reason: object, code: int) -> int:
        print(f"zoolet {others[0]}: {brief(str(reason))}", file=sys.stderr)
        return code

    try:
        _refuse_unread(others[0], definitions)
        return int(options.command(options, definitions))
    except (ConfigError, OptionError) as error:
        return failed(error, 2)
    except CannotRunError as error:
        return failed(error, error.code)
    except (CommandError, ZooKeeperError) as error:
        return failed(error, 1)
    except NoDirectoryError as error:
        return failed(error, 2)
    except StorageError as error:
        return failed(error, 2 if error.where in words and not os.path.isdir(error.where) else 1)
    except KeyboardInterrupt as error:
        return failed(f"interrupted{error}", INTERRUPTED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        is_usage = isinstance(error, WRONG_PATH) and str(error.filename) in words
        return failed(f"{where}{file_error_reason(error)}", 2 if is_usage else 1)


def _refuse_unread(command: str, definitions: list[str]) -> None:
    """Check that a command reads each of its ``-D`` options.

    Raises:
        OptionError: The command does not read a property.
    """
    read = READS.get(command, ())
    names = [word.partition("=")[0] for word in definitions]  # a value may be a password
    unread = [name for name in names if read is not None and name[2:].removeprefix("zookeeper.") not in read]
    if unread:
        text = f"-D{read[0]} is the only property that this command reads" if read else NOT_READ
        raise OptionError(f"{text}: {' '.join(unread)}")


class _Program(Parser):
    """The parser of all commands; its help lists them by group.

    Args:
        **settings: Arguments of :class:`argparse.ArgumentParser`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        plain: type[argparse.ArgumentParser] = Parser
        self.commands = self.add_subparsers(required=True, metavar="COMMAND", parser_class=plain)

    def flags(self) -> list[str]:
        """Return the names of the options before a command."""
        return [flag for action in self._actions for flag in action.option_strings]

    def format_help(self) -> str:
        """Return the help screen: usage, commands by group, exit codes."""
        texts = summaries(self.commands)
        lines = [self.format_usage().rstrip(), "", self.description or ""]
        for title, names in GROUPS.items():
            lines += ["", title]
            lines += [f"  {name:<11}  {texts[name]}" for name in names]
        return "\n".join([*lines, "", self.epilog or "", ""])


def parser(only: str | None = None) -> _Program:
    """Return the parser. ``-Dname=value`` is not among its options, because it may be anywhere.

    Args:
        only: The command to add. Its module is the only one that is imported. By default, all commands are added.
    """
    description = "A ZooKeeper-compatible server, and tools for any ZooKeeper server."
    program = _Program(prog="zoolet", description=description, epilog=EPILOG)
    program.add_argument("-V", "--version", action=_Version, nargs=0, help="show the version and exit")
    for module in dict.fromkeys(MODULES.values() if only is None else (MODULES[only],)):
        import_module(f".{module}", __package__).add_command(program.commands)
    return program


def _end_of_options(words: list[str]) -> int:
    """Return the index of the first word that is not an argument of ``zoolet``: ``--``, or the user's command."""
    if words[:1] in (["run"], ["container"]):  # a command of the user may follow without --
        return int(import_module(f".{words[0]}", __package__).start_of_command(words))
    return (*words, "--").index("--")


class _Version(argparse.Action):
    """Print the version. The module that finds it takes 20 ms to import, so it is imported only here."""

    def __call__(self, parser: argparse.ArgumentParser, *ignored: object) -> None:
        from importlib.metadata import version

        print(f"zoolet {version('zoolet')}")
        parser.exit()
