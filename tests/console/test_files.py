"""The files of the page: all are served, nothing comes from elsewhere, and the libraries are as they were published."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import pytest

from zoolet.server.console.pages import CSP, FILES

STATIC: Final = Path(__file__).parents[2] / "server" / "console" / "static"
OURS: Final = [name for name in FILES if not name.startswith("vendor/")]


def test_every_file_is_served_and_nothing_else() -> None:
    there = {str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.is_file()}

    assert there - set(FILES) == {"vendor/README.md", "vendor/LICENSES"}
    assert set(FILES) <= there


def test_the_libraries_are_those_that_were_published() -> None:
    rows = re.findall(r"^\| `([\w.-]+)` \|.*\| ([0-9a-f]{64}) \|$", (STATIC / "vendor/README.md").read_text(), re.M)

    assert {f"vendor/{name}" for name, _ in rows} == {name for name in FILES if name.startswith("vendor/")}
    for name, digest in rows:
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("name", OURS)
def test_nothing_comes_from_elsewhere_and_no_name_of_a_node_becomes_markup(name: str) -> None:
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


def test_the_page_may_load_its_own_files_only() -> None:
    assert "default-src 'none'" in CSP
    assert "unsafe" not in CSP
    assert not re.findall(
        r"<script(?! type=\"module\" src=\"console/app.js\">)|style=|onclick", (STATIC / "index.html").read_text()
    )
