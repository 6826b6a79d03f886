"""What the commands do: one module for each kind of them; importing a module enters its commands into the table."""

from __future__ import annotations

from importlib import import_module
from typing import Final

MODULES: Final = ("nodes", "access", "quotas", "watching", "servers", "session", "subtrees", "searching", "copying")


def load() -> None:
    """Fill the table of commands."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
