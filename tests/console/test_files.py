"""The files of the page: all are served, none is external, and the libraries equal their published versions."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import pytest

from zoolet.console.pages import FILES
from zoolet.server.admin.http import CSP

STATIC: Final = Path(__file__).parents[2] / "console" / "static"
OURS: Final = [name for name in FILES if not name.startswith("vendor/")]


def test_every_file_is_listed_for_serving() -> None:
    there = {str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.is_file()}

    assert there - set(FILES) == {"vendor/README.md", "vendor/LICENSES"}
    assert set(FILES) <= there


def test_libraries_are_unchanged() -> None:
    rows = re.findall(r"^\| `([\w.-]+)` \|.*\| ([0-9a-f]{64}) \|$", (STATIC / "vendor/README.md").read_text(), re.M)

    assert {f"vendor/{name}" for name, _ in rows} == {name for name in FILES if name.startswith("vendor/")}
    for name, digest in rows:
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("name", OURS)
def test_page_loads_nothing_external_and_escapes_names(name: str) -> None:
    text = (STATIC / name).read_text()

    assert not re.findall(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[\w.]+\.\w{2,}/", text)
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "dangerouslySet",
        "eval(",
        "Function(",
    ):
        assert forbidden not in text, forbidden


@pytest.mark.parametrize("name", [name for name in OURS if name.endswith(".js")])
def test_no_line_is_longer_than_160_letters(name: str) -> None:
    # the formatter does not wrap templates
    assert [line for line in (STATIC / name).read_text().splitlines() if len(line) > 160] == []


def test_page_may_load_only_its_own_files() -> None:
    assert "default-src 'none'" in CSP
    assert "unsafe" not in CSP
    assert not re.findall(
        r"<script(?! type=\"module\" src=\"console/app.js\">)|style=|onclick", (STATIC / "index.html").read_text()
    )
