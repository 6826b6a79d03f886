"""The client: one method an operation, and what follows from several."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import ssl
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from itertools import count
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from zoolet.client import serializers
from zoolet.client.backoff import Backoff
from zoolet.client.call import Call
from zoolet.client.connection import Connection
from zoolet.client.hosts import Hosts
from zoolet.client.serializers import Serializer
from zoolet.client.session import Session
from zoolet.client.states import Event, State, WatchOverflowError
from zoolet.client.transaction import Transaction, checked_acl, checked_version, create_request, mode_of
from zoolet.client.watches import Kind, Registration, SubtreeResync
from zoolet.protocol import multi as wire
from zoolet.protocol import paths
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import Record, compiled, pack_int, put_bytes, put_str
from zoolet.protocol.enums import MAX_FRAME, AddWatchMode, WatcherType
from zoolet.protocol.errors import (
    BadVersionError,
    ClosedError,
    ConnectionLossError,
    MarshallingError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NoWatcherError,
    SessionExpiredError,
    ZooKeeperError,
    error_for,
)
from zoolet.protocol.operations import OpCode

if TYPE_CHECKING:
    from zoolet.client.recipes.lock import Lock

T = TypeVar("T")
Stat = r.Stat

_PATHS: Final = 4096
"""Paths whose check and encoding are remembered."""
_NO_WATCH: Final = b"\0"
_WATCH: Final = b"\1"

_running: weakref.WeakSet[Client] = weakref.WeakSet()


class Listener(Protocol):
    """Whoever hears of states."""

    def on_state(self, state: State) -> None:
        """The client stands so now."""
        ...


class _Shared:
    """What a client and those made of it with another patience or codec have in common once it is started."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.connection: Connection | None = None
        self.forgetting: dict[str, Call[None]] = {}
        """Watches that the server is being told to forget, by path."""


