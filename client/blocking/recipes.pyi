"""Made by ``make faces`` from the signatures of the asyncio recipes; do not edit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from zoolet.client.blocking.client import Client
from zoolet.client.blocking.context import BlockingTransaction
from zoolet.client.blocking.proxy import BlockingIterator
from zoolet.client.recipes import DeadlockError as DeadlockError
from zoolet.client.recipes import Holder as Holder
from zoolet.client.recipes import Instance as Instance
from zoolet.client.recipes import LockEntry as LockEntry
from zoolet.client.recipes import LockLine as LockLine
from zoolet.client.recipes import LockLostError as LockLostError
from zoolet.client.recipes import SharedLine as SharedLine
from zoolet.client.recipes import Wait as Wait
from zoolet.client.recipes._lock_base import OnLost
from zoolet.client.recipes._node_names import Naming, Namings
from zoolet.client.recipes.discovery import Strategy
from zoolet.client.recipes.lock import Release
from zoolet.client.recipes.tree_cache import Cached
from zoolet.client.serializers import Serializer, UndecodableError
from zoolet.client.wire.backoff import Backoff
from zoolet.protocol.acl import ACL
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.records import Stat

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

class Lease:
    """A hold that lasts until :meth:`release`, or until it is lost."""

    asyncio_object: Any
    path: str
    proof_node: str
    czxid: int
    token: int
    lost: OneShotEvent
    revoked: OneShotEvent
    depth: int
    nodes: list[tuple[str, int]]
    def proof_nodes(self) -> list[str]:
        """Return the nodes whose existence proves that this is held."""
    def raise_if_lost(self) -> None:
        """Do nothing if it is certainly still held."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Release it, and wait until the server has answered."""
    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error with which the server refused the release, if it did; it is tried again with pauses that grow
        to five seconds.
        """
    @property
    def released(self) -> bool:
        """Whether it was released."""
    def transaction(self) -> BlockingTransaction:
        """Collect operations that happen together, and only if this is still held when the server does them."""
    def valid_for(self) -> float:
        """Return for how many seconds it is certainly still held, if nothing more is received from the server."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Barrier:
    """Blocks all that :meth:`wait`, from :meth:`create` to :meth:`remove`."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str) -> None: ...
    def create(self, *, timeout: float | None = ...) -> bool:
        """Create it; return whether there was none."""
    def remove(self, *, timeout: float | None = ...) -> bool:
        """Remove it; return whether there was one."""
    def wait(self, timeout: float | None = ...) -> None:
        """Wait until there is none."""

class ChildrenCache:
    """The values of a node's children by name: ``async with ChildrenCache(zk, "/workers") as cache:
    cache.values``.
    """

    asyncio_object: Any
    def __init__(self, client: Client, path: str, *, limit: int = ...) -> None: ...
    def changes(self) -> BlockingIterator[Any]:
        """Iterate what is known: now, and after each change; changes that come fast may be one."""
    @property
    def errors(self) -> Mapping[str, UndecodableError]:
        """Why the value of a node cannot be read, by path; a live view, too."""
    @property
    def errors_by_name(self) -> Mapping[str, UndecodableError]:
        """Why the values of the other children cannot be read, by name."""
    @property
    def nodes(self) -> Mapping[str, Cached]:
        """The nodes, by path; a live view that cannot be changed."""
    @property
    def stats(self) -> Mapping[str, Stat]:
        """The children's Stats by name."""
    @property
    def values(self) -> Mapping[str, Any]:
        """The children's values by name."""
    def __enter__(self) -> ChildrenCache: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Config:
    """One value that some publish and many follow: ``async with Config(zk, "/config/app") as config:
    config.value``.
    """

    asyncio_object: Any
    def __init__(self, client: Client, path: str, default: Any = ..., *, serializer: Serializer = ...) -> None: ...
    def changes(self) -> BlockingIterator[Any]:
        """Iterate what is known: now, and after each change; changes that come fast may be one."""
    @property
    def error(self) -> UndecodableError | None:
        """Why the serializer could not read the latest value; ``value`` is the last one that it could. Raises as
        ``value`` does.
        """
    def publish(self, value: Any, version: int | None = ..., *, timeout: float | None = ...) -> None:
        """Replace the value."""
    def refresh(self, *, timeout: float | None = ...) -> None:
        """Read the node now: what this client has written before is seen after it."""
    @property
    def stat(self) -> Stat | None:
        """The node's Stat; None if there is none. Raises as ``value`` does."""
    def update(self, change: Callable[[Any], Any], *, timeout: float | None = ...) -> tuple[Any, Stat]:
        """Replace the value, or the default, by what a function makes of it, as often as others come in between."""
    @property
    def value(self) -> Any:
        """The value of the node; None if there is none."""
    @property
    def version(self) -> int:
        """The present version; -1 while the node does not exist."""
    def __enter__(self) -> Config: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Counter:
    """A whole number that is changed by compare-and-set: ``await counter.add(1)``."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str, start: int = ..., *, encoding: str = ...) -> None: ...
    def add(self, amount: int = ..., *, timeout: float | None = ...) -> int:
        """Add to the number; return the sum."""
    def change(self, how: Callable[[int], int], *, timeout: float | None = ...) -> int:
        """Replace the number by what a function makes of it, which may be called several times; raises as ``add``."""
    def value(self, *, timeout: float | None = ...) -> int:
        """Return the number."""

class Discovery:
    """Register services, and find them."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str) -> None: ...
    def instances(self, service: str, *, timeout: float | None = ...) -> list[Instance]:
        """Return the instances that offer a service, in order of their ids."""
    def pick(
        self, service: str, strategy: str | Strategy = ..., *, key: str = ..., timeout: float | None = ...
    ) -> Instance:
        """Return one that offers a service."""
    def register(self, instance: Instance, *, timeout: float | None = ...) -> None:
        """Offer a service until :meth:`unregister` or the end of the block; once more, to change the fields."""
    def unregister(self, instance: Instance, *, timeout: float | None = ...) -> None:
        """Offer it no longer."""
    def __enter__(self) -> Discovery: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class DoubleBarrier:
    """Begins when enough members have come, ends when all are done: ``async with DoubleBarrier(zk, "/step", 3):
    ...``.
    """

    asyncio_object: Any
    def __init__(
        self, client: Client, path: str, members: int | None = ..., *, timeout: float | None = ...
    ) -> None: ...
    def enter(self, *, timeout: float | None = ...) -> None:
        """Come, and wait until all have come."""
    def leave(self, *, timeout: float | None = ...) -> None:
        """Leave, and wait until all have left."""
    def resize(self, members: int, *, timeout: float | None = ...) -> None:
        """Change how many must come, for all that were made without a number; those that wait see it at once."""
    def __enter__(self) -> DoubleBarrier: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class DurableLease(Lease):
    """A durable lock that is held: renewed in the background, and lost when it was taken over, or when the server
    has applied no renewal within its TTL. The end of a session does not end it.
    """

    asyncio_object: Any
    path: str
    proof_node: str
    czxid: int
    token: int
    lost: OneShotEvent
    revoked: OneShotEvent
    depth: int
    nodes: list[tuple[str, int]]
    def proof_nodes(self) -> list[str]:
        """Return the nodes whose existence proves that this is held."""
    def raise_if_lost(self) -> None:
        """Do nothing if it is certainly still held."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Release it, and wait until the server has answered."""
    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error with which the server refused the release, if it did; it is tried again with pauses that grow
        to five seconds.
        """
    @property
    def released(self) -> bool:
        """Whether it was released."""
    def transaction(self) -> BlockingTransaction:
        """Collect operations that happen together, and only if this is still held when the server does them."""
    def valid_for(self) -> float:
        """Return for how many seconds it is certainly still held, if nothing more is received from the server."""
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
        client: Client,
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
        """Wait until it is free, or was not renewed for its TTL, and acquire it."""
    def attempt(self, *, timeout: float | None = ...) -> DurableLease | None:
        """Acquire it if it is free; None if it is not. Attempts that follow each other notice, too, that its
        holder does not renew it.
        """
    def holder(self, *, timeout: float | None = ...) -> Holder | None:
        """Return who holds it, or held it last and did not release it; None if nobody does."""
    def __enter__(self) -> DurableLease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Election:
    """One leader, and the others in the order in which they will follow."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client,
        path: str,
        name: bytes = ...,
        *,
        naming: Naming = ...,
        timeout: float | None = ...,
        on_lost: OnLost = ...,
    ) -> None: ...
    def attempt(self, *, timeout: float | None = ...) -> Lease | None:
        """Lead if nobody does; None if somebody does, and then no node was created."""
    def candidates(self, *, timeout: float | None = ...) -> list[bytes]:
        """Return the names of the candidates, the leader's first."""
    def lead(self, timeout: float | None = ...) -> Lease:
        """Become a candidate and wait for leadership; ``release()`` of the result resigns."""
    def leader(self, *, timeout: float | None = ...) -> bytes | None:
        """Return the leader's name; None if there is no leader."""
    def observe(self) -> BlockingIterator[bytes | None]:
        """Iterate the leader's name: now, and after each change; None while there is none."""
    def run(self, lead: Callable[..., Any], *, timeout: float | None = ...) -> None:
        """Lead whenever elected, for life: in new sessions, too, and after each loss, until this is cancelled or
        *lead* raises another error.
        """
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Entry:
    """An entry and its lease; ``async with`` acknowledges it, or releases it if the block raises."""

    asyncio_object: Any
    path: str
    data: bytes
    lease: OwnedNode
    attempts: int
    value: Any
    error: UndecodableError | None
    move_to: str
    def acknowledge(self, *, timeout: float | None = ...) -> None:
        """Delete the entry."""
    def consume(self, *, timeout: float | None = ...) -> Any:
        """Acknowledge it, and return its value."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Leave it to another consumer, after the delay that the queue's *retry* names; after its last attempt,
        move it to the dead ones.
        """
    def __enter__(self) -> Entry: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Lock:
    """A fair lock: ``async with Lock(zk, "/locks/p") as lease:``, or ``zk.lock("/locks/p")``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client,
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
        """Wait for the lock; return its lease."""
    def attempt(self, *, timeout: float | None = ...) -> Lease | None:
        """Acquire it if it is free; None if it is not. No node is created while somebody holds it."""
    def contenders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of all nodes in line, the holder's first."""
    def is_free(self, *, timeout: float | None = ...) -> bool:
        """Return whether an acquire would get it without waiting."""
    def revoke(self, *, timeout: float | None = ...) -> bool:
        """Ask every holder to release it, which it may or may not do; return whether there was one."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class LockTable:
    """The locks below a node: ``for line in await LockTable(zk, "/locks").read(): print(line)``."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str) -> None: ...
    def deadlocks(self, *, timeout: float | None = ...) -> list[list[Wait]]:
        """Return who waits for each other, each circle of clients as a list: it does not change by itself any
        more.
        """
    def read(self, *, timeout: float | None = ...) -> list[LockLine]:
        """Return the locks in order of their paths; each line as it is at one moment, not all at the same."""

