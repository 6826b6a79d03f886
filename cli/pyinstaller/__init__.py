"""The PyInstaller hook of zoolet, ``hook-zoolet.py``, which adds all of zoolet to a frozen program."""

from __future__ import annotations

from pathlib import Path

__all__ = ["hook_dirs"]


def hook_dirs() -> list[str]:
    """Return the folder with the hook. PyInstaller finds this function by the entry point ``pyinstaller40``."""
    return [str(Path(__file__).parent)]
