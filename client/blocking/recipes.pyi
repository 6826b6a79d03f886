"""Made by ``make faces`` from the signatures of the asyncio recipes; do not edit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, overload

from ...protocol.acl import ACL
from ...protocol.errors import ZooKeeperError
from ...protocol.recipe_names import Naming, Namings
from ...protocol.records import Stat
from ..recipes import DeadlockError as DeadlockError
from ..recipes import Holder as Holder
from ..recipes import Instance as Instance
from ..recipes import LockEntry as LockEntry
from ..recipes import LockLostError as LockLostError
from ..recipes import LockStatus as LockStatus
from ..recipes import SharedRecipe as SharedRecipe
from ..recipes import Wait as Wait
from ..recipes._lock_base import OnLost
from ..recipes.discovery import Strategy
from ..recipes.lock import Release
from ..recipes.tree_cache import CachedNode
from ..serializers import C, Serializer, UndecodableError, V
from ..wire.backoff import Backoff
from .client import Client
from .context import BlockingTransaction
from .proxy import BlockingIterator

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
T = TypeVar("T")

class Lease:
    """Proof that a lock or a similar resource is held, until :meth:`release` or until it is lost."""

    asyncio_object: Any
    path: str
    proof_node: str
    czxid: int
    token: int
    lost: OneShotEvent
    depth: int
    nodes: list[tuple[str, int]]
    def raise_if_lost(self) -> None:
        """Check that the lease is guaranteed to be still held."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Release the lease, and wait until the server has answered."""
    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error that the server returned for the release, or None."""
    @property
    def released(self) -> bool:
        """Whether the lease was released."""
    @property
    def revoked(self) -> OneShotEvent:
        """Set when another client requests the release of a revocable lease."""
    def transaction(self) -> BlockingTransaction[Any]:
        """Return a transaction that the server applies only while this lease is held."""
    def valid_for(self) -> float:
        """Return the number of seconds that the lease is guaranteed to be held, even without further replies."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Barrier:
    """A barrier that stops clients in :meth:`wait`, from :meth:`create` until :meth:`remove`."""

    asyncio_object: Any
    def __init__(self, client: Client[Any], path: str) -> None: ...
    def create(self, *, timeout: float | None = ...) -> bool:
        """Create the barrier. Return False if it already existed."""
    def remove(self, *, timeout: float | None = ...) -> bool:
        """Remove the barrier. Return False if it did not exist."""
    def wait(self, timeout: float | None = ...) -> None:
        """Wait until the barrier is removed."""