class LockingQueue:
    """At least once."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str, *, retry: Backoff = ...) -> None: ...
    def acquire(self, timeout: float | None = ...) -> Entry:
        """Acquire the first entry that has no consumer and no delay; wait for one if there is none."""
    def dead(self, *, timeout: float | None = ...) -> dict[str, Any]:
        """Return the entries that have failed too often: their values by name, None for those that cannot be read."""
    def get(self, timeout: float | None = ...) -> Any:
        """Acquire and acknowledge the first entry at once; raises as :meth:`acquire` and
        :meth:`Entry.acknowledge`.
        """
    def get_nowait(self, *, timeout: float | None = ...) -> Any:
        """Consume the first entry."""
    def put(self, value: Any, priority: int = ..., *, key: str | None = ..., timeout: float | None = ...) -> str:
        """Put a value; return the entry's name."""
    def requeue(self, name: str, *, timeout: float | None = ...) -> None:
        """Put a dead entry back, behind those of its priority, with no attempts; in one transaction."""
    def size(self, *, timeout: float | None = ...) -> int:
        """Count the entries."""

class Master:
    """Assigns tasks: ``async with Master(zk, "/jobs", "m-1") as master: name = await master.submit({"do":
    "this"})``.
    """

    asyncio_object: Any
    def __init__(self, client: Client, path: str, name: str = ..., *, per_worker: int = ...) -> None: ...
    active: OneShotEvent
    leadership: Lease | None
    def command(self, value: Any, timeout: float | None = ...) -> dict[str, Any]:
        """Send a command to all workers that are running, and wait until each has acknowledged it or is gone."""
    def forget(self, task: str, *, timeout: float | None = ...) -> None:
        """Delete a task's result."""
    def progress(self, task: str) -> BlockingIterator[Any]:
        """Iterate what the task's worker reports; ends when there is a result."""
    def result(self, task: str, timeout: float | None = ...) -> Any:
        """Wait for a task's result: a dict with ``worker`` and ``result`` or ``error``; without ``worker`` if the
        task could not be read.
        """
    def submit(self, task: Any, *, key: str | None = ..., timeout: float | None = ...) -> str:
        """Submit a task; return its name."""
    def workers(self, *, timeout: float | None = ...) -> dict[str, Any]:
        """Return the workers that are running, by name, with their last heartbeats."""
    def __enter__(self) -> Master: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class MultiLease(Lease):
    """Several locks that are held."""

    asyncio_object: Any
    parts: list[Lease]
    tokens: dict[str, int]
    path: str
    proof_node: str
    czxid: int
    token: int
    lost: OneShotEvent
    revoked: OneShotEvent
    depth: int
    nodes: list[tuple[str, int]]
    def proof_nodes(self) -> list[str]:
        """Return the nodes of all parts."""
    def raise_if_lost(self) -> None:
        """Do nothing if all parts are certainly still held."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Release it, and wait until the server has answered."""
    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error with which the server refused the release of a part; None if it did not."""
    @property
    def released(self) -> bool:
        """Whether it was released."""
    def transaction(self) -> BlockingTransaction:
        """Collect operations that happen together, and only if this is still held when the server does them."""
    def valid_for(self) -> float:
        """Return for how many seconds it is certainly still held, if nothing more is received from the server."""
    def __enter__(self) -> MultiLease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class MultiLock:
    """Holds several paths at once: ``async with MultiLock(zk, ["/a", "/b"]) as lease:``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client,
        paths: Sequence[str],
        *,
        timeout: float | None = ...,
        naming: Namings = ...,
        on_lost: OnLost = ...,
    ) -> None: ...
    def acquire(self, timeout: float | None = ...) -> MultiLease:
        """Wait for all of them."""
    def attempt(self, *, timeout: float | None = ...) -> MultiLease | None:
        """Acquire all of them if they are free; None if one is not, and none is kept."""
    def __enter__(self) -> MultiLease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class NodeCache:
    """The present value of one node: ``async with NodeCache(zk, "/a") as cache: cache.value``."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str) -> None: ...
    def changes(self) -> BlockingIterator[Any]:
        """Iterate what is known: now, and after each change; changes that come fast may be one."""
    @property
    def error(self) -> UndecodableError | None:
        """Why the serializer could not read the latest value; ``value`` is the last one that it could. Raises as
        ``value`` does.
        """
    def refresh(self, *, timeout: float | None = ...) -> None:
        """Read the node now: what this client has written before is seen after it."""
    @property
    def stat(self) -> Stat | None:
        """The node's Stat; None if there is none. Raises as ``value`` does."""
    @property
    def value(self) -> Any:
        """The value of the node; None if there is none."""
    def __enter__(self) -> NodeCache: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class NodeElection:
    """One leader and no order among the others: ``async with NodeElection(zk, "/leader", b"host-1") as
    leadership:``.
    """

    asyncio_object: Any
    def __init__(
        self, client: Client, path: str, name: bytes = ..., *, timeout: float | None = ..., on_lost: OnLost = ...
    ) -> None: ...
    def attempt(self, *, timeout: float | None = ...) -> OwnedNode | None:
        """Lead if nobody does; None if somebody does, and then no node was created."""
    def lead(self, timeout: float | None = ...) -> OwnedNode:
        """Wait for leadership; ``release()`` of the result resigns."""
    def leader(self, *, timeout: float | None = ...) -> bytes | None:
        """Return the leader's name; None if there is no leader."""
    def observe(self) -> BlockingIterator[bytes | None]:
        """Iterate the leader's name: now, and after each change; None while there is none."""
    def run(self, lead: Callable[..., Any], *, timeout: float | None = ...) -> None:
        """Lead whenever elected, for life; as :meth:`Election.run`."""
    def __enter__(self) -> OwnedNode: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class OneShotEvent:
    """An event that happens once: ``await`` it for the reason, or ask ``is_set()``, which is its truth value, too."""

    asyncio_object: Any
    reason: str
    def is_set(self) -> bool:
        """Return whether it has happened."""
    def set(self, reason: str) -> None:
        """Record that it has happened; the first reason counts."""
    def wait(self, *, timeout: float | None = ...) -> str:
        """Wait until it happens, and return the reason."""

