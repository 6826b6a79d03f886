"""Base class of the client for threads: start and close, the thread, and methods that differ from asyncio."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, Self, TypeVar

from ...protocol.errors import ClosedError, ConnectionLossError, ThrottledOpError
from .. import client as async_client
from ..aio.blocks import Block, ExceptionKind, ends_block, entered_block
from ..serializers import V
from ..wire.arguments import checked_retry
from ..wire.backoff import Backoff
from ..wire.kazoo_names import no_such_attribute
from ..wire.states import State
from .loop_thread import LoopThread
from .proxy import Blocking

T = TypeVar("T")
DIRECT_MEMBERS: Final = frozenset(
    """
    add_chroot last_reason last_zxid serializer session_id session_password session_timeout state strip_chroot
    terminal_error transaction watch watch_children watch_data watch_exists with_acl with_operation_timeout
    with_serializer
    """.split()
)
"""Members that do not use the event loop, and are read and called in the caller's thread."""


class BlockingStates(Iterator[State]):
    """An iterator over all states of a client. It skips no state, even if a signal interrupts it."""

    def __init__(self, thread: LoopThread, client: async_client.Client[Any]) -> None:
        self._thread = thread
        # This runs in the loop, where the state cannot change between reading it and registering the listener.
        self._states = thread.call(client.states) if thread.running else client.states()

    def __next__(self) -> State:
        async def ask() -> State | None:
            return await anext(self._states, None)

        async def return_state(state: State | None) -> None:
            if state is not None:
                self._states.return_state(state)

        try:
            state = self._thread.run(ask, undo=return_state)
        except ClosedError:  # the loop has stopped, so it no longer changes the states
            state = self._states.next_nowait()
        if state is None:
            raise StopIteration
        return state


class ThreadClient(Blocking, Generic[V]):
    """A client that runs an asyncio client, created with the same arguments, in a separate thread."""

    asyncio_object: async_client.Client[V]

    __signature__: ClassVar = inspect.signature(async_client.Client)

    def __init__(self, *args: Any, **options: Any) -> None:
        client: async_client.Client[Any] = async_client.Client(*args, **options)
        core = client._core  # the thread must not refer to the client, which a program may drop
        super().__init__(LoopThread(lambda: core.terminal_error, core.aclose), client)
        core.on_drop = self._thread.end

    @property
    def asyncio_client(self) -> async_client.Client[V]:
        """The asyncio client in the separate thread. Use it only in its event loop."""
        return self.asyncio_object

    @property
    def loop_thread(self) -> LoopThread:
        """The thread with the event loop of the asyncio client."""
        return self._thread

    def __dir__(self) -> list[str]:
        return sorted(set(object.__dir__(self)) - async_client.INTERNAL - {"asyncio_class", "of"})

    if not TYPE_CHECKING:  # with __getattr__, type checkers would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            raise no_such_attribute(self, name)

    # --- start and close ---

    def start(self, *, wait: bool = True) -> None:
        """Connect to a server. ``with`` calls this method.

        Args:
            wait: Whether to wait for the connection. If False, the client connects in the background, and each
                operation waits for the connection, at most for its operation timeout.

        Raises:
            ConnectionLossError: No server was reached within the session timeout. The message contains the reason.
            AuthFailedError: A server rejected the credentials.
            RuntimeError: The client was started before, or Python cannot start a thread.
        """
        self._thread.start()
        try:
            self.run(functools.partial(self.asyncio_client.start, wait=wait))
        except BaseException:  # an interrupt by a signal also has to end the session and the thread
            self.close()
            raise

    def close(self) -> None:
        """Close the session and the connection, and stop the thread. ``with`` calls this method at the end."""
        if self._thread.is_current:  # in a finalizer that the garbage collector runs in this thread
            self._thread.post(self._thread.close)
        elif self._thread.running:
            try:
                with contextlib.suppress(ClosedError):  # a different thread may have closed the client
                    self._thread.run_to_completion(self._thread.close)
            finally:
                self._thread.stop()
        elif self._thread.alive:  # the thread is still starting, or an interrupt stopped it
            self._thread.stop()

    def __enter__(self) -> Self:
        block = entered_block(self)
        if block is not None:  # before the start, because a signal may arrive after each call
            self._thread.watch(block, self._thread.close)
        self.start()
        return self

    @ends_block
    def __exit__(
        self, block: Block, kind: ExceptionKind, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._thread.unwatch(block)

    @property
    def runs(self) -> bool:
        """Whether the client was started and not closed."""
        return self._thread.running

    # --- calls ---

    def run(self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Run a coroutine of the asyncio client in its event loop, and wait for the result.

        Args:
            do: Function that returns the coroutine. It is called in the loop.
            timeout: Time limit in seconds; None for no limit.

        Raises:
            ClosedError: The client was closed before or during the call.
            TimeoutError: The coroutine did not complete within *timeout* seconds, and was cancelled.
            RuntimeError: The client is not running, or the call comes from the thread of its loop.
        """
        return self._thread.run(do, timeout)

    def use(self, do: Callable[[async_client.Client[V]], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Use the asyncio client, for example with an asyncio recipe: ``zk.use(lambda zk: Counter(zk, "/n").add())``.

        Args:
            do: Function from the asyncio client to a coroutine. It is called in the loop.
            timeout: Time limit in seconds; None for no limit.

        Raises:
            ClosedError: The client was closed before or during the call.
            TimeoutError: The coroutine did not complete within *timeout* seconds, and was cancelled.
            RuntimeError: The client is not running, or the call comes from the thread of its loop.
        """
        return self.run(lambda: do(self.asyncio_client), timeout)

    def states(self) -> Iterator[State]:
        """Iterate over the states, starting with the current one. No state is skipped, and CLOSED is the last."""
        return BlockingStates(self._thread, self.asyncio_client)

    def retry(self, do: Callable[[], T], backoff: Backoff | None = None) -> T:
        """Repeat a call while the connection is lost or the server is too busy.

        Use this only for calls that may be applied twice.

        Args:
            do: Function that makes the call. It is called for each attempt.
            backoff: Delays between attempts, and their number. The default is five attempts with the usual delays.

        Raises:
            TypeError: *do* is not a function.
            ZooKeeperError: The call failed with a different error, or the last attempt failed.
        """
        for delay in checked_retry(do, backoff).delays(self.asyncio_client._core.rng):
            try:
                return do()
            except (ConnectionLossError, ThrottledOpError):
                threading.Event().wait(delay)
        return do()
