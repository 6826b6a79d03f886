"""An ephemeral node that is created again in every new session."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from zoolet.client.aio.client import Client
from zoolet.client.aio.reliable import ensure_container, repeat
from zoolet.client.aio.supervision import Follower
from zoolet.client.recipes._base import SupervisedRecipe
from zoolet.client.recipes._follow import SessionGuard
from zoolet.protocol import paths
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import NodeExistsError, NoNodeError, SessionExpiredError


class PersistentEphemeral(SupervisedRecipe):
    """Keeps an ephemeral node for as long as its program runs: ``async with PersistentEphemeral(zk, "/up/me"):``.

    Znodes: PATH, ephemeral, with the value; the nodes above it are created if they are missing, the last one as a
    container.

    Guarantees: when a session ends, or somebody deletes the node, it is created again, with the latest value. While a
    node of that name belongs to another session, often one's own former session, it is waited for. Leaving the block
    deletes the node. If the node cannot be kept, the block is cancelled and raises the reason.

    Limits: the node does not exist between two sessions. Programs that use the same path replace each other's node.
    """

    def __init__(self, client: Client, path: str, value: Any = b"") -> None:
        super().__init__(client, path)
        self._value = value
        self._session_id = 0  # in which the node exists
        self._guard: SessionGuard | None = None
        self._follower = Follower(client, self._keep)

    @property
    def exists(self) -> bool:
        """Whether the node exists, as far as is known."""
        return self._session_id != 0 and self._session_id == self._client.session_id

    async def set(self, value: Any) -> None:
        """Change what the node holds, now and whenever it is created again.

        Raises:
            RuntimeError: It was not entered.
        """
        self._check_entered()
        self._value = value
        if self.exists:
            with contextlib.suppress(NoNodeError):  # it is created again with the new value in a moment
                await self._client.set(self._path, value)

    async def _keep(self) -> None:
        """Create the node, and return when it is gone."""
        client, value = self._client, self._value
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
                return  # it was a former session's, and has gone meanwhile
        async with client.watch(self._path) as watch:
            stat = await client.exists(self._path)
            if stat is None or stat.ephemeralOwner != client.session_id:
                return
            self._guard = SessionGuard(client, watch, self._path, stat.ephemeralOwner)
            while value is not self._value:  # changed while it was created
                value = self._value
                await client.set(self._path, value)
            self._session_id = stat.ephemeralOwner
            self._follower.mark_ready()
            async for event in watch:
                if event.type == EventType.NODE_DELETED:
                    return

    async def _begin(self) -> None:
        try:
            await self._follower.start(self._block.fail)
        except BaseException:  # cancelled, too
            await self.stop()
            raise

    async def stop(self) -> None:
        """Delete the node if it is this session's, and keep it no longer; if this is cancelled, in the background."""
        await super().stop()
        self._session_id = 0
        if self._client.terminal_error is None:
            finishing = self._client.spawn(self._finish())
            await asyncio.wait((finishing,))
            if not finishing.cancelled():  # as it is when the client is closed meanwhile
                finishing.result()

    async def _finish(self) -> None:
        await self._follower.stop()
        await repeat(self._delete, done=(NoNodeError, SessionExpiredError))

    async def _delete(self) -> None:
        stat = await self._client.exists(self._path)
        if stat is not None and stat.ephemeralOwner == self._client.session_id:
            await self._client.delete(self._path)
