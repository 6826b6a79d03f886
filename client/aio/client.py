"""The client: a method for each operation, and what follows from several."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from zoolet.client.aio import compound, reliable
from zoolet.client.aio.base import BaseClient
from zoolet.client.aio.call import Call, RequestCall
from zoolet.client.aio.watcher import Watcher
from zoolet.client.wire import arguments, operations
from zoolet.client.wire.backoff import Backoff
from zoolet.client.wire.operations import NO_WATCH
from zoolet.client.wire.transaction import Transaction
from zoolet.client.wire.watches import Kind
from zoolet.protocol import paths
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, AclList
from zoolet.protocol.codec import Record, pack_int, put_bytes, put_str
from zoolet.protocol.enums import WatcherType
from zoolet.protocol.errors import ConnectionLossError, NoNodeError, NoWatcherError, ThrottledOpError
from zoolet.protocol.operations import OpCode

if TYPE_CHECKING:
    from zoolet.client.recipes._lock_base import OnLost
    from zoolet.client.recipes._node_names import Namings
    from zoolet.client.recipes.lock import Lock, Release

T = TypeVar("T")
Stat = r.Stat


class Client(BaseClient):
    """A ZooKeeper client for asyncio; ``async with Client("127.0.0.1:2181") as zk:``.

    A call is under way as soon as its method returns, so that many can be made and awaited together; its result is a
    :class:`~zoolet.client.aio.call.Call`, which can be awaited or given to ``gather``, ``create_task`` or ``wait_for``.

    While there is no connection a call waits, up to ``operation_timeout`` seconds. A call that fails because there is
    no connection says one of three things: ConnectionLossError, it may have happened (or, if its ``maybe_applied`` is
    False, it has not); SessionExpiredError, the session in which it was made is over; ClosedError, the client was
    closed. Reads are sent again when a connection is lost, writes never are.

    Args:
        hosts: ``host:port,host:port/chroot``, or ``unix:/path`` for a unix socket.
        timeout: The session timeout to request, in seconds; the server may grant another.
        operation_timeout: Seconds that a call waits for a connection; 0 to fail at once. By default as *timeout*.
        serializer: How values become bytes; None for bytes as they are. See :mod:`zoolet.client.serializers`.
        acl: The ACL list of the nodes that it creates, those of recipes too; by default everybody has all permissions.
            See :mod:`zoolet.client.acl`.
        read_only: Accept a server that has lost its quorum; writes fail there with NotReadOnlyError.
        auth: Credentials to begin with: pairs of scheme and bytes, such as ``("digest", b"user:password")``.
        login: User and password for SASL DIGEST-MD5.
        tls: For connections over TLS, from ``ssl.create_default_context()`` or the like; server names are checked as
            it says.
        backoff: How long to wait between rounds over all hosts.
        max_request: Bytes of the longest request that is sent; a server disconnects a client that sends more than its
            ``jute.maxbuffer``.
        on_request: Called for each request, for metrics and traces; see :mod:`zoolet.client.aio.hooks`.
        rng: Where host order, jitter and names of protected nodes come from.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is invalid.
    """

    __slots__ = ()

    # --- reading ---

    def get(self, path: str) -> Call[tuple[Any, Stat]]:
        """Read a node.

        Returns:
            Its value, as the serializer reads it (b"" for null), and its Stat.

        Raises:
            NoNodeError: There is none.
            UndecodableError: The serializer cannot read what it holds.
        """
        decode = operations.decode_data(path, self._serializer)
        return self._call(OpCode.GET_DATA, self._core.encoded_path(path) + NO_WATCH, decode, path)

    def exists(self, path: str) -> Call[Stat | None]:
        """Return a node's Stat; None if there is no such node."""
        body = self._core.encoded_path(path) + NO_WATCH
        call: RequestCall[Any] = self._call(OpCode.EXISTS, body, operations.decode_stat, path)
        call.fallback = NoNodeError, None
        return call

    def children(self, path: str) -> Call[list[str]]:
        """Return the names of a node's children, in no order that means anything.

        Raises:
            NoNodeError: There is no such node.
        """
        body = self._core.encoded_path(path) + NO_WATCH
        return self._call(OpCode.GET_CHILDREN, body, operations.decode_children, path)

    def children_and_stat(self, path: str) -> Call[tuple[list[str], Stat]]:
        """Return the names of a node's children, and its own Stat.

        Raises:
            NoNodeError: There is no such node.
        """
        body = self._core.encoded_path(path) + NO_WATCH
        return self._call(OpCode.GET_CHILDREN2, body, operations.decode_children_and_stat, path)

    def count_below(self, path: str) -> Call[int]:
        """Count the nodes below a node, at any depth (ZooKeeper 3.6 and newer)."""
        body = self._core.encoded_path(path)
        return self._call(OpCode.GET_ALL_CHILDREN_NUMBER, body, operations.decode_count, path)

    def ephemerals(self, prefix: str = "/") -> Call[list[str]]:
        """Return the paths of this session's ephemeral nodes that start with a prefix (ZooKeeper 3.6 and newer)."""
        decode = operations.decode_paths(self._core.strip_chroot)
        return self._call(OpCode.GET_EPHEMERALS, self._core.encoded_path(prefix), decode, prefix)

    def get_acl(self, path: str) -> Call[tuple[AclList, Stat]]:
        """Return a node's ACL list and its Stat.

        Raises:
            NoNodeError: There is no such node.
        """
        return self._call(OpCode.GET_ACL, self._core.encoded_path(path), operations.decode_acl, path)

    def sync(self, path: str = "/") -> Call[None]:
        """Wait until the server that serves this client knows all that its leader knew when it was asked."""
        return self._call(OpCode.SYNC, self._core.encoded_path(path), operations.decode_nothing, path)

    def who_am_i(self) -> Call[list[r.ClientInfo]]:
        """Return the identities that the server knows this client by (ZooKeeper 3.7 and newer)."""
        return self._call(OpCode.WHO_AM_I, b"", operations.decode_identities)

    def multi_read(self, *reads: tuple[str, str]) -> Call[list[Any]]:
        """Do several reads in one request (ZooKeeper 3.6 and newer).

        Args:
            *reads: Each ``("get", path)`` or ``("children", path)``.

        Returns:
            For each a value and Stat, or a list of names; or the ZooKeeperError with which it failed.

        Raises:
            ValueError: A read is neither.
        """
        body = operations.multi_read_request(reads, self._core.add_chroot)
        return self._call(OpCode.MULTI_READ, body, operations.decode_multi_read(reads, self._serializer))

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
        acl: Iterable[ACL] | None = None,
        parents: bool = False,
        protected: bool = False,
    ) -> Call[str]:
        """Create a node.

        Args:
            path: The path of the node. The server appends a number to the path of a sequential node, which may end with
                a slash.
            value: The value of the node, as the serializer writes it.
            ephemeral: Delete the node when this session ends.
            sequential: Append a number that is higher than those of all siblings created before.
            container: Delete the node some time after its last child was deleted.
            ttl: Delete the node when it had no children and was not changed for this many seconds, at least 0.001. The
                server has to allow TTL nodes.
            acl: The ACL list; by default the client's, and without one everybody has all permissions.
            parents: Create missing parents.
            protected: Find the node again if the reply to its creation is lost. Its name gets the prefix ``_c_``, a
                unique id and a hyphen.

        Returns:
            The path of the node.

        Raises:
            NodeExistsError: The node exists already.
            NoNodeError: The parent does not exist.
            NoChildrenForEphemeralsError: The parent is ephemeral.
            ConnectionLossError: The node may have been created. With *protected*, it is deleted later if so.
        """
        if (parents or protected) and not self._of_recipe:
            options: dict[str, Any] = {"ephemeral": ephemeral, "sequential": sequential, "container": container}
            options |= {"ttl": ttl, "acl": acl, "parents": parents, "protected": protected}
            return self.for_recipe().create(path, value, **options)
        parent = protection_id = ""
        protected_path = path
        if protected:
            check = self._core.sequential_path if sequential else self._core.add_chroot
            check(path)  # behind a protection id, even "." would be a valid name
            parent, protection_id = paths.parent(path), f"_c_{self.new_uuid()}-"
            protected_path = paths.join(parent, protection_id + paths.name(path))
        create = self._creator(protected_path, value, ephemeral, sequential, container, ttl, acl)
        first = create()
        if not (parents or protected):
            return first
        pending = [first]  # the first try is under way already

        def attempt() -> Awaitable[str]:
            return pending.pop() if pending else create()

        if protected:
            steps = reliable.create_protected(
                self,
                parent,
                protection_id,
                attempt,
                create_parent=self.ensure_path if parents else None,
                ephemeral=ephemeral,
            )
            return self._compound(steps, first)
        return self._compound(compound.create_with_parents(self, path, attempt), first)

    def _creator(
        self,
        path: str,
        value: Any,
        ephemeral: bool,
        sequential: bool,
        container: bool,
        ttl: float | None,
        acl: Iterable[ACL] | None,
    ) -> Callable[[], Call[str]]:
        """Return what makes the request of a create, once a call."""
        core = self._core
        mode = operations.create_mode(ephemeral, sequential, container, ttl)
        below_chroot = core.sequential_path(path) if sequential else core.add_chroot(path)
        op, request = operations.create_request(below_chroot, self._data(value), self._acl_of(acl), mode, ttl)
        body = request.encode()
        return lambda: self._call(op, body, operations.decode_path(core.strip_chroot), path)

    def _acl_of(self, acl: Iterable[ACL] | None) -> AclList | None:
        return self._acl if acl is None else arguments.checked_acl(acl)

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
    ) -> Call[tuple[str, Stat]]:
        """Create a node and return its path and Stat; all else is as for :meth:`create` (ZooKeeper 3.5 and newer)."""
        core = self._core
        mode = operations.create_mode(ephemeral, sequential, container, ttl)
        below_chroot = core.sequential_path(path) if sequential else core.add_chroot(path)
        op, request = operations.create_request(
            below_chroot, self._data(value), self._acl_of(acl), mode, ttl, with_stat=True
        )
        return self._call(op, request.encode(), operations.decode_path_and_stat(core.strip_chroot), path)

    def ensure_path(self, path: str, acl: Iterable[ACL] | None = None) -> Call[None]:
        """Create a node and its parents, unless they exist."""
        if not self._of_recipe:
            return self.for_recipe().ensure_path(path, acl)

        def create(path: str) -> Call[str]:
            return self._creator(path, b"", False, False, False, None, acl)()

        first = create(path) if path != "/" or self._core.chroot else None
        return self._compound(compound.ensure_path(self, path, create, self._create_chroot, first), first)

    def _create_chroot(self, path: str) -> Call[None]:
        """Create a node of the chroot; *path* is as the server names it."""
        mode = operations.create_mode(False, False, False, None)
        op, request = operations.create_request(path, b"", self._acl, mode, None)
        return self._call(op, request.encode(), operations.decode_nothing, path)

    def set(self, path: str, value: Any, version: int = -1) -> Call[Stat]:
        """Replace a node's value.

        Args:
            path: The path of the node.
            value: The new value.
            version: The version that the node must have; -1 for any.

        Returns:
            The new Stat.

        Raises:
            NoNodeError: There is no such node.
            BadVersionError: It has another version.
        """
        version_bytes = pack_int(arguments.checked_version(version))
        body = self._core.encoded_path(path) + put_bytes(self._data(value)) + version_bytes
        return self._call(OpCode.SET_DATA, body, operations.decode_stat, path)

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> Call[None]:
        """Delete a node.

        Args:
            path: The path of the node.
            version: The version that the node must have; -1 for any.
            recursive: Delete all descendants first, also those that others create meanwhile. This is not atomic.

        Raises:
            NoNodeError: There is no such node.
            BadVersionError: It has another version.
            NotEmptyError: It has children.
        """
        version_bytes = pack_int(arguments.checked_version(version))
        if recursive:
            if not self._of_recipe:
                return self.for_recipe().delete(path, version, recursive=True)
            listed = self.children(path)
            return self._compound(compound.delete_all(self, path, version, listed), listed)
        return self._call(OpCode.DELETE, self._core.encoded_path(path) + version_bytes, operations.decode_nothing, path)

    def set_acl(self, path: str, acl: Iterable[ACL], version: int = -1) -> Call[Stat]:
        """Replace a node's ACL list.

        Args:
            path: The path of the node.
            acl: The new list.
            version: The ``aversion`` that the node must have; -1 for any.
        """
        below_chroot = self._core.add_chroot(path)
        checked = arguments.checked_acl(() if acl is None else acl)
        body = r.SetACLRequest(below_chroot, checked, arguments.checked_version(version)).encode()
        return self._call(OpCode.SET_ACL, body, operations.decode_stat, path)

    def transaction(
        self, *, guards: Sequence[str] = (), guard_failed: Callable[[], Exception] | None = None
    ) -> Transaction:
        """Collect operations that are applied together or not at all; use it with ``async with``.

        Args:
            guards: Nodes that have to exist when the server applies it.
            guard_failed: Returns the error of a commit that fails because one does not.
        """
        core = self._core

        def commit(body: bytes, count: int) -> Call[list[tuple[int, Record]]]:
            return self._call(OpCode.MULTI, body, operations.decode_results(count))

        def add_chroot(path: str, sequential: bool) -> str:
            return core.sequential_path(path) if sequential else core.add_chroot(path)

        return Transaction(commit, add_chroot, core.strip_chroot, self._data, self._acl, guards, guard_failed)

    def update(self, path: str, change: Callable[[Any], Any]) -> Call[tuple[Any, Stat]]:
        """Replace a node's value by a function of it; try again if others changed the value meanwhile.

        Args:
            path: The path of the node.
            change: Returns the new value, or an awaitable of it, for the present value. It may be called several times.

        Returns:
            The new value and the new Stat.

        Raises:
            NoNodeError: There is no such node.
            ConnectionLossError: The new value may have been written.
        """
        if not self._of_recipe:
            return self.for_recipe().update(path, change)
        reading = self.get(path)
        return self._compound(compound.update(self, path, change, reading), reading)

    async def retry(self, do: Callable[[], Awaitable[T]], backoff: Backoff | None = None) -> T:
        """Repeat a call while the connection is lost or the server is too busy. Use this only for calls that may be
        applied twice.

        Args:
            do: Makes the call; called for each attempt.
            backoff: The delays between attempts, and their number; by default five attempts with the usual delays.
        """
        if backoff is not None and not isinstance(backoff, Backoff):
            raise TypeError(f"backoff must be a Backoff, not {backoff!r}; write lambda: zk.get(path)")
        for delay in (backoff or Backoff(tries=5)).delays(self._core.rng):
            try:
                return await do()
            except (ConnectionLossError, ThrottledOpError):
                await asyncio.sleep(delay)
        return await do()

    # --- authentication, and the ensemble ---

    def add_auth(self, scheme: str, auth: bytes) -> Call[None]:
        """Authenticate, for instance with ``("digest", b"user:password")``, now and after each reconnect.

        Raises:
            AuthFailedError: The server refuses it.
        """
        arguments.checked_auth(((scheme, auth),))
        return self._core.add_auth(scheme, auth, self._operation_timeout)

    def get_config(self) -> Call[tuple[Any, Stat]]:
        """Read the ensemble's configuration, ``/zookeeper/config``, whatever the chroot."""
        body = put_str(paths.CONFIG) + NO_WATCH
        return self._call(OpCode.GET_DATA, body, operations.decode_raw, paths.CONFIG)

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
        return self._call(OpCode.RECONFIG, body, operations.decode_raw)

    # --- watches ---

    def _watcher(self, kind: Kind, path: str, limit: int) -> Watcher:
        return Watcher(self._core, self._serializer, self._operation_timeout, kind, path, limit, self._of_recipe)

    def watch(self, path: str, *, recursive: bool = False, limit: int = 10_000) -> Watcher:
        """Receive the events of a node from now on (ZooKeeper 3.6 and newer)::

            async with zk.watch("/a", recursive=True) as events:
                async for event in events: ...

        No change is missed while the client is disconnected, not even between two sessions. Several changes of one node
        during that time are delivered as one event.

        Args:
            path: The node; it need not exist.
            recursive: Receive events of all nodes below it too, and then no NODE_CHILDREN_CHANGED: each child has
                its own.
            limit: Events that may wait to be taken; one more drops them all and raises WatchOverflowError once.
        """
        return self._watcher(Kind.RECURSIVE if recursive else Kind.PERSISTENT, path, limit)

    def watch_data(self, path: str) -> Watcher:
        """Read a node and receive its next change, once::

            async with zk.watch_data("/a") as watch:
                value, stat = watch.initial
                event = await watch.next()

        Raises:
            NoNodeError: There is no such node.
        """
        return self._watcher(Kind.DATA, path, 1)

    def watch_exists(self, path: str) -> Watcher:
        """Find out whether a node exists (``initial`` is its Stat, or None) and receive its next change, once."""
        return self._watcher(Kind.EXIST, path, 1)

    def watch_children(self, path: str) -> Watcher:
        """List a node's children (``initial`` is the names) and receive the next one's coming or going, once.

        Raises:
            NoNodeError: There is no such node.
        """
        return self._watcher(Kind.CHILD, path, 1)

    def check_watches(self, path: str, kind: WatcherType = WatcherType.ANY) -> Call[bool]:
        """Return whether the server has a watch of this client on a node (ZooKeeper 3.5 and newer)."""
        number = arguments.checked_watcher_type(kind)
        body = operations.watch_request(self._core.encoded_path(path), number)
        call: RequestCall[bool] = self._call(OpCode.CHECK_WATCHES, body, operations.decode_true, path)
        call.fallback = NoWatcherError, False
        return call

    def remove_watches(self, path: str, kind: WatcherType = WatcherType.ANY) -> Call[None]:
        """Remove watches of this client on a node from the server; their watchers are not notified.

        Raises:
            NoWatcherError: The client has no such watch.
        """
        number = arguments.checked_watcher_type(kind)
        body = operations.watch_request(self._core.encoded_path(path), number)
        return self._call(OpCode.REMOVE_WATCHES, body, operations.decode_nothing, path)

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
        from zoolet.client.recipes.lock import Lock  # with all that recipes need: a command of the shell needs none

        return Lock(
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
