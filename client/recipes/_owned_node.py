"""Owning a path: the client that creates the ephemeral node there has it, until its session ends or it releases it.

That a node is at the path does not prove whose it is, and versions do not either. So two nodes are created in one
transaction: the path itself, and ``PATH-<uuid>`` beside it, the proof node. While the proof node exists, the path is
still the same owner's. The two are only deleted together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from zoolet.client.aio.call import ignore_result
from zoolet.client.aio.client import Client
from zoolet.client.aio.reliable import until_gone
from zoolet.client.recipes._lease import Lease
from zoolet.client.wire.transaction import Transaction
from zoolet.protocol import paths
from zoolet.protocol.errors import BadVersionError, ConnectionLossError, NodeExistsError, NoNodeError


class OwnedNode(Lease):
    """A path that is owned.

    Args:
        client: Whose session owns it.
        path: The node, whose path is the same for every owner.
        czxid: Its czxid, which is the token: who creates it has it at once.
        proof_node: The node with the unique name.
    """

    def __init__(self, client: Client, path: str, czxid: int, proof_node: str) -> None:
        super().__init__(client, path, czxid)
        self.proof_node = proof_node

    def _delete(self) -> asyncio.Future[None]:
        if self.lost.is_set():
            return asyncio.ensure_future(self._delete_own())
        return asyncio.ensure_future(delete_both(self._client, self.path, self.proof_node, self.czxid))

    async def _delete_own(self) -> None:
        """Delete what is one's own of a path that was lost: by now another may own it."""
        stat = await self._client.exists(self.path)
        if stat is not None and stat.czxid == self.czxid:
            await delete_both(self._client, self.path, self.proof_node, self.czxid)
        else:
            await self._client.delete(self.proof_node)

    async def _delete_guaranteed(self) -> None:
        async def delete() -> None:
            await self._client.sync(self.path)
            await self._delete_own()

        await until_gone(self._client, delete)


def delete_both(client: Client, path: str, proof_node: str, czxid: int = 0) -> Coroutine[Any, Any, None]:
    """Delete both nodes in one transaction, for the path alone may be another's by now. It is sent at once.

    If somebody has deleted the proof node, the path goes alone, provided that it has the *czxid*.
    """
    transaction = client.transaction()
    transaction.delete(proof_node)
    transaction.delete(path)
    sent = asyncio.ensure_future(transaction.send())
    sent.add_done_callback(ignore_result)  # its result is awaited below, if at all

    async def finish() -> None:
        try:
            await transaction.wait_results(sent)
        except NoNodeError as error:
            if error.path == path:  # somebody deleted it
                await client.delete(proof_node)
            elif czxid and (stat := await client.exists(path)) is not None and stat.czxid == czxid:
                await client.delete(path, stat.version)
            raise

    return finish()


async def delete_both_guaranteed(client: Client, path: str, proof_node: str) -> None:
    """Delete both nodes, however often the connection is lost; a create whose reply was lost may be on its way."""

    async def delete() -> None:
        await client.sync(path)
        await delete_both(client, path, proof_node)

    await until_gone(client, delete)


async def acquire_node(
    client: Client, path: str, data: bytes, also: Callable[[Transaction], None] | None = None
) -> OwnedNode | None:
    """Acquire a path if it is free; None if it is not.

    Args:
        client: The client whose session acquires it, with the raw serializer.
        path: The node; the nodes above it are created if they are missing.
        data: What it holds.
        also: Adds what has to happen in the same transaction; if a node of that is missing or has another version, the
            path is not acquired.

    Raises:
        ConnectionLossError: There was no connection in time; what was created is deleted once there is one.
    """
    proof_node = f"{path}-{client.new_uuid()}"
    in_doubt = False
    try:
        while True:
            transaction = client.transaction()
            transaction.create(proof_node, b"", ephemeral=True)
            transaction.create(path, data, ephemeral=True)
            if also is not None:
                also(transaction)
            try:
                await transaction.commit()
                in_doubt = True  # until it is the caller's
                return await _confirm(client, path, proof_node)
            except BadVersionError:
                return None
            except NoNodeError as error:
                if error.path != proof_node:
                    return None
                await client.ensure_path(paths.parent(path))
            except NodeExistsError as error:
                if error.path == proof_node:  # created by the try whose reply was lost
                    return await _confirm(client, path, proof_node)
                return None
            except ConnectionLossError as error:
                if not error.maybe_applied:
                    raise
                in_doubt = True
    except BaseException as error:  # cancelled, too: it may have been created all the same
        if in_doubt or isinstance(error, asyncio.CancelledError):
            client.spawn(delete_both_guaranteed(client, path, proof_node))
        raise


async def _confirm(client: Client, path: str, proof_node: str) -> OwnedNode | None:
    """Return the owned node, or None if the session has ended meanwhile."""
    node, proof = await asyncio.gather(client.exists(path), client.exists(proof_node))
    if node is None or proof is None or not node.ephemeralOwner == proof.ephemeralOwner == client.session_id:
        client.spawn(delete_both_guaranteed(client, path, proof_node))
        return None  # somebody deleted one, or they were created in a session that is over, as far as is known here
    return OwnedNode(client, path, node.czxid, proof_node)
