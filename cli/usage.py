"""The parser of the command line, whose errors are one line and suggest the closest match."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TextIO

MAX_MESSAGE_LENGTH: Final = 600
"""Maximum number of characters in a message about the command line."""


class Formatter(argparse.HelpFormatter):
    """A formatter of help texts that, unlike the default formatter, keeps line breaks.

    The parser creates a formatter for each option. The default formatter would import shutil, which takes 2 ms.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [line for part in text.splitlines() for line in super(Formatter, self)._split_lines(part, width)]


def is_dumb_terminal() -> bool:
    """Return whether the terminal cannot move its cursor."""
    return os.environ.get("TERM") == "dumb"


def columns(stream: TextIO | None = None) -> int:
    """Return the number of columns for a stream, by default stdout: ``COLUMNS``, the terminal's width, or 80."""
    text = os.environ.get("COLUMNS", "")
    if text.isdecimal() and int(text):
        return int(text)
    try:
        return os.get_terminal_size((stream or sys.stdout).fileno()).columns or 80
    except (AttributeError, ValueError, OSError):  # stdout is closed, a different object, or not a terminal
        return 80


class Parser(argparse.ArgumentParser):
    """An :class:`argparse.ArgumentParser` that prints errors in one line. Only ``--help`` prints the usage.

    Messages about options look like those about arguments: ``--port must be ..., not 'x'``.

    Args:
        **settings: Arguments of :class:`argparse.ArgumentParser`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=Formatter, **settings)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write a text. Unlike the default method, raise the errors of stdout."""
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Print an error in one line, and exit with code 2."""
        known: list[str] = []
        word = ""
        argument = re.match(r"argument (?:\S+/)?(\S+): (.*)", message, re.DOTALL)
        if argument is not None:
            name, message = argument.groups()
            choice = re.match(r"invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL)
            if choice is not None:
                word, known = choice[1], re.findall(r"[^', ]+", choice[2])
                message = f"must be one of {', '.join(known)}, not '{word}'"  # argparse has escaped the word
            message = f"{name} {message.replace('expected one argument', 'needs a value')}"
            if name == "COMMAND":
                message = f"unknown command '{word}'"
        elif message.startswith("the following arguments are required: "):
            message = f"missing {message.partition(': ')[2].replace(', ', ' and ')}"
        elif message.startswith("unrecognized arguments: "):
            known, word = list(_walk_options(self)), message.removeprefix("unrecognized arguments: ").split()[0]
        from difflib import get_close_matches  # the import takes 2 ms

        near = get_close_matches(word, known, 1, 0.7)
        hint = f"; did you mean {near[0]}? See" if near else "; see"
        self.exit(2, f"{self.prog}: {shorten_message(message)}{hint} '{self.prog} --help'\n")


def shorten_message(text: str) -> str:
    """Return a message on one line. The middle of a very long message is removed."""
    from ..protocol.messages import one_line  # most commands print no message

    if len(text) > MAX_MESSAGE_LENGTH:
        text = f"{text[: MAX_MESSAGE_LENGTH // 2]} ... {text[-MAX_MESSAGE_LENGTH // 2 :]}"
    return one_line(text)


def path(text: str) -> str:
    """Check that the path in an argument or option is not empty, and return it.

    Raises:
        ArgumentTypeError: *text* is empty.
    """
    if not text:
        raise argparse.ArgumentTypeError("must be a path, not ''")
    return text


def whole_number(low: int | None = None, high: int | None = None) -> Callable[[str], int]:
    """Return a function that converts the text of an option to a whole number.

    The function raises an ArgumentTypeError for other text, and for a number below *low* or above *high*, if given.
    """
    expected = "a whole number" if low is None else f"a whole number from {low}" + f" to {high}" * (high is not None)

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or (low is not None and value < low) or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"must be {expected}, not {text!r}")
        return value

    return convert


def pluralize(number: float, noun: str) -> str:
    """Return a number with its noun: ``1 session``, ``2 sessions``."""
    return f"{number:,.0f} {noun if number == 1 else noun + 's'}"


def add_example(parser: argparse.ArgumentParser, command: str) -> None:
    """Add an example to the end of the help of a command."""
    parser.epilog = f"Example: {command}"


def command_summaries(commands: argparse._SubParsersAction[Any]) -> dict[str, str]:
    """Return the summary of each command, by name."""
    return {action.dest: action.help or "" for action in commands._choices_actions}  # noqa: SLF001 - has no public name


def _walk_options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the names of the options of a parser and of its subcommands."""
    for action in parser._actions:  # noqa: SLF001 - has no public name
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _walk_options(command)
