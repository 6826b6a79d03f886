"""The names that contenders for a path give their nodes, and their order.

A name is a unique prefix, a kind, and the sequence number that the server appends. kazoo and Curator use different ones
and do not see each other's; naming ``both`` excludes both, with two nodes.

================  ============================  ==================================
kind              kazoo                         Curator
================  ============================  ==================================
``lock``          ``<hex>__lock__<seq>``        ``_c_<uuid>-lock-<seq>``
``write``         ``<hex>__lock__<seq>``        ``_c_<uuid>-__WRIT__<seq>``
``read``          ``<hex>__rlock__<seq>``       ``_c_<uuid>-__READ__<seq>``
``latch``         ``<hex>__lock__<seq>``        ``_c_<uuid>-latch-<seq>``
================  ============================  ==================================

A sequence number has ten digits; after 2147483647 comes -2147483648. Numbers are compared as places on a circle, so
that the order holds across that, as long as contenders are fewer than 2**31 numbers apart.

Source: kazoo.recipe.lock; Curator's InterProcessMutex, InterProcessReadWriteLock, LeaderLatch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, cast, get_args

from zoolet.client.wire.arguments import checked_choice

Naming = Literal["kazoo", "curator"]
Namings = Literal["kazoo", "curator", "both"]
_NAMING: Final[tuple[Naming, ...]] = get_args(Naming)  # once: get_args takes longer than the check
_NAMINGS: Final[tuple[Namings, ...]] = get_args(Namings)
NAMINGS: Final[dict[str, dict[str, str]]] = {
    "kazoo": {"lock": "{hex}__lock__", "write": "{hex}__lock__", "read": "{hex}__rlock__", "latch": "{hex}__lock__"},
    "curator": {
        "lock": "_c_{uuid}-lock-",
        "write": "_c_{uuid}-__WRIT__",
        "read": "_c_{uuid}-__READ__",
        "latch": "_c_{uuid}-latch-",
    },
}
_SEQUENCE: Final = r"(-\d{9,10}|\d{10})$"


class NodeName(NamedTuple):
    """One contender's node.

    Args:
        name: Its name.
        kind: Its kind, as in the table.
        number: Its sequence number.
    """

    name: str
    kind: str
    number: int


def checked_naming(naming: Naming) -> Naming:
    """Return the naming.

    Raises:
        ValueError: It is unknown.
    """
    return checked_choice("naming", naming, _NAMING)


def namings_of(naming: Namings) -> tuple[Naming, ...]:
    """Return the namings that are used together.

    Raises:
        ValueError: It is unknown.
    """
    if checked_choice("naming", naming, _NAMINGS) == "both":
        return _NAMING
    return (cast("Naming", naming),)


def prefix(naming: str, kind: str, uuid: str) -> str:
    """Return the beginning of a name; *uuid* as text, with hyphens."""
    return NAMINGS[naming][kind].format(hex=uuid.replace("-", ""), uuid=uuid)


def _pattern(naming: str, kind: str) -> str:
    return re.escape(NAMINGS[naming][kind].format(hex="", uuid="").removeprefix("_c_-"))


_PATTERNS: Final = {
    (naming, kind): re.compile(_pattern(naming, kind) + _SEQUENCE) for naming in NAMINGS for kind in NAMINGS[naming]
}


def in_order(naming: str, kinds: Iterable[str], names: Iterable[str]) -> list[NodeName]:
    """Return the contenders of some kinds among a node's children, first come first; others are skipped."""
    patterns = {_PATTERNS[naming, kind]: kind for kind in kinds}
    line = []
    for name in names:
        for pattern, kind in patterns.items():
            if (match := pattern.search(name)) is not None:
                line.append(NodeName(name, kind, int(match[1])))
                break
    return sorted(line, key=lambda node: _on_circle(node.number, line[0].number))


def _on_circle(number: int, pivot: int) -> int:
    return (number - pivot + (1 << 31)) % (1 << 32)


def number_of(name: str) -> int:
    """Return the sequence number at the end of a name.

    Raises:
        ValueError: There is none.
    """
    match = re.search(_SEQUENCE, name)
    if match is None:
        raise ValueError(f"{name!r} does not end with a sequence number")
    return int(match[1])


def sorted_by_sequence(numbered: list[tuple[str, int]]) -> list[str]:
    """Sort names by their sequence numbers, across the wrap."""
    return [name for name, _ in sorted(numbered, key=lambda pair: _on_circle(pair[1], numbered[0][1]))]
