"""The asyncio client for programs: the constructor, start and close, waiting for states, and locks.

Recipes need a client, and :meth:`Client.lock` returns a recipe. That is why the operations are in another class,
:class:`~zoolet.client.aio.operations.BaseClient`, which recipes can import.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import cache
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar, overload

from ..protocol.acl import ACL
from ..protocol.enums import MAX_FRAME
from ..protocol.errors import ClosedError, ConnectionLossError
from ..protocol.recipe_names import Namings
from . import serializers
from .aio.core import ClientCore, Owner
from .aio.hooks import RequestHook
from .aio.operations import BaseClient
from .serializers import Serializer, V
from .wire import arguments
from .wire.backoff import Backoff
from .wire.hosts import Hosts
from .wire.kazoo_names import no_such_attribute
from .wire.requests import copy_error
from .wire.states import State

if TYPE_CHECKING:
    from .recipes._lock_base import OnLost
    from .recipes.lock import Lock, Release
else:
    Lock = OnLost = Release = Any  # for get_type_hints

T = TypeVar("T")
C = TypeVar("C", bound="Client[Any]")

INTERNAL: Final = frozenset({"add_chroot", "first_round", "strip_chroot"})
"""Members of the client that only the commands of this package use. ``dir()`` does not list them."""


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
        keeps_connecting: Whether the task that keeps the session connected is running.
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


class Client(BaseClient[V]):
    """A ZooKeeper client for asyncio: ``async with Client("127.0.0.1:2181") as zk:``.

    A call starts when its method is called, so you can make many calls and await them together. A method returns a
    :class:`~zoolet.client.aio.call.Call`, which you can await or pass to ``gather``, ``create_task`` or ``wait_for``.

    While the client is not connected, a call waits for up to ``operation_timeout`` seconds. A call that fails because
    the connection is missing raises one of three errors:

    - ConnectionLossError: the request may have been applied. If ``maybe_applied`` is False, it was not.
    - SessionExpiredError: the session of the call has expired.
    - ClosedError: the client was closed.

    If a connection is lost, reads are sent again. Writes never are, except protected creates and the parents that
    ``ensure_path()`` and ``create(parents=True)`` create.

    Args:
        hosts: ``host:port,host:port/chroot``, or ``unix:/path`` for a unix socket.
        timeout: The session timeout to request, in seconds. The server may grant a different one.
        operation_timeout: Seconds that a call waits for a connection; 0 to fail immediately. The default is *timeout*.
        serializer: Serializer for values; None for plain bytes. See :mod:`zoolet.client.serializers`.
        acl: ACL list of new nodes, including nodes of recipes. The default is all permissions for everyone. See
            :mod:`zoolet.client.acl`.
        read_only: Whether to accept a server that has lost its quorum. Writes fail there with NotReadOnlyError.
        auth: Initial credentials: pairs of scheme and bytes, such as ``("digest", b"user:password")``.
        login: User and password for SASL DIGEST-MD5.
        tls: TLS context for the connections, for example from ``ssl.create_default_context()``. It determines whether
            server names are checked.
        backoff: Delays between rounds over all servers. While there is a session, they are shortened to keep it.
        max_request: Maximum size of a request in bytes. A server disconnects a client that sends more than the server's
            ``jute.maxbuffer``.
        on_request: Hook that is called for each request, for metrics and traces. See :mod:`zoolet.client.aio.hooks`.
        rng: Random generator for host order, jitter and names of protected nodes.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is invalid.
    """

    __slots__ = ()

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
        if operation_timeout is not None:
            timeout = arguments.checked_operation_timeout(operation_timeout)
        serializer = serializers.raw if serializer is None else arguments.checked_serializer(serializer)
        new_acl = arguments.checked_acl(acl)
        core = ClientCore(
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
        self._set_options(Owner(core), serializer, new_acl, timeout, of_recipe=False)

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in INTERNAL]

    if not TYPE_CHECKING:  # with __getattr__, type checkers would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            raise no_such_attribute(self, name)

    # --- start and close ---

    async def start(self, *, wait: bool = True) -> None:
        """Connect to a server. ``async with`` calls this method.

        Args:
            wait: Whether to wait for the connection. If False, the client connects in the background, and each
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

    async def __aenter__(self: C) -> C:  # not Self, because editors would complete the names of this class only
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._core.aclose()

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

    # --- views ---

    def with_serializer(self, serializer: Serializer[T]) -> Client[T]:
        """Return a view of this client, with the same session, that uses *serializer*.

        Raises:
            TypeError: *serializer* is not a ``Serializer``.
        """
        view: Client[T] = self._with_serializer(serializer)
        return view

    # --- states ---

    def states(self) -> States:
        """Iterate over the states, starting with the current one. No state is skipped, and CLOSED is the last."""
        return States(self._owner)

    async def wait_for(self, *states: State) -> State:
        """Wait until the client is in one of these states, and return that state.

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
        raise copy_error(self.terminal_error or ClosedError())

    def statistics(self) -> ClientStatistics:
        """Return the current activity of the client, for tests and debugging."""
        core, session, connection = self._core, self._core.session, self._core.connection
        return ClientStatistics(
            requests_sent=session.last_xid,
            in_flight=len(session.inflight),
            waiting=len(session.waiting) + len(session.parked) + len(core.postponed),
            background_tasks=len(core.tasks),
            registrations=sum(1 for _ in session.watches),
            connected=connection is not None and connection.connected,
            keeps_connecting=connection is not None and connection.running,
        )

    # --- recipes ---

    def lock(
        self,
        path: str,
        *,
        timeout: float | None = None,
        naming: Namings = "kazoo",
        on_lost: OnLost = "cancel",
        reentrant: bool = False,
        revocable: bool = False,
        release: Release = "send",
        data: bytes | None = None,
        acl: Iterable[ACL] | None = None,
    ) -> Lock:
        """Return a lock; see :class:`zoolet.client.recipes.Lock`."""
        return _lock_class()(
            self,
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


@cache
def _lock_class() -> type[Lock]:
    """Return the class of locks. It is imported late, because a shell command does not need recipes."""
    from .recipes.lock import Lock

    return Lock


def _default_rng() -> Random:
    """Return the random generator of a simulated event loop, which makes the run reproducible, or else a new one."""
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        return Random()
    shared: Random | None = getattr(loop, "client_rng", None)
    return shared if shared is not None else Random()


def _checked_tls(tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return *tls* unchanged if it is an SSL context or None.

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
    """An iterator over all states of a client, including states that lasted only briefly."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._states = deque([owner.core.session.state])
        self._changed = asyncio.Event()
        self._is_finished = False
        owner.core.add_listener(self)

    def __aiter__(self) -> Self:
        return self

    def on_state(self, state: State) -> None:
        """Add a new state of the client to the iteration."""
        self._states.append(state)
        self._changed.set()

    def return_state(self, state: State) -> None:
        """Put back *state*, the last state that was returned. The iterator returns it again."""
        self._states.appendleft(state)
        self._is_finished = False
        self._changed.set()

    def next_nowait(self) -> State | None:
        """Return the next state without waiting; None if the state has not changed, or after CLOSED."""
        if self._is_finished or not self._states:
            return None
        state = self._states.popleft()
        self._is_finished = state is State.CLOSED
        return state

    async def __anext__(self) -> State:
        while (state := self.next_nowait()) is None:
            if self._is_finished:
                raise StopAsyncIteration
            self._owner.core.check_loop()
            self._changed.clear()
            await self._changed.wait()
        return state
