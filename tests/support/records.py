"""A helper that copies records with changes."""

from __future__ import annotations

from copy import copy
from typing import TypeVar

T = TypeVar("T")


def replace(record: T, **changes: object) -> T:
    """Return a copy of a record with some fields changed."""
    made = copy(record)
    for name, value in changes.items():
        setattr(made, name, value)
    return made
