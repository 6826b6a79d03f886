"""Taking a path: whoever makes the ephemeral node there has it, until its session ends or it lets go.

That a node is at the path does not prove whose it is, and versions do not either. So two nodes are made in one
transaction: the path itself, and ``PATH-<uuid>`` beside it. Whoever sees the second one exist knows that the first is
still the same one's. They are only deleted together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from zoolet.client.recipes._lease import Lease
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import ClosedError, ConnectionLossError, NodeExistsError, NoNodeError, ZooKeeperError


class OwnedNode(Lease):
    """A path that is taken: its node, and beside it one with a unique name that proves whose it is.

    Args:
        client: Whose session holds it.
        path: The node, which has the same path whoever holds it.
        token: Its czxid.
        fence: The node with the unique name.
    """

    def __init__(self, client: ClientSurface, path: str, token: int, proof_node: str) -> None:
        super().__init__(client, path, token)
        self.proof_node = proof_node

    def _delete(self) -> asyncio.Future[None]:
        if self.lost.is_set():
            return asyncio.ensure_future(self._delete_mine())
        return asyncio.ensure_future(_delete_both(self._client, self.path, self.proof_node))

    async def _delete_mine(self) -> None:
        """Delete what is one's own of a path that was lost: by now another one may have it."""
        stat = await self._client.exists(self.path)
        if stat is not None and stat.czxid == self.token:
            await _delete_both(self._client, self.path, self.proof_node)
        else:
            await self._client.delete(self.proof_node)

    async def _delete_guaranteed(self) -> None:
        while True:
            try:
                await self._client.sync(self.path)
                await self._delete_mine()
                return
            except (NoNodeError, ClosedError):
                return
            except ZooKeeperError:  # whatever it is, it may pass
                await asyncio.sleep(0.1)


def _delete_both(client: ClientSurface, path: str, proof_node: str) -> Coroutine[Any, Any, None]:
    """Delete both nodes in one transaction: never the path alone, which may be another's by now. It is sent at once."""
    transaction = client.transaction()
    transaction.delete(proof_node)
    transaction.delete(path)
    sent = asyncio.ensure_future(transaction.send())
    sent.add_done_callback(lambda call: call.cancelled() or call.exception())  # whoever wants it awaits it below

    async def finish() -> None:
        try:
            await transaction.wait_results(sent)
        except NoNodeError as error:
            if error.path == path:  # somebody deleted it
                await client.delete(proof_node)
            raise

    return finish()


async def _sweep_both(client: ClientSurface, path: str, proof_node: str) -> None:
    while True:
        try:
            await client.sync(path)
            await _delete_both(client, path, proof_node)
            return
        except (NoNodeError, ClosedError):
            return
        except ZooKeeperError:  # whatever it is, it may pass
            await asyncio.sleep(0.1)


async def acquire_node(client: ClientSurface, path: str, data: bytes) -> OwnedNode | None:
    """Take a path if it is free; None if it is not.

    Args:
        client: Whose session takes it; of bytes.
        path: What is taken; the nodes above it are made if they are missing.
        data: What its node holds.

    Raises:
        ConnectionLossError: There was no connection in time; what was made is deleted once there is one.
    """
    proof_node = f"{path}-{client.new_uuid()}"
    in_doubt = False
    try:
        while True:
            transaction = client.transaction()
            transaction.create(proof_node, b"", ephemeral=True)
            transaction.create(path, data, ephemeral=True)
            try:
                await transaction.commit()
                in_doubt = True  # until it is the caller's
                return await _taken(client, path, proof_node)
            except NoNodeError:
                await client.ensure_path(paths.parent(path))
            except NodeExistsError as error:
                if error.path == proof_node:  # made by the try whose reply was lost
                    return await _taken(client, path, proof_node)
                return None
            except ConnectionLossError as error:
                if not error.maybe_applied:
                    raise
                in_doubt = True
    except BaseException as error:
        if in_doubt or isinstance(error, asyncio.CancelledError):
            client.spawn(_sweep_both(client, path, proof_node))
        raise


async def _taken(client: ClientSurface, path: str, proof_node: str) -> OwnedNode | None:
    """Return what is held, or None if the session has ended meanwhile."""
    node, proof = await asyncio.gather(client.exists(path), client.exists(proof_node))
    mine = client.session_id
    if node is None or proof is None or not node.ephemeralOwner == proof.ephemeralOwner == mine:
        client.spawn(_sweep_both(client, path, proof_node))
        return None  # somebody deleted one, or they were made in a session that is over, as far as is known here
    return OwnedNode(client, path, node.czxid, proof_node)
