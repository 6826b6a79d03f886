"""The uses of ZooKeeper: one class a file, each with its znodes, guarantees and limits in its docstring."""

from zoolet.client.recipes._lease import Lease, LockLostError
from zoolet.client.recipes._lock_base import DeadlockError
from zoolet.client.recipes._queue_entry import Entry
from zoolet.client.recipes.barrier import Barrier
from zoolet.client.recipes.children_cache import ChildrenCache
from zoolet.client.recipes.config import Config
from zoolet.client.recipes.counter import Counter
from zoolet.client.recipes.discovery import Discovery, Instance
from zoolet.client.recipes.double_barrier import DoubleBarrier
from zoolet.client.recipes.durable_lock import DurableLease, DurableLock, Holder
from zoolet.client.recipes.election import Election
from zoolet.client.recipes.lock import Lock
from zoolet.client.recipes.lock_table import LockEntry, LockLine, LockTable, Wait
from zoolet.client.recipes.locking_queue import LockingQueue
from zoolet.client.recipes.master import Master
from zoolet.client.recipes.multilock import MultiLock
from zoolet.client.recipes.node_cache import NodeCache
from zoolet.client.recipes.node_election import NodeElection
from zoolet.client.recipes.overview import Overview, SharedLine
from zoolet.client.recipes.party import Party
from zoolet.client.recipes.persistent_ephemeral import PersistentEphemeral
from zoolet.client.recipes.priority_queue import PriorityQueue
from zoolet.client.recipes.queue import Queue
from zoolet.client.recipes.rwlock import ReadWriteLock
from zoolet.client.recipes.semaphore import Semaphore, SemaphoreLock
from zoolet.client.recipes.tree_cache import TreeCache
from zoolet.client.recipes.trylock import TryLock
from zoolet.client.recipes.two_phase_commit import TwoPhaseCommit
from zoolet.client.recipes.unique_id import UniqueId
from zoolet.client.recipes.worker import Worker

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
    "Entry",
    "Holder",
    "Instance",
    "Lease",
    "Lock",
    "LockEntry",
    "LockLine",
    "LockLostError",
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
    "ReadWriteLock",
    "Semaphore",
    "SemaphoreLock",
    "SharedLine",
    "TreeCache",
    "TryLock",
    "TwoPhaseCommit",
    "UniqueId",
    "Wait",
    "Worker",
]
