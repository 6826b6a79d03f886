"""Group membership: each member has an ephemeral node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ...protocol.recipe_names import Naming, matches_kind, prefix
from .. import serializers
from ..aio.operations import BaseClient
from ..wire.arguments import checked_bytes, checked_node_name
from ._base import STOP_TIMEOUT, SupervisedRecipe, checked_naming
from ._follow import observe, read_children, read_values, watch_list
from .persistent_ephemeral import PersistentEphemeral


class Party(SupervisedRecipe):
    """A group whose members come and go: ``async with Party(zk, "/party", b"me") as party: await party.members()``.

    Znodes: ``PATH/<hex>__party__``, ephemeral, with the member's name as data, as in kazoo's Party; with naming
    ``curator``: ``PATH/<name>``, ephemeral, as in Curator's GroupMember.

    Guarantees: a client inside the block is a member, in every session. If its membership cannot be kept, the block is
    cancelled and raises the reason.

    Limits: a member that dies is listed until its session ends. Two members with the same name are both listed with
    naming ``kazoo``. With naming ``curator``, only one of them is a member at a time.

    Args:
        client: Client whose session owns the node of the member.
        path: Path of the group.
        name: Name of the member.
        naming: ``kazoo`` or ``curator``.
        stop_timeout: As for PersistentEphemeral.
    """

    _serializer = serializers.raw

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        name: bytes = b"",
        *,
        naming: Naming = "kazoo",
        stop_timeout: float = STOP_TIMEOUT,
    ) -> None:
        super().__init__(client, path)
        checked_bytes("name", name)
        self._is_kazoo = checked_naming(naming) == "kazoo"
        node = (
            prefix("kazoo", "member", client._core.new_uuid()) if self._is_kazoo else checked_node_name(name.decode())
        )
        self._member = PersistentEphemeral(self._client, self._child_path(node), name, stop_timeout=stop_timeout)

    async def members(self) -> list[bytes]:
        """Return the members' names, sorted by node name."""
        names = sorted(await read_children(self._client, self._path))
        if not self._is_kazoo:
            return [name.encode() for name in names]
        members = [name for name in names if matches_kind("kazoo", "member", name)]
        return list((await read_values(self._client, self._path, members)).values())

    def changes(self) -> AsyncIterator[list[bytes]]:
        """Yield the members' names, and yield them again after each change."""
        return observe(lambda: watch_list(self._client, self._path), self.members)

    async def _start_tasks(self) -> None:
        await self._member.start(self._block)

    async def stop(self) -> None:
        """Leave the group: stop the tasks, and delete the member's node."""
        await super().stop()
        await self._member.stop()
