"""Who is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from zoolet.client import serializers
from zoolet.client.recipes.persistent_ephemeral import PersistentEphemeral
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import NoNodeError


class Party:
    """A group whose members come and go: ``async with Party(zk, "/party", b"me") as party: await party.members()``.

    Znodes, layout ``kazoo``: ``PATH/<hex>__party__`` ephemeral, the data says who; shared with kazoo's Party. Layout
    ``curator``: ``PATH/<name>`` ephemeral; shared with Curator's GroupMember.

    Guarantees: who is inside the block is a member, in every session of its client.

    Limits: who dies is a member until its session ends. Two members with the same name are two with layout ``kazoo``
    and take turns with layout ``curator``.

    Args:
        client: Whose session it is in.
        path: The group.
        name: Who this is.
        layout: ``kazoo`` or ``curator``.

    Raises:
        ValueError: The layout is unknown.
    """

    def __init__(self, client: ClientSurface, path: str, name: bytes = b"", *, naming: str = "kazoo") -> None:
        client.add_chroot(path)
        if naming not in ("kazoo", "curator"):
            raise ValueError(f"layout {naming!r} is unknown; one of kazoo, curator")
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._kazoo = naming == "kazoo"
        if not self._kazoo and (not name or b"/" in name):
            raise ValueError(f"name is {name!r}; with layout curator it is the node's name and must have no slash")
        own = f"{client.new_uuid().replace('-', '')}__party__" if self._kazoo else name.decode()
        self._member = PersistentEphemeral(self._client, paths.join(path, own), name)

    async def members(self) -> list[bytes]:
        """Return who is there, in order of their nodes' names."""
        try:
            names = sorted(await self._client.children(self._path))
        except NoNodeError:
            return []
        if not self._kazoo:
            return [name.encode() for name in names]
        calls = [self._client.get(paths.join(self._path, name)) for name in names if name.endswith("__party__")]
        found = []
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, NoNodeError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer[0])
        return found

    async def changes(self) -> AsyncIterator[list[bytes]]:
        """Iterate who is there: now, and after each change."""
        last: Any = None
        while True:
            try:
                async with self._client.watch_children(self._path) as watch:
                    members = await self.members()
                    if members != last:
                        last = members
                        yield members
                    await watch.next()
            except NoNodeError:
                await self._client.ensure_path(self._path)

    async def __aenter__(self) -> Party:
        await self._member.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._member.__aexit__(*error)
