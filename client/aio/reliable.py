"""Building blocks of recipes: deletes and creates that survive lost replies, and retries.

The loops of recipes wait for a change, lead again, or try again because another client was faster (NoNodeError,
NodeExistsError, BadVersionError). A recipe catches ConnectionLossError in a loop only to check whether a write was
applied, or to keep waiting after an outage: ``observe`` in ``recipes/_follow.py``, Master and TwoPhaseCommit. Otherwise
it uses

- :func:`delete_guaranteed` and :func:`create_protected` (Curator's guaranteed delete and withProtection),
- :func:`repeat` for requests that may be repeated until they are answered, and :func:`repeat_despite_errors` for
  requests that may be repeated until they succeed,
- the time limits of :mod:`zoolet.client.aio.limits`,
- the background tasks of :mod:`zoolet.client.aio.supervision`, and its :func:`first_event` for several watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...protocol import paths
from ...protocol.errors import (
    AuthFailedError,
    ClosedError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    UnimplementedError,
    ZooKeeperError,
)
from ..wire.backoff import REFUSAL_BACKOFF

if TYPE_CHECKING:
    from .operations import BaseClient

T = TypeVar("T")
_log = logging.getLogger("zoolet.client")
RETRY_DELAY: Final = 0.05
"""Seconds between two attempts of a repeated request."""
MAX_REFUSALS: Final = 3
"""Number of attempts to make if the server answers each by closing the connection, for example because the request is
larger than it accepts. Each attempt breaks the connection of all other calls.
"""


class RefusalCounter:
    """A counter of the attempts of a large request that the server answered by closing the connection."""

    def __init__(self) -> None:
        self._left = MAX_REFUSALS

    def check(self, error: Exception) -> None:
        """Count an attempt if the server refused it. Raise *error* if there were too many refusals.

        Raises:
            Exception: The request was refused :data:`MAX_REFUSALS` times. This is *error*.
        """
        if isinstance(error, ConnectionLossError) and error.refusals:
            self._left -= error.refusals
            if self._left <= 0:
                error.refusals = MAX_REFUSALS  # callers of the caller must not repeat the request either
                raise error


# --- repeated requests ---


async def repeat(
    do: Callable[[], Awaitable[T]],
    *,
    done: tuple[type[Exception], ...] = (),
    across_sessions: bool = True,
    limits_refusals: bool = True,
) -> T | None:
    """Repeat a request until the server answers. Use this only for requests that may be applied twice.

    Args:
        do: Function that makes the request. It is called for each attempt.
        done: Error classes that count as success. After such an error, the result is None.
        across_sessions: Whether to continue in the next session when the session ends.
        limits_refusals: Whether to give up after :data:`MAX_REFUSALS` refusals. Pass False if *do* makes many
            different requests.

    Returns:
        The result of the request.

    Raises:
        ClosedError: The client was closed.
        ConnectionLossError: The server closed the connection at each attempt.
        SessionExpiredError: The session ended, if *across_sessions* is False.
    """
    refusals = RefusalCounter()
    while True:
        try:
            return await do()
        except done:
            return None
        except (ConnectionLossError, SessionExpiredError) as error:
            if isinstance(error, SessionExpiredError) and not across_sessions:
                raise
            if limits_refusals or getattr(error, "refusals", 0) >= MAX_REFUSALS:
                refusals.check(error)
            await asyncio.sleep(RETRY_DELAY)


async def repeat_despite_errors(
    client: BaseClient[Any],
    do: Callable[[], Awaitable[T]],
    *,
    done: tuple[type[Exception], ...] = (),
    fatal: tuple[type[ZooKeeperError], ...] = (),
    across_sessions: bool = False,
) -> T | None:
    """Repeat requests that may be applied twice until they succeed, even if the server answers with errors.

    The pauses are short after a lost connection. After an error reply, they are the delays of
    :data:`REFUSAL_BACKOFF`, and the first such error is logged.

    Args:
        client: The client that makes the requests.
        do: Function that makes the requests. It is called for each attempt.
        done: Error classes that count as success. After such an error, the result is None.
        fatal: Error classes that are raised, because repeating would not help.
        across_sessions: Whether to continue in the next session when the session ends.

    Returns:
        The result of the requests.

    Raises:
        ClosedError: The client was closed.
        AuthFailedError: The server rejected the client's credentials.
        SessionExpiredError: The session ended, and *across_sessions* is False.
        ZooKeeperError: An error of a class in *fatal*.
    """
    delays = None
    ends: tuple[type[ZooKeeperError], ...] = (ClosedError, AuthFailedError, SessionExpiredError, *fatal)
    while True:
        try:
            return await repeat(do, done=done, across_sessions=across_sessions)
        except ends:
            raise
        except ZooKeeperError as error:
            if delays is None:
                delays = delays_after_refusal(client, error)
        await asyncio.sleep(next(delays))


def delays_after_refusal(client: BaseClient[Any], error: ZooKeeperError) -> Iterator[float]:
    """Log the first error reply to a repeated request, and return the pauses before further attempts."""
    _log.warning("the server refused a request of %r, which will be repeated: %s", client, error)
    return REFUSAL_BACKOFF.delays(client._core.rng)


async def delete_guaranteed(client: BaseClient[Any], path: str) -> None:
    """Delete a node, and retry after lost connections and any error of the server until the client is closed.

    Source: Curator's guaranteed delete.
    """
    await delete_until_gone(client, lambda: client.delete(path))


async def delete_until_gone(client: BaseClient[Any], delete: Callable[[], Awaitable[object]]) -> None:
    """Repeat a deletion until the node is gone or the client is closed, even if the server answers with errors."""
    with contextlib.suppress(ClosedError, AuthFailedError):
        await repeat_despite_errors(client, delete, done=(NoNodeError,), across_sessions=True)


def delete_in_background(client: BaseClient[Any], path: str) -> None:
    """Start a guaranteed delete of a node in the background, unless the client is closed."""
    if client._core.is_open:
        client._core.spawn(delete_guaranteed(client, path))


async def find_protected(client: BaseClient[Any], parent: str, protection_id: str) -> str | None:
    """Return the path of the node with a protection id in its name, or None.

    A sync first makes earlier creations visible.
    """
    synced = asyncio.ensure_future(client.sync(parent))
    listed = asyncio.ensure_future(client.children(parent))
    try:
        await synced
        names = await listed
    except NoNodeError:
        return None
    finally:
        synced.cancel()
        listed.cancel()
    return next((paths.join(parent, name) for name in names if protection_id in name), None)


async def delete_protected(client: BaseClient[Any], parent: str, protection_id: str) -> None:
    """Delete all nodes with a protection id in their names, and retry as :func:`delete_guaranteed` does."""

    async def delete() -> None:
        while (path := await find_protected(client, parent, protection_id)) is not None:
            await client.delete(path)

    await delete_until_gone(client, delete)


async def create_protected(
    client: BaseClient[Any],
    parent: str,
    protection_id: str,
    create: Callable[[], Awaitable[str]],
    *,
    create_parent: Callable[[str], Awaitable[object]] | None,
    ephemeral: bool = True,
) -> str:
    """Create a node with a unique id in its name, which identifies the node even if the reply is lost.

    If the caller gives up, a background task deletes the node.

    Args:
        client: The client that creates the node.
        parent: The parent of the node.
        protection_id: A text that only this node's name contains.
        create: Function that creates the node.
        create_parent: Function that creates a missing parent; None to raise NoNodeError instead.
        ephemeral: Whether the node is deleted when the session ends.

    Returns:
        The path of the node.

    Raises:
        ConnectionLossError: The client was not connected in time, or the server closed the connection at each attempt.
            If the node may have been created (``maybe_applied``), it is deleted later.
        SessionExpiredError: The session ended. An ephemeral node is deleted with it.
        NoNodeError: The parent does not exist, and *create_parent* is None.

    Source: Curator's withProtection.
    """
    session = client._core.session
    session_id = session.id
    sent = False
    lost: ConnectionLossError | None = None  # the error of the last attempt whose reply was lost
    refusals: RefusalCounter | None = None  # created only when needed, because most creates succeed
    try:
        while True:
            try:
                sent = True
                return await create()
            except NoNodeError:
                sent = False
                if create_parent is None:
                    raise
                await create_parent(parent)
            except (ConnectionLossError, NodeExistsError) as error:  # an attempt without reply may have succeeded
                if isinstance(error, ConnectionLossError) and not error.maybe_applied:
                    sent = False
                    raise
                refusals = refusals or RefusalCounter()
                refusals.check(error)
                lost = error if isinstance(error, ConnectionLossError) else lost
                try:
                    path = await find_protected(client, parent, protection_id)
                except ConnectionLossError as unreachable:  # an earlier attempt may still have been applied
                    raise lost or unreachable from None
                if path is not None:
                    return path
                if ephemeral and session_id and session.id != session_id:
                    reason = "the session expired while the node was being created"
                    raise SessionExpiredError(parent, reason) from None
    except BaseException as error:  # a cancellation also has to clean up
        gone = ephemeral and isinstance(error, SessionExpiredError | ClosedError)
        if sent and not gone and client._core.is_open:
            client._core.spawn(delete_protected(client, parent, protection_id))
        raise


async def ensure_container(client: BaseClient[Any], path: str, *, levels: int = 1) -> None:
    """Create a container node unless it exists, or a persistent node if the server does not support containers.

    Args:
        client: The client that creates the node.
        path: The path of the node.
        levels: Number of nodes that become containers, from *path* upwards. Nodes above them are persistent.
    """
    while True:
        try:
            await client.create(path, b"", container=True, parents=levels == 1)
            return
        except NoNodeError:
            if levels == 1:
                raise
            await ensure_container(client, paths.parent(path), levels=levels - 1)
        except NodeExistsError:
            return
        except UnimplementedError:
            await client.ensure_path(path)
            return
        except ConnectionLossError as error:
            if not error.maybe_applied:
                raise