class Overview:
    """The shared lines below a node: ``lines, circles = await Overview(zk, "/").look()``."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str) -> None: ...
    def deadlocks(self, *, timeout: float | None = ...) -> list[list[Wait]]:
        """Return who waits for each other, each circle of clients as a list: it does not change by itself any
        more.
        """
    def look(self, *, timeout: float | None = ...) -> tuple[list[SharedLine], list[list[Wait]]]:
        """Return what is shared, by path, and which clients wait for each other in a circle."""
    def read(self, *, timeout: float | None = ...) -> list[LockLine]:
        """Return the locks in order of their paths; each line as it is at one moment, not all at the same."""

class OwnedNode(Lease):
    """A path that is owned."""

    asyncio_object: Any
    proof_node: str
    path: str
    czxid: int
    token: int
    lost: OneShotEvent
    revoked: OneShotEvent
    depth: int
    nodes: list[tuple[str, int]]
    def proof_nodes(self) -> list[str]:
        """Return the nodes whose existence proves that this is held."""
    def raise_if_lost(self) -> None:
        """Do nothing if it is certainly still held."""
    def release(self, *, timeout: float | None = ...) -> None:
        """Release it, and wait until the server has answered."""
    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error with which the server refused the release, if it did; it is tried again with pauses that grow
        to five seconds.
        """
    @property
    def released(self) -> bool:
        """Whether it was released."""
    def transaction(self) -> BlockingTransaction:
        """Collect operations that happen together, and only if this is still held when the server does them."""
    def valid_for(self) -> float:
        """Return for how many seconds it is certainly still held, if nothing more is received from the server."""
    def __enter__(self) -> OwnedNode: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Party:
    """A group whose members come and go: ``async with Party(zk, "/party", b"me") as party: await
    party.members()``.
    """

    asyncio_object: Any
    def __init__(self, client: Client, path: str, name: bytes = ..., *, naming: Naming = ...) -> None: ...
    def changes(self) -> BlockingIterator[list[bytes]]:
        """Iterate the members' names: now, and after each change."""
    def members(self, *, timeout: float | None = ...) -> list[bytes]:
        """Return the members' names, in order of their nodes' names."""
    def __enter__(self) -> Party: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class PersistentEphemeral:
    """Keeps an ephemeral node for as long as its program runs: ``async with PersistentEphemeral(zk, "/up/me"):``."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str, value: Any = ...) -> None: ...
    @property
    def exists(self) -> bool:
        """Whether the node exists, as far as is known."""
    def set(self, value: Any, *, timeout: float | None = ...) -> None:
        """Change what the node holds, now and whenever it is created again."""
    def __enter__(self) -> PersistentEphemeral: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class PriorityQueue:
    """The lowest priority first, and of the same priority the first that was put."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str) -> None: ...
    def get(self, timeout: float | None = ...) -> Any:
        """Consume the first entry; wait for one if there is none."""
    def get_nowait(self, *, timeout: float | None = ...) -> Any:
        """Consume the first entry."""
    def put(self, value: Any, priority: int = ..., *, key: str | None = ..., timeout: float | None = ...) -> str:
        """Put a value; return the entry's name."""
    def size(self, *, timeout: float | None = ...) -> int:
        """Count the entries."""

