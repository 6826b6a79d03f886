"""Every public name has a docstring, and every loose end in the source names an issue."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support.rooms import ROOMS, ROOT, modules
from support.rows import for_each

LAST_RESORT_MODULE: Final = "server/net/protocol.py"
"""The one module that may catch everything, which limits a defect in zoolet to one lost connection."""

BROAD_HANDLERS: Final = {
    "client/wire/requests.py": 2,
    "client/aio/lookup.py": 1,
    "client/aio/core.py": 1,
    "client/aio/connection.py": 5,
    "client/aio/hooks.py": 1,
    "client/recipes/worker.py": 1,
    "cli/shell/interpreter.py": 1,
    "server/net/http.py": 2,
    "testing/frames/faults.py": 1,
}
"""Modules that may catch everything, with the number of their handlers. They call functions of the user (a serializer,
an error, a resolver, a listener, a hook, a task, a command) or keep a client connected whatever its parts raise. Each
handler turns an error into a result, or closes one connection.
"""

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def relative_path(path: Path) -> str:
    """Return the path of a module below the root."""
    return path.relative_to(ROOT).as_posix()


def public_definitions(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Find the public classes, functions and methods, except dunder methods, which Python documents, and definitions
    inside a function.
    """
    for child in top_level_statements(node) if isinstance(node, ast.Module) else node.body:
        if isinstance(child, Definition) and not child.name.startswith("_"):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public_definitions(child, f"{prefix}{child.name}.")


def top_level_statements(module: ast.Module) -> list[ast.stmt]:
    """List the statements of a module, including those in an ``if`` or ``try``."""
    found: list[ast.stmt] = []
    pending = list(module.body)
    while pending:
        statement = pending.pop(0)
        found.append(statement)
        if isinstance(statement, ast.If | ast.Try):
            pending += [one for one in ast.iter_child_nodes(statement) if isinstance(one, ast.stmt)]
    return found


def undocumented_names(source: str) -> list[str]:
    """List the public names without a docstring. A module itself is listed as ``module``."""
    tree = ast.parse(source)
    missing = [] if ast.get_docstring(tree) else ["module"]
    return missing + [name for name, node in public_definitions(tree) if not ast.get_docstring(node)]


def broad_handlers(source: str) -> list[tuple[int, str]]:
    """Find the handlers that catch every exception: their lines, and the exceptions that they name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            names = [ast.unparse(kind) if kind else "" for kind in kinds]
            found += [(node.lineno, name) for name in names if name in ("", "Exception", "builtins.Exception")]
    return found


def loose_ends(source: str) -> list[str]:
    """Find TODOs and similar marks that do not name an issue."""
    marks = re.finditer(r"\b(TODO|FIXME|XXX|HACK)\b(?P<rest>.*)", source)
    return [mark[0] for mark in marks if not re.match(r"\W{0,2}#\d+", mark["rest"])]


@for_each("path", modules(*ROOMS), ids=relative_path)
def test_every_public_name_has_a_docstring(path: Path) -> None:
    assert undocumented_names(path.read_text()) == []


@for_each("path", modules(*ROOMS), ids=relative_path)
def test_docstring_starts_with_sentence(path: Path) -> None:
    tree = ast.parse(path.read_text())
    first = {name: (ast.get_docstring(node) or "").split("\n\n")[0] for name, node in public_definitions(tree)}

    assert [name for name, text in first.items() if not text.rstrip().endswith((".", ":", "::", "?"))] == []


@for_each("path", modules(*ROOMS), ids=relative_path)
def test_each_loose_end_names_an_issue(path: Path) -> None:
    assert loose_ends(path.read_text()) == []


@for_each(
    "path",
    [path for path in modules(*ROOMS) if relative_path(path) not in (LAST_RESORT_MODULE, *BROAD_HANDLERS)],
    ids=relative_path,
)
def test_modules_do_not_catch_every_exception(path: Path) -> None:
    assert broad_handlers(path.read_text()) == []


@pytest.mark.parametrize(("name", "times"), BROAD_HANDLERS.items())
def test_broad_handlers_around_user_code_are_counted(name: str, times: int) -> None:
    assert len(broad_handlers((ROOT / name).read_text())) == times


def test_connection_module_has_one_broad_handler() -> None:
    assert [name for _, name in broad_handlers((ROOT / LAST_RESORT_MODULE).read_text())] == ["Exception"]


# --- tests of the functions above ---


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("x = 1", ["module"]),
        ('"""M."""\ndef f(): ...', ["f"]),
        ('"""M."""\nasync def f(): ...', ["f"]),
        ('"""M."""\nclass C: ...', ["C"]),
        ('"""M."""\nclass C:\n  """C."""\n  def m(self): ...', ["C.m"]),
        ('"""M."""\nclass C:\n  """C."""\n  class D:\n    """D."""\n    def m(self): ...', ["C.D.m"]),
        ('"""M."""\nif x:\n  def f(): ...\nelse:\n  def g(): ...', ["f", "g"]),
        ('"""M."""\ndef _f(): ...\nclass _C:\n  def m(self): ...', []),
        ('"""M."""\ndef f():\n  """F."""\n  def g(): ...', []),
        ('"""M."""\nclass C:\n  """C."""\n  def __init__(self): ...', []),
    ],
)
def test_missing_docstring_is_found(source: str, missing: list[str]) -> None:
    assert undocumented_names(source) == missing


@pytest.mark.parametrize(
    ("handler", "names"),
    [
        ("except Exception:", ["Exception"]),
        ("except Exception as error:", ["Exception"]),
        ("except (OSError, Exception):", ["Exception"]),
        ("except:", [""]),
        ("except OSError:", []),
        ("except BaseException:", []),
    ],
)
def test_broad_handler_is_found(handler: str, names: list[str]) -> None:
    assert [name for _, name in broad_handlers(f"try:\n  pass\n{handler}\n  raise")] == names


@pytest.mark.parametrize(
    ("comment", "count"),
    [("# TODO: later", 1), ("# TODO", 1), ("# FIXME(me)", 1), ("# TODO #12: later", 0), ("# TODO(#12) later", 0)],
)
def test_todo_without_issue_is_found(comment: str, count: int) -> None:
    assert len(loose_ends(comment)) == count
