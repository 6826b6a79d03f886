"""The history file, which contains the lines of earlier shells."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from .. import words
from ..command import find

MAX_LINES: Final = 10_000
"""Maximum number of lines that are read."""


def _history_file() -> Path:
    """Return the history file, after creating it if needed. Only the owner can read it: lines may contain secrets."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    file = Path(base, "zoolet", "shell_history")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    return file


def is_kept(line: str) -> bool:
    """Return whether a line may be saved.

    A line is not saved if it starts with a blank, or if it may contain a password, as addauth and similar words do.
    """
    typed = words.split(line)
    if not typed or line[0] in words.BLANKS or len(words.lines(line)) != 1:
        return False
    if find(typed[0]) is not None:
        return typed[0] != "addauth"
    return not get_close_matches(typed[0].lower(), ("addauth",)) and "digest" not in typed[1:2]


def read_lines() -> list[str]:
    """Return the lines of earlier shells, oldest first, or an empty list if the file cannot be read."""
    try:
        text = _history_file().read_text(encoding="utf-8", errors="replace")
    except (OSError, RuntimeError):
        return []
    return words.lines(text)[-MAX_LINES:] if text else []


def append_line(line: str) -> bool:
    """Append a line to the history file if the line may be saved. Return whether it may be saved.

    Write errors are ignored.
    """
    if not is_kept(line):
        return False
    try:
        with _history_file().open("a", encoding="utf-8", errors="replace") as file:
            file.write(line + "\n")
    except (OSError, RuntimeError):
        pass  # the line is still in the history of this shell
    return True
