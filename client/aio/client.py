"""The client."""

from __future__ import annotations

from collections.abc import Iterable

from zoolet.client.aio.surface import ClientSurface
from zoolet.client.recipes._lock_base import OnLost
from zoolet.client.recipes._node_names import Namings
from zoolet.client.recipes.lock import Lock, Release
from zoolet.protocol.acl import ACL


class Client(ClientSurface):
    """A ZooKeeper client for asyncio; ``async with Client("127.0.0.1:2181") as zk:``.

    A call is under way as soon as its method returns, so that many can be made and awaited together; its result is a
    :class:`~zoolet.client.aio.call.Call`, which can be awaited or given to ``gather``, ``create_task`` or ``wait_for``.

    While there is no connection a call waits, up to ``operation_timeout`` seconds. A call that fails because there is
    no connection says one of three things: ConnectionLossError, it may have happened (or, if its ``maybe_applied`` is
    False, it has not); SessionExpiredError, the session in which it was made is over; ClosedError, the client was
    closed. Reads are sent again when a connection is lost, writes never are.

    Args:
        hosts: ``host:port,host:port/chroot``.
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
