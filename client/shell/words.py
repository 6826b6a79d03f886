"""A line that is typed, and the words of it.

Source: ZooKeeperMain.MyCommandOptions.
"""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'|([^\s\"']\S*)", re.ASCII)
BLANKS: Final = " \t\n\r\f\v"
"""Separators of words; names of nodes may have any other blanks."""


def lines(text: str) -> list[str]:
    """Split text where a terminal begins a new line, and nowhere else: names of nodes may have U+2028."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def split(line: str) -> list[str]:
    """Split a line at blanks. A word that begins with a quote ends with the same quote, and may contain blanks.

    There are no escapes, and a quote without its partner is passed over, as in ZooKeeper's own shell.
    """
    return [double or single or plain for double, single, plain in _WORD.findall(line)]


def quote(word: str) -> str:
    """Return a word so that :func:`split` reads it as one; a word with both kinds of quote and a blank cannot be."""
    if word and not set(word) & set(BLANKS) and word[0] not in "\"'":
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def last_word(line: str) -> tuple[list[str], str, int]:
    """Return the complete words of a line that is being typed, what there is of the last one, and where that begins;
    its quote is not part of it, but is where it begins.
    """
    start = end = 0
    while end < len(line):
        start = end
        while start < len(line) and line[start] in BLANKS:
            start += 1
        quoted = line[start : start + 1] in ("'", '"')
        if quoted:
            closing = line.find(line[start], start + 1)
            end = closing + 1 if closing >= 0 else len(line)
            if closing < 0:
                return split(line[:start]), line[start + 1 :], start
        else:
            end = start
            while end < len(line) and line[end] not in BLANKS:
                end += 1
            if end == len(line):
                return split(line[:start]), line[start:], start
    return split(line), "", len(line)
