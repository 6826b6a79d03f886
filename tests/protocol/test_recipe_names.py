"""Names of recipe nodes: generated names are recognised, and numbers are ordered across the wrap."""

from __future__ import annotations

import pytest

from zoolet.protocol.paths import sequence_suffix
from zoolet.protocol.recipe_names import (
    NAMES,
    Name,
    is_leaf,
    matches_kind,
    may_be_recipe_name,
    parse_contender,
    parse_numbered,
    prefix,
    sort_by_arrival,
    sort_by_number,
)

UUID = "0123abcd-4567-4cde-89ab-0123456789ab"
NUMBERS = [0, 71, 2**31 - 1, -1, -(10**9), -(2**31)]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("row", [row for row in NAMES if row.form.endswith("{seq}")], ids=lambda row: row.form)
def test_numbered_recipe_names_are_recognised(row: Name, number: int) -> None:
    name = prefix(row.naming, row.kind, UUID) + sequence_suffix(number)

    node = parse_numbered(name)

    assert node is not None
    assert (node.name, node.number, node.row.form) == (name, number, row.form)
    assert matches_kind(row.naming, row.kind, name)
    assert may_be_recipe_name(name)


@pytest.mark.parametrize("row", [row for row in NAMES if not row.form.endswith("{seq}")], ids=lambda row: row.form)
def test_recipe_names_without_numbers_are_recognised(row: Name) -> None:
    name = prefix(row.naming, row.kind, UUID)

    assert matches_kind(row.naming, row.kind, name)
    assert parse_numbered(name) is None


@pytest.mark.parametrize("name", ["", "lock", "lock-1", "a__lock__123456789", "0000000001", "x-queue-0000000001"])
def test_names_similar_to_recipe_names_are_not_recognised(name: str) -> None:
    assert parse_numbered(name) is None


def test_lease_is_contender_and_queue_entry_is_not() -> None:
    assert parse_contender(f"_c_{UUID}-lease-0000000001") is not None
    assert parse_contender("entry-100-0000000001") is None
    assert parse_contender("queue-0000000001") is None


@pytest.mark.parametrize("row", NAMES, ids=lambda row: f"{row.naming} {row.kind}")
def test_only_numbered_recipe_names_are_leaves(row: Name) -> None:
    name = prefix(row.naming, row.kind, UUID, 100) + ("-000000001" if row.form.endswith("{seq}") else "")

    assert is_leaf(name) == (row.form.endswith("{seq}") and row.form != "queue-{seq}")
    assert not is_leaf(f"b{name}")
    assert not is_leaf("block-0000000001")


def test_contender_order_survives_negative_sequence_numbers() -> None:
    names = [f"a__lock__{sequence_suffix(number)}" for number in (-(2**31), 2**31 - 1, 1 - 2**31, 2**31 - 2)]

    line = sort_by_arrival("kazoo", ["read", "write"], [*names, "b__rlock__2147483640", "_c_x-lock-2147483641"])

    assert [node.number for node in line] == [2147483640, 2147483646, 2147483647, -2147483648, -2147483647]
    assert [node.row.kind for node in line] == ["read", "write", "write", "write", "write"]
    assert sort_by_number(line[::-1]) == line
