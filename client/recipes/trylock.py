"""An unfair lock: one ephemeral node that is there or not."""

from __future__ import annotations

import asyncio

from zoolet.client import codecs
from zoolet.client.client import Client
from zoolet.client.recipes.held import Held, Holdable, checked_timeout
from zoolet.protocol import paths
from zoolet.protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError


class TryLock(Holdable[Held]):
    """The cheapest lock: ``held = await TryLock(zk, "/jobs/nightly").attempt()``, which is None if it is taken.

    Znodes: PATH itself, ephemeral; its data is a unique name of the holder, and *data*.

    Guarantees: one holder at a time. An attempt is one request.

    Limits: unfair; all who wait wake up when it ends (the herd effect). For many who wait there is Lock.

    Args:
        client: Whose session holds it.
        path: What is locked.
        timeout: Seconds that ``async with`` waits at the most; None for ever.
        on_lost: As for Lock.
        data: What the node holds behind the unique name, for people to read.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        timeout: float | None = None,
        on_lost: str = "cancel",
        data: bytes = b"",
    ) -> None:
        super().__init__(on_lost)
        client.locate(path)
        self._client = client.with_codec(codecs.raw)
        self._path = path
        self._timeout = checked_timeout(timeout)
        self._data = data

    async def attempt(self) -> Held | None:
        """Take it if it is free; None if it is not.

        Raises:
            ConnectionLossError: There was no connection in time; if the node was made, it is deleted once there is one.
        """
        client = self._client
        mine = f"{client.unique()} ".encode() + self._data
        in_doubt = False
        try:
            while True:
                try:
                    in_doubt = True
                    stat = (await client.create_and_stat(self._path, mine, ephemeral=True))[1]
                    return Held(client, self._path, stat.czxid)
                except NoNodeError:
                    in_doubt = False
                    await client.ensure_path(paths.parent(self._path))
                except NodeExistsError:
                    in_doubt = False
                    token = await self._mine(mine)
                    return Held(client, self._path, token) if token else None
                except ConnectionLossError as error:
                    if not error.maybe_applied:
                        in_doubt = False
                        raise
                    token = await self._mine(mine)
                    if token:
                        return Held(client, self._path, token)
        except (asyncio.CancelledError, ConnectionLossError):
            if in_doubt:
                client.in_background(self._undo(mine))
            raise

    async def _mine(self, mine: bytes) -> int:
        """Give the node's czxid if it is of this attempt, 0 if it is not."""
        await self._client.sync(self._path)
        try:
            found, stat = await self._client.get(self._path)
        except NoNodeError:
            return 0
        return stat.czxid if found == mine else 0

    async def _undo(self, mine: bytes) -> None:
        while True:
            try:
                if await self._mine(mine):
                    await self._client.delete(self._path)
                return
            except NoNodeError:
                return
            except ConnectionLossError:
                await asyncio.sleep(0.1)

    async def acquire(self, timeout: float | None = None) -> Held:
        """Wait until it is free, and take it.

        Raises:
            TimeoutError: It was not free in time.
        """
        async with asyncio.timeout(self._timeout if timeout is None else timeout):
            while True:
                held = await self.attempt()
                if held is not None:
                    return held
                async with self._client.watch_exists(self._path) as watch:
                    if watch.found is not None:
                        await watch.next()
