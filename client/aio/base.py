"""A view of a client's core: its life, its state, and how calls are made; the :mod:`.client` adds the operations."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from zoolet.client import serializers
from zoolet.client.aio.call import Call, CompoundCall, RequestCall
from zoolet.client.aio.core import ClientCore
from zoolet.client.aio.hooks import RequestHook
from zoolet.client.serializers import Serializer
from zoolet.client.wire import arguments, operations
from zoolet.client.wire.backoff import Backoff
from zoolet.client.wire.hosts import Hosts
from zoolet.client.wire.kazoo_names import no_such_attribute
from zoolet.client.wire.states import State, StateListener
from zoolet.protocol.acl import ACL, AclList
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import MAX_FRAME
from zoolet.protocol.errors import ClosedError, ConnectionLossError
from zoolet.protocol.operations import OPERATIONS

T = TypeVar("T")
B = TypeVar("B", bound="BaseClient")


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """The activity of a client, for tests and debuggers.

    Args:
        requests_sent: Requests sent in the client's life, pings and the like not counted.
        in_flight: Requests that were sent and are not answered.
        waiting: Requests that wait for a connection, or until the server is less busy.
        background_tasks: Tasks that the client and its recipes run.
        registrations: Watches that the client has.
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
        """Whether no request is under way, and no background task runs."""
        return not (self.in_flight or self.waiting or self.background_tasks)


