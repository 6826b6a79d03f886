"""Made by ``make faces`` from the signatures of the asyncio client; do not edit."""

import ssl
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from random import Random
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, overload

from ...protocol import records
from ...protocol.acl import ACL, AclList
from ...protocol.codec import Record
from ...protocol.enums import WatcherType
from ...protocol.recipe_names import Namings
from .. import client
from ..aio.hooks import RequestHook
from ..aio.operations import Stat
from ..client import ClientStatistics
from ..recipes._lock_base import OnLost
from ..recipes.lock import Release
from ..serializers import Serializer, V
from ..wire.backoff import Backoff
from ..wire.states import State
from .context import BlockingTransaction, BlockingWatcher
from .loop_thread import LoopThread
from .recipes import Lock

__all__ = ["Client"]
T = TypeVar("T")

class Client(Generic[V]):
    """A ZooKeeper client for threads: ``with Client("127.0.0.1:2181") as zk:``."""
    @overload
    def __init__(
        self: Client[bytes],
        hosts: str,
        timeout: float = ...,
        *,
        operation_timeout: float | None = ...,
        serializer: None = ...,
        acl: Iterable[ACL] | None = ...,
        read_only: bool = ...,
        auth: tuple[tuple[str, bytes], ...] = ...,
        login: tuple[str, str] | None = ...,
        tls: ssl.SSLContext | None = ...,
        backoff: Backoff = ...,
        max_request: int = ...,
        on_request: RequestHook | None = ...,
        rng: Random | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hosts: str,
        timeout: float = ...,
        *,
        operation_timeout: float | None = ...,
        serializer: Serializer[V],
        acl: Iterable[ACL] | None = ...,
        read_only: bool = ...,
        auth: tuple[tuple[str, bytes], ...] = ...,
        login: tuple[str, str] | None = ...,
        tls: ssl.SSLContext | None = ...,
        backoff: Backoff = ...,
        max_request: int = ...,
        on_request: RequestHook | None = ...,
        rng: Random | None = ...,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def add_auth(self, scheme: str, auth: bytes, *, timeout: float | None = ...) -> None:
        """Authenticate, for example with ``("digest", b"user:password")``, now and after each reconnect."""
    def add_chroot(self, path: str) -> str:
        """Return the path on the server, which includes the chroot."""
    @property
    def asyncio_client(self) -> client.Client[V]:
        """The asyncio client in the separate thread. Use it only in its event loop."""
    def call(self, operation: str | int, request: Record, *, timeout: float | None = ...) -> Any:
        """Send a request of any operation in :mod:`zoolet.protocol.operations`."""
    def check_watches(self, path: str, kind: WatcherType = ..., *, timeout: float | None = ...) -> bool:
        """Return whether the server has a watch of this client on a node (ZooKeeper 3.5 and newer)."""
    def children(self, path: str, *, timeout: float | None = ...) -> list[str]:
        """Return the names of a node's children, in arbitrary order."""
    def children_and_stat(self, path: str, *, timeout: float | None = ...) -> tuple[list[str], Stat]:
        """Return the names of a node's children, and the node's Stat."""
    def close(self) -> None:
        """Close the session and the connection, and stop the thread. ``with`` calls this method at the end."""
    def count_below(self, path: str, *, timeout: float | None = ...) -> int:
        """Return the number of nodes below a node, at any depth (ZooKeeper 3.6 and newer)."""
    def create(
        self,
        path: str,
        value: V | Literal[b""] = ...,
        *,
        ephemeral: bool = ...,
        sequential: bool = ...,
        container: bool = ...,
        ttl: float | None = ...,
        acl: Iterable[ACL] | None = ...,
        parents: bool = ...,
        protected: bool = ...,
        timeout: float | None = ...,
    ) -> str:
        """Create a node."""
    def create_and_stat(
        self,
        path: str,
        value: V | Literal[b""] = ...,
        *,
        ephemeral: bool = ...,
        sequential: bool = ...,
        container: bool = ...,
        ttl: float | None = ...,
        acl: Iterable[ACL] | None = ...,
        timeout: float | None = ...,
    ) -> tuple[str, Stat]:
        """Create a node like :meth:`create`, and return its path and Stat (ZooKeeper 3.5 and newer)."""
    def delete(self, path: str, version: int = ..., *, recursive: bool = ..., timeout: float | None = ...) -> None:
        """Delete a node."""
    def ensure_path(self, path: str, acl: Iterable[ACL] | None = ..., *, timeout: float | None = ...) -> None:
        """Create a node and its parents, unless they exist."""
    def ephemerals(self, prefix: str = ..., *, timeout: float | None = ...) -> list[str]:
        """Return the paths of this session's ephemeral nodes that start with a prefix (ZooKeeper 3.6 and newer)."""
    def exists(self, path: str, *, timeout: float | None = ...) -> Stat | None:
        """Return a node's Stat; None if the node does not exist."""
    def first_round(self, *, timeout: float | None = ...) -> str:
        """Wait until a server is reached, or all servers have been tried once without success."""
    def get(self, path: str, *, timeout: float | None = ...) -> tuple[V, Stat]:
        """Read a node."""
    def get_acl(self, path: str, *, timeout: float | None = ...) -> tuple[AclList, Stat]:
        """Return a node's ACL list and its Stat."""
    def get_config(self, *, timeout: float | None = ...) -> tuple[bytes, Stat]:
        """Read the ensemble's configuration in ``/zookeeper/config``, regardless of the chroot."""
    @property
    def last_reason(self) -> str:
        """Reason why the last connection or attempt to connect failed or was closed; empty if there was none."""
    @property
    def last_zxid(self) -> int:
        """The highest zxid seen in this session."""
    def lock(
        self,
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
    ) -> Lock:
        """Return a lock; see :class:`zoolet.client.recipes.Lock`."""
    @property
    def loop_thread(self) -> LoopThread:
        """The thread with the event loop of the asyncio client."""
    def multi_read(self, *reads: tuple[str, str], timeout: float | None = ...) -> list[Any]:
        """Do several reads in one request (ZooKeeper 3.6 and newer)."""
    def reconfig(
        self,
        joining: str | None = ...,
        leaving: str | None = ...,
        members: str | None = ...,
        version: int = ...,
        *,
        timeout: float | None = ...,
    ) -> tuple[bytes, Stat]:
        """Change the members of an ensemble."""
    def remove_watches(self, path: str, kind: WatcherType = ..., *, timeout: float | None = ...) -> None:
        """Remove watches of this client on a node from the server. Their watchers are not notified."""
    def retry(self, do: Callable[[], T], backoff: Backoff | None = ...) -> T:
        """Repeat a call while the connection is lost or the server is too busy."""
    def run(self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = ...) -> T:
        """Run a coroutine of the asyncio client in its event loop, and wait for the result."""
    @property
    def runs(self) -> bool:
        """Whether the client was started and not closed."""
    @property
    def serializer(self) -> Serializer[V]:
        """The serializer that converts between values and bytes."""
    @property
    def session_id(self) -> int:
        """The id of the session, or 0 if the client has no session."""
    @property
    def session_password(self) -> bytes | None:
        """The password that another client needs to take over the session."""
    @property
    def session_timeout(self) -> float:
        """The session timeout that the server granted, in seconds."""
    def set(self, path: str, value: V | Literal[b""], version: int = ..., *, timeout: float | None = ...) -> Stat:
        """Replace a node's value."""
    def set_acl(self, path: str, acl: Iterable[ACL], version: int = ..., *, timeout: float | None = ...) -> Stat:
        """Replace a node's ACL list."""
    def start(self, *, wait: bool = ...) -> None:
        """Connect to a server. ``with`` calls this method."""
    @property
    def state(self) -> State:
        """The state of the client."""
    def states(self) -> Iterator[State]:
        """Iterate over the states, starting with the current one. No state is skipped, and CLOSED is the last."""
    def statistics(self) -> ClientStatistics:
        """Return the current activity of the client, for tests and debugging."""
    def strip_chroot(self, path: str) -> str:
        """Return the path without the chroot, as the client uses it."""
    def sync(self, path: str = ..., *, timeout: float | None = ...) -> None:
        """Wait until this client's server has applied all changes that the leader knew when it received the
        request.
        """
    @property
    def terminal_error(self) -> Exception | None:
        """The error that all calls raise because the client can no longer be used; None while it can."""
    def transaction(
        self, *, guards: Sequence[str] = ..., guard_failed: Callable[[], Exception] | None = ...
    ) -> BlockingTransaction[V]:
        """Return a transaction for ``async with``, whose operations are applied together or not at all."""
    def update(self, path: str, change: Callable[[V], V], *, timeout: float | None = ...) -> tuple[V, Stat]:
        """Replace a node's value with the result of *change*. Retry if the node has changed since the value was
        read.
        """
    def use(self, do: Callable[[client.Client[V]], Coroutine[Any, Any, T]], timeout: float | None = ...) -> T:
        """Use the asyncio client, for example with an asyncio recipe: ``zk.use(lambda zk: Counter(zk,
        "/n").add())``.
        """
    def valid_for(self) -> float:
        """Return the number of seconds that the session is guaranteed to survive, even if the server sends
        nothing.
        """
    def wait_for(self, *states: State, timeout: float | None = ...) -> State:
        """Wait until the client is in one of these states, and return that state."""
    def watch(self, path: str, *, recursive: bool = ..., limit: int = ...) -> BlockingWatcher[None]:
        """Receive the future events of a node (ZooKeeper 3.6 and newer)."""
    def watch_children(self, path: str) -> BlockingWatcher[list[str]]:
        """List a node's children, and receive one event when a child is created or deleted, or the node is
        deleted.
        """
    def watch_data(self, path: str) -> BlockingWatcher[tuple[V, Stat]]:
        """Read a node and receive its next change, once."""
    def watch_exists(self, path: str) -> BlockingWatcher[Stat | None]:
        """Check whether a node exists, and receive one event at its next change: creation, new value or deletion."""
    def who_am_i(self, *, timeout: float | None = ...) -> list[records.ClientInfo]:
        """Return the identities of this client at the server (ZooKeeper 3.7 and newer)."""
    def with_acl(self, acl: Iterable[ACL] | None) -> Self:
        """Return a view of this client, with the same session, that creates nodes with a different ACL list."""
    def with_operation_timeout(self, operation_timeout: float) -> Self:
        """Return a view of this client, with the same session, whose calls wait up to *operation_timeout* seconds
        for a connection.
        """
    def with_serializer(self, serializer: Serializer[T]) -> Client[T]:
        """Return a view of this client, with the same session, that uses *serializer*."""