class ChildrenCache(Generic[V]):
    """The values of a node's children by name: ``async with ChildrenCache(zk, "/workers") as cache:
    cache.values``.
    """

    asyncio_object: Any
    def __init__(self, client: Client[V], path: str, *, limit: int = ...) -> None: ...
    def changes(self) -> BlockingIterator[Mapping[str, CachedNode[V]]]:
        """Yield the current content, and again after each change. Several quick changes may be combined."""
    @property
    def errors(self) -> Mapping[str, UndecodableError]:
        """Read-only live view of the errors of nodes whose values cannot be read, by path."""
    @property
    def errors_by_name(self) -> Mapping[str, UndecodableError]:
        """Errors of the children whose values cannot be read, by name."""
    @property
    def nodes(self) -> Mapping[str, CachedNode[V]]:
        """Read-only live view of the nodes, by path."""
    @property
    def stats(self) -> Mapping[str, Stat]:
        """Stats of the children, by name."""
    @property
    def values(self) -> Mapping[str, V]:
        """Values of the children, by name."""
    def __enter__(self) -> ChildrenCache[V]: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Config(Generic[C]):
    """One value with publishers and followers: ``async with Config(zk, "/config/app") as config: config.value``."""

    asyncio_object: Any
    @overload
    def __init__(self: Config[Any], client: Client[Any], path: str, default: Any = ...) -> None: ...
    @overload
    def __init__(self, client: Client[Any], path: str, default: C, *, serializer: Serializer[C]) -> None: ...
    @overload
    def __init__(
        self: Config[T | None], client: Client[Any], path: str, default: None = ..., *, serializer: Serializer[T]
    ) -> None: ...
    def changes(self) -> BlockingIterator[C]:
        """Yield the current content, and again after each change. Several quick changes may be combined."""
    @property
    def error(self) -> UndecodableError | None:
        """Error of the serializer for the latest value, or None. If it is set, ``value`` is the last readable
        value.
        """
    def publish(self, value: C, version: int | None = ..., *, timeout: float | None = ...) -> None:
        """Replace the value."""
    def refresh(self, *, timeout: float | None = ...) -> None:
        """Read the node now, so that this client's earlier writes are visible afterwards."""
    @property
    def stat(self) -> Stat | None:
        """Stat of the node; None if the node does not exist."""
    def update(self, change: Callable[[C], C], *, timeout: float | None = ...) -> tuple[C, Stat]:
        """Replace the value, or the default, with the result of *change*. Retry if the value has changed since."""
    @property
    def value(self) -> C:
        """Value of the node; None if the node does not exist."""
    @property
    def version(self) -> int:
        """Current version of the node; -1 while the node does not exist."""
    def __enter__(self) -> Config[C]: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Counter:
    """An integer that is changed by compare-and-set: ``await counter.add(1)``."""

    asyncio_object: Any
    def __init__(self, client: Client[Any], path: str, start: int = ..., *, encoding: str = ...) -> None: ...
    def add(self, amount: int = ..., *, timeout: float | None = ...) -> int:
        """Add to the number, and return the sum."""
    def change(self, how: Callable[[int], int], *, timeout: float | None = ...) -> int:
        """Replace the number with the result of a function, and return the new number."""
    def value(self, *, timeout: float | None = ...) -> int:
        """Read the number from the server, and return it. If the node does not exist, return *start*."""

