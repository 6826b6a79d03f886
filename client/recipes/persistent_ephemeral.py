"""An ephemeral node that is recreated in every new session."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from ...protocol import paths
from ...protocol.enums import EventType
from ...protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError, SessionExpiredError, ZooKeeperError
from ..aio.limits import wait_for_cleanup
from ..aio.operations import BaseClient
from ..aio.reliable import ensure_container, repeat
from ..aio.supervision import Follower
from ..aio.watcher import Watcher
from ..serializers import V
from ..wire.arguments import checked_count
from ._base import STOP_TIMEOUT, SupervisedRecipe
from ._follow import SessionGuard


class PersistentEphemeral(SupervisedRecipe[V]):
    """An ephemeral node that exists while its program runs: ``async with PersistentEphemeral(zk, "/up/me"):``.

    Znodes: PATH, ephemeral, with the value. Missing parent nodes are created, the last one as a container.

    Guarantees: when a session ends or another client deletes the node, it is created again with the latest value. If a
    node of that name belongs to a different session, often an earlier one of this client, its deletion is awaited.
    Leaving the block deletes the node. If the node cannot be kept, the block is cancelled and raises the reason.

    Limits: the node does not exist between two sessions. Programs that use the same path take turns.

    Args:
        client: Client whose sessions own the node.
        path: Path of the node.
        value: Value of the node.
        stop_timeout: Longest time in seconds that leaving the block waits for the deletion. After that, the deletion
            continues in the background. The end of the session also deletes the node.
    """

    def __init__(
        self, client: BaseClient[V], path: str, value: V | Literal[b""] = b"", *, stop_timeout: float = STOP_TIMEOUT
    ) -> None:
        super().__init__(client, path)
        self._value: V | Literal[b""] = value
        self._stop_timeout = checked_count("stop_timeout", stop_timeout, 0.0)
        self._finish_task: asyncio.Task[Any] | None = None
        self._change_count = 0  # number of calls of set()
        self._session_id = 0  # session that owns the node
        self._guard: SessionGuard | None = None
        self._watch: Watcher | None = None
        self._follower = Follower(client, self._keep)

    @property
    def exists(self) -> bool:
        """Whether the node exists, to this client's knowledge."""
        return self._session_id != 0 and self._session_id == self._client.session_id

    async def set(self, value: V | Literal[b""]) -> None:
        """Change the value of the node, now and whenever it is recreated.

        If the connection is lost, or the call is cancelled, the value is written in the background as soon as the
        server can be reached.

        Raises:
            ConnectionLossError: The connection was lost. If the server closes every connection
                because of this value, the block raises the error as well.
            SessionExpiredError: The session ended. The node is recreated with the new value.
            ZooKeeperError: The server refused the new value, and the node keeps its previous value.
            TypeError, ValueError: The serializer does not support the value, or it is too large.
            RuntimeError: The recipe was not entered.
        """
        self._check_entered()
        self._client._data(value, self._path)  # raises if the value cannot be written
        call = self._client.set(self._path, value) if self.exists else None
        former, self._value, watch = self._value, value, self._watch
        self._change_count += 1
        if call is None or watch is None:
            return
        try:
            await call
        except NoNodeError:
            return  # the node will soon be recreated with the new value
        except (ConnectionLossError, asyncio.CancelledError) as error:  # the background task must write the value
            watch._fail(error if isinstance(error, ConnectionLossError) else ConnectionLossError(self._path))
            raise
        except ZooKeeperError as error:
            if self._value is value and not isinstance(error, SessionExpiredError):
                self._value = former
            raise

    async def _keep(self) -> None:
        """Create the node, and return when it no longer exists."""
        client, value, changes = self._client, self._value, self._change_count
        self._session_id = 0
        try:
            await client.create(self._path, value, ephemeral=True)
        except NoNodeError:
            return await ensure_container(client, paths.parent(self._path))
        except NodeExistsError:
            async with client.watch_exists(self._path) as watch:
                if watch.initial is not None and watch.initial.ephemeralOwner != client.session_id:
                    await watch.next()
                    return
            try:
                await client.set(self._path, value)
            except NoNodeError:
                return  # the node of a previous session was deleted before the write
        async with client.watch(self._path) as self._watch:
            stat = await client.exists(self._path)
            if stat is None or stat.ephemeralOwner != client.session_id:
                return
            self._guard = SessionGuard(client, self._watch, self._path, stat.ephemeralOwner)
            while changes != self._change_count:  # set() may change the value while the node is created
                changes = self._change_count
                try:
                    await client.set(self._path, self._value)
                except NoNodeError:
                    return
            self._session_id = stat.ephemeralOwner
            self._follower.mark_ready()
            async for event in self._watch:
                if event.type == EventType.NODE_DELETED:
                    return

    async def _start_tasks(self) -> None:
        try:
            if self._finish_task is not None:  # the previous block must not delete this block's node
                self._finish_task.cancel()
                await asyncio.wait((self._finish_task,))
            await self._follower.start(self._block.fail)
        except BaseException:  # a cancelled task also has to delete the node
            self._finish_in_background()
            raise

    async def stop(self) -> None:
        """Stop keeping the node, and delete it if this session owns it.

        If the deletion takes longer than *stop_timeout*, or the call is cancelled, it continues in the background.
        """
        await super().stop()
        self._finish_in_background()
        if self._finish_task is not None:
            await wait_for_cleanup(self._finish_task, self._stop_timeout)

    def _finish_in_background(self) -> None:
        self._session_id, self._finish_task = 0, None
        if self._client._core.is_open:
            self._finish_task = self._client._core.spawn(self._finish())

    async def _finish(self) -> None:
        await self._follower.stop()
        await repeat(self._delete, done=(NoNodeError, SessionExpiredError))

    async def _delete(self) -> None:
        stat = await self._client.exists(self._path)
        if stat is not None and stat.ephemeralOwner == self._client.session_id:
            await self._client.delete(self._path)
