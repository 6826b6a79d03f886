"""The client for threads: the same surface without ``await``.

It runs the asyncio client in a loop of its own, in a thread of its own, and nothing of it is written twice: every
method hands its call over and waits for the result. It may be used from any number of threads at once.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, cast

from zoolet.client.aio import client as aio
from zoolet.client.aio.base import ClientStatistics
from zoolet.client.aio.hooks import RequestHook
from zoolet.client.blocking.context import BlockingTransaction, BlockingWatcher
from zoolet.client.blocking.loop_thread import LoopThread
from zoolet.client.blocking.proxy import HasThread, blocking
from zoolet.client.recipes._lock_base import OnLost
from zoolet.client.recipes._node_names import Namings
from zoolet.client.recipes.lock import Release
from zoolet.client.serializers import Serializer
from zoolet.client.wire.backoff import Backoff
from zoolet.client.wire.kazoo_names import no_such_attribute
from zoolet.client.wire.states import State
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, AclList
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import MAX_FRAME, WatcherType
from zoolet.protocol.errors import ClosedError, ConnectionLossError, ThrottledOpError

if TYPE_CHECKING:
    from zoolet.client.blocking.recipes import Lock

T = TypeVar("T")
Stat = r.Stat


class Client(HasThread):
    """A ZooKeeper client for threads; ``with Client("127.0.0.1:2181") as zk:``.

    Arguments, results and errors are those of :class:`zoolet.client.Client`. Each operation takes a ``timeout``, too:
    the seconds after which it is cancelled, and raises TimeoutError; it may have been applied. So is a call that is
    interrupted by a signal, such as Ctrl-C.

    Args:
        hosts: As there, and so are the others.
    """

    def __init__(
        self,
        hosts: str,
        timeout: float = 10.0,
        *,
        operation_timeout: float | None = None,
        serializer: Serializer | None = None,
        acl: Iterable[ACL] | None = None,
        read_only: bool = False,
        auth: tuple[tuple[str, bytes], ...] = (),
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        backoff: Backoff = Backoff(),  # noqa: B008 - it is frozen
        max_request: int = MAX_FRAME,
        on_request: RequestHook | None = None,
        rng: Random | None = None,
    ) -> None:
        self._client = aio.Client(
            hosts,
            timeout,
            operation_timeout=operation_timeout,
            serializer=serializer,
            acl=acl,
            read_only=read_only,
            auth=auth,
            login=login,
            tls=tls,
            backoff=backoff,
            max_request=max_request,
            on_request=on_request,
            rng=rng,
        )
        self._thread = LoopThread(lambda: self._client.terminal_error)
        self.asyncio_client, self.loop_thread = self._client, self._thread

    @classmethod
    def _view(cls, client: aio.Client, thread: LoopThread) -> Self:
        self = cls.__new__(cls)
        self._client, self._thread = client, thread
        self.asyncio_client, self.loop_thread = client, thread
        return self

    def __repr__(self) -> str:
        return f"<blocking {self._client!r}>"

    if not TYPE_CHECKING:  # type checkers would take every name for one that is there

        def __getattr__(self, name: str) -> NoReturn:
            raise no_such_attribute(self, name)

    # --- beginning and end ---

    def start(self) -> None:
        """Connect; ``with`` does this."""
        self._thread.start()
        try:
            self.run(self._client.start)
        except BaseException:  # interrupted by a signal, too
            self._thread.stop()
            raise

    def begin(self) -> None:
        """Begin to connect, and do not wait for it; calls wait for the connection."""
        self._thread.start()

        async def begin() -> None:
            self._client.begin()

        self.run(begin)

    def first_round(self) -> str:
        """Wait until a server was reached, or all have been tried once; return why the last one was not reached."""
        return self.run(self._client.first_round)

    def close(self) -> None:
        """End the session and the connection; ``with`` does this."""
        if self._thread.running:
            with contextlib.suppress(ClosedError):  # another thread has closed it in this moment
                self.run(self._client.aclose)
            self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Do something of the asyncio client's in its loop, and wait for the result.

        Args:
            do: Called in the loop.
            timeout: Seconds after which it is cancelled and TimeoutError raised.

        Raises:
            RuntimeError: The client does not run, or this is its own loop's thread.
        """
        return self._thread.run(do, timeout)

    @property
    def runs(self) -> bool:
        """Whether it was started and not closed."""
        return self._thread.running

    def use(self, do: Callable[[aio.Client], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Do something with the asyncio client, such as a recipe's: ``zk.use(lambda zk: Counter(zk, "/n").add())``.

        Args:
            do: Given the asyncio client, in its loop, gives what to await.
            timeout: Seconds after which it is cancelled and TimeoutError raised.
        """
        return self.run(lambda: do(self._client), timeout)

    # --- how it stands ---

    @property
    def state(self) -> State:
        """How the client stands now."""
        return self._client.state

    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
        return self._client.session_id

    @property
    def session_password(self) -> bytes | None:
        """The password with which another client may take the session over."""
        return self._client.session_password

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server has granted, in seconds."""
        return self._client.session_timeout

    @property
    def last_zxid(self) -> int:
        """The highest zxid that was seen."""
        return self._client.last_zxid

    @property
    def terminal_error(self) -> Exception | None:
        """Why no call is taken any more; None while calls are taken."""
        return self._client.terminal_error

    @property
    def last_reason(self) -> str:
        """Why the last connection, or the last try to connect, ended; empty if none did."""
        return self._client.last_reason

    def statistics(self) -> ClientStatistics:
        """Return what the client is doing, for tests and debuggers."""

        async def ask() -> ClientStatistics:
            return self._client.statistics()

        return self.run(ask)

    def valid_for(self) -> float:
        """Return for how many seconds the session lives on for certain."""

        async def ask() -> float:
            return self._client.valid_for()

        return self.run(ask)

    def wait_for(self, *states: State, timeout: float | None = None) -> State:
        """Wait until the client is in one of these states, and say in which."""
        return self.run(lambda: self._client.wait_for(*states), timeout)

    def states(self) -> Iterator[State]:
        """Iterate the states from now on, the present one first; ends after CLOSED. None is left out."""
        states = self._client.states()

        async def ask() -> State | None:
            return await anext(states, None)

        while (state := self.run(ask)) is not None:
            yield state
            if state is State.CLOSED:
                return

    def with_operation_timeout(self, operation_timeout: float) -> Self:
        """Return the same client, with the same session, for calls that wait so many seconds for a connection."""
        return self._view(self._client.with_operation_timeout(operation_timeout), self._thread)

    def with_acl(self, acl: Iterable[ACL] | None) -> Self:
        """Return the same client, with the same session, for nodes that are created with another ACL list."""
        return self._view(self._client.with_acl(acl), self._thread)

    @property
    def serializer(self) -> Serializer:
        """How values become bytes."""
        return self._client.serializer

    def with_serializer(self, serializer: Serializer) -> Self:
        """Return the same client, with the same session, for values that are written another way."""
        return self._view(self._client.with_serializer(serializer), self._thread)

    def add_chroot(self, path: str) -> str:
        """Return the path as the server names it: below the chroot."""
        return self._client.add_chroot(path)

    def strip_chroot(self, path: str) -> str:
        """Return the path as the client names it."""
        return self._client.strip_chroot(path)

    # --- operations ---

    def get(self, path: str, *, timeout: float | None = None) -> tuple[Any, Stat]:
        """Read a node."""
        return self.run(lambda: self._client.get(path), timeout)

    def exists(self, path: str, *, timeout: float | None = None) -> Stat | None:
        """Return a node's Stat; None if there is no such node."""
        return self.run(lambda: self._client.exists(path), timeout)

    def children(self, path: str, *, timeout: float | None = None) -> list[str]:
        """Return the names of a node's children."""
        return self.run(lambda: self._client.children(path), timeout)

    def children_and_stat(self, path: str, *, timeout: float | None = None) -> tuple[list[str], Stat]:
        """Return the names of a node's children, and its own Stat."""
        return self.run(lambda: self._client.children_and_stat(path), timeout)

    def count_below(self, path: str, *, timeout: float | None = None) -> int:
        """Count the nodes below a node, at any depth."""
        return self.run(lambda: self._client.count_below(path), timeout)

    def ephemerals(self, prefix: str = "/", *, timeout: float | None = None) -> list[str]:
        """Return the paths of this session's ephemeral nodes that start with a prefix."""
        return self.run(lambda: self._client.ephemerals(prefix), timeout)

    def get_acl(self, path: str, *, timeout: float | None = None) -> tuple[AclList, Stat]:
        """Return who may do what with a node, and its Stat."""
        return self.run(lambda: self._client.get_acl(path), timeout)

    def sync(self, path: str = "/", *, timeout: float | None = None) -> None:
        """Wait until the server that serves this client knows all that its leader knew."""
        return self.run(lambda: self._client.sync(path), timeout)

    def who_am_i(self, *, timeout: float | None = None) -> list[r.ClientInfo]:
        """Return the identities that the server knows this client by."""
        return self.run(self._client.who_am_i, timeout)

    def multi_read(self, *reads: tuple[str, str], timeout: float | None = None) -> list[Any]:
        """Do several reads in one request."""
        return self.run(lambda: self._client.multi_read(*reads), timeout)

    def create(
        self,
        path: str,
        value: Any = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Iterable[ACL] | None = None,
        parents: bool = False,
        protected: bool = False,
        timeout: float | None = None,
    ) -> str:
        """Create a node; return its path."""
        return self.run(
            lambda: self._client.create(
                path,
                value,
                ephemeral=ephemeral,
                sequential=sequential,
                container=container,
                ttl=ttl,
                acl=acl,
                parents=parents,
                protected=protected,
            ),
            timeout,
        )

    def create_and_stat(
        self,
        path: str,
        value: Any = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Iterable[ACL] | None = None,
        timeout: float | None = None,
    ) -> tuple[str, Stat]:
        """Create a node; return its path and Stat."""
        return self.run(
            lambda: self._client.create_and_stat(
                path, value, ephemeral=ephemeral, sequential=sequential, container=container, ttl=ttl, acl=acl
            ),
            timeout,
        )

    def ensure_path(self, path: str, acl: Iterable[ACL] | None = None, *, timeout: float | None = None) -> None:
        """Create a node and its parents, unless they exist."""
        return self.run(lambda: self._client.ensure_path(path, acl), timeout)

    def set(self, path: str, value: Any, version: int = -1, *, timeout: float | None = None) -> Stat:
        """Replace a node's value."""
        return self.run(lambda: self._client.set(path, value, version), timeout)

    def update(self, path: str, change: Callable[[Any], Any], *, timeout: float | None = None) -> tuple[Any, Stat]:
        """Replace a node's value by a function of it, which is called in the client's thread."""
        return self.run(lambda: self._client.update(path, change), timeout)

    def delete(self, path: str, version: int = -1, *, recursive: bool = False, timeout: float | None = None) -> None:
        """Delete a node."""
        return self.run(lambda: self._client.delete(path, version, recursive=recursive), timeout)

    def set_acl(self, path: str, acl: Iterable[ACL], version: int = -1, *, timeout: float | None = None) -> Stat:
        """Replace a node's ACL list."""
        return self.run(lambda: self._client.set_acl(path, acl, version), timeout)

    def add_auth(self, scheme: str, auth: bytes, *, timeout: float | None = None) -> None:
        """Authenticate, now and after each reconnect."""
        return self.run(lambda: self._client.add_auth(scheme, auth), timeout)

    def get_config(self, *, timeout: float | None = None) -> tuple[Any, Stat]:
        """Read the ensemble's configuration."""
        return self.run(self._client.get_config, timeout)

    def reconfig(
        self,
        joining: str | None = None,
        leaving: str | None = None,
        members: str | None = None,
        version: int = -1,
        *,
        timeout: float | None = None,
    ) -> tuple[bytes, Stat]:
        """Change the members of an ensemble."""
        return self.run(lambda: self._client.reconfig(joining, leaving, members, version), timeout)

    def check_watches(self, path: str, kind: WatcherType = WatcherType.ANY, *, timeout: float | None = None) -> bool:
        """Return whether the server has a watch of this client on a node."""
        return self.run(lambda: self._client.check_watches(path, kind), timeout)

    def remove_watches(self, path: str, kind: WatcherType = WatcherType.ANY, *, timeout: float | None = None) -> None:
        """Remove watches of this client on a node from the server."""
        return self.run(lambda: self._client.remove_watches(path, kind), timeout)

    def call(self, operation: str | int, request: Record, *, timeout: float | None = None) -> Any:
        """Make any request of the table of operations; paths in it are taken as they are, below no chroot."""
        return self.run(lambda: self._client.call(operation, request), timeout)

    def retry(self, do: Callable[[], T], backoff: Backoff | None = None) -> T:
        """Repeat a call while the connection is lost or the server is too busy. Use this only for calls that may be
        applied twice.
        """
        for delay in (backoff or Backoff(tries=5)).delays(self._client.rng):
            try:
                return do()
            except (ConnectionLossError, ThrottledOpError):
                threading.Event().wait(delay)
        return do()

    # --- what is used with 'with' ---

    def transaction(
        self, *, guards: Sequence[str] = (), guard_failed: Callable[[], Exception] | None = None
    ) -> BlockingTransaction:
        """Collect operations that are applied together or not at all; use it with ``with``."""
        return BlockingTransaction(self._thread, self._client.transaction(guards=guards, guard_failed=guard_failed))

    def watch(self, path: str, *, recursive: bool = False, limit: int = 10_000) -> BlockingWatcher:
        """Receive the events of a node from now on; iterate the result of ``with``."""
        return BlockingWatcher(self._thread, self._client.watch(path, recursive=recursive, limit=limit))

    def watch_data(self, path: str) -> BlockingWatcher:
        """Read a node and receive its next change, once."""
        return BlockingWatcher(self._thread, self._client.watch_data(path))

    def watch_exists(self, path: str) -> BlockingWatcher:
        """Find out whether a node exists and receive its next change, once."""
        return BlockingWatcher(self._thread, self._client.watch_exists(path))

    def watch_children(self, path: str) -> BlockingWatcher:
        """List a node's children and receive the next one's coming or going, once."""
        return BlockingWatcher(self._thread, self._client.watch_children(path))

    def lock(
        self,
        path: str,
        *,
        timeout: float | None = None,
        naming: Namings = "kazoo",
        on_lost: OnLost = "flag",
        reentrant: bool = False,
        revocable: bool = False,
        release: Release = "send",
        data: bytes | None = None,
        acl: Iterable[ACL] | None = None,
    ) -> Lock:
        """Return a lock to use with ``with``, whose lease has the token. It is ``on_lost="flag"`` here: nothing
        can be cancelled in a thread. ``reentrant`` is by thread. See :class:`zoolet.client.recipes.Lock`.
        """

        async def make() -> Any:
            return self._client.lock(
                path,
                timeout=timeout,
                naming=naming,
                on_lost=on_lost,
                reentrant=reentrant,
                revocable=revocable,
                release=release,
                data=data,
                acl=acl,
            )

        return cast("Lock", blocking(self._thread, self._thread.run(make)))