class Discovery:
    """A registry of service instances that picks an instance for each request."""

    asyncio_object: Any
    def __init__(self, client: Client[Any], path: str, *, stop_timeout: float = ...) -> None: ...
    def instances(self, service: str, *, timeout: float | None = ...) -> list[Instance]:
        """Return the enabled instances of a service, sorted by id."""
    def pick(
        self, service: str, strategy: str | Strategy = ..., *, key: str = ..., timeout: float | None = ...
    ) -> Instance:
        """Return one instance of a service."""
    def register(self, instance: Instance, *, timeout: float | None = ...) -> None:
        """Register an instance until :meth:`unregister` or the end of the block. Call it again to change the
        fields.
        """
    def unregister(self, instance: Instance, *, timeout: float | None = ...) -> None:
        """Remove the registration of an instance."""
    def __enter__(self) -> Discovery: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class DoubleBarrier:
    """A barrier at which members start and finish together: ``async with DoubleBarrier(zk, "/step", 3): ...``."""

    asyncio_object: Any
    def __init__(
        self, client: Client[Any], path: str, members: int | None = ..., *, timeout: float | None = ...
    ) -> None: ...
    def enter(self, *, timeout: float | None = ...) -> None:
        """Arrive, and wait until all members have arrived."""
    def leave(self, *, timeout: float | None = ...) -> None:
        """Leave, and wait until all members have left."""
    def resize(self, members: int, *, timeout: float | None = ...) -> None:
        """Change the number of members for all objects created without a number. Waiting members see it
        immediately.
        """
    def __enter__(self) -> DoubleBarrier: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class DurableLease(Lease):
    """The lease of a durable lock, which is renewed in the background. It is lost when another client takes over
    the lock, or when the server has applied no renewal within the TTL, but not when a session ends.
    """

    asyncio_object: Any
    path: str
    proof_node: str
    czxid: int
    token: int
    lost: OneShotEvent
    depth: int
    nodes: list[tuple[str, int]]
    def raise_if_lost(self) -> None:
        """Check that the lease is guaranteed to be still held."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Release the lease, and wait until the server has answered."""
    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error that the server returned for the release, or None."""
    @property
    def released(self) -> bool:
        """Whether the lease was released."""
    @property
    def revoked(self) -> OneShotEvent:
        """Set when another client requests the release of a revocable lease."""
    def transaction(self) -> BlockingTransaction[Any]:
        """Return a transaction that the server applies only while this lease is held."""
    def valid_for(self) -> float:
        """Return the number of seconds that the lease is guaranteed to be held, even without further replies."""
    def __enter__(self) -> DurableLease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class DurableLock:
    """A lock that outlives sessions and restarts: ``async with DurableLock(zk, "/job", "host-1", ttl=60) as
    lease:``.
    """

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        path: str,
        owner: str,
        *,
        ttl: float = ...,
        token: int = ...,
        timeout: float | None = ...,
        on_lost: OnLost = ...,
        acl: Iterable[ACL] | None = ...,
    ) -> None: ...
    def acquire(self, timeout: float | None = ...) -> DurableLease:
        """Wait until the lock is free, or was not renewed for its TTL, and acquire it."""
    def attempt(self, *, timeout: float | None = ...) -> DurableLease | None:
        """Acquire the lock if it is free, and return the lease. Return None if it is not free."""
    def holder(self, *, timeout: float | None = ...) -> Holder | None:
        """Return the holder, even if its TTL has passed. Return None if the lock was released or never held."""
    def __enter__(self) -> DurableLease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Election:
    """An election of a leader among candidates that lead in the order of their arrival."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        path: str,
        name: bytes = ...,
        *,
        naming: Naming = ...,
        timeout: float | None = ...,
        on_lost: OnLost = ...,
    ) -> None: ...
    def attempt(self, *, timeout: float | None = ...) -> Lease | None:
        """Become the leader if no candidate leads, and return the lease. Otherwise create no node, and return
        None.
        """
    def candidates(self, *, timeout: float | None = ...) -> list[bytes]:
        """Return the names of the candidates, the leader's first."""
    def lead(self, timeout: float | None = ...) -> Lease:
        """Become a candidate and wait for leadership. To resign, call ``release()`` of the result."""
    def leader(self, *, timeout: float | None = ...) -> bytes | None:
        """Return the leader's name, or None while no candidate leads."""
    def observe(self) -> BlockingIterator[bytes | None]:
        """Yield the leader's name, and yield it again after each change. The name is None while no candidate
        leads.
        """
    def run(self, lead: Callable[..., Any], *, timeout: float | None = ...) -> None:
        """Lead whenever elected, in new sessions and after each loss, until this call is cancelled."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Lock:
    """A fair lock: ``async with Lock(zk, "/locks/p") as lease:``, or ``zk.lock("/locks/p")``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        path: str,
        *,
        timeout: float | None = ...,
        naming: Namings = ...,
        on_lost: OnLost = ...,
        reentrant: bool = ...,
        revocable: bool = ...,
        release: Release = ...,
        data: bytes | None = ...,
        acl: Iterable[ACL] | None = ...,
    ) -> None: ...
    reentrant: bool
    data: bytes
    def acquire(self, timeout: float | None = ...) -> Lease:
        """Wait for the lock, and return its lease."""
    def attempt(self, *, timeout: float | None = ...) -> Lease | None:
        """Acquire the lock if it is free, or return None. No node is created while another client holds the lock."""
    def contenders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of all nodes in line, the holder's first."""
    def is_free(self, *, timeout: float | None = ...) -> bool:
        """Return whether :meth:`acquire` would succeed without waiting."""
    def revoke(self, *, timeout: float | None = ...) -> bool:
        """Request every holder to release the lock. Return whether the lock is held. Holders may ignore the
        request.
        """
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class LockTable:
    """The locks below a node: ``for line in await LockTable(zk, "/locks").read(): print(line)``."""

    asyncio_object: Any
    def __init__(self, client: Client[Any], path: str) -> None: ...
    def deadlocks(self, *, timeout: float | None = ...) -> list[list[Wait]]:
        """Return the deadlocks: cycles of clients that wait for each other. A cycle never resolves by itself."""
    def read(self, *, timeout: float | None = ...) -> list[LockStatus]:
        """Return the locks, sorted by path. Each is a consistent snapshot, but not all are from the same moment."""

