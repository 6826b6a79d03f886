"""The improved textbook lock: sequential nodes, and all waiting clients watch the list of nodes."""

from __future__ import annotations

from zoolet.client import Client


class ChildrenLock:
    """A lock held by the client with the lowest node. After each create or delete, all clients list the nodes."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path
        self._node = ""

    async def __aenter__(self) -> None:
        self._node = await self._client.create(f"{self._path}/n-", ephemeral=True, sequential=True)
        while True:
            async with self._client.watch_children(self._path) as watch:
                if min(watch.initial) == self._node.rpartition("/")[2]:
                    return
                await watch.next()

    async def __aexit__(self, *error: object) -> None:
        await self._client.delete(self._node)
