"""The files of the page: all are served, none is external, and the libraries equal their published versions."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import pytest

from zoolet.console.pages import STATIC_FILES
from zoolet.server.admin.http import CSP

STATIC_FOLDER: Final = Path(__file__).parents[2] / "console" / "static"
OWN_FILES: Final = [name for name in STATIC_FILES if not name.startswith("vendor/")]


def test_every_static_file_is_in_list_of_served_files() -> None:
    there = {str(path.relative_to(STATIC_FOLDER)) for path in STATIC_FOLDER.rglob("*") if path.is_file()}

    assert there - set(STATIC_FILES) == {"vendor/README.md", "vendor/LICENSES"}
    assert set(STATIC_FILES) <= there


def test_vendored_libraries_are_unchanged() -> None:
    rows = re.findall(
        r"^\| `([\w.-]+)` \|.*\| ([0-9a-f]{64}) \|$", (STATIC_FOLDER / "vendor/README.md").read_text(), re.M
    )

    assert {f"vendor/{name}" for name, _ in rows} == {name for name in STATIC_FILES if name.startswith("vendor/")}
    for name, digest in rows:
        assert hashlib.sha256((STATIC_FOLDER / "vendor" / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("name", OWN_FILES)
def test_page_uses_no_external_urls_or_unsafe_html(name: str) -> None:
    text = (STATIC_FOLDER / name).read_text()

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


@pytest.mark.parametrize("name", [name for name in OWN_FILES if name.endswith(".js")])
def test_no_script_line_is_longer_than_160_characters(name: str) -> None:
    # checked here, because the formatter does not wrap the HTML templates in scripts
    assert [line for line in (STATIC_FOLDER / name).read_text().splitlines() if len(line) > 160] == []


def test_page_may_load_only_its_own_files() -> None:
    assert "default-src 'none'" in CSP
    assert "unsafe" not in CSP
    assert not re.findall(
        r"<script(?! type=\"module\" src=\"console/app.js\">)|style=|onclick",
        (STATIC_FOLDER / "index.html").read_text(),
    )
