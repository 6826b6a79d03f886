"""Base of the client for threads: its beginning and end, its thread, and the methods that are not the loop's."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self, TypeVar

from zoolet.client.aio import client as aio
from zoolet.client.blocking.loop_thread import LoopThread
from zoolet.client.blocking.proxy import Blocking
from zoolet.client.wire.backoff import Backoff
from zoolet.client.wire.kazoo_names import no_such_attribute
from zoolet.client.wire.states import State
from zoolet.protocol.errors import ClosedError, ConnectionLossError, ThrottledOpError

T = TypeVar("T")
HIDDEN: Final = frozenset("aclose add_listener flush for_recipe new_uuid rng shared spawn".split())
"""Members of the asyncio client that recipes need, and threads do not have."""
DIRECT: Final = frozenset(
    """
    add_chroot last_reason last_zxid serializer session_id session_password session_timeout state strip_chroot
    terminal_error transaction watch watch_children watch_data watch_exists with_acl with_operation_timeout
    with_serializer
    """.split()
)
"""Members that touch nothing of the loop's: they are read and called in the caller's thread."""


class ThreadClient(Blocking):
    """A client that runs an asyncio client in a thread of its own; arguments as for :class:`zoolet.client.Client`."""

    asyncio_object: aio.Client

    __signature__: ClassVar = inspect.signature(aio.Client)

    def __init__(self, *args: Any, **options: Any) -> None:
        client = aio.Client(*args, **options)
        super().__init__(LoopThread(lambda: client.terminal_error), client)

    @property
    def asyncio_client(self) -> aio.Client:
        """The asyncio client that it runs; to be used in its loop alone."""
        return self.asyncio_object

    @property
    def loop_thread(self) -> LoopThread:
        """The thread with the loop in which that runs."""
        return self._thread

    def __dir__(self) -> list[str]:
        return sorted(set(object.__dir__(self)) - {"asyncio_class", "of"})

    if not TYPE_CHECKING:  # type checkers would take every name for one that is there

        def __getattr__(self, name: str) -> NoReturn:
            raise no_such_attribute(self, name)

    # --- beginning and end ---

    def start(self) -> None:
        """Connect; ``with`` does this."""
        self._thread.start()
        try:
            self.run(self.asyncio_client.start)
        except BaseException:  # interrupted by a signal, too
            self._thread.stop()
            raise

    def begin(self) -> None:
        """Begin to connect, and do not wait for it; calls wait for the connection."""
        self._thread.start()

        async def begin() -> None:
            self.asyncio_client.begin()

        self.run(begin)

    def close(self) -> None:
        """End the session and the connection; ``with`` does this."""
        if self._thread.running:
            try:
                with contextlib.suppress(ClosedError):  # another thread has closed it in this moment
                    self.run(self.asyncio_client.aclose)
            finally:
                self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def runs(self) -> bool:
        """Whether it was started and not closed."""
        return self._thread.running

    # --- calls ---

    def run(self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Do something of the asyncio client's in its loop, and wait for the result.

        Args:
            do: Called in the loop.
            timeout: Seconds after which it is cancelled and TimeoutError raised.

        Raises:
            RuntimeError: The client does not run, or this is its own loop's thread.
        """
        return self._thread.run(do, timeout)

    def use(self, do: Callable[[aio.Client], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Do something with the asyncio client, such as a recipe's: ``zk.use(lambda zk: Counter(zk, "/n").add())``.

        Args:
            do: Given the asyncio client, in its loop, gives what to await.
            timeout: Seconds after which it is cancelled and TimeoutError raised.
        """
        return self.run(lambda: do(self.asyncio_client), timeout)

    def states(self) -> Iterator[State]:
        """Iterate the states from now on, the present one first; ends after CLOSED. None is left out."""
        states = self.asyncio_client.states()

        async def ask() -> State | None:
            return await anext(states, None)

        def iterate() -> Iterator[State]:
            with contextlib.suppress(ClosedError):  # its loop has ended
                while not self._thread.has_ended and (state := self.run(ask)) is not None:
                    yield state
            yield from states.rest()

        return iterate()

    def retry(self, do: Callable[[], T], backoff: Backoff | None = None) -> T:
        """Repeat a call while the connection is lost or the server is too busy. Use this only for calls that may be
        applied twice.
        """
        for delay in (backoff or Backoff(tries=5)).delays(self.asyncio_client.rng):
            try:
                return do()
            except (ConnectionLossError, ThrottledOpError):
                threading.Event().wait(delay)
        return do()
