"""The lines of former shells, in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from zoolet.client.shell import words

MOST: Final = 10_000
"""Lines that are kept."""


def history_file() -> Path:
    """Return the file, whose folder is made; lines may have secrets, so others must not read it."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    file = Path(base, "zoolet", "shell_history")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    return file


def is_kept(line: str) -> bool:
    """Return whether a line is kept: not one with a password, nor one that begins with a blank."""
    typed = words.split(line)
    return bool(typed) and line[0] not in words.BLANKS and typed[0] != "addauth" and "\n" not in line
