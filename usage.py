"""The parser of the command line: a mistake is one line, which names the nearest word that there is."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """An :class:`argparse.ArgumentParser` without a page of usage for a mistake; ``--help`` prints that."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2, and say in one line what is wrong."""
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice is not None:
            known, word = re.findall(r"'([^']+)'", choice[2]), choice[1]
            if message.startswith("argument COMMAND"):  # of an option, the few choices are said
                message = f"there is no command {word!r}"
        elif message.startswith("unrecognized arguments: "):
            known, word = list(_options_of(self)), message.removeprefix("unrecognized arguments: ").split()[0]
        else:
            known, word = [], ""
        from difflib import get_close_matches  # it takes 2 ms to import

        near = get_close_matches(word, known, 1, 0.7)
        hint = f"; did you mean {near[0]}?" if near else ""
        self.exit(2, f"{self.prog}: {message}{hint} ({self.prog} --help)\n")


def _options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - there is no public way
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _options_of(command)