class LockingQueue(Generic[V]):
    """A queue that delivers each entry at least once."""

    asyncio_object: Any
    def __init__(self, client: Client[V], path: str, *, retry: Backoff = ...) -> None: ...
    def acquire(self, timeout: float | None = ...) -> QueueEntry[V]:
        """Acquire the first entry that has no consumer and no delay, or wait for such an entry."""
    def dead(self, *, timeout: float | None = ...) -> dict[str, V | None]:
        """Return the values of the dead entries by name. The value of an unreadable entry is None."""
    def get(self, timeout: float | None = ...) -> V:
        """Acquire the first entry, acknowledge it and return its value."""
    def get_nowait(self, *, timeout: float | None = ...) -> V:
        """Consume the first entry, and return its value. Do not wait for an entry if the queue is empty."""
    def put(self, value: V, priority: int = ..., *, key: str | None = ..., timeout: float | None = ...) -> str:
        """Put a value, and return the entry's name."""
    def requeue(self, name: str, *, timeout: float | None = ...) -> None:
        """Put a dead entry back in one transaction, after the entries of its priority, with no attempts counted."""
    def size(self, *, timeout: float | None = ...) -> int:
        """Return the number of entries."""

class Master:
    """A master that assigns tasks: ``async with Master(zk, "/jobs") as master: await master.submit({"do":
    "this"})``.
    """

    asyncio_object: Any
    def __init__(self, client: Client[Any], path: str, name: str = ..., *, per_worker: int = ...) -> None: ...
    active: OneShotEvent
    leadership: Lease | None
    def command(self, value: Any, timeout: float | None = ...) -> dict[str, Any]:
        """Send a command to all running workers, and wait until each has acknowledged it or has stopped."""
    def forget(self, task: str, *, timeout: float | None = ...) -> None:
        """Delete a task's result, if it exists. Its key can then be submitted again."""
    def progress(self, task: str) -> BlockingIterator[Any]:
        """Yield the progress reports of the task's worker, until there is a result."""
    def result(self, task: str, timeout: float | None = ...) -> Any:
        """Wait for a task's result, and return it: a dict with ``worker``, and with ``result`` or ``error``."""
    def submit(self, task: Any, *, key: str | None = ..., timeout: float | None = ...) -> str:
        """Submit a task, and return its name."""
    def workers(self, *, timeout: float | None = ...) -> dict[str, Any]:
        """Return the last heartbeat of each running worker, by worker name: a dict with ``beat`` and ``busy``."""
    def __enter__(self) -> Master: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class MultiLease(Lease):
    """The lease of several locks."""

    asyncio_object: Any
    parts: list[Lease]
    tokens: dict[str, int]
    path: str
    proof_node: str
    czxid: int
    token: int
    lost: OneShotEvent
    depth: int
    nodes: list[tuple[str, int]]
    def raise_if_lost(self) -> None:
        """Check that all parts are guaranteed to be still held."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Release the lease, and wait until the server has answered."""
    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error that the server returned for the release of a part, or None."""
    @property
    def released(self) -> bool:
        """Whether the lease was released."""
    @property
    def revoked(self) -> OneShotEvent:
        """Set when another client requests the release of a revocable lease."""
    def transaction(self) -> BlockingTransaction[Any]:
        """Return a transaction that the server applies only while this lease is held."""
    def valid_for(self) -> float:
        """Return the number of seconds that the lease is guaranteed to be held, even without further replies."""
    def __enter__(self) -> MultiLease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class MultiLock:
    """A lock on several paths together: ``async with MultiLock(zk, ["/a", "/b"]) as lease:``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        paths: Sequence[str],
        *,
        timeout: float | None = ...,
        naming: Namings = ...,
        on_lost: OnLost = ...,
    ) -> None: ...
    def acquire(self, timeout: float | None = ...) -> MultiLease:
        """Wait for all locks, and return their common lease."""
    def attempt(self, *, timeout: float | None = ...) -> MultiLease | None:
        """Acquire all locks if they are all free, and return their lease. Otherwise keep no lock, and return None."""
    def __enter__(self) -> MultiLease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class NodeCache(Generic[C]):
    """The current value of one node: ``async with NodeCache(zk, "/a") as cache: cache.value``."""

    asyncio_object: Any
    def __init__(self: NodeCache[T | None], client: Client[T], path: str) -> None: ...
    def changes(self) -> BlockingIterator[C]:
        """Yield the current content, and again after each change. Several quick changes may be combined."""
    @property
    def error(self) -> UndecodableError | None:
        """Error of the serializer for the latest value, or None. If it is set, ``value`` is the last readable
        value.
        """
    def refresh(self, *, timeout: float | None = ...) -> None:
        """Read the node now, so that this client's earlier writes are visible afterwards."""
    @property
    def stat(self) -> Stat | None:
        """Stat of the node; None if the node does not exist."""
    @property
    def value(self) -> C:
        """Value of the node; None if the node does not exist."""
    def __enter__(self) -> NodeCache[C]: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class NodeElection:
    """An election among unordered candidates: ``async with NodeElection(zk, "/leader", b"host-1") as
    leadership:``.
    """

    asyncio_object: Any
    def __init__(
        self, client: Client[Any], path: str, name: bytes = ..., *, timeout: float | None = ..., on_lost: OnLost = ...
    ) -> None: ...
    def attempt(self, *, timeout: float | None = ...) -> OwnedNode | None:
        """Become the leader if no candidate leads, and return the lease. Otherwise create no node, and return
        None.
        """
    def lead(self, timeout: float | None = ...) -> OwnedNode:
        """Become a candidate and wait for leadership. To resign, call ``release()`` of the result."""
    def leader(self, *, timeout: float | None = ...) -> bytes | None:
        """Return the leader's name, or None while no candidate leads."""
    def observe(self) -> BlockingIterator[bytes | None]:
        """Yield the leader's name, and yield it again after each change. The name is None while no candidate
        leads.
        """
    def run(self, lead: Callable[..., Any], *, timeout: float | None = ...) -> None:
        """Lead whenever elected, in new sessions and after each loss, until this call is cancelled."""
    def __enter__(self) -> OwnedNode: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class OneShotEvent:
    """An event that happens once. ``await`` returns its reason. The truth value shows whether it has happened."""

    asyncio_object: Any
    reason: str
    def is_set(self) -> bool:
        """Return whether the event has happened."""
    def set(self, reason: str) -> None:
        """Record that the event has happened. Only the first reason is kept."""
    def wait(self, *, timeout: float | None = ...) -> str:
        """Wait until the event happens, and return the reason."""

