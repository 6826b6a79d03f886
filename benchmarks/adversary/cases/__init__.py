"""The attacks, one function each: prepare, then do harm inside ``target.under_attack()``, then report what came of it.

The number in a case's name groups the variants of one attack; each module holds the attacks on one subject. Frames are
built before the measurement starts, so that the attacker's own CPU does not slow it down, and every wait has an end.
Cases from 21 on are amplifications that the protocol allows and that no limit of ZooKeeper's own stands against.

Importing this package adds all of them to :data:`adversary.case.CASES`.
"""

from adversary.cases import access, admin, buffers, connections, pauses, process, quota, transactions, tree, watches

__all__ = ["access", "admin", "buffers", "connections", "pauses", "process", "quota", "transactions", "tree", "watches"]