class BaseClient:
    """A view of a core: the core with an operation timeout, a serializer, an ACL list, and whether a recipe
    uses it; arguments as for :class:`~zoolet.client.aio.client.Client`.
    """

    __slots__ = ("_acl", "_core", "_of_recipe", "_operation_timeout", "_serializer")

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
        session_timeout = arguments.checked_session_timeout(timeout)
        self._operation_timeout = (
            timeout if operation_timeout is None else arguments.checked_operation_timeout(operation_timeout)
        )
        self._serializer = serializers.raw if serializer is None else arguments.checked_serializer(serializer)
        self._acl = arguments.checked_acl(acl)
        self._of_recipe = False
        self._core = ClientCore(
            Hosts.parse(hosts),
            session_timeout,
            read_only=read_only,
            login=arguments.checked_login(login),
            auth=arguments.checked_auth(auth),
            tls=_checked_tls(tls),
            backoff=arguments.checked_backoff(backoff),
            max_request=arguments.checked_max_request(max_request),
            rng=rng or _default_rng(),
            on_request=arguments.checked_hook(on_request),
        )

    @classmethod
    def _view(
        cls,
        core: ClientCore,
        operation_timeout: float,
        serializer: Serializer,
        acl: AclList | None,
        of_recipe: bool,
    ) -> Self:
        self = cls.__new__(cls)
        self._core, self._operation_timeout, self._serializer, self._acl = core, operation_timeout, serializer, acl
        self._of_recipe = of_recipe
        return self

    def __repr__(self) -> str:
        return repr(self._core)

    if not TYPE_CHECKING:  # type checkers would take every name for one that is there

        def __getattr__(self, name: str) -> NoReturn:
            raise no_such_attribute(self, name)

    # --- beginning and end ---

    def begin(self) -> None:
        """Begin to connect, and do not wait for it: calls wait for the connection, each for its operation timeout.

        Raises:
            RuntimeError: It was started before.
        """
        self._core.begin()

    async def first_round(self) -> str:
        """Wait until a server was reached, or all of them have been tried once without success.

        Returns:
            Why the last server was not reached; empty if one was.
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

    async def start(self) -> None:
        """Connect; ``async with`` does this.

        Raises:
            ConnectionLossError: No server was reached within the session timeout; the message says why.
            AuthFailedError: The credentials were refused.
            RuntimeError: It was started before.
        """
        connection = self._core.begin()
        try:
            async with asyncio.timeout(self._core.session_timeout):
                await self.wait_for(State.CONNECTED, State.READ_ONLY)
        except TimeoutError:
            reason = connection.session.last_reason
            await self.aclose()
            text = f"no server was reached within {self._core.session_timeout} s; the last: {reason}"
            raise ConnectionLossError(None, text) from None
        except BaseException:  # cancelled or refused: no connection may be left
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End the session, so that its ephemeral nodes go at once, and the connection; two seconds at most for each."""
        await self._core.aclose()

    async def __aenter__(self: B) -> B:  # not Self: completion in editors takes that for this class
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._core.aclose()

    # --- views ---

    @property
    def serializer(self) -> Serializer:
        """How values become bytes."""
        return self._serializer

    def with_serializer(self, serializer: Serializer) -> Self:
        """Return the same client, with the same session, for values that are written another way.

        Raises:
            TypeError: It is not a serializer.
        """
        checked = arguments.checked_serializer(serializer)
        return self._view(self._core, self._operation_timeout, checked, self._acl, self._of_recipe)

    def with_acl(self, acl: Iterable[ACL] | None) -> Self:
        """Return the same client, with the same session, for nodes that are created with another ACL list.

        Raises:
            TypeError: It is not a list of ACLs.
        """
        checked = arguments.checked_acl(acl)
        return self._view(self._core, self._operation_timeout, self._serializer, checked, self._of_recipe)

    def with_operation_timeout(self, operation_timeout: float) -> Self:
        """Return the same client, with the same session, for calls that wait so many seconds for a connection.

        Raises:
            ValueError: It is negative.
        """
        checked = arguments.checked_operation_timeout(operation_timeout)
        return self._view(self._core, checked, self._serializer, self._acl, self._of_recipe)

    def for_recipe(self) -> Self:
        """Return the same client, with the same session, for a recipe.

        Its calls are sent again while the server is too busy to try them (ThrottledOpError), with pauses from 0.05 to 5
        seconds; calls that are made after one of them may overtake it. Hooks learn that its errors are expected.
        """
        return self._view(self._core, self._operation_timeout, self._serializer, self._acl, True)

    # --- state ---

    @property
    def state(self) -> State:
        """The state of the client."""
        return self._core.session.state

    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
        return self._core.session.id

    @property
    def session_password(self) -> bytes | None:
        """The password with which another client may take the session over."""
        return self._core.session.password

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server has granted, in seconds."""
        return self._core.session.timeout_ms / 1000

    @property
    def last_zxid(self) -> int:
        """The highest zxid that was seen in this session."""
        return self._core.session.last_zxid

    @property
    def terminal_error(self) -> Exception | None:
        """Why no call is taken any more; None while calls are taken."""
        return self._core.terminal_error

    @property
    def last_reason(self) -> str:
        """Why the last connection, or the last try to connect, ended; empty if none did."""
        return self._core.session.last_reason

    @property
    def rng(self) -> Random:
        """The source of randomness."""
        return self._core.rng

    def valid_for(self) -> float:
        """Return for how many seconds the session certainly lives on, if nothing more is received from the server.

        It is counted from the moment at which the newest request that was answered had been sent; the server can only
        have received it later. 0 if nothing is certain.
        """
        core, session = self._core, self._core.session
        if session.id == 0 or core.connection is None or session.terminal_error is not None:
            return 0.0
        return max(0.0, session.last_confirmed + session.timeout_ms / 1000 - core.connection.now())

    def states(self) -> States:
        """Iterate the states from now on, the present one first; ends after CLOSED. None is left out."""
        return States(self._core)

    async def wait_for(self, *states: State) -> State:
        """Wait until the client is in one of these states, and return it.

        Raises:
            ClosedError: It will never be again. It may be another error, if that is why the client closed.
        """
        async for state in self.states():
            if state in states:
                return state
        raise (self.terminal_error or ClosedError()).with_traceback(None)

    def add_listener(self, listener: StateListener) -> None:
        """Notify an object of every new state at once, inside the loop, for as long as something keeps it alive."""
        if not callable(getattr(listener, "on_state", None)):
            raise TypeError(f"a listener has a method on_state(state), and {listener!r} has none; see also states()")
        self._core.add_listener(listener)

    def statistics(self) -> ClientStatistics:
        """Return what the client is doing, for tests and debuggers."""
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

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what this client's recipes share under a key: the first makes it, and it goes with the last."""
        value: T | None = self._core.shared.get(key)
        if value is None:
            value = self._core.shared[key] = make()
        return value

    def spawn(
        self, job: Coroutine[Any, Any, Any], *, on_failure: Callable[[Exception], None] | None = None
    ) -> asyncio.Task[Any]:
        """Run something until it ends or the client is closed; errors that end a session end it silently.

        Any other error is logged with its traceback, and given to *on_failure*.
        """
        return self._core.spawn(job, on_failure=on_failure)

    def new_uuid(self) -> str:
        """Return a random UUID, from this client's source of randomness."""
        bits = f"{self._core.rng.getrandbits(128) & ~(0xF000 << 64) | 0x4000 << 64:032x}"
        return f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"

    def flush(self) -> None:
        """Send the calls that have been made at once, and not at the end of this turn of the loop."""
        self._core.flush()

    # --- calls ---

    def add_chroot(self, path: str) -> str:
        """Return the path as the server names it: below the chroot.

        Raises:
            TypeError: It is not a string.
            ValueError: It is invalid.
        """
        return self._core.add_chroot(path)

    def strip_chroot(self, path: str) -> str:
        """Return the path as the client names it."""
        return self._core.strip_chroot(path)

    def _data(self, value: Any) -> bytes:
        """Encode a value; ``b""`` is the empty node with every serializer.

        Raises:
            TypeError: The serializer does not return bytes.
        """
        if isinstance(value, bytes) and not value:
            return b""
        data = self._serializer.encode(value)
        if not isinstance(data, bytes):
            name = self._serializer.name
            raise TypeError(f"the serializer {name!r} returned {type(data).__name__} for {value!r}, and not bytes")
        return data

    def _call(self, op: int, body: bytes, decode: operations.Decode[T], path: str | None = None) -> RequestCall[T]:
        return self._core.call(op, body, decode, path, self._operation_timeout, None, self._of_recipe)

    def _compound(self, steps: Coroutine[Any, Any, T], first: Call[Any] | None) -> Call[T]:
        return CompoundCall(asyncio.get_running_loop(), steps, first)

    def call(self, operation: str | int, request: Record) -> Call[Any]:
        """Make any request of the table of operations; paths in it are taken as they are, below no chroot.

        Args:
            operation: Its name or op code, see :mod:`zoolet.protocol.operations`.
            request: The record of its request.

        Returns:
            The record of its response.

        Raises:
            ValueError: The operation is unknown.
        """
        row = OPERATIONS[operations.code_of(operation)]
        if row.response is None:
            raise ValueError(f"operation {operation!r} has no response that could be decoded")
        path = getattr(request, row.path, None) if row.path is not None else None
        return self._call(row.code, request.encode(), row.response.decode, path)


def _default_rng() -> Random:
    """Return the source of randomness of the running loop if it has one, so that a simulation repeats; otherwise a new
    one.
    """
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        return Random()
    shared: Random | None = getattr(loop, "client_rng", None)
    return shared if shared is not None else Random()


def _checked_tls(tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the TLS context.

    Raises:
        TypeError: It is not one.
    """
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls must be an ssl.SSLContext, such as ssl.create_default_context(), not {tls!r}")
    return tls


class States(AsyncIterator[State]):
    """The states of a client, one after the other; none is left out."""

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
        """Return the states that were not taken, when no others follow."""
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
