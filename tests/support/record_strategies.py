"""Hypothesis strategies for records, derived from their declarations, which covers new records automatically."""

from __future__ import annotations

from functools import cache
from inspect import get_annotations
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from hypothesis import settings
from hypothesis import strategies as st

from zoolet.protocol import acl, learner, records, txns
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, Acls
from zoolet.protocol.codec import Record

RECORDS = [
    kind
    for module in (records, txns, acl, learner)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Record) and kind.__module__ == module.__name__
]
"""Every record of the wire protocol."""
HINTS = {kind: get_annotations(kind, eval_str=True) for kind in RECORDS}
"""The declared fields of each record."""

quick = settings(max_examples=8, deadline=None)
"""For a test that runs for every record."""
thorough = settings(max_examples=100, deadline=2000)  # milliseconds; no example needs even one
"""For a test that runs once or a few times."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
SCALARS: dict[object, st.SearchStrategy[object]] = {
    "b": st.integers(-128, 127),
    "i": ints,
    "q": longs,
    "?": st.booleans(),
    str: texts,
    bytes: st.binary(max_size=12),
    NoneType: st.none(),
}
"""The values of scalar fields, by their declaration."""


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a field with this declaration."""
    arguments = get_args(hint)
    if hint == Acls:
        entries = st.lists(instances(acl.ACL), max_size=3).map(tuple)
        return st.one_of(st.none(), st.just(OPEN_ACL_UNSAFE), entries)
    if get_origin(hint) is Annotated:
        return SCALARS[arguments[1]]
    if get_origin(hint) is list:
        return st.lists(values(arguments[0]), max_size=3)
    if arguments:
        return st.one_of([values(one) for one in arguments])
    return SCALARS[hint] if hint in SCALARS else instances(hint)


@cache
def instances(kind: type[Record], null: str | None = None) -> st.SearchStrategy[Any]:
    """Return a strategy for records of this class. The field *null*, if given, is null even if that is invalid."""
    return st.builds(kind, **{name: st.none() if name == null else values(hint) for name, hint in HINTS[kind].items()})


def record_name(kind: object) -> str:
    """Return the name of a record or a field in a parametrized test."""
    return kind.__name__ if isinstance(kind, type) else str(kind)