class Overview:
    """Locks, elections, semaphores and queues below a node: ``recipes, cycles = await Overview(zk, "/").read()``."""

    asyncio_object: Any
    def __init__(self, client: Client[Any], path: str) -> None: ...
    def read(self, *, timeout: float | None = ...) -> tuple[list[SharedRecipe], list[list[Wait]]]:
        """Return the recipes in use, sorted by path, and the deadlocks: cycles of clients that wait for each
        other.
        """

class OwnedNode(Lease):
    """The lease of an owned path."""

    asyncio_object: Any
    proof_node: str
    path: str
    czxid: int
    token: int
    lost: OneShotEvent
    depth: int
    nodes: list[tuple[str, int]]
    def raise_if_lost(self) -> None:
        """Check that the lease is guaranteed to be still held."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Release the lease, and wait until the server has answered."""
    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error that the server returned for the release, or None."""
    @property
    def released(self) -> bool:
        """Whether the lease was released."""
    @property
    def revoked(self) -> OneShotEvent:
        """Set when another client requests the release of a revocable lease."""
    def transaction(self) -> BlockingTransaction[Any]:
        """Return a transaction that the server applies only while this lease is held."""
    def valid_for(self) -> float:
        """Return the number of seconds that the lease is guaranteed to be held, even without further replies."""
    def __enter__(self) -> OwnedNode: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Party:
    """A group whose members come and go: ``async with Party(zk, "/party", b"me") as party: await
    party.members()``.
    """

    asyncio_object: Any
    def __init__(
        self, client: Client[Any], path: str, name: bytes = ..., *, naming: Naming = ..., stop_timeout: float = ...
    ) -> None: ...
    def changes(self) -> BlockingIterator[list[bytes]]:
        """Yield the members' names, and yield them again after each change."""
    def members(self, *, timeout: float | None = ...) -> list[bytes]:
        """Return the members' names, sorted by node name."""
    def __enter__(self) -> Party: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class PersistentEphemeral(Generic[V]):
    """An ephemeral node that exists while its program runs: ``async with PersistentEphemeral(zk, "/up/me"):``."""

    asyncio_object: Any
    def __init__(
        self, client: Client[V], path: str, value: V | Literal[b""] = ..., *, stop_timeout: float = ...
    ) -> None: ...
    @property
    def exists(self) -> bool:
        """Whether the node exists, to this client's knowledge."""
    def set(self, value: V | Literal[b""], *, timeout: float | None = ...) -> None:
        """Change the value of the node, now and whenever it is recreated."""
    def __enter__(self) -> PersistentEphemeral[V]: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class PriorityQueue(Generic[V]):
    """A queue that returns the lowest priority first, and equal priorities in the order of their puts."""

    asyncio_object: Any
    def __init__(self, client: Client[V], path: str) -> None: ...
    def get(self, timeout: float | None = ...) -> V:
        """Consume the first entry, and return its value. If the queue is empty, wait for an entry."""
    def get_nowait(self, *, timeout: float | None = ...) -> V:
        """Consume the first entry, and return its value. Do not wait for an entry if the queue is empty."""
    def put(self, value: V, priority: int = ..., *, key: str | None = ..., timeout: float | None = ...) -> str:
        """Put a value, and return the entry's name."""
    def size(self, *, timeout: float | None = ...) -> int:
        """Return the number of entries."""

