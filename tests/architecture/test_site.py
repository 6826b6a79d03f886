"""The documentation site can be built, and its reference contains every public name."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from support.generators import load_generator

from zoolet.client import Client

ROOT: Final = Path(__file__).parents[2]
REFERENCE: Final = ROOT / "docs" / "reference"
PACKAGES: Final = ("zoolet.client", "zoolet.client.recipes", "zoolet.testing", "zoolet.protocol")
TOOLS: Final = ("mkdocs", "material", "mkdocstrings_handlers.python")


def public_names(package: str) -> list[str]:
    """List the paths of a package's public names."""
    return [f"{package}.{name}" for name in importlib.import_module(package).__all__]


def directives(page: str) -> dict[str, bool]:
    """Return the directives on a page by path, with whether a directive also shows members."""
    found = re.findall(r"^::: ([\w.]+)\n((?: {4}.*\n)*)", page, re.MULTILINE)
    return {path: "members: false" not in options.replace("inherited_members", "") for path, options in found}


def undocumented_names(names: list[str], shown: dict[str, bool]) -> list[str]:
    """List the names that are not shown by any directive."""
    return [name for name in names if name not in shown and not shown.get(name.rpartition(".")[0])]


def defined_names(kind: ast.ClassDef) -> set[str]:
    """Return the names that a class defines: methods, class variables and attributes."""
    methods = {node.name for node in ast.walk(kind) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    stored = [node for node in ast.walk(kind) if isinstance(getattr(node, "ctx", None), ast.Store)]
    return methods | {node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in stored}


def is_installed(module: str) -> bool:
    """Return whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package of the module is missing
        return False


@pytest.mark.parametrize("package", PACKAGES)
def test_reference_has_directive_for_every_public_name(package: str) -> None:
    shown: dict[str, bool] = {}
    for page in REFERENCE.glob("*.md"):
        shown |= directives(page.read_text())

    assert undocumented_names(public_names(package), shown) == []


@pytest.mark.slow
@pytest.mark.skipif(not all(map(is_installed, TOOLS)), reason="needs the tools of the site: make .venv/.docs")
def test_site_documents_every_public_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]

    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    html = "".join(page.read_text() for page in (tmp_path / "reference").rglob("*.html"))
    sections = Counter(re.findall(r'<(?:h\d|a|div) id="(zoolet[\w.]+)"', html))
    assert [name for package in PACKAGES for name in public_names(package) if name not in sections] == []
    methods = [f"zoolet.client.Client.{name}" for name in dir(Client("127.0.0.1:1")) if not name.startswith("_")]
    assert [name for name in methods if sections[name] != 1] == []
    assert [name for name in sections if load_generator("reference").is_internal(name.removeprefix("zoolet."))] == []
    assert [name for name, count in sections.items() if count > 1] == []
    assert ">BaseClient<" not in html  # signatures link to Client instead


def test_client_is_shown_once_with_inherited_methods() -> None:
    page = (REFERENCE / "client.md").read_text()

    (options,) = re.findall(r"^::: zoolet\.client\.Client\n((?: {4}.*\n)*)", page, re.MULTILINE)
    (hidden,) = re.findall(r"^ {6}filters: .*\^\((.*)\)\$", page, re.MULTILINE)

    assert "inherited_members" not in options, "mkdocs.yml shows inherited members, unless a directive hides them"
    assert {f"zoolet.client.{name}" for name in hidden.split("|")} == directives(page).keys() - {"zoolet.client"}


@pytest.mark.skipif(not all(map(is_installed, TOOLS)), reason="needs the tools of the site: make .venv/.docs")
def test_each_member_hidden_from_reference_exists() -> None:
    members = {
        f"{path.relative_to(ROOT).with_suffix('').as_posix().replace('/', '.')}.{kind.name}.{name}"
        for room in ("client", "server", "testing")
        for path in [*(ROOT / room).rglob("*.py"), *(ROOT / room).rglob("*.pyi")]
        for kind in ast.walk(ast.parse(path.read_text()))
        if isinstance(kind, ast.ClassDef)
        for name in defined_names(kind)
    }

    assert [
        pattern for pattern in load_generator("reference").INTERNAL_MEMBERS if not fnmatch.filter(members, pattern)
    ] == []


# --- tests of directives() and undocumented_names() ---


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("::: a.b\n", []),
        ("::: a.b.C\n", []),
        ("# A\n\n::: a.b\n    options:\n      inherited_members: false\n\n::: d\n", []),
        ("::: a.b\n    options:\n      members: false\n", ["a.b.C"]),
        ("::: a\n", ["a.b.C"]),
        ("::: a.b.D\n", ["a.b.C"]),
        ("`::: a.b`\n", ["a.b.C"]),
    ],
)
def test_public_name_missing_on_page_is_found(page: str, expected: list[str]) -> None:
    assert undocumented_names(["a.b.C"], directives(page)) == expected
