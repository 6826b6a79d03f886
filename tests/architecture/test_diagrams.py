"""The diagrams in docs/images are drawn by docs/_build/diagrams.py, and a page shows each of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest
from support.generators import load_generator

DOCS: Final = Path(__file__).parents[2] / "docs"
WIDTH: Final = 8.2
"""Width of a letter in pixels, at most on average."""
NAMES: Final = sorted(load_generator("diagrams").DIAGRAMS)


@pytest.mark.parametrize("name", NAMES)
def test_diagram_equals_output_of_script(name: str) -> None:
    assert (DOCS / "images" / f"{name}.svg").read_text() == load_generator("diagrams").DIAGRAMS[name](), (
        "run `make docs`"
    )


@pytest.mark.parametrize("name", NAMES)
def test_texts_fit_into_diagram(name: str) -> None:
    root = ElementTree.fromstring((DOCS / "images" / f"{name}.svg").read_text())
    _, _, width, height = map(float, root.attrib["viewBox"].split())

    texts = [element for element in root if element.tag.endswith("}text")]

    assert texts
    for element in texts:
        half = len(element.text or "") * WIDTH / 2
        assert half <= float(element.attrib["x"]) <= width - half, element.text
        assert 10 <= float(element.attrib["y"]) <= height - 4, element.text


def test_docs_show_every_diagram() -> None:
    image = r"!\[[^]]+\]\(images/([\w-]+)\.svg\)"
    shown = {name for page in DOCS.glob("*.md") for name in re.findall(image, page.read_text())}

    assert set(NAMES) - shown == set()
