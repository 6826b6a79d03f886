"""The programs in docs/_build that write pages from tables."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Final

GENERATORS: Final = Path(__file__).parents[2] / "docs" / "_build"


def load_generator(name: str) -> ModuleType:
    """Load a generator as a module. Its ``page()`` returns the text, and its ``PAGE`` is the file."""
    spec = importlib.util.spec_from_file_location(name, GENERATORS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
