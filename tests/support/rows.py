"""One test case for all rows of a table. Two hundred rows would be two hundred cases, and pytest needs more time for a
case than the test of a row takes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(name: str, rows: Iterable[Any], ids: Callable[[Any], str] = repr) -> Callable[[Callable[..., None]], Any]:
    """Turn a test of one row into a test of all rows, which continues after failures and names each failed row.

    Args:
        name: The test's parameter that receives the rows. Other parameters stay fixtures, shared by all rows.
        rows: The table, which must not be empty.
        ids: Function that returns the name of a row in a report.

    Raises:
        ValueError: The table is empty, so nothing would be tested.
    """
    table = list(rows)
    if not table:
        raise ValueError(f"no rows for {name}")

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures: list[Exception] = []
            for row in table:
                try:
                    test(**fixtures, **{name: row})
                except Exception as error:
                    error.add_note(f"with {name} = {ids(row)}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(table)} rows fail", failures)

        parameters = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature([one for one in parameters if one.name != name])  # type: ignore[attr-defined]
        return run

    return decorate
