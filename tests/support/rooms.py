"""The rooms of the package: the folders in the root that are part of ``zoolet``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("protocol", "server", "client", "console", "testing", "cli")
"""The rooms, in order. A room may import earlier rooms, except that server and client do not import each other."""


def modules(*parts: str) -> list[Path]:
    """Return the files of the modules in these folders."""
    return sorted(path for part in parts for path in (ROOT / part).rglob("*.py"))