class Queue(Generic[V]):
    """A first-in, first-out queue: ``await queue.put(value)``, ``value = await queue.get()``."""

    asyncio_object: Any
    def __init__(self, client: Client[V], path: str) -> None: ...
    def get(self, timeout: float | None = ...) -> V:
        """Consume the first entry, and return its value. If the queue is empty, wait for an entry."""
    def get_nowait(self, *, timeout: float | None = ...) -> V:
        """Consume the first entry, and return its value. Do not wait for an entry if the queue is empty."""
    def put(self, value: V, *, key: str | None = ..., timeout: float | None = ...) -> str:
        """Put a value at the end, and return the entry's name."""
    def size(self, *, timeout: float | None = ...) -> int:
        """Return the number of entries."""

class QueueEntry(Generic[V]):
    """An entry and its lease: ``async with`` acknowledges the entry, or releases it if the block raises."""

    asyncio_object: Any
    path: str
    data: bytes
    lease: OwnedNode
    attempts: int
    value: V
    error: UndecodableError | None
    move_to: str
    def acknowledge(self, *, timeout: float | None = ...) -> None:
        """Delete the entry."""
    def consume(self, *, timeout: float | None = ...) -> V:
        """Acknowledge the entry, and return its value."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Put the entry back for other consumers. They get it after the delay of the queue's *retry*."""
    def __enter__(self) -> QueueEntry[V]: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class ReadLock:
    """The lock for readers of a :class:`ReadWriteLock`. Several readers can hold it together."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        path: str,
        *,
        timeout: float | None = ...,
        naming: Namings = ...,
        on_lost: OnLost = ...,
        reentrant: bool = ...,
        revocable: bool = ...,
        release: Release = ...,
        data: bytes | None = ...,
        acl: Iterable[ACL] | None = ...,
    ) -> None: ...
    reentrant: bool
    data: bytes
    def acquire(self, timeout: float | None = ...) -> Lease:
        """Wait for the lock, and return its lease."""
    def attempt(self, *, timeout: float | None = ...) -> Lease | None:
        """Acquire the lock if it is free, or return None. No node is created while another client holds the lock."""
    def contenders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of all nodes in line, the holder's first."""
    def is_free(self, *, timeout: float | None = ...) -> bool:
        """Return whether :meth:`acquire` would succeed without waiting."""
    def revoke(self, *, timeout: float | None = ...) -> bool:
        """Request every holder to release the lock. Return whether the lock is held. Holders may ignore the
        request.
        """
    def take_over(self, writer: Lease, nodes: list[tuple[str, int]]) -> Lease:
        """Return the lease of a reader whose nodes have replaced the nodes of *writer*."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class ReadWriteLock:
    """A lock for readers and writers: ``async with rw.read() as lease:`` and ``async with rw.write() as lease:``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        path: str,
        *,
        naming: Namings = ...,
        timeout: float | None = ...,
        on_lost: OnLost = ...,
        reentrant: bool = ...,
        revocable: bool = ...,
        release: Release = ...,
        data: bytes | None = ...,
        acl: Iterable[ACL] | None = ...,
    ) -> None: ...
    def downgrade(self, lease: Lease, *, timeout: float | None = ...) -> Lease:
        """Become a reader: one transaction deletes the writer's node and gives its place in line to a reader's
        node.
        """
    def read(self) -> ReadLock:
        """Return the lock for readers."""
    def write(self) -> WriteLock:
        """Return the lock for writers."""

