"""The operations of a client: a method for each ZooKeeper operation, and methods that combine several."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from ...protocol import paths
from ...protocol import records as r
from ...protocol.acl import ACL, AclList
from ...protocol.codec import Record, put_bytes, put_str
from ...protocol.enums import WatcherType
from ...protocol.errors import ConnectionLossError, NoNodeError, NoWatcherError, ThrottledOpError
from ...protocol.operations import OpCode
from ..serializers import Serializer, V
from ..wire import arguments, operations
from ..wire.backoff import Backoff
from ..wire.operations import NO_WATCH, PLAIN_NODE, NewNode
from ..wire.transaction import Transaction
from ..wire.watches import WatchKind
from . import compound, reliable
from .call import Call, RequestCall
from .view import View
from .watcher import Watcher

T = TypeVar("T")
Stat = r.Stat


class BaseClient(View[V]):
    """The operations of a client. Recipes accept it.

    Programs create a :class:`~zoolet.client.client.Client`, which adds the constructor, start and close, waiting for
    states, and locks.
    """

    __slots__ = ()

    def with_serializer(self, serializer: Serializer[T]) -> BaseClient[T]:
        """Return a view of this client, with the same session, that uses *serializer*.

        Raises:
            TypeError: *serializer* is not a ``Serializer``.
        """
        view: BaseClient[T] = self._with_serializer(serializer)
        return view

    # --- reading ---

    def get(self, path: str) -> Call[tuple[V, Stat]]:
        """Read a node.

        Returns:
            The node's value, decoded by the serializer (b"" for null), and its Stat.

        Raises:
            NoNodeError: The node does not exist.
            UndecodableError: The serializer cannot decode the node's data.
        """
        decode = operations.decode_data(path, self._serializer)
        return self._call(OpCode.GET_DATA, self._core.encoded_path(path) + NO_WATCH, decode, path)

    def exists(self, path: str) -> Call[Stat | None]:
        """Return a node's Stat; None if the node does not exist."""
        body = self._core.encoded_path(path) + NO_WATCH
        call: RequestCall[Any] = self._call(OpCode.EXISTS, body, operations.decode_stat, path)
        call.fallback = NoNodeError, None
        return call

    def children(self, path: str) -> Call[list[str]]:
        """Return the names of a node's children, in arbitrary order.

        Raises:
            NoNodeError: The node does not exist.
        """
        body = self._core.encoded_path(path) + NO_WATCH
        return self._call(OpCode.GET_CHILDREN, body, operations.decode_children, path)

    def children_and_stat(self, path: str) -> Call[tuple[list[str], Stat]]:
        """Return the names of a node's children, and the node's Stat.

        Raises:
            NoNodeError: The node does not exist.
        """
        body = self._core.encoded_path(path) + NO_WATCH
        return self._call(OpCode.GET_CHILDREN2, body, operations.decode_children_and_stat, path)

    def count_below(self, path: str) -> Call[int]:
        """Return the number of nodes below a node, at any depth (ZooKeeper 3.6 and newer).

        Raises:
            NoNodeError: The node does not exist.
        """
        body = self._core.encoded_path(path)
        return self._call(OpCode.GET_ALL_CHILDREN_NUMBER, body, operations.decode_count, path)

    def ephemerals(self, prefix: str = "/") -> Call[list[str]]:
        """Return the paths of this session's ephemeral nodes that start with a prefix (ZooKeeper 3.6 and newer)."""
        decode = operations.decode_paths(self._core.strip_chroot)
        return self._call(OpCode.GET_EPHEMERALS, self._core.encoded_path(prefix), decode, prefix)

    def get_acl(self, path: str) -> Call[tuple[AclList, Stat]]:
        """Return a node's ACL list and its Stat.

        Raises:
            NoNodeError: The node does not exist.
        """
        return self._call(OpCode.GET_ACL, self._core.encoded_path(path), operations.decode_acl, path)

    def sync(self, path: str = "/") -> Call[None]:
        """Wait until this client's server has applied all changes that the leader knew when it received the request."""
        return self._call(OpCode.SYNC, self._core.encoded_path(path), operations.decode_nothing, path)

    def who_am_i(self) -> Call[list[r.ClientInfo]]:
        """Return the identities of this client at the server (ZooKeeper 3.7 and newer)."""
        return self._call(OpCode.WHO_AM_I, b"", operations.decode_identities)

    def multi_read(self, *reads: tuple[str, str]) -> Call[list[Any]]:
        """Do several reads in one request (ZooKeeper 3.6 and newer).

        Args:
            *reads: Pairs ``("get", path)`` or ``("children", path)``.

        Returns:
            The result of each read: a value and Stat, a list of names, or the ZooKeeperError of a failed read.

        Raises:
            ValueError: A read is neither ``"get"`` nor ``"children"``.
        """
        body = operations.multi_read_request(reads, self._core.add_chroot)
        return self._call(OpCode.MULTI_READ, body, operations.decode_multi_read(reads, self._serializer))

    # --- writing ---

    def create(
        self,
        path: str,
        value: V | Literal[b""] = b"",
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
            value: The value of the node, which the serializer encodes.
            ephemeral: Delete the node when this session ends.
            sequential: Append a number that is higher than the numbers of all siblings created before.
            container: Delete the node some time after its last child is deleted.
            ttl: Delete the node when it has had no children and no change for this many seconds, at least 0.001. TTL
                nodes must be enabled on the server.
            acl: ACL list of the node. The default is the client's list, or else all permissions for everyone.
            parents: Create missing parents.
            protected: Find the node again if the reply to its creation is lost. Its name gets the prefix ``_c_``, a
                unique id and a hyphen. If another client has deleted the node by then, it is created a second time.

        Returns:
            The path of the node.

        Raises:
            NodeExistsError: The node already exists.
            NoNodeError: The parent does not exist.
            NoChildrenForEphemeralsError: The parent is ephemeral.
            ConnectionLossError: The node may have been created. With *protected*, it is deleted later in that case.
            ValueError: The path or *ttl* is invalid, or the arguments exclude each other.
        """
        node = NewNode.of(ephemeral, sequential, container, ttl)
        decode = operations.decode_path(self._core.strip_chroot)
        if not (parents or protected):
            return self._call(*self._create_request(node, path, value, acl, sequential), decode, path)
        client = self._for_recipe()
        new_path, parent, protection_id = path, "", ""
        if protected:
            check = self._core.sequential_path if sequential else self._core.add_chroot
            check(path)  # after a protection id, even "." would be a valid name
            parent, protection_id = paths.parent(path), f"_c_{self._core.new_uuid()}-"
            new_path = paths.join(parent, protection_id + paths.name(path))
        create = partial(client._call, *self._create_request(node, new_path, value, acl, sequential), decode, new_path)
        first = create()
        pending = [first]  # the first attempt has already started

        def attempt() -> Awaitable[str]:
            return pending.pop() if pending else create()

        if protected:
            steps = reliable.create_protected(
                client,
                parent,
                protection_id,
                attempt,
                create_parent=client.ensure_path if parents else None,
                ephemeral=ephemeral,
            )
            return self._compound_call(steps, first, partial(reliable.delete_in_background, client))
        return self._compound_call(compound.create_with_parents(client, path, attempt), first)

    def _create_request(
        self,
        node: NewNode,
        path: str,
        value: V | Literal[b""],
        acl: Iterable[ACL] | None,
        sequential: bool = False,
        with_stat: bool = False,
    ) -> tuple[OpCode, bytes]:
        """Check the arguments, and return the op code and the body of the request that creates a node."""
        below_chroot = self._core.sequential_path(path) if sequential else self._core.add_chroot(path)
        checked = self._acl if acl is None else arguments.checked_acl(acl)
        op, request = node.request(below_chroot, self._data(value, path), checked, with_stat=with_stat)
        return op, request.encode()

    def create_and_stat(
        self,
        path: str,
        value: V | Literal[b""] = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Iterable[ACL] | None = None,
    ) -> Call[tuple[str, Stat]]:
        """Create a node like :meth:`create`, and return its path and Stat (ZooKeeper 3.5 and newer)."""
        node = NewNode.of(ephemeral, sequential, container, ttl)
        decode = operations.decode_path_and_stat(self._core.strip_chroot)
        return self._call(*self._create_request(node, path, value, acl, sequential, with_stat=True), decode, path)

    def ensure_path(self, path: str, acl: Iterable[ACL] | None = None) -> Call[None]:
        """Create a node and its parents, unless they exist.

        Args:
            path: The path of the node.
            acl: ACL list of the created nodes. The default is the client's list, or else all permissions for everyone.
                Missing nodes of the chroot always get the default.

        Raises:
            NoAuthError: A node is missing, and the client may not create it.
        """
        client = self._for_recipe()

        def create(path: str) -> Call[None]:
            return client._call(*self._create_request(PLAIN_NODE, path, b"", acl), operations.decode_nothing, path)

        def create_chroot(path: str) -> Call[None]:  # the path on the server
            op, request = PLAIN_NODE.request(path, b"", self._acl)
            return client._call(op, request.encode(), operations.decode_nothing, path)

        first = create(path) if path != "/" or self._core.chroot else None
        return self._compound_call(compound.ensure_path(client, path, create, create_chroot, first), first)

    def set(self, path: str, value: V | Literal[b""], version: int = -1) -> Call[Stat]:
        """Replace a node's value.

        Args:
            path: The path of the node.
            value: The new value.
            version: The version that the node must have; -1 for any.

        Returns:
            The new Stat.

        Raises:
            NoNodeError: The node does not exist.
            BadVersionError: The node has a different version.
        """
        version_bytes = operations.encode_version(version)
        body = self._core.encoded_path(path) + put_bytes(self._data(value, path)) + version_bytes
        return self._call(OpCode.SET_DATA, body, operations.decode_stat, path)

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> Call[None]:
        """Delete a node.

        Args:
            path: The path of the node.
            version: The version that the node must have; -1 for any.
            recursive: Delete all descendants first, including nodes that other clients create during the deletion. This
                is not atomic.

        Raises:
            NoNodeError: The node does not exist.
            BadVersionError: The node has a different version.
            NotEmptyError: The node has children, and *recursive* is False.
        """
        version_bytes = operations.encode_version(version)
        if recursive:
            arguments.checked_flag("recursive", recursive)
            client = self._for_recipe()
            listed = client.children(path)
            return self._compound_call(compound.delete_subtree(client, path, version, listed), listed)
        return self._call(OpCode.DELETE, self._core.encoded_path(path) + version_bytes, operations.decode_nothing, path)

    def _delete_own(self, path: str) -> Call[None]:
        """Delete a node whose path came from the server. The path is neither checked (it is valid) nor cached."""
        body = put_str(self._core.chroot + path) + operations.ANY_VERSION
        return self._call(OpCode.DELETE, body, operations.decode_nothing, path)

    def set_acl(self, path: str, acl: Iterable[ACL], version: int = -1) -> Call[Stat]:
        """Replace a node's ACL list.

        Args:
            path: The path of the node.
            acl: The new list.
            version: The ``aversion`` that the node must have; -1 for any.

        Returns:
            The new Stat.

        Raises:
            NoNodeError: The node does not exist.
            BadVersionError: The node has a different ``aversion``.
        """
        below_chroot = self._core.add_chroot(path)
        checked = arguments.checked_acl(() if acl is None else acl)
        body = r.SetACLRequest(below_chroot, checked, arguments.checked_version(version)).encode()
        return self._call(OpCode.SET_ACL, body, operations.decode_stat, path)

    def transaction(
        self, *, guards: Sequence[str] = (), guard_failed: Callable[[], Exception] | None = None
    ) -> Transaction[V]:
        """Return a transaction for ``async with``, whose operations are applied together or not at all.

        Args:
            guards: Nodes that must exist when the server applies the transaction.
            guard_failed: Function that returns the error to raise if a guard does not exist.
        """
        core = self._core

        def commit(body: bytes, count: int) -> Call[list[tuple[int, Record]]]:
            return self._call(OpCode.MULTI, body, operations.decode_results(count))

        def add_chroot(path: str, sequential: bool) -> str:
            return core.sequential_path(path) if sequential else core.add_chroot(path)

        return Transaction(commit, add_chroot, core.strip_chroot, self._data, self._acl, guards, guard_failed)

    def update(self, path: str, change: Callable[[V], V | Awaitable[V]]) -> Call[tuple[V, Stat]]:
        """Replace a node's value with the result of *change*. Retry if the node has changed since the value was read.

        Args:
            path: The path of the node.
            change: Function, sync or async, from the current value to the new one. It may be called several times.

        Returns:
            The new value and the new Stat.

        Raises:
            NoNodeError: The node does not exist.
            ConnectionLossError: The new value may have been written.
            TypeError: *change* is not a function.
        """
        arguments.checked_function("change", change)
        client = self._for_recipe()
        reading = client.get(path)
        return self._compound_call(compound.update(client, path, change, reading), reading)

    async def retry(self, do: Callable[[], Awaitable[T]], backoff: Backoff | None = None) -> T:
        """Repeat a call while the connection is lost or the server is too busy. Use this only for calls that may
        be applied twice.

        Args:
            do: Function that makes the call. It is called for each attempt.
            backoff: Delays between attempts, and their number. The default is five attempts with the usual delays.

        Raises:
            TypeError: *do* is not a function.
            ZooKeeperError: The call failed with a different error, or the last attempt failed.
        """
        for delay in arguments.checked_retry(do, backoff).delays(self._core.rng):
            try:
                return await do()
            except (ConnectionLossError, ThrottledOpError):
                await asyncio.sleep(delay)
        return await do()

    # --- authentication, and the ensemble ---

    def add_auth(self, scheme: str, auth: bytes) -> Call[None]:
        """Authenticate, for example with ``("digest", b"user:password")``, now and after each reconnect.

        Raises:
            AuthFailedError: The server rejects the credential.
        """
        arguments.checked_auth(((scheme, auth),))
        return self._core.add_auth(scheme, auth, self._operation_timeout)

    def get_config(self) -> Call[tuple[bytes, Stat]]:
        """Read the ensemble's configuration in ``/zookeeper/config``, regardless of the chroot."""
        body = put_str(paths.CONFIG) + NO_WATCH
        return self._call(OpCode.GET_DATA, body, operations.decode_raw, paths.CONFIG)

    def reconfig(
        self, joining: str | None = None, leaving: str | None = None, members: str | None = None, version: int = -1
    ) -> Call[tuple[bytes, Stat]]:
        """Change the members of an ensemble.

        Args:
            joining: Servers that join, as ``server.1=host:port:port;port`` separated by commas.
            leaving: Ids of servers that leave, separated by commas.
            members: The complete list of servers, instead of *joining* and *leaving*.
            version: The version that the configuration must have; -1 for any.

        Returns:
            The new configuration and its Stat.
        """
        body = r.ReconfigRequest(joining, leaving, members, version).encode()
        return self._call(OpCode.RECONFIG, body, operations.decode_raw)

    # --- watches ---

    def _watcher(self, kind: WatchKind, path: str, limit: int) -> Watcher[Any]:
        return Watcher(self._owner, self._serializer, self._operation_timeout, kind, path, limit, self._of_recipe)

    def watch(self, path: str, *, recursive: bool = False, limit: int = 10_000) -> Watcher[None]:
        """Receive the future events of a node (ZooKeeper 3.6 and newer)::

            async with zk.watch("/a", recursive=True) as events:
                async for event in events: ...

        No change is missed while the client is disconnected, not even between two sessions. Several changes of one node
        during that time are delivered as one event.

        Args:
            path: The node, which need not exist.
            recursive: Also receive the events of all nodes below it. In that case, NODE_CHILDREN_CHANGED is not
                sent, because each child has its own events.
            limit: Maximum number of waiting events. One more event drops them all and raises WatchOverflowError once.
        """
        return self._watcher(WatchKind.RECURSIVE if recursive else WatchKind.PERSISTENT, path, limit)

    def watch_data(self, path: str) -> Watcher[tuple[V, Stat]]:
        """Read a node and receive its next change, once::

            async with zk.watch_data("/a") as watch:
                value, stat = watch.initial
                event = await watch.next()

        Raises:
            NoNodeError: The node does not exist.
        """
        return self._watcher(WatchKind.DATA, path, 1)

    def watch_exists(self, path: str) -> Watcher[Stat | None]:
        """Check whether a node exists, and receive one event at its next change: creation, new value or deletion.

        ``initial`` is the node's Stat, or None if the node does not exist.
        """
        return self._watcher(WatchKind.EXIST, path, 1)

    def watch_children(self, path: str) -> Watcher[list[str]]:
        """List a node's children, and receive one event when a child is created or deleted, or the node is deleted.

        ``initial`` contains the names of the children.

        Raises:
            NoNodeError: The node does not exist.
        """
        return self._watcher(WatchKind.CHILD, path, 1)

    def check_watches(self, path: str, kind: WatcherType = WatcherType.ANY) -> Call[bool]:
        """Return whether the server has a watch of this client on a node (ZooKeeper 3.5 and newer)."""
        number = arguments.checked_watcher_type(kind)
        body = operations.watch_request(self._core.encoded_path(path), number)
        call: RequestCall[bool] = self._call(OpCode.CHECK_WATCHES, body, operations.decode_true, path)
        call.fallback = NoWatcherError, False
        return call

    def remove_watches(self, path: str, kind: WatcherType = WatcherType.ANY) -> Call[None]:
        """Remove watches of this client on a node from the server. Their watchers are not notified.

        Raises:
            NoWatcherError: The client has no such watch.
        """
        number = arguments.checked_watcher_type(kind)
        body = operations.watch_request(self._core.encoded_path(path), number)
        return self._call(OpCode.REMOVE_WATCHES, body, operations.decode_nothing, path)
