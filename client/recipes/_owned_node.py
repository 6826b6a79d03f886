"""Ownership of a path by a pair of nodes.

The client that creates the pair owns the path until its session ends or it releases the path.

A node at the path does not prove who owns it, and neither does its version. So two nodes are created in one
transaction: the path itself, and the proof node ``PATH-<uuid>`` next to it. While the proof node exists, the path still
belongs to the same owner. The two nodes are only deleted together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...protocol import paths
from ...protocol.errors import BadVersionError, ConnectionLossError, NodeExistsError, NoNodeError
from ...protocol.recipe_names import proof_path
from ..aio.call import ignore_result
from ..aio.operations import BaseClient
from ..aio.reliable import RefusalCounter, delete_until_gone
from ..wire.transaction import Transaction
from ._lease import Lease


class OwnedNode(Lease):
    """The lease of an owned path.

    Args:
        client: Client whose session owns the path.
        path: Path of the node, the same for every owner.
        czxid: Creation zxid of the node. It is also the token, because creating the node is acquiring it.
        proof_node: Path of the node with the unique name.
    """

    def __init__(self, client: BaseClient[Any], path: str, czxid: int, proof_node: str) -> None:
        super().__init__(client, path, czxid)
        self.proof_node = proof_node

    def _delete(self) -> asyncio.Future[None]:
        if self.lost._happened:
            return asyncio.ensure_future(self._delete_own())
        return asyncio.ensure_future(delete_node_pair(self._client, self.path, self.proof_node, self.czxid))

    async def _delete_own(self) -> None:
        """Delete the remaining own nodes of a lost path, which may have a new owner by now."""
        stat = await self._client.exists(self.path)
        if stat is not None and stat.czxid == self.czxid:
            await delete_node_pair(self._client, self.path, self.proof_node, self.czxid)
        else:
            await self._client.delete(self.proof_node)

    async def _delete_guaranteed(self) -> None:
        async def delete() -> None:
            await self._client.sync(self.path)
            await self._delete_own()

        await delete_until_gone(self._client, delete)


def delete_node_pair(client: BaseClient[Any], path: str, proof_node: str, czxid: int = 0) -> Coroutine[Any, Any, None]:
    """Delete both nodes in one transaction, because the path alone may have a new owner.

    The transaction is sent immediately, before the returned coroutine is awaited.

    If another client has deleted the proof node, the path is deleted alone, provided that it has this *czxid*.
    """
    transaction = client.transaction()
    transaction.delete(proof_node)
    transaction.delete(path)
    sent = asyncio.ensure_future(transaction._send())
    sent.add_done_callback(ignore_result)  # the result may never be awaited

    async def finish() -> None:
        try:
            await transaction._wait_results(sent)
        except NoNodeError as error:
            if error.path == path:  # another client deleted the path
                await client.delete(proof_node)
            elif czxid and (stat := await client.exists(path)) is not None and stat.czxid == czxid:
                await client.delete(path, stat.version)
            raise

    return finish()


async def delete_node_pair_guaranteed(client: BaseClient[Any], path: str, proof_node: str) -> None:
    """Delete both nodes, even if the connection is lost repeatedly.

    Each attempt starts with a sync, because a create whose reply was lost may still be in progress.
    """

    async def delete() -> None:
        await client.sync(path)
        await delete_node_pair(client, path, proof_node)

    await delete_until_gone(client, delete)


async def acquire_node(
    client: BaseClient[Any], path: str, data: bytes, add_operations: Callable[[Transaction], None] | None = None
) -> OwnedNode | None:
    """Acquire a path if it is free. Return None if it is not.

    Args:
        client: Client whose session acquires the path, with the raw serializer.
        path: Path of the node; missing parent nodes are created.
        data: Data of the node.
        add_operations: Function that adds further operations to the transaction. If one of them finds its node missing
            or with a different version, the path is not acquired.

    Raises:
        ConnectionLossError: No connection was available in time. Created nodes are deleted after a reconnect.
    """
    proof_node = proof_path(path, client._core.new_uuid())
    in_doubt, refusals = False, RefusalCounter()
    try:
        while True:
            transaction = client.transaction()
            transaction.create(proof_node, b"", ephemeral=True)
            transaction.create(path, data, ephemeral=True)
            if add_operations is not None:
                add_operations(transaction)
            try:
                await transaction.commit()
                in_doubt = True  # the node is in doubt until the caller has received it
                return await _confirm(client, path, proof_node)
            except BadVersionError:
                return None
            except NoNodeError as error:
                if error.path != proof_node:
                    return None
                await client.ensure_path(paths.parent(path))
            except NodeExistsError as error:
                if error.path == proof_node:  # the proof node comes from an attempt whose reply was lost
                    return await _confirm(client, path, proof_node)
                return None
            except ConnectionLossError as error:
                if not error.maybe_applied:
                    raise
                in_doubt = True
                refusals.check(error)
    except BaseException as error:  # a cancellation also has to delete nodes that may exist
        if in_doubt or isinstance(error, asyncio.CancelledError):
            client._core.spawn(delete_node_pair_guaranteed(client, path, proof_node))
        raise


async def _confirm(client: BaseClient[Any], path: str, proof_node: str) -> OwnedNode | None:
    """Return the lease of the created nodes. If this session no longer owns both, delete them and return None."""
    node, proof = await asyncio.gather(client.exists(path), client.exists(proof_node))
    if node is None or proof is None or not node.ephemeralOwner == proof.ephemeralOwner == client.session_id:
        client._core.spawn(delete_node_pair_guaranteed(client, path, proof_node))
        return None  # another client deleted a node, or the nodes belong to a previous session
    return OwnedNode(client, path, node.czxid, proof_node)
