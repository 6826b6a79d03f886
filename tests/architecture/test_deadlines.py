"""Waits in tests have one limit, ``support.waiting.DEADLINE_S``, so a busy machine makes no test fail.

Only the usual calls are searched. The complete rule is in ``tests/README.md``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support.rooms import ROOT

TESTS: Final = ROOT / "tests"
PROGRAMS: Final = ("fuzz", "mutations", "go_suite")
"""Folders of programs, which need limits of their own."""
VIRTUAL_TIME_MARKS: Final = re.compile(r"support\.(simulation|schedules|crew|cancellation)|\bSimulation\b|with_client")
"""Text in files with tests in virtual time, where a wait costs nothing. Only asynchronous tests there use real time."""
LIMIT_BY_POSITION: Final = frozenset(
    {"wait", "wait_for", "join", "result", "exception", "settimeout", "timeout", "create_connection"}
)
"""Methods whose last argument is a limit."""
LIMIT_BY_NAME: Final = LIMIT_BY_POSITION | {"run", "communicate", "urlopen", "to_thread", "until"}
"""Methods with an argument ``timeout`` that is a limit."""
SHORT_S: Final = 2.0
"""Seconds. Shorter waits are not searched: they are parts of a loop, or the test expects no event."""


def literal_number(node: ast.expr | None) -> float:
    """Return the value of a numeric literal, or 0 for all other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    return 0.0


def lines_with_own_limit(text: str) -> Iterator[int]:
    """Yield the lines with a wait in real time whose limit is a number."""
    tree: ast.AST = ast.parse(text)
    if VIRTUAL_TIME_MARKS.search(text):
        tree = ast.Module([node for node in ast.parse(text).body if isinstance(node, ast.AsyncFunctionDef)], [])
    for node in ast.walk(tree):
        limits: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in LIMIT_BY_NAME:
                limits += [word.value for word in node.keywords if word.arg == "timeout"]
            if name in LIMIT_BY_POSITION and len(node.args) > (name == "wait_for"):
                limits.append(node.args[-1])
        elif isinstance(node, ast.BinOp) and isinstance(node.left, ast.Call) and literal_number(node.right):
            if ast.unparse(node.left) == "time.monotonic()":
                limits.append(node.right)
        if any(literal_number(limit) >= SHORT_S for limit in limits):
            yield node.lineno


def files() -> list[Path]:
    """Return the files of the tests and their helpers."""
    return [path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] not in PROGRAMS]


def test_waits_have_common_limit() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: use DEADLINE_S"
        for path in files()
        for line in lines_with_own_limit(path.read_text(encoding="utf-8"))
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("process.wait(20)", 1),
        ("subprocess.run(command, timeout=60)", 1),
        ("deadline = time.monotonic() + 5", 1),
        ("process.wait(DEADLINE_S)", 0),
        ("lock.acquire(timeout=0.05)", 0),
        ("advance(20)", 0),
    ],
)
def test_planted_wait_with_own_limit_is_found(text: str, count: int) -> None:
    assert len([*lines_with_own_limit(text)]) == count


def test_search_for_limits_covers_most_tests() -> None:
    assert len(files()) > 400
