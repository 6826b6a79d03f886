"""The attacks, one function each: prepare, then do harm inside ``target.under_attack()``, then report the result.

The number in a case's name groups the variants of one attack. Each module contains the attacks on one subject. Frames
are built before the measurement starts, because the attacker's CPU must not slow it down, and every wait is limited.
The cases from 21 are amplifications that the protocol allows and that none of ZooKeeper's limits prevents.

Importing this package adds all of them to :data:`adversary.case.CASES`.
"""

from adversary.cases import (
    access,
    admin,
    buffers,
    connections,
    pauses,
    process,
    quota,
    rounds,
    transactions,
    tree,
    watches,
)

__all__ = [
    "access",
    "admin",
    "buffers",
    "connections",
    "pauses",
    "process",
    "quota",
    "rounds",
    "transactions",
    "tree",
    "watches",
]
