"""Size limits: 99 of 100 functions have at most 40 lines, all have at most 60; modules except tables at most 550."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest
from support.rooms import ROOMS, ROOT

MEASURED_FOLDERS: Final = (*ROOMS, "tests", "benchmarks")
TABLE_MODULES: Final = frozenset(
    {"protocol/operations.py", "protocol/records.py", "protocol/errors.py", "server/config/keys.py"}
)
"""Tables for reference, which may be longer."""
GENERATED_MODULE: Final = "server/core/ops/straight.py"
"""A generated module, which may be longer, and so may its functions."""
MODULE_LINES: Final = 550
FUNCTION_LINES: Final = 60
USUAL_FUNCTION_LINES: Final = 40
"""The limit for 99 of 100 functions. Lines count from ``def`` to the end, without the docstring."""
NAME_LETTERS: Final = 60

MODULES: Final = {
    path.relative_to(ROOT).as_posix(): path
    for found in (ROOT.glob("*.py"), *((ROOT / folder).rglob("*.py") for folder in MEASURED_FOLDERS))
    for path in sorted(found)
}
"""The file of every module in the repository, by its path below the root."""


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Yield the name and number of lines of each function of a module, including methods and inner functions."""
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            yield node.name, last - node.lineno + 1 - _docstring_lines(node)


def statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in a block. Expressions, the largest part of a tree, are skipped."""
    for child in ast.iter_child_nodes(block):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield child
            yield from statements(child)


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node, clean=False) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def test_modules_are_within_line_limit() -> None:
    sizes = {
        name: len(path.read_text().splitlines())
        for name, path in MODULES.items()
        if name not in {*TABLE_MODULES, GENERATED_MODULE}
    }

    assert {name: size for name, size in sizes.items() if size > MODULE_LINES} == {}


@pytest.mark.slow
def test_functions_are_within_line_limits() -> None:
    written = [(name, path.read_text()) for name, path in MODULES.items() if name != GENERATED_MODULE]
    sizes = [(name, *found) for name, text in written for found in functions(text)]

    assert [found for found in sizes if found[-1] > FUNCTION_LINES] == []
    assert sorted(size for _, _, size in sizes)[len(sizes) * 99 // 100] <= USUAL_FUNCTION_LINES


def test_test_names_fit_line_of_report() -> None:
    names = [name for path in MODULES.values() for name in re.findall(r"def (test_\w+)", path.read_text())]

    assert [name for name in names if len(name) > NAME_LETTERS] == []


def test_modules_listed_as_tables_exist() -> None:
    assert MODULES.keys() >= {*TABLE_MODULES, GENERATED_MODULE}


def test_lines_of_docstring_do_not_count() -> None:
    source = '@decorated\ndef f(\n    a,\n):\n    """Return 1.\n\n    Always.\n    """\n    return 1\n'

    assert list(functions(source)) == [("f", 4)]


def test_methods_and_inner_functions_are_measured_too() -> None:
    source = "class A:\n    async def outer(self):\n        def inner():\n            pass\n        return inner\n"

    assert sorted(functions(source)) == [("inner", 2), ("outer", 4)]
