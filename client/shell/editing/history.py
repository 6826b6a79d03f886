"""The lines of former shells, in a file."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from zoolet.client.shell import words
from zoolet.client.shell.command import find

MAX_LINES: Final = 10_000
"""Lines that are kept."""


def _file() -> Path:
    """Return the file, whose folder is made; lines may have secrets, so others must not read it."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    file = Path(base, "zoolet", "shell_history")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    return file


def is_kept(line: str) -> bool:
    """Return whether a line is kept: not one that begins with a blank, nor one that may have a password: addauth, and a
    misspelt command that may have meant it.
    """
    typed = words.split(line)
    if not typed or line[0] in words.BLANKS or len(words.lines(line)) != 1:
        return False
    if find(typed[0]) is not None:
        return typed[0] != "addauth"
    return not get_close_matches(typed[0].lower(), ("addauth",)) and "digest" not in typed[1:2]


def read_lines() -> list[str]:
    """Return the lines of former shells, the oldest first; none if there is no file, or no home for it."""
    try:
        text = _file().read_text(encoding="utf-8", errors="replace")
    except (OSError, RuntimeError):
        return []
    return words.lines(text)[-MAX_LINES:] if text else []


def append_line(line: str) -> bool:
    """Write a line to the file, if it may be kept and there is room for it; return whether it may be."""
    if not is_kept(line):
        return False
    try:
        with _file().open("a", encoding="utf-8", errors="replace") as file:
            file.write(line + "\n")
    except (OSError, RuntimeError):
        pass  # it is still known to this shell
    return True
