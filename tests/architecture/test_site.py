"""The documentation site: it can be built, and its reference has every public name."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
REFERENCE: Final = ROOT / "docs" / "reference"
PACKAGES: Final = ("zoolet.client", "zoolet.client.recipes", "zoolet.testing", "zoolet.protocol")
TOOLS: Final = ("mkdocs", "material", "mkdocstrings_handlers.python")


def public_names(package: str) -> list[str]:
    """List the paths of a package's public names."""
    return [f"{package}.{name}" for name in importlib.import_module(package).__all__]


def directives(page: str) -> dict[str, bool]:
    """Map what the directives of a page show to whether they show its members too."""
    found = re.findall(r"^::: ([\w.]+)\n((?: {4}.*\n)*)", page, re.MULTILINE)
    return {path: "members: false" not in options.replace("inherited_members", "") for path, options in found}


def missing(names: list[str], shown: dict[str, bool]) -> list[str]:
    """List the names that no directive shows."""
    return [name for name in names if name not in shown and not shown.get(name.rpartition(".")[0])]


def is_installed(module: str) -> bool:
    """Return whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package
        return False


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_has_a_directive_for_every_public_name(package: str) -> None:
    shown: dict[str, bool] = {}
    for page in REFERENCE.glob("*.md"):
        shown |= directives(page.read_text())

    assert missing(public_names(package), shown) == []


@pytest.mark.slow
@pytest.mark.skipif(not all(map(is_installed, TOOLS)), reason="needs the tools of the site: make .venv/.docs")
def test_the_site_is_built_without_a_warning_and_has_a_section_for_every_public_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]

    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    html = "".join(page.read_text() for page in (tmp_path / "reference").rglob("*.html"))
    sections = set(re.findall(r'<(?:h\d|a|div) id="(zoolet[\w.]+)"', html))
    assert [name for package in PACKAGES for name in public_names(package) if name not in sections] == []


# --- the reader of directives ---


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
def test_a_missing_name_is_found(page: str, expected: list[str]) -> None:
    assert missing(["a.b.C"], directives(page)) == expected
