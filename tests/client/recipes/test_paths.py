"""Every recipe rejects invalid paths and accepts valid ones."""

from __future__ import annotations

import inspect
from itertools import product
from typing import Any, Final

import pytest
from support.rows import for_each

from zoolet.client import Client, recipes

RESULT_CLASSES: Final = {"Lease", "DurableLease", "QueueEntry"}
"""Classes that recipes return. Programs do not create them."""
ARGUMENTS: Final[dict[str, tuple[object, ...]]] = {
    "DoubleBarrier": (2,),
    "DurableLock": ("me",),
    "Worker": ("w", print),
}
"""The arguments after the path, where a recipe requires some."""


def second_parameter(name: str) -> str:
    """Return the name of the second parameter of a public name, if the first is a client."""
    found = getattr(recipes, name)
    try:
        parameters = list(inspect.signature(found).parameters) if inspect.isclass(found) else []
    except ValueError:  # an exception class implemented in C has no signature
        return ""
    return parameters[1] if parameters[:1] == ["client"] else ""


RECIPES: Final = [
    name for name in recipes.__all__ if second_parameter(name).startswith("path") and name not in RESULT_CLASSES
]


def make_recipe(name: str, path: str) -> Any:
    """Return a recipe of this name at a path."""
    where: Any = [path] if name == "MultiLock" else path
    return getattr(recipes, name)(Client("127.0.0.1:1"), where, *ARGUMENTS.get(name, ()))


@for_each("row", product(RECIPES, ["", "relative", "/a/", "/a//b", "/a/../b", "/a\0b"]))
def test_recipe_refuses_illegal_path(row: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="path"):
        make_recipe(*row)


@for_each("name", RECIPES)
def test_recipe_accepts_legal_path(name: str) -> None:
    assert make_recipe(name, "/a") is not None


def test_tested_recipes_include_all_kinds() -> None:
    assert {"Lock", "MultiLock", "Semaphore", "Queue", "TreeCache", "Worker"} <= set(RECIPES)
