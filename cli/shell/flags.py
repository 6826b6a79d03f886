"""A parser for the flags of a command, with the rules and messages of commons-cli.

Flags may occur anywhere after the name of the command. Flags of one letter may be joined. Words after ``--`` are not
flags.

Source: org.apache.commons.cli.PosixParser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

_JAVA_PACKAGE: Final = "org.apache.commons.cli"


class Flag(NamedTuple):
    """A flag of a command.

    Args:
        name: Letter or word, without the hyphen.
        help: One-line description.
        value: Name of the flag's value; empty if the flag has no value.
    """

    name: str
    help: str
    value: str = ""


class FlagError(Exception):
    """The flags of a command are invalid. The message is the text of commons-cli."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{_JAVA_PACKAGE}.{kind}: {text}")


class ParsedArguments(NamedTuple):
    """The parsed flags and words of a command.

    Args:
        flags: Values of the given flags, by name; empty for a flag that has no value.
        words: Words that are not flags, without the name of the command.
    """

    flags: dict[str, str]
    words: Sequence[str]

    def has(self, name: str) -> bool:
        """Return whether a flag was given."""
        return name in self.flags

    def word(self, place: int, default: str = "") -> str:
        """Return the word at the index *place*, or *default* if there are fewer words."""
        return self.words[place] if place < len(self.words) else default


def parse(
    flags: Iterable[Flag], words: Sequence[str], *, one_of: Sequence[Flag] = (), required: bool = False
) -> ParsedArguments:
    """Separate the words of a line into flags and other words.

    Args:
        flags: Flags of the command.
        words: Words of the line, without the name of the command.
        one_of: Flags of which at most one may be given; they are also in *flags*.
        required: Whether one of the flags in *one_of* must be given.

    Raises:
        FlagError: A flag is unknown, lacks its value or excludes a different flag, or a required flag is missing.
    """
    known = {flag.name: flag for flag in flags}
    group = [flag.name for flag in one_of]
    chosen_flags: dict[str, str] = {}
    others: list[str] = []
    pending = list(_split_flags(known, words))
    place = 0
    while place < len(pending):
        word, is_flag = pending[place]
        place += 1
        if not is_flag:
            others.append(word)
            continue
        chosen = next((name for name in group if name in chosen_flags), None)
        if word in group and chosen is not None and chosen != word:
            raise FlagError(
                "AlreadySelectedException",
                f"The option '{word}' was specified but an option from this group has already been selected: "
                f"'{chosen}'",
            )
        value = ""
        if known[word].value:
            if place == len(pending) or pending[place][1]:
                raise FlagError("MissingArgumentException", f"Missing argument for option: {word}")
            value, _ = pending[place]
            place += 1
        chosen_flags.setdefault(word, value)  # if a flag is repeated, the first value counts
    if required and not any(name in chosen_flags for name in group):
        names = ", ".join(f"-{flag.name} {flag.help}" for flag in one_of)
        raise FlagError("MissingOptionException", f"Missing required option: [{names}]")
    return ParsedArguments(chosen_flags, tuple(others))


def _split_flags(known: dict[str, Flag], words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each word, with joined flags separated, and whether it is a flag.

    Raises:
        FlagError: A flag is unknown.
    """
    awaited = False  # whether the previous flag still needs its value
    for place, word in enumerate(words):
        if word == "--" and not awaited:
            for rest in words[place + 1 :]:
                yield rest, False
            return
        if word[1:] in known and word.startswith("-"):
            yield word[1:], True
            awaited = bool(known[word[1:]].value)
        elif awaited or word == "-" or not word.startswith("-"):
            yield word, False
            awaited = False
        else:
            letters = _split_joined_flags(known, word)
            yield from letters
            awaited = letters[-1][1] and bool(known[letters[-1][0]].value)


def _split_joined_flags(known: dict[str, Flag], word: str) -> list[tuple[str, bool]]:
    """Split a word of joined flags. After a flag that has a value, the rest of the word is this value.

    Raises:
        FlagError: A flag is unknown.
    """
    letters: list[tuple[str, bool]] = []
    for place, letter in enumerate(word[1:], 2):
        if letter not in known:
            raise FlagError("UnrecognizedOptionException", f"Unrecognized option: {word}")
        letters.append((letter, True))
        if known[letter].value and word[place:]:
            return [*letters, (word[place:], False)]
    return letters