class Client:
    """A ZooKeeper client for asyncio; ``async with Client("127.0.0.1:2181") as zk:``.

    A method that is one operation is under way as soon as it is called, so that many can be called and awaited
    together; its result can be awaited or given to ``gather``, ``create_task`` or ``wait_for``.

    What a call does while there is no connection: it waits, up to ``operation_timeout`` seconds. A call that fails
    for want of a connection says one of three things: ConnectionLossError, it may have happened (or, if its
    ``maybe_applied`` is False, it has not); SessionExpiredError, the session in which it was made is over;
    ClosedError, the client was closed. Reads are sent again when a connection is lost, writes never are.

    Args:
        hosts: ``host:port,host:port/chroot``.
        timeout: The session timeout to ask for, in seconds; the server may grant another.
        patience: Seconds that a call waits for a connection; 0 to fail at once. By default as long as *timeout*.
        codec: How values become bytes; see :mod:`zoolet.client.serializers`.
        read_only: Accept a server that has lost its quorum; writes fail there with NotReadOnlyError.
        auth: Credentials to begin with: pairs of scheme and bytes, such as ``("digest", b"user:password")``.
        login: User and password for SASL DIGEST-MD5.
        tls: For connections over TLS; server names are checked as the context says.
        backoff: How long to wait between rounds over all hosts.
        max_request: Bytes of the longest request that is sent; a server cuts off who sends more than its
            ``jute.maxbuffer``.
        random: Where host order, jitter and names of protected nodes come from.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument makes no sense.
    """

    def __init__(
        self,
        hosts: str,
        timeout: float = 10.0,
        *,
        operation_timeout: float | None = None,
        serializer: Serializer = serializers.raw,
        read_only: bool = False,
        auth: tuple[tuple[str, bytes], ...] = (),
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        backoff: Backoff = Backoff(),  # noqa: B008 - it is frozen
        max_request: int = MAX_FRAME,
        rng: Random | None = None,
    ) -> None:
        self._hosts = Hosts.parse(hosts)
        if not isinstance(timeout, int | float) or not 0.001 <= timeout <= 2_147_483:
            raise ValueError(f"timeout is {timeout!r} s; it must be from 0.001 to 2,147,483")
        self._timeout = timeout
        self._operation_timeout = timeout if operation_timeout is None else checked_operation_timeout(operation_timeout)
        self._serializer = checked_serializer(serializer)
        if login is not None and not (len(login) == 2 and all(isinstance(part, str) for part in login)):
            raise TypeError(f"login must be a user and a password, both text, not {login!r}")
        if not isinstance(backoff, Backoff):
            raise TypeError(f"backoff must be a zoolet.client.Backoff, not {backoff!r}")
        if not isinstance(max_request, int) or max_request < 100:
            raise ValueError(f"max_request is {max_request!r} bytes; it must be 100 or more")
        self._tls = tls
        self._backoff = backoff
        self._max_request = max_request
        self.rng = rng or Random()
        self._paths: dict[str, bytes] = {}
        self._chroot = self._hosts.chroot
        self._listeners: weakref.WeakValueDictionary[int, Listener] = weakref.WeakValueDictionary()
        self._listened = count()  # in order, so that a simulated run can be repeated
        self._session = Session(
            round(timeout * 1000),
            self.rng,
            read_only=read_only,
            login=login,
            on_state=self._on_state,
        )
        for scheme, said in checked_auth(auth):
            self._session.add_credential(scheme, said, None)
        self._session.watches.forget = self._forget_watches
        self._shared = _Shared()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._parent: Client = self
        self._forked = False

    def __repr__(self) -> str:
        return f"<zoolet Client {','.join(map(str, self._hosts.addresses))}{self._chroot} {self.state.value}>"

    # --- beginning and end ---

    async def start(self) -> None:
        """Connect; ``async with`` does this.

        Raises:
            ConnectionLossError: No server was reached within the session timeout; it says why.
            AuthFailedError: The credentials were refused.
            RuntimeError: It was started before.
        """
        if self._shared.connection is not None:
            raise RuntimeError("this Client was started before; make another one")
        loop = asyncio.get_running_loop()
        connection = Connection(self._hosts, self._session, loop, self.rng, self._backoff, self._tls)
        self._shared.loop, self._shared.connection = loop, connection
        _running.add(self)
        connection.start()
        try:
            async with asyncio.timeout(self._timeout):
                await self.wait_for(State.CONNECTED, State.READ_ONLY)
        except TimeoutError:
            reason = connection.last_reason
            await self.aclose()
            raise ConnectionLossError(None, f"no server within {self._timeout} s; the last: {reason}") from None
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End the session, so that its ephemeral nodes go at once, and the connection. Takes two seconds or less."""
        if self._forked:
            return
        for job in list(self._tasks):
            job.cancel()
        if self._shared.connection is not None:
            await self._shared.connection.stop()
        elif self._session.terminal_error is None:
            self._session.close("the client was closed")
        _running.discard(self._parent)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # --- how it stands ---

    @property
    def _connection(self) -> Connection | None:
        return self._shared.connection

    @property
    def state(self) -> State:
        """How the client stands now."""
        return self._session.state

    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
        return self._session.id

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server has granted, in seconds."""
        return self._session.timeout_ms / 1000

    @property
    def last_zxid(self) -> int:
        """The highest zxid that was seen in this session."""
        return self._session.last_zxid

    def valid_for(self) -> float:
        """Return for how many seconds the session lives on for certain, if nothing more is heard of the server.

        It is counted from the moment at which the newest request that was answered had been sent; the server can only
        have heard of it later. 0 if nothing is certain.
        """
        if self._session.id == 0 or self._shared.loop is None or self._session.terminal_error is not None:
            return 0.0
        return max(0.0, self._session.last_confirmed + self._session.timeout_ms / 1000 - self._shared.loop.time())

    def states(self) -> AsyncIterator[State]:
        """Iterate the states from now on, the present one first; ends after CLOSED. None is left out."""
        return _States(self._parent)

    async def wait_for(self, *states: State) -> State:
        """Wait until the client is in one of these states, and say in which.

        Raises:
            ClosedError: It will never be again. It may be another error, if that is why the client closed.
        """
        async for state in self.states():
            if state in states:
                return state
        raise self._session.terminal_error or ClosedError()

    def _on_state(self, state: State, why: str) -> None:
        for listener in list(self._listeners.values()):
            listener.on_state(state)
        if state is State.CLOSED:
            for watch in list(self._session.watches):
                watch.wake()

    def add_listener(self, listener: Listener) -> None:
        """Let an object hear of every new state at once, inside the loop, for as long as somebody keeps it alive."""
        self._listeners[next(self._listened)] = listener

    def with_operation_timeout(self, operation_timeout: float) -> Client:
        """Return the same client, with the same session, for calls that wait so many seconds for a connection.

        Raises:
            ValueError: It is negative.
        """
        other = copy.copy(self)
        other._operation_timeout = checked_operation_timeout(operation_timeout)  # noqa: SLF001 - its own kind
        return other

    @property
    def serializer(self) -> Serializer:
        """How values become bytes."""
        return self._serializer

    def with_serializer(self, serializer: Serializer) -> Client:
        """Return the same client, with the same session, for values that are written another way.

        Raises:
            TypeError: It is no codec.
        """
        if serializer is self._serializer:
            return self
        other = copy.copy(self)
        other._serializer = checked_serializer(serializer)  # noqa: SLF001 - its own kind
        return other

    # --- paths and values ---

    def add_chroot(self, path: str) -> str:
        """Return the path as the server names it: below the chroot.

        Raises:
            TypeError: It is no string.
            ValueError: It is not legal.
        """
        if not isinstance(path, str):
            raise TypeError(f"a path must be a string, not {path!r}")
        at = path.rfind("/")
        if path[:at] not in self._paths or not paths.is_valid_name(path[at + 1 :]):  # most parents have been checked
            paths.check(path)
        if not self._chroot:
            return path
        return self._chroot if path == "/" else self._chroot + path

    def strip_chroot(self, path: str) -> str:
        """Return the path as the client names it."""
        if not self._chroot:
            return path
        return path[len(self._chroot) :] or "/" if path.startswith(self._chroot) else path

    def _encoded(self, path: str) -> bytes:
        """Check and encode a path, both at most once while it is remembered."""
        try:
            return self._paths[path]
        except (KeyError, TypeError):
            encoded = put_str(self.add_chroot(path))
        if len(self._paths) >= _PATHS:
            self._paths.clear()
        self._paths[path] = encoded
        return encoded

    def _sequential(self, path: str) -> str:
        """Check the path of a sequential create, which may end with a slash: the number is its last name then."""
        return self.add_chroot(path + "0")[:-1] if isinstance(path, str) else self.add_chroot(path)

    def _data(self, value: Any) -> bytes:
        """Encode a value; ``b""`` is the empty node with every codec.

        Raises:
            TypeError: The codec gives no bytes.
        """
        if isinstance(value, bytes) and not value:
            return b""
        data = self._serializer.encode(value)
        if not isinstance(data, bytes):
            raise TypeError(
                f"the codec {self._serializer.name!r} gave {type(data).__name__} for {value!r}, and not bytes"
            )
        return data

    # --- calls ---

    def _call(
        self,
        op: int,
        body: bytes,
        decode: Callable[[bytes, int, int], T],
        path: str | None = None,
        *,
        again: bool = False,
        then: Callable[[Any, ZooKeeperError | None], None] | None = None,
    ) -> Call[T]:
        shared = self._shared
        connection, loop = shared.connection, shared.loop
        if connection is None or loop is None:
            raise self._session.terminal_error or RuntimeError(
                "this Client was not started; use it as 'async with Client(...) as zk:'"
            )
        if len(body) > self._max_request - 8:
            raise ValueError(
                f"{path}: the request has {len(body) + 8} bytes, and {self._max_request} is the limit (max_request)"
            )
        call = Call(loop, op, body, decode, path, loop.time() + self._operation_timeout, again, then)
        connection.submit(call)
        return call

    def flush(self) -> None:
        """Send the calls that have been made at once, and not at the end of this turn of the loop."""
        if self._shared.connection is not None:
            self._shared.connection.flush()

    # --- reading ---

    def get(self, path: str) -> Call[tuple[Any, Stat]]:
        """Read a node.

        Returns:
            Its value, as the codec reads it (b"" for null), and its Stat.

        Raises:
            NoNodeError: There is none.
            UndecodableError: The codec cannot read what it holds.
        """
        return self._call(OpCode.GET_DATA, self._encoded(path) + _NO_WATCH, self._decode_get(path), path, again=True)

    def _decode_get(self, path: str) -> Callable[[bytes, int, int], tuple[Any, Stat]]:
        if self._serializer is serializers.raw:
            return _decode_raw
        serializer = self._serializer

        def decode(buf: bytes, at: int, stop: int) -> tuple[Any, Stat]:
            found = r.GetDataResponse.decode(buf, at, stop)
            return serializer.read(path, found.data), found.stat

        return decode

    def exists(self, path: str) -> Call[Stat | None]:
        """Return a node's Stat; None if there is no such node."""
        return self._exists(path, _NO_WATCH)

    def _exists(
        self, path: str, watch: bytes, then: Callable[[Any, ZooKeeperError | None], None] | None = None
    ) -> Call[Stat | None]:
        body = self._encoded(path) + watch
        call: Call[Any] = self._call(OpCode.EXISTS, body, _decode_stat, path, again=True, then=then)
        call.fallback = NoNodeError, None
        return call

    def children(self, path: str) -> Call[list[str]]:
        """Return the names of a node's children, in no order that means anything.

        Raises:
            NoNodeError: There is no such node.
        """
        return self._call(OpCode.GET_CHILDREN, self._encoded(path) + _NO_WATCH, _decode_children, path, again=True)

    def children_and_stat(self, path: str) -> Call[tuple[list[str], Stat]]:
        """Return the names of a node's children, and its own Stat.

        Raises:
            NoNodeError: There is no such node.
        """
        return self._call(OpCode.GET_CHILDREN2, self._encoded(path) + _NO_WATCH, _decode_children2, path, again=True)

    def count_below(self, path: str) -> Call[int]:
        """Count the nodes below a node, at any depth (ZooKeeper 3.6 and newer)."""
        return self._call(OpCode.GET_ALL_CHILDREN_NUMBER, self._encoded(path), _decode_number, path, again=True)

    def ephemerals(self, prefix: str = "/") -> Call[list[str]]:
        """Return the paths of this session's ephemeral nodes that start with a prefix (ZooKeeper 3.6 and newer)."""

        def decode(buf: bytes, at: int, stop: int) -> list[str]:
            return [self.strip_chroot(path) for path in r.GetEphemeralsResponse.decode(buf, at, stop).ephemerals]

        return self._call(OpCode.GET_EPHEMERALS, self._encoded(prefix), decode, prefix, again=True)

    def get_acl(self, path: str) -> Call[tuple[AclList, Stat]]:
        """Return who may do what with a node, and its Stat.

        Raises:
            NoNodeError: There is no such node.
        """

        def decode(buf: bytes, at: int, stop: int) -> tuple[AclList, Stat]:
            found = r.GetACLResponse.decode(buf, at, stop)
            return found.acl or (), found.stat

        return self._call(OpCode.GET_ACL, self._encoded(path), decode, path, again=True)

    def sync(self, path: str = "/") -> Call[None]:
        """Wait until the server that serves this client knows all that its leader knew when it was asked."""
        return self._call(OpCode.SYNC, self._encoded(path), _decode_nothing, path, again=True)

    def who_am_i(self) -> Call[list[r.ClientInfo]]:
        """Return the identities that the server knows this client by (ZooKeeper 3.7 and newer)."""

        def decode(buf: bytes, at: int, stop: int) -> list[r.ClientInfo]:
            return r.WhoAmIResponse.decode(buf, at, stop).clientInfo

        return self._call(OpCode.WHO_AM_I, b"", decode, again=True)

    def multi_read(self, *reads: tuple[str, str]) -> Call[list[Any]]:
        """Do several reads in one request (ZooKeeper 3.6 and newer).

        Args:
            *reads: Each ``("get", path)`` or ``("children", path)``.

        Returns:
            For each a value and Stat, or a list of names; or the ZooKeeperError with which it failed.

        Raises:
            ValueError: A read is neither.
        """
        operations: list[tuple[OpCode, Record]] = []
        for kind, path in reads:
            if kind == "get":
                operations.append((OpCode.GET_DATA, r.GetDataRequest(self.add_chroot(path), False)))
            elif kind == "children":
                operations.append((OpCode.GET_CHILDREN, r.GetChildrenRequest(self.add_chroot(path), False)))
            else:
                raise ValueError(f"{kind!r} is no kind of read; 'get' and 'children' are")

        def decode(buf: bytes, at: int, stop: int) -> list[Any]:
            found: list[Any] = []
            results = wire.decode_results(buf, at)
            if len(results) != len(reads):
                raise MarshallingError(detail=f"{len(results)} results for {len(reads)} reads")
            for (_, path), (_, record) in zip(reads, results, strict=True):
                if isinstance(record, r.ErrorResponse):
                    found.append(error_for(record.err, path))
                elif isinstance(record, r.GetDataResponse):
                    found.append((self._serializer.read(path, record.data), record.stat))
                elif isinstance(record, r.GetChildrenResponse):
                    found.append(record.children)
            return found

        return self._call(OpCode.MULTI_READ, wire.encode_operations(operations), decode, again=True)

    # --- writing ---

    def create(
        self,
        path: str,
        value: Any = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: AclList | None = None,
        parents: bool = False,
        protected: bool = False,
    ) -> Coroutine[Any, Any, str]:
        """Make a node.

        Args:
            path: Where; of a sequential node the beginning, which may end with a slash.
            value: What it holds.
            ephemeral: It ends with this session.
            sequential: A number is appended, higher than that of every sibling made before.
            container: It goes away some time after its last child.
            ttl: Seconds without change after which it goes away, from 0.001; the server must offer TTL nodes.
            acl: Who may do what; by default everybody everything.
            parents: Make the nodes above it that are missing.
            protected: Survive the loss of the reply: the name begins with ``_c_``, a unique id and a hyphen, and if the
                connection is lost the node is looked for under that name.

        Returns:
            The path of the node.

        Raises:
            NodeExistsError: There is such a node already.
            NoNodeError: Its parent does not exist.
            NoChildrenForEphemeralsError: Its parent is ephemeral.
            ConnectionLossError: It may have been made; with *protected*, only if no connection came in time.
        """
        make = self._create_call(path, value, ephemeral, sequential, container, ttl, acl, with_stat=False)
        if protected:
            return self._protected(path, value, ephemeral, sequential, container, ttl, acl, parents)
        return self._with_parents(path, make) if parents else make()

    def create_and_stat(
        self,
        path: str,
        value: Any = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: AclList | None = None,
    ) -> Call[tuple[str, Stat]]:
        """Make a node and give its path and Stat; all else is as for :meth:`create` (ZooKeeper 3.5 and newer)."""
        return self._create_call(path, value, ephemeral, sequential, container, ttl, acl, with_stat=True)()

    def _create_call(
        self,
        path: str,
        value: Any,
        ephemeral: bool,
        sequential: bool,
        container: bool,
        ttl: float | None,
        acl: AclList | None,
        *,
        with_stat: bool,
    ) -> Callable[[], Call[Any]]:
        mode = mode_of(ephemeral, sequential, container, ttl)
        where = self._sequential(path) if sequential else self.add_chroot(path)
        request = create_request(where, self._data(value), acl, mode, ttl).encode()
        if container:
            op = OpCode.CREATE_CONTAINER
        elif ttl is not None:
            op = OpCode.CREATE_TTL
        else:
            op = OpCode.CREATE2 if with_stat else OpCode.CREATE

        def decode_path(buf: bytes, at: int, stop: int) -> str:
            return self.strip_chroot(r.CreateResponse.decode(buf, at, stop).path)

        def decode_both(buf: bytes, at: int, stop: int) -> tuple[str, Stat]:
            made = r.Create2Response.decode(buf, at, stop)
            return self.strip_chroot(made.path), made.stat

        decode: Callable[[bytes, int, int], Any] = decode_both if with_stat else decode_path
        return lambda: self._call(op, request, decode, path)

    async def _with_parents(self, path: str, make: Callable[[], Call[str]]) -> str:
        try:
            return await make()
        except NoNodeError:
            await self.ensure_path(paths.parent(path))
        return await make()

    async def _protected(
        self,
        path: str,
        value: Any,
        ephemeral: bool,
        sequential: bool,
        container: bool,
        ttl: float | None,
        acl: AclList | None,
        parents: bool,
    ) -> str:
        above, name = paths.parent(path), path.rpartition("/")[2]
        mark = f"_c_{self.new_uuid()}-"
        make = self._create_call(
            paths.join(above, mark + name), value, ephemeral, sequential, container, ttl, acl, with_stat=False
        )
        return await self.create_protected(above, mark, make, ephemeral=ephemeral, parents=parents)

    def new_uuid(self) -> str:
        """Return a name that nobody has used: a random UUID, from this client's source of chance."""
        bits = f"{self.rng.getrandbits(128) & ~(0xF000 << 64) | 0x4000 << 64:032x}"
        return f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"

    async def create_protected(
        self,
        parent: str,
        mark: str,
        make: Callable[[], Awaitable[str]],
        *,
        ephemeral: bool = True,
        parents: bool = True,
    ) -> str:
        """Make a node that is known by a unique mark in its name, whatever happens to the reply.

        If the caller gives up, a job in the background sees to it that no node is left.

        Args:
            parent: The node above it.
            mark: What stands in its name and in no other's.
            make: Makes it.
            ephemeral: It ends with the session.
            parents: Make the nodes above it that are missing.

        Returns:
            Its path.

        Raises:
            ConnectionLossError: It may have been made; no connection came in time. It is deleted once there is one.
            SessionExpiredError: The session has ended; if the node was ephemeral, it is gone.
        """
        session_id = self.session_id
        sent = False
        try:
            while True:
                try:
                    sent = True
                    return await make()
                except NoNodeError:
                    sent = False
                    if not parents:
                        raise
                    await self.ensure_path(parent)
                except ConnectionLossError as error:
                    if not error.maybe_applied:
                        sent = False
                        raise
                    found = await self._find(parent, mark)
                    if found is not None:
                        return found
                    if ephemeral and session_id and self.session_id != session_id:
                        raise SessionExpiredError(parent, "the session ended while the node was made") from None
        except (SessionExpiredError, ClosedError):
            if not ephemeral and sent and self._session.terminal_error is None:
                self.spawn(self._delete_guaranteed(parent, mark))
            raise
        except BaseException as error:
            if sent and not isinstance(error, NodeExistsError) and self._session.terminal_error is None:
                self.spawn(self._delete_guaranteed(parent, mark))
            raise

    async def _find(self, parent: str, mark: str) -> str | None:
        """Look for a node by its mark, at a server that knows all that was done before."""
        synced = self.sync(parent)
        listed = self.children(parent)
        try:
            await synced
            names = await listed
        except NoNodeError:
            return None
        finally:
            listed.cancel()
        return next((paths.join(parent, name) for name in names if mark in name), None)

    async def _delete_guaranteed(self, parent: str, mark: str) -> None:
        """Delete a node that may have been made, if it takes until the end of the session."""
        while True:
            try:
                found = await self._find(parent, mark)
                if found is not None:
                    await self.delete(found)
                return
            except (NoNodeError, ClosedError):
                return
            except ZooKeeperError:  # whatever it is, it may pass
                await asyncio.sleep(0.1)

    async def delete_guaranteed(self, path: str) -> None:
        """Delete a node for certain, however often the connection is lost, unless the client is closed first."""
        while True:
            try:
                await self.delete(path)
                return
            except (NoNodeError, ClosedError):
                return
            except ZooKeeperError:  # whatever it is, it may pass
                await asyncio.sleep(0.05)

    def spawn(self, job: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something until it ends or the client is closed; errors that end a session end it quietly."""

        async def run() -> None:
            try:
                await job
            except (ClosedError, SessionExpiredError):
                return

        def over(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            job.close()  # if the client was closed before it began

        assert self._shared.loop is not None
        task = self._shared.loop.create_task(run(), name="zoolet-client-job")
        self._tasks.add(task)
        task.add_done_callback(over)
        return task

    async def ensure_path(self, path: str, acl: AclList | None = None) -> None:
        """Make a node and all above it, where they are missing."""
        self.add_chroot(path)
        if path == "/" and not self._chroot:
            return
        try:
            await self._create_call(path, b"", False, False, False, None, acl, with_stat=False)()
        except NodeExistsError:
            return
        except NoAuthError:
            if await self.exists(path) is None:
                raise
        except ConnectionLossError as error:
            if not error.maybe_applied:
                raise
            await self.ensure_path(path, acl)  # twice does no harm
        except NoNodeError:
            if path == "/":
                await self._ensure_chroot(acl)
            else:
                await self.ensure_path(paths.parent(path), acl)
                await self.ensure_path(path, acl)

    async def _ensure_chroot(self, acl: AclList | None) -> None:
        at = 0
        while at != -1:
            at = self._chroot.find("/", at + 1)
            path = self._chroot[: at if at != -1 else None]
            request = r.CreateRequest(path, b"", OPEN_ACL_UNSAFE if acl is None else acl, 0).encode()
            try:
                await self._call(OpCode.CREATE, request, _decode_nothing, path)
            except NodeExistsError:
                continue

    def set(self, path: str, value: Any, version: int = -1) -> Call[Stat]:
        """Replace a node's value.

        Args:
            path: Which node.
            value: The new value.
            version: The version it must have; -1 for any.

        Returns:
            The new Stat.

        Raises:
            NoNodeError: There is no such node.
            BadVersionError: It has another version.
        """
        body = self._encoded(path) + put_bytes(self._data(value)) + pack_int(checked_version(version))
        return self._call(OpCode.SET_DATA, body, _decode_stat, path)

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> Coroutine[Any, Any, None]:
        """Remove a node.

        Args:
            path: Which node.
            version: The version it must have; -1 for any.
            recursive: Remove all below it first; not at once, and what others make meanwhile is removed too.

        Raises:
            NoNodeError: There is no such node.
            BadVersionError: It has another version.
            NotEmptyError: It has children.
        """
        if recursive:
            self.add_chroot(path)
            checked_version(version)
            return self._delete_all(path, version)
        body = self._encoded(path) + pack_int(checked_version(version))
        return self._call(OpCode.DELETE, body, _decode_nothing, path)

    async def _delete_all(self, path: str, version: int) -> None:
        while True:
            for name in await self.children(path):
                try:
                    await self._delete_all(paths.join(path, name), -1)
                except NoNodeError:
                    continue
            try:
                return await self.delete(path, version)
            except NotEmptyError:
                continue

    def set_acl(self, path: str, acl: AclList, version: int = -1) -> Call[Stat]:
        """Replace who may do what with a node.

        Args:
            path: Which node.
            acl: The new list.
            version: The ``aversion`` it must have; -1 for any.
        """
        body = r.SetACLRequest(self.add_chroot(path), checked_acl(acl), checked_version(version)).encode()
        return self._call(OpCode.SET_ACL, body, _decode_stat, path)

    def transaction(self) -> Transaction:
        """Collect operations that happen together or not at all; use it with ``async with``."""

        def commit(body: bytes, count: int) -> Coroutine[Any, Any, list[tuple[int, Record]]]:
            def decode(buf: bytes, at: int, stop: int) -> list[tuple[int, Record]]:
                results = wire.decode_results(buf, at)
                if len(results) != count:
                    raise MarshallingError(detail=f"{len(results)} results for {count} operations")
                return results

            return self._call(OpCode.MULTI, body, decode)

        def add_chroot(path: str, sequential: bool) -> str:
            return self._sequential(path) if sequential else self.add_chroot(path)

        return Transaction(commit, add_chroot, self.strip_chroot, self._data)

    async def update(self, path: str, change: Callable[[Any], Any]) -> tuple[Any, Stat]:
        """Replace a node's value by what a function makes of it, as often as others come in between.

        Args:
            path: Which node.
            change: Gives the new value for the present one, or an awaitable of it; it may be called several times.

        Returns:
            The new value and the new Stat.

        Raises:
            NoNodeError: There is no such node.
            ConnectionLossError: The new value may have been written.
        """
        while True:
            value, stat = await self.get(path)
            new = change(value)
            if inspect.isawaitable(new):
                new = await new
            try:
                return new, await self.set(path, new, stat.version)
            except BadVersionError:
                continue

    async def retry(self, do: Callable[[], Awaitable[T]], backoff: Backoff | None = None) -> T:
        """Do something again for as long as connections are lost. Only for what may be done twice.

        Args:
            do: Makes the call anew each time.
            backoff: How long to wait, and how often to try; by default as the client's, five times.
        """
        backoff = backoff or Backoff(tries=5)
        for delay in backoff.delays(self.rng):
            try:
                return await do()
            except ConnectionLossError:
                await asyncio.sleep(delay)
        return await do()

    # --- who one is ---

    def add_auth(self, scheme: str, auth: bytes) -> Call[None]:
        """Prove something, such as ``("digest", b"user:password")``, now and after each reconnect.

        Raises:
            AuthFailedError: The server does not believe it.
        """
        checked_auth(((scheme, auth),))
        connection, loop = self._shared.connection, self._shared.loop
        if connection is None or loop is None:
            raise self._session.terminal_error or RuntimeError(
                "this Client was not started; give auth=... when making it"
            )
        call = Call(loop, OpCode.AUTH, b"", _decode_nothing, None, loop.time() + self._operation_timeout, False)
        self._session.add_credential(scheme, auth, call)
        connection.wake()
        return call

    # --- the ensemble ---

    def get_config(self) -> Call[tuple[Any, Stat]]:
        """Read the ensemble's configuration, ``/zookeeper/config``, whatever the chroot."""
        body = put_str("/zookeeper/config") + _NO_WATCH
        return self._call(OpCode.GET_DATA, body, _decode_raw, "/zookeeper/config", again=True)

    def reconfig(
        self, joining: str | None = None, leaving: str | None = None, members: str | None = None, version: int = -1
    ) -> Call[tuple[bytes, Stat]]:
        """Change the members of an ensemble.

        Args:
            joining: Servers that join, as ``server.1=host:port:port;port`` separated by commas.
            leaving: Ids of servers that leave, separated by commas.
            members: All servers, in place of the two.
            version: The version that the configuration must have; -1 for any.

        Returns:
            The new configuration and its Stat.
        """
        body = r.ReconfigRequest(joining, leaving, members, version).encode()
        return self._call(OpCode.RECONFIG, body, _decode_raw)

    # --- watches ---

    def watch(self, path: str, *, recursive: bool = False, limit: int = 10_000) -> Watcher:
        """Hear of what happens to a node from now on (ZooKeeper 3.6 and newer)::

            async with zk.watch("/a", recursive=True) as events:
                async for event in events: ...

        Nothing is missed while the client is disconnected, not even between two sessions; what happens to one node
        several times meanwhile is told once.

        Args:
            path: The node; it need not exist.
            recursive: Hear of all nodes below it too; and then of no NODE_CHILDREN_CHANGED: each child tells itself.
            limit: Events that may wait to be taken; one more drops them all and raises WatchOverflowError once.
        """
        return Watcher(self, Kind.RECURSIVE if recursive else Kind.PERSISTENT, path, limit)

    def watch_data(self, path: str) -> Watcher:
        """Read a node and hear of its next change, once::

            async with zk.watch_data("/a") as watch:
                value, stat = watch.found
                event = await watch.next()

        Raises:
            NoNodeError: There is no such node.
        """
        return Watcher(self, Kind.DATA, path, 1)

    def watch_exists(self, path: str) -> Watcher:
        """Find out whether a node exists (``initial`` is its Stat, or None) and hear of its next change, once."""
        return Watcher(self, Kind.EXIST, path, 1)

    def watch_children(self, path: str) -> Watcher:
        """List a node's children (``initial`` is the names) and hear of the next one to come or go, once.

        Raises:
            NoNodeError: There is no such node.
        """
        return Watcher(self, Kind.CHILD, path, 1)

    def check_watches(self, path: str, kind: WatcherType = WatcherType.ANY) -> Call[bool]:
        """Return whether the server has a watch of this client on a node (ZooKeeper 3.5 and newer)."""
        body = self._encoded(path) + pack_int(checked_kind(kind))
        call: Call[bool] = self._call(OpCode.CHECK_WATCHES, body, _decode_true, path, again=True)
        call.fallback = NoWatcherError, False
        return call

    def remove_watches(self, path: str, kind: WatcherType = WatcherType.ANY) -> Call[None]:
        """Let the server forget watches of this client on a node; those who wait for them are not told.

        Raises:
            NoWatcherError: There is none.
        """
        body = self._encoded(path) + pack_int(checked_kind(kind))
        return self._call(OpCode.REMOVE_WATCHES, body, _decode_nothing, path)

    def _forget_watches(self, path: str, kind: WatcherType) -> None:
        """Let the server forget watches that nobody here wants any more; *path* is as the server names it."""
        if self._session.terminal_error is not None:
            return
        body, forgetting = put_str(path) + pack_int(kind), self._shared.forgetting

        def done(call: asyncio.Future[None]) -> None:
            _ignore_result(call)
            forgetting.pop(path, None)

        forgetting[path] = self._call(OpCode.REMOVE_WATCHES, body, _decode_nothing, self.strip_chroot(path))
        forgetting[path].add_done_callback(done)

    # --- recipes ---

    def lock(self, path: str, **options: Any) -> Lock:
        """Return a lock; see :class:`zoolet.client.recipes.Lock`."""
        from zoolet.client.recipes.lock import Lock

        return Lock(self, path, **options)


class Watcher:
    """A watch and its events: an async context manager, and an async iterator inside it.

    At its end the server forgets the watch, unless another one of this client needs it.

    Attributes:
        found: Of a watch that fires once: what was read when it was set.
    """

    def __init__(self, client: Client, kind: Kind, path: str, limit: int) -> None:
        if not isinstance(limit, int) or limit < 1:
            raise ValueError(f"limit is {limit!r}; it must be 1 or more")
        self._client = client
        self._path = path
        self._watch = Registration(kind, client.add_chroot(path), limit, self._wake)
        self._waiters: list[asyncio.Future[None]] = []
        self._ended = False
        self._fires_once = kind in (Kind.DATA, Kind.EXIST, Kind.CHILD)
        self._fired = False
        self._error: Exception | None = None
        self.initial: Any = None

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _pause(self) -> None:
        """Wait until there may be something new."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def __aenter__(self) -> Self:
        try:
            if self._fires_once:
                self.initial = await self._read()
            else:
                await self._register()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def _read(self) -> Call[Any]:
        """Read with the watch flag; the watch is had from the very place of the reply among the events."""
        client, watch = self._client, self._watch
        watches = client._session.watches  # noqa: SLF001 - a part of Client

        def registered(found: Any, error: ZooKeeperError | None) -> None:
            register(found, error)
            watches.settle(watch.path)

        def register(found: Any, error: ZooKeeperError | None) -> None:
            missing = isinstance(error, NoNodeError) and watch.kind is Kind.EXIST
            if self._ended and (error is None or missing):
                watches.left_over(watch.path)
            elif error is None or missing:
                if watch.kind is Kind.EXIST and error is None:
                    watch.kind = Kind.DATA
                watches.add(watch)
                if flag is _WATCH and watches.has(Kind.PERSISTENT, watch.path):
                    self._set_again()

        # Where this client hears of everything already, a 3.8 server would put this watch in the other one's place.
        flag = _NO_WATCH if watches.has(Kind.PERSISTENT, watch.path) else _WATCH
        body = client._encoded(self._path) + flag  # noqa: SLF001
        call = client._call  # noqa: SLF001
        watches.expect(watch.path)
        if watch.kind is Kind.DATA:
            decode = client._decode_get(self._path)  # noqa: SLF001
            return call(OpCode.GET_DATA, body, decode, self._path, again=True, then=registered)
        if watch.kind is Kind.CHILD:
            return call(OpCode.GET_CHILDREN, body, _decode_children, self._path, again=True, then=registered)
        return client._exists(self._path, flag, registered)  # noqa: SLF001

    def _set_again(self) -> None:
        """Set the persistent watch of this path anew: a 3.8 server has just put one that fires once in its place."""
        body = put_str(self._watch.path) + pack_int(AddWatchMode.PERSISTENT)
        call = self._client._call(OpCode.ADD_WATCH, body, _decode_nothing, self._path, again=True)  # noqa: SLF001
        call.add_done_callback(_ignore_result)

    async def _register(self) -> None:
        client, watch = self._client, self._watch
        session = client._session  # noqa: SLF001
        recursive = watch.kind is Kind.RECURSIVE
        counted = False

        def finished() -> None:
            nonlocal counted
            counted = True
            self._wake()

        if recursive:
            watch.census = SubtreeResync(watch, self._ask)
            watch.census.done = finished

        def registered(found: Any, error: ZooKeeperError | None) -> None:
            if error is None and self._ended:
                session.watches.left_over(watch.path)
            elif error is None:
                session.watches.add(watch)
                if watch.census is not None:
                    watch.census.count(None)
            session.watches.settle(watch.path)

        def there(found: Any, error: ZooKeeperError | None) -> None:
            watch.there = error is None

        mode = AddWatchMode.PERSISTENT_RECURSIVE if recursive else AddWatchMode.PERSISTENT
        encoded = client._encoded(self._path)  # noqa: SLF001
        call = client._call  # noqa: SLF001
        session.watches.expect(watch.path)
        added = call(
            OpCode.ADD_WATCH, encoded + pack_int(mode), _decode_nothing, self._path, again=True, then=registered
        )
        if recursive:
            await added
            loop = asyncio.get_running_loop()
            deadline = loop.time() + client._operation_timeout  # noqa: SLF001
            timer = loop.call_at(deadline, self._wake)
            while not counted:
                if session.terminal_error is not None:
                    raise session.terminal_error
                if loop.time() >= deadline and client.state not in (State.CONNECTED, State.READ_ONLY):
                    raise ConnectionLossError(self._path, "there was no connection in time to list what is below it")
                await self._pause()
            timer.cancel()
        else:
            looked = client._exists(self._path, _NO_WATCH, there)  # noqa: SLF001
            try:
                await added
                await looked
            finally:
                looked.cancel()

    def _ask(self, path: str, answered: Callable[[r.GetChildren2Response | None], None]) -> None:
        def then(found: Any, error: ZooKeeperError | None) -> None:
            if error is None:
                answered(found)
            elif isinstance(error, NoNodeError):
                answered(None)
            elif isinstance(error, NoAuthError):
                answered(None)  # it may not be read, so for this watch it is not there
            elif isinstance(error, ConnectionLossError | SessionExpiredError | ClosedError):
                return  # it is all done again on the next connection
            else:  # throttled, or such
                client._shared.loop.call_later(0.1, self._ask, path, answered)  # type: ignore[union-attr] # noqa: SLF001

        client = self._client.with_operation_timeout(3600.0)
        call = client._call(  # noqa: SLF001
            OpCode.GET_CHILDREN2,
            put_str(path) + _NO_WATCH,
            _decode_whole_children2,
            path,
            then=then,
        )
        call.add_done_callback(_ignore_result)

    async def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._wake()
        if self._watch.census is not None:
            self._watch.census.stop()
        client = self._client
        removal = self._forget_at_server(client._session.watches.remove(self._watch))  # noqa: SLF001
        removal = removal or client._shared.forgetting.get(self._watch.path)  # noqa: SLF001
        if removal is None:
            return
        try:
            await asyncio.shield(removal)
        except (NoWatcherError, ConnectionLossError, SessionExpiredError, ClosedError):
            return  # it fired in this very moment, or the server has forgotten it with the connection

    def _forget_at_server(self, kind: WatcherType | None) -> Call[None] | None:
        client = self._client.with_operation_timeout(0.0)
        if kind is None or client._session.terminal_error is not None:  # noqa: SLF001
            return None
        body = put_str(self._watch.path) + pack_int(kind)
        removal = client._call(OpCode.REMOVE_WATCHES, body, _decode_nothing, self._path)  # noqa: SLF001
        removal.add_done_callback(_ignore_result)
        return removal

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event: Event | None = None
        while not self._ended and (event := self._take()) is None:
            if self._error is not None:
                raise self._error
            terminal_error = self._client._session.terminal_error  # noqa: SLF001
            if terminal_error is not None:
                raise terminal_error
            if self._fires_once and self._fired:
                raise StopAsyncIteration
            await self._pause()
        if self._ended or event is None:
            raise StopAsyncIteration
        self._fired = True
        path = self._client.strip_chroot(event.path)
        return event if path == event.path else Event(event.type, path, event.zxid)

    def _take(self) -> Event | None:
        try:
            return self._watch.take()
        except WatchOverflowError as error:
            raise WatchOverflowError(self._path, error.limit) from None

    def fail(self, error: Exception) -> None:
        """Let whoever waits for events get an error in their place, from now on."""
        self._error = error
        self._wake()

    async def next(self) -> Event:
        """Wait for the next event.

        Raises:
            WatchOverflowError: Events were dropped.
            ClosedError: The client was closed.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise RuntimeError("this watch has fired, and fires once; set it again to hear more") from None


def _ignore_result(call: asyncio.Future[Any]) -> None:
    """Record an error that nobody is to hear of."""
    if not call.cancelled():
        call.exception()


class _States:
    """The states of a client, one after the other."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._states = deque([client.state])
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        client.add_listener(self)

    def __aiter__(self) -> Self:
        return self

    def on_state(self, state: State) -> None:
        self._states.append(state)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __anext__(self) -> State:
        if self._over:
            raise StopAsyncIteration
        while not self._states:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        state = self._states.popleft()
        self._over = state is State.CLOSED
        return state


def _invalidate_after_fork(client: Client) -> None:
    """In a forked child: the connection is the parent's; using it here would garble both."""
    client._forked = True  # noqa: SLF001 - a part of Client
    client._session.terminal_error = RuntimeError(  # noqa: SLF001
        "this Client belongs to the process that this one was forked from; make another one here"
    )


def _forked() -> None:
    for client in list(_running):
        _invalidate_after_fork(client)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def checked_operation_timeout(operation_timeout: float) -> float:
    """Return the patience back if it is one.

    Raises:
        ValueError: It is negative or no number.
    """
    if not isinstance(operation_timeout, int | float) or not operation_timeout >= 0:
        raise ValueError(f"patience is {operation_timeout!r} s; it must be 0 or more")
    return operation_timeout


def checked_kind(kind: WatcherType) -> WatcherType:
    """Return the kind of watch back if it is one.

    Raises:
        TypeError: It is no number.
        ValueError: There is no such kind.
    """
    if not isinstance(kind, int):
        raise TypeError(f"kind must be a WatcherType, not {kind!r}")
    return WatcherType(kind)


def checked_auth(auth: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    """Return the credentials back if they are some.

    Raises:
        TypeError: They are not pairs of text and bytes.
    """
    if not isinstance(auth, tuple | list) or not all(
        isinstance(one, tuple | list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], bytes)
        for one in auth
    ):
        raise TypeError(f"auth must be pairs of a scheme and bytes, like ('digest', b'user:password'), not {auth!r}")
    return tuple(auth)


def checked_serializer(serializer: Serializer) -> Serializer:
    """Return the codec back if it is one.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(serializer, Serializer):
        raise TypeError(f"codec must be a zoolet.client.serializers.Codec, not {serializer!r}")
    return serializer


# --- what replies hold ---

_take_data = compiled(r.GetDataResponse).decode
_take_stat = compiled(r.StatResponse).decode


def _decode_raw(buf: bytes, at: int, stop: int) -> tuple[bytes, Stat]:
    found = _take_data(buf, at, stop)
    return found.data or b"", found.stat


def _decode_stat(buf: bytes, at: int, stop: int) -> Stat:
    return _take_stat(buf, at, stop).stat


def _decode_children(buf: bytes, at: int, stop: int) -> list[str]:
    return r.GetChildrenResponse.decode(buf, at, stop).children


def _decode_children2(buf: bytes, at: int, stop: int) -> tuple[list[str], Stat]:
    found = r.GetChildren2Response.decode(buf, at, stop)
    return found.children, found.stat


def _decode_whole_children2(buf: bytes, at: int, stop: int) -> r.GetChildren2Response:
    return r.GetChildren2Response.decode(buf, at, stop)


def _decode_number(buf: bytes, at: int, stop: int) -> int:
    return r.GetAllChildrenNumberResponse.decode(buf, at, stop).totalNumber


def _decode_nothing(buf: bytes, at: int, stop: int) -> None:
    return None


def _decode_true(buf: bytes, at: int, stop: int) -> bool:
    return True
