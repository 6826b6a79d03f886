"""A line that is typed, and the words of it.

Source: ZooKeeperMain.MyCommandOptions.
"""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'|([^\s\"']\S*)", re.ASCII)
BLANKS: Final = " \t\n\r\f\v"
"""What divides words: no other blanks do, for names of nodes may have them."""


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


def last_word(line: str) -> tuple[list[str], str]:
    """Return the complete words of a line that is being typed, and what there is of the last one, quotes left out."""
    if not line or line[-1] in BLANKS:
        return split(line), ""
    cut = len(line)
    while cut and line[cut - 1] not in BLANKS:
        cut -= 1
    return split(line[:cut]), line[cut:].lstrip("\"'")
