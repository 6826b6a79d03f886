"""Tools of every recipe: deletes and creates that survive lost replies, and retries.

A recipe has no loop of its own around ``ConnectionLossError``, unless it has to look what became of a transaction. It
uses

- :func:`delete_guaranteed` and :func:`create_protected` (Curator's guaranteed delete and withProtection),
- :func:`repeat` and :func:`repeat_despite_errors` for what may be done again until it is answered, or done,
- the limits of time of :mod:`zoolet.client.aio.limits`,
- the background tasks of :mod:`zoolet.client.aio.supervision`, and its :func:`first_event` of several watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from zoolet.client.wire.backoff import REFUSED
from zoolet.protocol import paths
from zoolet.protocol.errors import (
    AuthFailedError,
    ClosedError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    UnimplementedError,
    ZooKeeperError,
)

if TYPE_CHECKING:
    from zoolet.client.aio.client import Client

T = TypeVar("T")
_log = logging.getLogger("zoolet.client")
PAUSE: Final = 0.05
"""Seconds between two tries of what is repeated."""


# --- one request, however often its reply is lost ---


async def repeat(
    do: Callable[[], Awaitable[T]], *, done: tuple[type[Exception], ...] = (), while_expired: bool = True
) -> T | None:
    """Repeat a request until the server has answered; only one that may be applied twice.

    Args:
        do: Makes the request; called for each try.
        done: Errors that mean that there is nothing left to do; the result is None then.
        while_expired: Go on in the next session when one ends.

    Raises:
        ClosedError: The client was closed.
        SessionExpiredError: The session ended, if *while_expired* is False.
    """
    while True:
        try:
            return await do()
        except done:
            return None
        except (ConnectionLossError, SessionExpiredError) as error:
            if isinstance(error, SessionExpiredError) and not while_expired:
                raise
            await asyncio.sleep(PAUSE)


async def repeat_despite_errors(
    client: Client,
    do: Callable[[], Awaitable[T]],
    *,
    done: tuple[type[Exception], ...] = (),
    fatal: tuple[type[ZooKeeperError], ...] = (),
    while_expired: bool = False,
) -> T | None:
    """Repeat what may be done again until the server has done it, whatever else it answers.

    After lost connections the pauses are short; if the server refuses it, they are those of :data:`REFUSED`, and the
    first refusal is logged.

    Args:
        client: Whose requests they are.
        do: Makes the requests; called for each attempt.
        done: Errors that mean that there is nothing left to do; the result is None then.
        fatal: Errors that would not pass.
        while_expired: Go on in the next session when one ends.

    Raises:
        ClosedError: The client was closed.
        AuthFailedError: The client's credentials were refused.
        SessionExpiredError: The session ended, if *while_expired* is False.
        ZooKeeperError: One of *fatal*.
    """
    delays = None
    ends: tuple[type[ZooKeeperError], ...] = (ClosedError, AuthFailedError, SessionExpiredError, *fatal)
    while True:
        try:
            return await repeat(do, done=done, while_expired=while_expired)
        except ends:
            raise
        except ZooKeeperError as error:
            if delays is None:
                delays = delays_after_refusal(client, error)
        await asyncio.sleep(next(delays))


def delays_after_refusal(client: Client, error: ZooKeeperError) -> Iterator[float]:
    """Log the first error with which the server refuses something, and return the pauses before further tries."""
    _log.warning("%r is refused, and tries again: %s", client, error)
    return REFUSED.delays(client.rng)


async def delete_guaranteed(client: Client, path: str) -> None:
    """Delete a node, however often the connection is lost and whatever the server answers, until the client is closed.

    Source: Curator's guaranteed delete.
    """
    await until_gone(client, lambda: client.delete(path))


async def until_gone(client: Client, delete: Callable[[], Awaitable[object]]) -> None:
    """Delete something until it is gone or the client takes no more calls, whatever the server answers."""
    with contextlib.suppress(ClosedError, AuthFailedError):
        await repeat_despite_errors(client, delete, done=(NoNodeError,), while_expired=True)


def delete_in_background(client: Client, path: str) -> None:
    """Delete a node, guaranteed, without waiting for it; nothing is done once the client is closed."""
    if client.terminal_error is None:
        client.spawn(delete_guaranteed(client, path))


async def find_protected(client: Client, parent: str, protection_id: str) -> str | None:
    """Look for a node by the protection id in its name, at a server that knows all that was done before."""
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


async def delete_protected(client: Client, parent: str, protection_id: str) -> None:
    """Delete, guaranteed, what may have been created with a protection id in its name."""

    async def delete() -> None:
        while (path := await find_protected(client, parent, protection_id)) is not None:
            await client.delete(path)

    await until_gone(client, delete)


async def create_protected(
    client: Client,
    parent: str,
    protection_id: str,
    create: Callable[[], Awaitable[str]],
    *,
    create_parent: Callable[[str], Awaitable[object]] | None,
    ephemeral: bool = True,
) -> str:
    """Create a node that is known by a unique id in its name, whatever happens to the reply.

    If the caller gives up, a background task deletes the node.

    Args:
        client: Whose session creates it.
        parent: The node above it.
        protection_id: A text in its name and in no other's.
        create: Creates it.
        create_parent: Creates the node above it if that is missing; None to raise NoNodeError then.
        ephemeral: It ends with the session.

    Returns:
        Its path.

    Raises:
        ConnectionLossError: There was no connection in time. If it may have been created (``maybe_applied``), it is
            deleted later.
        SessionExpiredError: The session has ended; if the node was ephemeral, it is gone.

    Source: Curator's withProtection.
    """
    session_id = client.session_id
    sent = False
    lost: ConnectionLossError | None = None  # of the last try whose reply was lost
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
            except (ConnectionLossError, NodeExistsError) as error:  # it exists: the try whose reply was lost did it
                if isinstance(error, ConnectionLossError) and not error.maybe_applied:
                    sent = False
                    raise
                lost = error if isinstance(error, ConnectionLossError) else lost
                try:
                    path = await find_protected(client, parent, protection_id)
                except ConnectionLossError as unreachable:  # which says of itself that nothing was applied
                    raise lost or unreachable from None
                if path is not None:
                    return path
                if ephemeral and session_id and client.session_id != session_id:
                    raise SessionExpiredError(parent, "the session ended while the node was created") from None
    except BaseException as error:  # cancelled, too
        gone = ephemeral and isinstance(error, SessionExpiredError | ClosedError)
        if sent and not gone and client.terminal_error is None:
            client.spawn(delete_protected(client, parent, protection_id))
        raise


async def ensure_container(client: Client, path: str) -> None:
    """Create a node that goes with its last child, unless it exists; a persistent one where a server has no containers.

    Args:
        client: Whose session creates it.
        path: The node; those above it are persistent.
    """
    while True:
        try:
            await client.create(path, b"", container=True, parents=True)
            return
        except NodeExistsError:
            return
        except UnimplementedError:
            await client.ensure_path(path)
            return
        except ConnectionLossError as error:
            if not error.maybe_applied:
                raise
