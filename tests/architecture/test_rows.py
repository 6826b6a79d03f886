"""The decorator ``for_each``: a test of a table runs for all rows, and reports each failing row."""

from __future__ import annotations

import pytest
from support.rows import for_each


def test_error_names_every_failing_row() -> None:
    seen: list[int] = []

    @for_each("number", range(4))
    def check(number: int) -> None:
        seen.append(number)
        assert number % 2

    with pytest.raises(ExceptionGroup, match="2 of 4 rows fail") as failure:
        check()

    assert seen == [0, 1, 2, 3]
    assert [error.__notes__ for error in failure.value.exceptions] == [["with number = 0"], ["with number = 2"]]


def test_table_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows for number"):
        for_each("number", [])
