"""Made by ``make faces`` from the signatures of the asyncio client; do not edit."""

import ssl
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from zoolet.client.aio import client
from zoolet.client.aio.base import ClientStatistics
from zoolet.client.aio.client import Stat
from zoolet.client.aio.hooks import RequestHook
from zoolet.client.blocking.context import BlockingTransaction, BlockingWatcher
from zoolet.client.blocking.loop_thread import LoopThread
from zoolet.client.blocking.recipes import Lock
from zoolet.client.recipes._lock_base import OnLost
from zoolet.client.recipes._node_names import Namings
from zoolet.client.recipes.lock import Release
from zoolet.client.serializers import Serializer
from zoolet.client.wire.backoff import Backoff
from zoolet.client.wire.states import State
from zoolet.protocol import records
from zoolet.protocol.acl import ACL, AclList
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import WatcherType

__all__ = ["Client"]
T = TypeVar("T")

class Client:
    """A ZooKeeper client for threads; ``with Client("127.0.0.1:2181") as zk:``."""
    def __init__(
        self,
        hosts: str,
        timeout: float = ...,
        *,
        operation_timeout: float | None = ...,
        serializer: Serializer | None = ...,
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
        """Authenticate, for instance with ``("digest", b"user:password")``, now and after each reconnect."""
    def add_chroot(self, path: str) -> str:
        """Return the path as the server names it: below the chroot."""
    @property
    def asyncio_client(self) -> client.Client:
        """The asyncio client that it runs; to be used in its loop alone."""
    def begin(self) -> None:
        """Begin to connect, and do not wait for it; calls wait for the connection."""
    def call(self, operation: str | int, request: Record, *, timeout: float | None = ...) -> Any:
        """Make any request of the table of operations; paths in it are taken as they are, below no chroot."""
    def check_watches(self, path: str, kind: WatcherType = ..., *, timeout: float | None = ...) -> bool:
        """Return whether the server has a watch of this client on a node (ZooKeeper 3.5 and newer)."""
    def children(self, path: str, *, timeout: float | None = ...) -> list[str]:
        """Return the names of a node's children, in no order that means anything."""
    def children_and_stat(self, path: str, *, timeout: float | None = ...) -> tuple[list[str], Stat]:
        """Return the names of a node's children, and its own Stat."""
    def close(self) -> None:
        """End the session and the connection; ``with`` does this."""
    def count_below(self, path: str, *, timeout: float | None = ...) -> int:
        """Count the nodes below a node, at any depth (ZooKeeper 3.6 and newer)."""
    def create(
        self,
        path: str,
        value: Any = ...,
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
        value: Any = ...,
        *,
        ephemeral: bool = ...,
        sequential: bool = ...,
        container: bool = ...,
        ttl: float | None = ...,
        acl: Iterable[ACL] | None = ...,
        timeout: float | None = ...,
    ) -> tuple[str, Stat]:
        """Create a node and return its path and Stat; all else is as for :meth:`create` (ZooKeeper 3.5 and newer)."""
    def delete(self, path: str, version: int = ..., *, recursive: bool = ..., timeout: float | None = ...) -> None:
        """Delete a node."""
    def ensure_path(self, path: str, acl: Iterable[ACL] | None = ..., *, timeout: float | None = ...) -> None:
        """Create a node and its parents, unless they exist."""
    def ephemerals(self, prefix: str = ..., *, timeout: float | None = ...) -> list[str]:
        """Return the paths of this session's ephemeral nodes that start with a prefix (ZooKeeper 3.6 and newer)."""
    def exists(self, path: str, *, timeout: float | None = ...) -> Stat | None:
        """Return a node's Stat; None if there is no such node."""
    def first_round(self, *, timeout: float | None = ...) -> str:
        """Wait until a server was reached, or all of them have been tried once without success."""
    def get(self, path: str, *, timeout: float | None = ...) -> tuple[Any, Stat]:
        """Read a node."""
    def get_acl(self, path: str, *, timeout: float | None = ...) -> tuple[AclList, Stat]:
        """Return a node's ACL list and its Stat."""
    def get_config(self, *, timeout: float | None = ...) -> tuple[Any, Stat]:
        """Read the ensemble's configuration, ``/zookeeper/config``, whatever the chroot."""
    @property
    def last_reason(self) -> str:
        """Why the last connection, or the last try to connect, ended; empty if none did."""
    @property
    def last_zxid(self) -> int:
        """The highest zxid that was seen in this session."""
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
        """The thread with the loop in which that runs."""
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
        """Remove watches of this client on a node from the server; their watchers are not notified."""
    def retry(self, do: Callable[[], T], backoff: Backoff | None = ...) -> T:
        """Repeat a call while the connection is lost or the server is too busy. Use this only for calls that may
        be applied twice.
        """
    def run(self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = ...) -> T:
        """Do something of the asyncio client's in its loop, and wait for the result."""
    @property
    def runs(self) -> bool:
        """Whether it was started and not closed."""
    @property
    def serializer(self) -> Serializer:
        """How values become bytes."""
    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
    @property
    def session_password(self) -> bytes | None:
        """The password with which another client may take the session over."""
    @property
    def session_timeout(self) -> float:
        """The session timeout that the server has granted, in seconds."""
    def set(self, path: str, value: Any, version: int = ..., *, timeout: float | None = ...) -> Stat:
        """Replace a node's value."""
    def set_acl(self, path: str, acl: Iterable[ACL], version: int = ..., *, timeout: float | None = ...) -> Stat:
        """Replace a node's ACL list."""
    def start(self) -> None:
        """Connect; ``with`` does this."""
    @property
    def state(self) -> State:
        """The state of the client."""
    def states(self) -> Iterator[State]:
        """Iterate the states from now on, the present one first; ends after CLOSED. None is left out."""
    def statistics(self) -> ClientStatistics:
        """Return what the client is doing, for tests and debuggers."""
    def strip_chroot(self, path: str) -> str:
        """Return the path as the client names it."""
    def sync(self, path: str = ..., *, timeout: float | None = ...) -> None:
        """Wait until the server that serves this client knows all that its leader knew when it was asked."""
    @property
    def terminal_error(self) -> Exception | None:
        """Why no call is taken any more; None while calls are taken."""
    def transaction(
        self, *, guards: Sequence[str] = ..., guard_failed: Callable[[], Exception] | None = ...
    ) -> BlockingTransaction:
        """Collect operations that are applied together or not at all; use it with ``async with``."""
    def update(self, path: str, change: Callable[[Any], Any], *, timeout: float | None = ...) -> tuple[Any, Stat]:
        """Replace a node's value by a function of it; try again if others changed the value meanwhile."""
    def use(self, do: Callable[[client.Client], Coroutine[Any, Any, T]], timeout: float | None = ...) -> T:
        """Do something with the asyncio client, such as a recipe's: ``zk.use(lambda zk: Counter(zk,
        "/n").add())``.
        """
    def valid_for(self) -> float:
        """Return for how many seconds the session certainly lives on, if nothing more is received from the server."""
    def wait_for(self, *states: State, timeout: float | None = ...) -> State:
        """Wait until the client is in one of these states, and return it."""
    def watch(self, path: str, *, recursive: bool = ..., limit: int = ...) -> BlockingWatcher:
        """Receive the events of a node from now on (ZooKeeper 3.6 and newer)."""
    def watch_children(self, path: str) -> BlockingWatcher:
        """List a node's children (``initial`` is the names) and receive the next one's coming or going, once."""
    def watch_data(self, path: str) -> BlockingWatcher:
        """Read a node and receive its next change, once."""
    def watch_exists(self, path: str) -> BlockingWatcher:
        """Find out whether a node exists (``initial`` is its Stat, or None) and receive its next change, once."""
    def who_am_i(self, *, timeout: float | None = ...) -> list[records.ClientInfo]:
        """Return the identities that the server knows this client by (ZooKeeper 3.7 and newer)."""
    def with_acl(self, acl: Iterable[ACL] | None) -> Self:
        """Return the same client, with the same session, for nodes that are created with another ACL list."""
    def with_operation_timeout(self, operation_timeout: float) -> Self:
        """Return the same client, with the same session, for calls that wait so many seconds for a connection."""
    def with_serializer(self, serializer: Serializer) -> Self:
        """Return the same client, with the same session, for values that are written another way."""