class Queue:
    """First in, first out: ``await queue.put(value)``, ``value = await queue.get()``."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str) -> None: ...
    def get(self, timeout: float | None = ...) -> Any:
        """Consume the first entry; wait for one if there is none."""
    def get_nowait(self, *, timeout: float | None = ...) -> Any:
        """Consume the first entry."""
    def put(self, value: Any, *, key: str | None = ..., timeout: float | None = ...) -> str:
        """Put a value at the end; return the entry's name."""
    def size(self, *, timeout: float | None = ...) -> int:
        """Count the entries."""

class ReadLock:
    """The readers' side of a :class:`ReadWriteLock`: held together with other readers."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client,
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
        """Wait for the lock; return its lease."""
    def attempt(self, *, timeout: float | None = ...) -> Lease | None:
        """Acquire it if it is free; None if it is not. No node is created while somebody holds it."""
    def contenders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of all nodes in line, the holder's first."""
    def is_free(self, *, timeout: float | None = ...) -> bool:
        """Return whether an acquire would get it without waiting."""
    def revoke(self, *, timeout: float | None = ...) -> bool:
        """Ask every holder to release it, which it may or may not do; return whether there was one."""
    def take_over(self, writer: Lease, nodes: list[tuple[str, int]]) -> Lease:
        """Return the lease of a reader whose nodes have taken the place of a writer's."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class ReadWriteLock:
    """``async with rw.read() as lease:`` and ``async with rw.write() as lease:``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client,
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
        """Become a reader: in one transaction the writer's node goes and a reader's takes its place in line."""
    def read(self) -> ReadLock:
        """Return the readers' side."""
    def write(self) -> WriteLock:
        """Return the writers' side."""

