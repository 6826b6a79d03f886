"""The hook of zoolet for PyInstaller, ``hook-zoolet.py``: with it, a program contains all of zoolet."""

from __future__ import annotations

from pathlib import Path

__all__ = ["hook_dirs"]


def hook_dirs() -> list[str]:
    """Return the folder with the hook. PyInstaller finds this function by the entry point ``pyinstaller40``."""
    return [str(Path(__file__).parent)]
