"""Group membership."""

from __future__ import annotations

from collections.abc import AsyncIterator

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.recipes._base import SupervisedRecipe
from zoolet.client.recipes._follow import children_of, observe, values_of
from zoolet.client.recipes._node_names import Naming, checked_naming
from zoolet.client.recipes.persistent_ephemeral import PersistentEphemeral
from zoolet.client.wire.arguments import checked_bytes, checked_node_name


class Party(SupervisedRecipe):
    """A group whose members come and go: ``async with Party(zk, "/party", b"me") as party: await party.members()``.

    Znodes: ``PATH/<hex>__party__`` ephemeral, whose data is the member's name, shared with kazoo's Party; with naming
    ``curator``: ``PATH/<name>`` ephemeral, shared with Curator's GroupMember.

    Guarantees: a client inside the block is a member, in every session. If that cannot be kept up, the block is
    cancelled and raises the reason.

    Limits: a member that dies is one until its session ends. Two members of the same name are two with naming
    ``kazoo``, and take turns with naming ``curator``.

    Args:
        name: The member's name.
        naming: ``kazoo`` or ``curator``.
    """

    _serializer = serializers.raw

    def __init__(self, client: Client, path: str, name: bytes = b"", *, naming: Naming = "kazoo") -> None:
        super().__init__(client, path)
        checked_bytes("name", name)
        self._kazoo = checked_naming(naming) == "kazoo"
        node = f"{client.new_uuid().replace('-', '')}__party__" if self._kazoo else checked_node_name(name.decode())
        self._member = PersistentEphemeral(self._client, self._at(node), name)

    async def members(self) -> list[bytes]:
        """Return the members' names, in order of their nodes' names."""
        names = sorted(await children_of(self._client, self._path))
        if not self._kazoo:
            return [name.encode() for name in names]
        members = [name for name in names if name.endswith("__party__")]
        return list((await values_of(self._client, self._path, members)).values())

    def changes(self) -> AsyncIterator[list[bytes]]:
        """Iterate the members' names: now, and after each change."""
        return observe(self._client, lambda: self._client.watch_children(self._path), self.members, self._path)

    async def _begin(self) -> None:
        await self._member.start(self._block)

    async def stop(self) -> None:
        """Delete the member's node."""
        await super().stop()
        await self._member.stop()