class Semaphore:
    """At most so many holders at a time: ``async with Semaphore(zk, "/pool", 3) as lease:``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client,
        path: str,
        leases: int | None = ...,
        *,
        timeout: float | None = ...,
        naming: Naming = ...,
        on_lost: OnLost = ...,
        data: bytes = ...,
    ) -> None: ...
    def acquire(self, timeout: float | None = ..., *, count: int = ...) -> Lease:
        """Wait for a lease, or for several that are one."""
    def attempt(self, *, count: int = ..., timeout: float | None = ...) -> Lease | None:
        """Acquire a lease, or several, if they are free and nobody waits; None otherwise, and then no node was
        created unless another one came first.
        """
    def holders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of the leases that are held."""
    def resize(self, leases: int, *, timeout: float | None = ...) -> None:
        """Change the number of leases, for all that were made with ``leases=None``; those that wait see it at
        once.
        """
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class SemaphoreLock:
    """A lock that belongs to no task: any that has the lease may release it; it cannot be entered twice."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client,
        path: str,
        *,
        timeout: float | None = ...,
        naming: Naming = ...,
        on_lost: OnLost = ...,
        data: bytes = ...,
    ) -> None: ...
    def acquire(self, timeout: float | None = ..., *, count: int = ...) -> Lease:
        """Wait for a lease, or for several that are one."""
    def attempt(self, *, count: int = ..., timeout: float | None = ...) -> Lease | None:
        """Acquire a lease, or several, if they are free and nobody waits; None otherwise, and then no node was
        created unless another one came first.
        """
    def holders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of the leases that are held."""
    def resize(self, leases: int, *, timeout: float | None = ...) -> None:
        """Change the number of leases, for all that were made with ``leases=None``; those that wait see it at
        once.
        """
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class TreeCache:
    """All nodes from a path down: ``async with TreeCache(zk, "/app") as cache: cache.nodes["/app/x"].value``."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str, *, limit: int = ...) -> None: ...
    def changes(self) -> BlockingIterator[Any]:
        """Iterate what is known: now, and after each change; changes that come fast may be one."""
    @property
    def errors(self) -> Mapping[str, UndecodableError]:
        """Why the value of a node cannot be read, by path; a live view, too."""
    @property
    def nodes(self) -> Mapping[str, Cached]:
        """The nodes, by path; a live view that cannot be changed."""
    def __enter__(self) -> TreeCache: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class TryLock:
    """The cheapest lock: ``lease = await TryLock(zk, "/jobs/nightly").attempt()``, which is None if it is held."""

    asyncio_object: Any
    def __init__(
        self, client: Client, path: str, *, timeout: float | None = ..., on_lost: OnLost = ..., data: bytes = ...
    ) -> None: ...
    def acquire(self, timeout: float | None = ...) -> OwnedNode:
        """Wait until it is free, and acquire it."""
    def attempt(self, *, timeout: float | None = ...) -> OwnedNode | None:
        """Acquire it if it is free; None if it is not."""
    def __enter__(self) -> OwnedNode: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class TwoPhaseCommit:
    """A step that several sites take, all of them or none."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str) -> None: ...
    def abort(self, *, timeout: float | None = ...) -> bool:
        """Vote abort for every site that has not voted; return whether it is aborted: it may have been committed."""
    def acted(self, site: str, *, timeout: float | None = ...) -> None:
        """Record that a site has done what the outcome says."""
    def finish(self, timeout: float | None = ...) -> bool:
        """Wait until all sites have acted, delete the transaction, and return whether it was committed."""
    def outcome(self, timeout: float | None = ...) -> bool:
        """Wait for the outcome; return whether it is commit."""
    def proposal(self, timeout: float | None = ...) -> Any:
        """Wait for the transaction, and return what is proposed."""
    def propose(self, value: Any, sites: Sequence[str], *, timeout: float | None = ...) -> None:
        """Propose something to the sites."""
    def vote(self, site: str, *, commit: bool, timeout: float | None = ...) -> bool:
        """Vote, once; return whether the vote that counts is this one: another program may have voted abort
        instead.
        """
    def votes(self, *, timeout: float | None = ...) -> dict[str, str]:
        """Return each site's vote: empty, ``commit`` or ``abort``; ``commit done`` or ``abort done`` if it has
        acted.
        """

