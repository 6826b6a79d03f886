"""Regular expressions mean the same on every supported Python: early releases of 3.11 misread possessive forms."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from support.rooms import ROOMS, ROOT, modules

PARSER: Any = re._parser  # type: ignore[attr-defined] # private, and the only way to see how Python reads an expression
MODULES_WITH_EXPRESSIONS: Final = [
    path.relative_to(ROOT) for path in modules(*ROOMS) if "import re\n" in path.read_text()
]


def is_possessive(pattern: re.Pattern[Any]) -> bool:
    """Return whether an expression has a possessive quantifier or an atomic group."""
    read = repr(PARSER.parse(pattern.pattern, pattern.flags))
    return "POSSESSIVE" in read or "ATOMIC" in read


@pytest.mark.parametrize("path", MODULES_WITH_EXPRESSIONS, ids=str)
def test_compiled_expressions_are_not_possessive(path: Path) -> None:
    module = import_module(".".join(("zoolet", *path.with_suffix("").parts)))
    expressions = {name: each for name, value in vars(module).items() if (each := as_pattern(value)) is not None}

    assert [name for name, pattern in expressions.items() if is_possessive(pattern)] == []


def as_pattern(value: object) -> re.Pattern[Any] | None:
    """Compile a constant that is a pattern or the text of one. Return None for other values."""
    try:
        return re.compile(value) if isinstance(value, str) else value if isinstance(value, re.Pattern) else None
    except re.error:
        return None


def literal_patterns(source: str) -> list[str]:
    """Return the literal patterns in calls of ``re``."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
    patterns = [call.args[0] for call in calls if ast.unparse(call.func).startswith("re.")]
    return [node.value for node in patterns if isinstance(node, ast.Constant) and isinstance(node.value, str)]


@pytest.mark.slow
def test_expressions_in_calls_are_not_possessive() -> None:
    files = [*ROOT.glob("*.py"), *modules(*ROOMS, "tests", "benchmarks")]
    sources = {path: source for path in files if "re." in (source := path.read_text()) and "import re\n" in source}
    found = {(path.name, text) for path, source in sources.items() for text in literal_patterns(source)}

    assert len(found) > 100
    assert [each for each in found if is_possessive(re.compile(each[1]))] == []


@pytest.mark.parametrize("text", ["a++", "(?:ab)*+", "(?>a|b)"])
def test_possessive_forms_are_found(text: str) -> None:
    assert is_possessive(re.compile(text))
