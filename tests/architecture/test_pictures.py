"""The picture of a terminal in README.md shows what the commands print now."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Final
from xml.etree import ElementTree

import pytest

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    """The script that makes the pictures."""
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "_build" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def picture_rows(picture: str) -> list[str]:
    """Return the rows of a picture."""
    return ["".join(row.itertext()) for row in ElementTree.fromstring(picture).iter() if row.tag.endswith("}text")]


def zoolet_section(picture: str) -> str:
    """Return the report on the server, without blanks, times, ports and session ids, which differ in each run."""
    text = re.sub(r"\s+", "", "".join(picture_rows(picture)))
    (section,) = re.findall("-zoolet-+(seed.*?)=+short", text)
    return re.sub(r"0x1[0-9a-f]{10,}|\d+\.\d+s|127\.0\.0\.1:\d+", "", section)


def test_picture_of_session_shows_current_output(pictures: ModuleType) -> None:
    shown, today = pictures.TERMINAL.read_text(), pictures.picture(pictures.run_session())

    assert zoolet_section(shown) == zoolet_section(today)
    assert "noreplyzxid=0x3[lose_reply()]" in zoolet_section(shown)


def test_terminal_colours_and_special_characters_are_drawn(pictures: ModuleType) -> None:
    drawn = pictures.picture(["\x1b[31m\x1b[1ma<b\x1b[0m c"])

    assert f'<tspan fill="{pictures.COLOURS["31"]}" font-weight="bold">{html.escape("a<b")}</tspan>' in drawn
    assert picture_rows(drawn) == ["a<b\N{NO-BREAK SPACE}c"]


def test_long_line_in_picture_is_wrapped(pictures: ModuleType) -> None:
    assert len(list(pictures.rows("x" * (pictures.COLUMNS + 1)))) == 2
    assert len(list(pictures.rows("x" * pictures.COLUMNS))) == 1