class Semaphore:
    """A limit on the number of simultaneous holders: ``async with Semaphore(zk, "/pool", 3) as lease:``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        path: str,
        leases: int | None = ...,
        *,
        timeout: float | None = ...,
        naming: Naming = ...,
        on_lost: OnLost = ...,
        data: bytes | None = ...,
    ) -> None: ...
    def acquire(self, timeout: float | None = ..., *, count: int = ...) -> Lease:
        """Wait for a lease, or for *count* leases that are acquired and released as one."""
    def attempt(self, *, count: int = ..., timeout: float | None = ...) -> Lease | None:
        """Acquire a lease, or *count* leases, if they are free and no client waits. Otherwise return None."""
    def holders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of the held leases."""
    def resize(self, leases: int, *, timeout: float | None = ...) -> None:
        """Change the number of leases for all semaphores with ``leases=None``. Waiting clients see it immediately."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class SemaphoreLock:
    """A lock that belongs to no task: any task that has the lease may release it. It cannot be entered twice."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        path: str,
        *,
        timeout: float | None = ...,
        naming: Naming = ...,
        on_lost: OnLost = ...,
        data: bytes | None = ...,
    ) -> None: ...
    def acquire(self, timeout: float | None = ..., *, count: int = ...) -> Lease:
        """Wait for a lease, or for *count* leases that are acquired and released as one."""
    def attempt(self, *, count: int = ..., timeout: float | None = ...) -> Lease | None:
        """Acquire a lease, or *count* leases, if they are free and no client waits. Otherwise return None."""
    def holders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of the held leases."""
    def resize(self, leases: int, *, timeout: float | None = ...) -> None:
        """Change the number of leases for all semaphores with ``leases=None``. Waiting clients see it immediately."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class TreeCache(Generic[V]):
    """A copy of a node and its descendants: ``async with TreeCache(zk, "/app") as cache:
    cache.nodes["/app/x"].value``.
    """

    asyncio_object: Any
    def __init__(self, client: Client[V], path: str, *, limit: int = ...) -> None: ...
    def changes(self) -> BlockingIterator[Mapping[str, CachedNode[V]]]:
        """Yield the current content, and again after each change. Several quick changes may be combined."""
    @property
    def errors(self) -> Mapping[str, UndecodableError]:
        """Read-only live view of the errors of nodes whose values cannot be read, by path."""
    @property
    def nodes(self) -> Mapping[str, CachedNode[V]]:
        """Read-only live view of the nodes, by path."""
    def __enter__(self) -> TreeCache[V]: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class TryLock:
    """A lock without a queue: ``lease = await TryLock(zk, "/jobs/nightly").attempt()``."""

    asyncio_object: Any
    def __init__(
        self, client: Client[Any], path: str, *, timeout: float | None = ..., on_lost: OnLost = ..., data: bytes = ...
    ) -> None: ...
    def acquire(self, timeout: float | None = ...) -> OwnedNode:
        """Wait until the lock is free, and acquire it."""
    def attempt(self, *, timeout: float | None = ...) -> OwnedNode | None:
        """Acquire the lock if it is free, and return the lease. Return None if it is not free."""
    def __enter__(self) -> OwnedNode: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class TwoPhaseCommit:
    """An action that either all sites carry out or none do."""

    asyncio_object: Any
    def __init__(self, client: Client[Any], path: str) -> None: ...
    def abort(self, *, timeout: float | None = ...) -> bool:
        """Vote abort for every site that has not voted. Return False if the transaction was committed instead."""
    def finish(self, timeout: float | None = ...) -> bool:
        """Wait until all sites have acted, delete the transaction, and return whether it was committed."""
    def mark_done(self, site: str, *, timeout: float | None = ...) -> None:
        """Record that a site has carried out the outcome."""
    def outcome(self, timeout: float | None = ...) -> bool:
        """Wait for the outcome: True for commit, False for abort."""
    def proposal(self, timeout: float | None = ...) -> Any:
        """Wait for the transaction, and return the proposal."""
    def propose(self, value: Any, sites: Sequence[str], *, timeout: float | None = ...) -> None:
        """Propose a transaction to the sites."""
    def vote(self, site: str, *, commit: bool, timeout: float | None = ...) -> bool:
        """Vote once for a site, and return whether this vote counts."""
    def votes(self, *, timeout: float | None = ...) -> dict[str, str]:
        """Return the vote of each site by name: empty, ``commit`` or ``abort``."""

