"""Recipes: locks, elections, queues, caches and other common uses of a client.

A recipe is a class that uses a client and the znodes at a path. Its docstring lists the znodes, guarantees and limits.
"""

# Any and Rule are imported for get_type_hints, which looks up the annotations of Instance and Lock in this module.
from typing import Any as Any

from ...protocol.deadlocks import LockEntry, LockStatus, Wait
from ._contender import Rule as Rule
from ._lease import Lease, LockLostError
from ._lock_base import DeadlockError
from ._queue_entry import QueueEntry
from ._shared import SharedRecipe
from .barrier import Barrier
from .children_cache import ChildrenCache
from .config import Config
from .counter import Counter
from .discovery import Discovery, Instance
from .double_barrier import DoubleBarrier
from .durable_lock import DurableLease, DurableLock, Holder
from .election import Election
from .lock import Lock
from .lock_table import LockTable
from .locking_queue import LockingQueue
from .master import Master
from .multilock import MultiLock
from .node_cache import NodeCache
from .node_election import NodeElection
from .overview import Overview
from .party import Party
from .persistent_ephemeral import PersistentEphemeral
from .priority_queue import PriorityQueue
from .queue import Queue
from .rwlock import ReadWriteLock
from .semaphore import Semaphore, SemaphoreLock
from .tree_cache import TreeCache
from .trylock import TryLock
from .two_phase_commit import TwoPhaseCommit
from .unique_id import UniqueId
from .worker import Worker

__all__ = [
    "Barrier",
    "ChildrenCache",
    "Config",
    "Counter",
    "DeadlockError",
    "Discovery",
    "DoubleBarrier",
    "DurableLease",
    "DurableLock",
    "Election",
    "Holder",
    "Instance",
    "Lease",
    "Lock",
    "LockEntry",
    "LockLostError",
    "LockStatus",
    "LockTable",
    "LockingQueue",
    "Master",
    "MultiLock",
    "NodeCache",
    "NodeElection",
    "Overview",
    "Party",
    "PersistentEphemeral",
    "PriorityQueue",
    "Queue",
    "QueueEntry",
    "ReadWriteLock",
    "Semaphore",
    "SemaphoreLock",
    "SharedRecipe",
    "TreeCache",
    "TryLock",
    "TwoPhaseCommit",
    "UniqueId",
    "Wait",
    "Worker",
]

for _class in [globals()[name] for name in __all__]:  # programs know the classes by this module, so errors name it
    _class.__module__ = __name__


def __dir__() -> list[str]:
    return __all__
