"""The pages that are made from tables say what the tables say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

GENERATORS: Final = Path(__file__).parents[2] / "docs" / "_build"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, GENERATORS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("name", ["compatibility", "configuration"])
def test_a_page_is_what_its_table_makes(name: str) -> None:
    made = load(name)

    assert made.PAGE.read_text() == made.page(), "run `make docs`"