class UniqueId:
    """A naming service: ``number = await ids.next()``, different for every caller."""

    asyncio_object: Any
    def __init__(self, client: Client, path: str, *, block: int = ...) -> None: ...
    def next(self, *, timeout: float | None = ...) -> int:
        """Return a number, from 1 (or with blocks, from *block*) on."""

class Worker:
    """Processes tasks: ``async with Worker(zk, "/jobs", "w-1", handler): ...``."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client,
        path: str,
        name: str,
        handler: Callable[[str, Any], Any],
        *,
        on_command: Callable[[Any], Any] | None = ...,
        heartbeat_interval: float = ...,
        concurrency: int = ...,
    ) -> None: ...
    def report(self, task: str, progress: Any, *, timeout: float | None = ...) -> None:
        """Publish how far a task is; it goes with the worker's session."""
    def __enter__(self) -> Worker: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class WriteLock:
    """The writers' side of a :class:`ReadWriteLock`: held by one."""

    asyncio_object: Any
    def __init__(
        self,
        client: Client,
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
        """Wait for the lock; return its lease."""
    def attempt(self, *, timeout: float | None = ...) -> Lease | None:
        """Acquire it if it is free; None if it is not. No node is created while somebody holds it."""
    def contenders(self, *, timeout: float | None = ...) -> list[str]:
        """Return the paths of all nodes in line, the holder's first."""
    def is_free(self, *, timeout: float | None = ...) -> bool:
        """Return whether an acquire would get it without waiting."""
    def revoke(self, *, timeout: float | None = ...) -> bool:
        """Ask every holder to release it, which it may or may not do; return whether there was one."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
