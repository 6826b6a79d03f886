"""The simplest textbook lock: one ephemeral node, and all waiting clients watch it."""

from __future__ import annotations

from zoolet.client import Client, NodeExistsError


class NodeLock:
    """A lock held by the client that created the node. When the node is deleted, all clients try to create it again."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    async def __aenter__(self) -> None:
        while True:
            try:
                await self._client.create(self._path, ephemeral=True)
                return
            except NodeExistsError:
                async with self._client.watch_exists(self._path) as watch:
                    if watch.initial is not None:
                        await watch.next()

    async def __aexit__(self, *error: object) -> None:
        await self._client.delete(self._path)
