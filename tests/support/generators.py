"""The programs in docs/_build that write pages from tables."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Final

GENERATORS: Final = Path(__file__).parents[2] / "docs" / "_build"


def generator(name: str) -> ModuleType:
    """Return a generator as a module; its ``page()`` is the text, and its ``PAGE`` the file."""
    spec = importlib.util.spec_from_file_location(name, GENERATORS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
