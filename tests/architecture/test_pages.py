"""The pages that are made from tables say what the tables say."""

from __future__ import annotations

import pytest
from support.generators import generator


@pytest.mark.parametrize("name", ["compatibility", "configuration"])
def test_a_page_is_what_its_table_makes(name: str) -> None:
    program = generator(name)

    assert program.PAGE.read_text() == program.page(), "run `make docs`"
