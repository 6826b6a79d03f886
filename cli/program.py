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
from .options import INTERRUPTED_EXIT_CODE, WRONG_PATH_ERRORS, CannotRunError, CommandError, OptionError
from .usage import Parser, command_summaries, shorten_message

__all__ = ["main", "parser"]

COMMAND_GROUPS: Final = {
    "server": ("serve", "datadir", "backup", "container"),
    "any ZooKeeper server": ("status", "top", "shell", "locks", "console", "dump", "load", "push"),
    "testing": ("run", "proxy", "fault", "check"),
    "shell completion": ("completion",),
}
"""Commands by heading, in the order of the help screen."""
COMMAND_MODULES: Final = {
    **{name: name for names in COMMAND_GROUPS.values() for name in names},
    "shell": "shell.program",
    **dict.fromkeys(("dump", "load", "push"), "transfer.commands"),
    "completion": "pages",
}
"""Module of each command. Its function ``add_command`` adds the command to the parser."""
ACCEPTED_PROPERTIES: Final[dict[str, tuple[str, ...] | None]] = {
    **dict.fromkeys(("serve", "container", "run")),
    "console": ("zoolet.adminHosts",),
    "datadir": ("snapshot.trust.empty",),
}
"""ZooKeeper properties that a command accepts with ``-D``. None stands for all; commands not listed accept none."""
NOT_READ_ERROR: Final = "-D is not supported by this command"
EPILOG: Final = (
    "Run 'zoolet COMMAND --help' for its options and an example.\n"
    "Exit codes: 0 success, 1 failure, 2 wrong usage or unreadable file,\n"
    "130 Ctrl-C. With a command after --, the exit code is the command's, or\n"
    "126 if it cannot be executed, 127 if it is not found."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: Words after the name of the program. By default, the arguments of this process.
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
    program = parser(words[0] if words[0] in COMMAND_MODULES else None)
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
        print(f"zoolet {others[0]}: {shorten_message(str(reason))}", file=sys.stderr)
        return code

    try:
        _refuse_unread_properties(others[0], definitions)
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
        return failed(f"interrupted{error}", INTERRUPTED_EXIT_CODE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        is_usage = isinstance(error, WRONG_PATH_ERRORS) and str(error.filename) in words
        return failed(f"{where}{file_error_reason(error)}", 2 if is_usage else 1)


def _refuse_unread_properties(command: str, definitions: list[str]) -> None:
    """Check that a command uses each property that is set with ``-D``.

    Raises:
        OptionError: A property has no effect on the command.
    """
    read = ACCEPTED_PROPERTIES.get(command, ())
    names = [word.partition("=")[0] for word in definitions]  # no values in the message: they may be passwords
    unread = [name for name in names if read is not None and name[2:].removeprefix("zookeeper.") not in read]
    if unread:
        text = f"-D{read[0]} is the only property that this command reads" if read else NOT_READ_ERROR
        raise OptionError(f"{text}: {' '.join(unread)}")


class _Program(Parser):
    """The parser of all commands, whose help lists the commands by group.

    Args:
        **settings: Arguments of :class:`argparse.ArgumentParser`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        plain: type[argparse.ArgumentParser] = Parser
        self.commands = self.add_subparsers(required=True, metavar="COMMAND", parser_class=plain)

    def flags(self) -> list[str]:
        """Return the names of the options that may precede the command."""
        return [flag for action in self._actions for flag in action.option_strings]

    def format_help(self) -> str:
        """Return the help screen: usage, commands by group, exit codes."""
        texts = command_summaries(self.commands)
        lines = [self.format_usage().rstrip(), "", self.description or ""]
        for title, names in COMMAND_GROUPS.items():
            lines += ["", title]
            lines += [f"  {name:<11}  {texts[name]}" for name in names]
        return "\n".join([*lines, "", self.epilog or "", ""])


def parser(only: str | None = None) -> _Program:
    """Return the parser of the command line, without ``-Dname=value``, which :func:`main` removes before parsing.

    Args:
        only: The command to add. Its module is the only one that is imported. By default, all commands are added.
    """
    description = "A ZooKeeper-compatible server, and tools for any ZooKeeper server."
    program = _Program(prog="zoolet", description=description, epilog=EPILOG)
    program.add_argument("-V", "--version", action=_Version, nargs=0, help="show the version and exit")
    for module in dict.fromkeys(COMMAND_MODULES.values() if only is None else (COMMAND_MODULES[only],)):
        import_module(f".{module}", __package__).add_command(program.commands)
    return program


def _end_of_options(words: list[str]) -> int:
    """Return the index where the arguments of ``zoolet`` end: at ``--``, or at the user's command."""
    if words[:1] in (["run"], ["container"]):  # the user's command may follow without --
        return int(import_module(f".{words[0]}", __package__).command_index(words))
    return (*words, "--").index("--")


class _Version(argparse.Action):
    """The option that prints the version. It imports ``importlib.metadata`` only when used: the import takes 20 ms."""

    def __call__(self, parser: argparse.ArgumentParser, *ignored: object) -> None:
        from importlib.metadata import version

        print(f"zoolet {version('zoolet')}")
        parser.exit()
