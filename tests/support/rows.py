"""A claim about each row of a table, as one case: two hundred rows would be two hundred cases, each of which takes
pytest longer than the claim.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(name: str, rows: Iterable[Any], ids: Callable[[Any], str] = repr) -> Callable[[Callable[..., None]], Any]:
    """Make a test of one row a test of all rows, which goes on after a row that fails and names each.

    Args:
        name: The test's parameter that the rows are given to; the others stay fixtures, shared by all rows.
        rows: The table, which must not be empty.
        ids: What a row is called in a report.

    Raises:
        ValueError: If there are no rows, for nothing would be tested.
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
