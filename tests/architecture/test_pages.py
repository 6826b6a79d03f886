"""The pages generated from tables are up to date."""

from __future__ import annotations

import pytest
from support.generators import load_generator


@pytest.mark.parametrize("name", ["commands", "compatibility", "configuration"])
def test_generated_page_equals_output_of_its_table(name: str) -> None:
    program = load_generator(name)

    assert program.PAGE.read_text() == program.page(), "run `make docs`"
