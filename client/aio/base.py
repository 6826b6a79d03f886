"""The base class of the client: start and close, state, and how calls are made.

The client is one class in two modules, because one module would be too long: :mod:`.client` contains a method for each
ZooKeeper operation, and this module contains everything else.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, Self, TypeVar, overload

from ...protocol.acl import ACL, AclList
from ...protocol.codec import Record
from ...protocol.enums import MAX_FRAME
from ...protocol.errors import ClosedError, ConnectionLossError
from ...protocol.operations import OPERATIONS
from .. import serializers
from ..serializers import Serializer, V
from ..wire import arguments, operations
from ..wire.backoff import Backoff
from ..wire.hosts import Hosts
from ..wire.kazoo_names import no_such_attribute
from ..wire.states import State
from .call import Call, CompoundCall, RequestCall
from .core import ClientCore
from .hooks import RequestHook

if TYPE_CHECKING:  # the only import cycle, for the class of views
    from .client import Client

T = TypeVar("T")
B = TypeVar("B", bound="BaseClient[Any]")

INTERNAL: Final = frozenset({"add_chroot", "first_round", "strip_chroot"})
"""Members of the client that are only for the commands of this package."""


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """The activity of a client, for tests and debugging.

    Args:
        requests_sent: Requests sent since the client was started, without pings and other internal requests.
        in_flight: Requests that were sent but not answered yet.
        waiting: Requests that wait for a connection, or until the server is less busy.
        background_tasks: Running tasks of the client and its recipes.
        registrations: Active watches of the client.
        connected: Whether there is a connection now.
        keeps_connecting: Whether the task that keeps the session connected runs.
    """

    requests_sent: int
    in_flight: int
    waiting: int
    background_tasks: int
    registrations: int
    connected: bool
    keeps_connecting: bool

    @property
    def idle(self) -> bool:
        """Whether no request is pending and no background task is running."""
        return not (self.in_flight or self.waiting or self.background_tasks)


class BaseClient(Generic[V]):
    """A view of a core with its own operation timeout, serializer, ACL list, and a flag for use by a recipe.

    The arguments are the same as for :class:`~zoolet.client.aio.client.Client`.
    """

    __slots__ = ("_acl", "_core", "_of_recipe", "_operation_timeout", "_recipe_view", "_serializer")

    @overload
    def __init__(  # type: ignore[misc] # mypy expects BaseClient, but then Client[int](hosts) would pass
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

    def __init__(
        self,
        hosts: str,
        timeout: float = 10.0,
        *,
        operation_timeout: float | None = None,
        serializer: Serializer[Any] | None = None,
        acl: Iterable[ACL] | None = None,
        read_only: bool = False,
        auth: tuple[tuple[str, bytes], ...] = (),
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        backoff: Backoff = Backoff(),  # noqa: B008 - a Backoff is immutable
        max_request: int = MAX_FRAME,
        on_request: RequestHook | None = None,
        rng: Random | None = None,
    ) -> None:
        session_timeout = arguments.checked_session_timeout(timeout)
        self._operation_timeout = (
            timeout if operation_timeout is None else arguments.checked_operation_timeout(operation_timeout)
        )
        self._serializer: Serializer[Any] = (
            serializers.raw if serializer is None else arguments.checked_serializer(serializer)
        )
        self._acl = arguments.checked_acl(acl)
        self._of_recipe = False
        self._recipe_view: Self | None = None
        self._core = ClientCore(
            Hosts.parse(hosts),
            session_timeout,
            read_only=arguments.checked_flag("read_only", read_only),
            login=arguments.checked_login(login),
            auth=arguments.checked_auth(auth),
            tls=_checked_tls(tls),
            backoff=arguments.checked_backoff(backoff),
            max_request=arguments.checked_max_request(max_request),
            rng=rng or _default_rng(),
            on_request=arguments.checked_hook(on_request),
        )

    __init__.__qualname__ = "Client.__init__"  # the name in the error for an unexpected argument

    @classmethod
    def _view(
        cls,
        core: ClientCore,
        operation_timeout: float,
        serializer: Serializer[Any],
        acl: AclList | None,
        of_recipe: bool,
    ) -> Self:
        self = cls.__new__(cls)
        self._core, self._operation_timeout, self._serializer, self._acl = core, operation_timeout, serializer, acl
        self._of_recipe, self._recipe_view = of_recipe, None
        return self

    def __repr__(self) -> str:
        return repr(self._core)

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in INTERNAL]

    if not TYPE_CHECKING:  # with __getattr__, type checkers would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            raise no_such_attribute(self, name)

    # --- start and close ---

    async def first_round(self) -> str:
        """Wait until a server is reached, or all servers have been tried once without success.

        Commands that should not wait for the operation timeout call this before their first request.

        Returns:
            The reason why the last server was not reached; empty if one was reached.
        """
        connection, _ = self._core.connected_loop()
        reached = asyncio.ensure_future(self.wait_for(State.CONNECTED, State.READ_ONLY))
        either: list[asyncio.Future[Any]] = [reached, connection.round_failed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not reached.done():
                return connection.session.last_reason
            await reached
            return ""
        finally:
            reached.cancel()

    async def start(self, *, wait: bool = True) -> None:
        """Connect; ``async with`` does this.

        Args:
            wait: Whether to wait for the connection. Without it, the client connects in the background, and each
                operation waits for the connection, at most for its operation timeout.

        Raises:
            ConnectionLossError: No server was reached within the session timeout. The message contains the reason.
            AuthFailedError: A server rejected the credentials.
            RuntimeError: The client was started before.
        """
        connection = self._core.start()
        if not wait:
            return
        try:
            async with asyncio.timeout(self._core.session_timeout):
                await self.wait_for(State.CONNECTED, State.READ_ONLY)
        except TimeoutError:
            reason = connection.session.last_reason
            await self.aclose()
            text = f"no server was reached within {self._core.session_timeout} s; last attempt: {reason}"
            raise ConnectionLossError(None, text) from None
        except BaseException:  # no connection may stay open after a cancellation or a rejected login
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the session, which deletes its ephemeral nodes, and the connection. Each takes at most one second."""
        await self._core.aclose()

    async def __aenter__(self: B) -> B:  # not Self, because editors would complete the names of this class only
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._core.aclose()

    # --- views ---

    @property
    def serializer(self) -> Serializer[V]:
        """The serializer that converts between values and bytes."""
        return self._serializer

    def with_serializer(self, serializer: Serializer[T]) -> Client[T]:
        """Return a view of this client, with the same session, that uses *serializer*.

        Raises:
            TypeError: *serializer* is not a ``Serializer``.
        """
        if serializer is self._serializer:
            return self  # type: ignore[return-value] # T is V
        checked = arguments.checked_serializer(serializer)
        view = self._view(self._core, self._operation_timeout, checked, self._acl, self._of_recipe)
        return view  # type: ignore[return-value] # the view has a different serializer

    def with_acl(self, acl: Iterable[ACL] | None) -> Self:
        """Return a view of this client, with the same session, that creates nodes with a different ACL list.

        Raises:
            TypeError: *acl* is not a list of ACL entries.
        """
        checked = arguments.checked_acl(acl)
        return self._view(self._core, self._operation_timeout, self._serializer, checked, self._of_recipe)

    def with_operation_timeout(self, operation_timeout: float) -> Self:
        """Return a view of this client, with the same session, whose calls wait up to *operation_timeout* seconds for a
        connection.

        Raises:
            ValueError: *operation_timeout* is negative or not a number.
        """
        checked = arguments.checked_operation_timeout(operation_timeout)
        return self._view(self._core, checked, self._serializer, self._acl, self._of_recipe)

    def _for_recipe(self) -> Self:
        """Return a view of this client, with the same session, for a recipe.

        Its calls are sent again while the server is too busy to try them (ThrottledOpError), with pauses from 0.05 to 5
        seconds. Later calls may overtake a repeated call. Hooks are informed that its errors are expected.
        """
        if self._of_recipe:
            return self
        view = self._recipe_view  # kept, because a block of a lock makes a new Lock each time
        if view is None:
            view = self._view(self._core, self._operation_timeout, self._serializer, self._acl, True)
            self._recipe_view = view
        return view

    # --- state ---

    @property
    def state(self) -> State:
        """The state of the client."""
        return self._core.session.state

    @property
    def session_id(self) -> int:
        """The id of the session; 0 without a session."""
        return self._core.session.id

    @property
    def session_password(self) -> bytes | None:
        """The password that another client needs to take over the session."""
        return self._core.session.password

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server granted, in seconds."""
        return self._core.session.timeout_ms / 1000

    @property
    def last_zxid(self) -> int:
        """The highest zxid seen in this session."""
        return self._core.session.last_zxid

    @property
    def terminal_error(self) -> Exception | None:
        """The error that all calls raise once the client cannot be used any more; None before."""
        return self._core.terminal_error

    @property
    def last_reason(self) -> str:
        """Reason why the last connection or attempt to connect failed or was closed; empty if there was none."""
        return self._core.session.last_reason

    def valid_for(self) -> float:
        """Return the number of seconds that the session certainly survives, even without another reply from the server.

        They are counted from the time when the newest answered request was sent, because the server can only have
        received that request later. The number is 0 if nothing is certain.
        """
        return self._core.valid_for()

    def states(self) -> States:
        """Iterate the states, starting with the current one. No state is skipped, and CLOSED is the last."""
        return States(self._core)

    async def wait_for(self, *states: State) -> State:
        """Wait until the client is in one of these states, and return it.

        Raises:
            ClosedError: The client was closed, so it will not reach any of the states.
            ZooKeeperError: The client closed because of this error, such as AuthFailedError.
            TypeError: *states* is empty, or contains something other than a State.
            RuntimeError: The client was not started.
        """
        if not states or not all(isinstance(state, State) for state in states):
            raise TypeError(f"states must be one or more of State, such as State.CONNECTED, not {states!r}")
        self._core.connected_loop()  # a client that was not started never changes its state
        async for state in self.states():
            if state in states:
                return state
        raise (self.terminal_error or ClosedError()).with_traceback(None)

    def statistics(self) -> ClientStatistics:
        """Return the current activity of the client, for tests and debugging."""
        core, session, connection = self._core, self._core.session, self._core.connection
        return ClientStatistics(
            requests_sent=session.requests_sent,
            in_flight=len(session.inflight),
            waiting=len(session.waiting) + len(core.postponed),
            background_tasks=len(core.tasks),
            registrations=sum(1 for _ in session.watches),
            connected=connection is not None and connection.connected,
            keeps_connecting=connection is not None and connection.running,
        )

    # --- calls ---

    def add_chroot(self, path: str) -> str:
        """Return the path on the server, which includes the chroot.

        Raises:
            TypeError: *path* is not a string.
            ValueError: *path* is not a valid path.
        """
        return self._core.add_chroot(path)

    def strip_chroot(self, path: str) -> str:
        """Return the path without the chroot, as the client uses it."""
        return self._core.strip_chroot(path)

    def _data(self, value: V | Literal[b""], path: str) -> bytes:
        """Encode a value for a node. With every serializer, ``b""`` is an empty node.

        Raises:
            TypeError: The serializer does not support the type of the value, or does not return bytes.
            ValueError: The serializer does not support the value.
        """
        if isinstance(value, bytes) and not value:
            return b""
        serializer = self._serializer
        try:
            data = serializer.encode(value)
        except (TypeError, ValueError) as error:
            if serializer is serializers.raw:  # its message is complete
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            text = f"{path}: value must be supported by the serializer {serializer.name!r}, not {value!r:.80}: {error}"
            raise kind(text) from error
        if not isinstance(data, bytes):
            name = serializer.name
            raise TypeError(f"serializer {name!r} must return bytes, not {type(data).__name__}, for {value!r}")
        return data

    def _call(self, op: int, body: bytes, decode: operations.Decode[T], path: str | None = None) -> RequestCall[T]:
        return self._core.call(op, body, decode, path, self._operation_timeout, None, self._of_recipe)

    def _compound(self, steps: Coroutine[Any, Any, T], first: Call[Any] | None) -> Call[T]:
        return CompoundCall(asyncio.get_running_loop(), steps, first)

    def call(self, operation: str | int, request: Record) -> Call[Any]:
        """Send any request of the table of operations. Its paths are used unchanged, without the chroot.

        Args:
            operation: Name or op code of the operation, see :mod:`zoolet.protocol.operations`.
            request: The record of the request.

        Returns:
            The record of the response.

        Raises:
            ValueError: The operation is unknown or has no response.
        """
        row = OPERATIONS[operations.code_of(operation)]
        if row.response is None:
            raise ValueError(f"operation {operation!r} has no response to decode")
        path = getattr(request, row.path, None) if row.path is not None else None
        return self._call(row.code, request.encode(), row.response.decode, path)


def _default_rng() -> Random:
    """Return the random generator of the running loop, which makes simulations reproducible, or else a new one."""
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        return Random()
    shared: Random | None = getattr(loop, "client_rng", None)
    return shared if shared is not None else Random()


def _checked_tls(tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the TLS context.

    Raises:
        TypeError: *tls* is not an ``ssl.SSLContext``.
    """
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        example = (
            f"ssl.create_default_context(cafile={tls!r})" if isinstance(tls, str) else "ssl.create_default_context()"
        )
        raise TypeError(f"tls must be an ssl.SSLContext, such as {example}, not {tls!r}")
    return tls


class States(AsyncIterator[State]):
    """An iterator over the states of a client that skips none."""

    def __init__(self, core: ClientCore) -> None:
        self._states = deque([core.session.state])
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        core.add_listener(self)

    def __aiter__(self) -> Self:
        return self

    def on_state(self, state: State) -> None:
        """Receive the client's state."""
        self._states.append(state)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def rest(self) -> list[State]:
        """End the iteration, and return the states that were not taken yet."""
        rest, self._over = [] if self._over else list(self._states), True
        return rest

    async def __anext__(self) -> State:
        if self._over:
            raise StopAsyncIteration
        while not self._states:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        state = self._states.popleft()
        self._over = state is State.CLOSED
        return state
