"""A test of a table fails for each row that fails, and runs for all of them."""

from __future__ import annotations

import pytest
from support.rows import for_each


def test_every_row_that_fails_is_named() -> None:
    seen: list[int] = []

    @for_each("number", range(4))
    def check(number: int) -> None:
        seen.append(number)
        assert number % 2

    with pytest.raises(ExceptionGroup, match="2 of 4 rows fail") as failure:
        check()

    assert seen == [0, 1, 2, 3]
    assert [error.__notes__ for error in failure.value.exceptions] == [["with number = 0"], ["with number = 2"]]


def test_an_empty_table_tests_nothing_and_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows for number"):
        for_each("number", [])