class UniqueId:
    """A generator of unique numbers: ``number = await ids.next()``, different for every caller."""

    asyncio_object: Any
    def __init__(self, client: Client[Any], path: str, *, block: int = ...) -> None: ...
    def next(self, *, timeout: float | None = ...) -> int:
        """Return the next number. The first number of a new node is *block*, which is 1 by default."""

class Worker:
    """A worker that processes tasks: ``async with Worker(zk, "/jobs", "w-1", handler): ...``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        path: str,
        name: str,
        handler: Callable[[str, Any], Any],
        *,
        on_command: Callable[[Any], Any] | None = ...,
        heartbeat_interval: float = ...,
        concurrency: int = ...,
        stop_timeout: float = ...,
    ) -> None: ...
    def report(self, task: str, progress: Any, *, timeout: float | None = ...) -> None:
        """Publish the progress of a task. The report is deleted when the task or the session of the worker ends."""
    def __enter__(self) -> Worker: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class WriteLock:
    """The lock for writers of a :class:`ReadWriteLock`. Only one writer can hold it."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client[Any],
        path: str,
        *,
        timeout: float | None = ...,
        naming: Namings = ...,
        on_lost: OnLost = ...,
        reentrant: bool = ...,
        revocable: bool = ...,
        release: Release = ...,
        data: bytes | None = ...,
        acl: Iterable[ACL] | None = ...,
    ) -> None: ...
    reentrant: bool
    data: bytes
    def acquire(self, timeout: float | None = ...) -> Lease:
        """Wait for the lock, and return its lease."""
    def attempt(self, *, timeout: float | None = ...) -> Lease | None:
        """Acquire the lock if it is free, or return None. No node is created while another client holds the lock."""
    def contenders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of all nodes in line, the holder's first."""
    def is_free(self, *, timeout: float | None = ...) -> bool:
        """Return whether :meth:`acquire` would succeed without waiting."""
    def revoke(self, *, timeout: float | None = ...) -> bool:
        """Request every holder to release the lock. Return whether the lock is held. Holders may ignore the
        request.
        """
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
