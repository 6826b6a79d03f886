"""The words of a line: splitting, quoting and completion.

Source: ZooKeeperMain.MyCommandOptions.
"""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'|([^\s\"']\S*)", re.ASCII)
BLANKS: Final = " \t\n\r\f\v"
"""Separators of words. Other blanks, such as a no-break space, may be part of a name."""


def lines(text: str) -> list[str]:
    """Split text at line feeds and carriage returns only, because names of nodes may contain U+2028."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def split(line: str) -> list[str]:
    """Split a line into words at blanks. A quoted word may contain blanks.

    As in zkCli, escapes are not supported, and an unmatched quote is ignored.
    """
    return [double or single or plain for double, single, plain in _WORD.findall(line)]


def quote(word: str) -> str:
    """Quote a word for :func:`split` if necessary. A word with both kinds of quotes and a blank cannot be quoted."""
    if word and not set(word) & set(BLANKS) and word[0] not in "\"'":
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def last_word(line: str) -> tuple[list[str], str, int]:
    """Return the complete words of a line, its incomplete last word, and the start of that word.

    An opening quote is not part of the last word, but the start is the index of the quote.
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
