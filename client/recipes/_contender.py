"""A contender in a line of sequential ephemeral nodes: the common part of locks and elections.

1. A contender creates its node and lists all nodes in the same round trip. If the parent is missing, the parent and the
   node are then created in one transaction, and the node is the first in line.
2. A contender that is not first watches exactly one node, the node of the contender that it has to wait for. When that
   node is deleted, only one client wakes up (no herd effect).
3. A contender that gives up deletes its node, even if the reply to the create or to the delete is lost.

The fencing token is the zxid that first showed that it is this contender's turn: the zxid of the reply with the list,
or of the event that the predecessor was deleted. A release has a higher zxid than the holder's token, and the next
contender sees its turn at that zxid or later. So a later holder has a higher token, whatever nodes the locks of both
holders consist of. This is not true of czxids, because a node can be created long before its turn.

Source: the lock recipe in ZooKeeper's documentation; the names in :mod:`zoolet.protocol.recipe_names`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from ...protocol import paths
from ...protocol import records as r
from ...protocol.acl import OPEN_ACL_UNSAFE
from ...protocol.enums import CreateMode, EventType
from ...protocol.errors import (
    ClosedError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from ...protocol.operations import OpCode
from ...protocol.recipe_names import ROWS, NodeName, prefix, sort_by_arrival
from ...protocol.records import Stat
from ..aio.operations import BaseClient
from ..aio.reliable import create_protected, delete_in_background, ensure_container
from ..aio.watcher import Watcher
from ..wire.states import State

NODE_LOST_REASON: Final = "the node no longer exists (session expired, or node deleted by another client)"
# A separate name, because a lookup in an enum costs 80 ns (Python 3.11).
_CREATE_MODE: Final = CreateMode.EPHEMERAL_SEQUENTIAL
_SESSION_ENDED_REASON: Final = "the session ended while in line"


class WaitTarget(NamedTuple):
    """The contender to wait for.

    Args:
        ahead: Node of that contender, or None if there is nothing to wait for.
        last: Whether no other contender remains to wait for once that node is gone.
    """

    ahead: NodeName | None
    last: bool


Rule = Callable[[Sequence[NodeName], int], WaitTarget]
"""Function that receives all contenders in order and the index of the own one, and returns the one to wait for."""


def wait_for_predecessor(line: Sequence[NodeName], own: int) -> WaitTarget:
    """Return the immediate predecessor as the contender to wait for."""
    return WaitTarget(line[own - 1], own == 1) if own else WaitTarget(None, True)


def wait_for_writer(line: Sequence[NodeName], own: int) -> WaitTarget:
    """Return the last writer ahead as the contender to wait for."""
    ahead = [node for node in line[:own] if node.row.kind == "write"]
    return WaitTarget(ahead[-1], len(ahead) == 1) if ahead else WaitTarget(None, True)


@cache
def process_name() -> bytes:
    """Return a human-readable name for this process: host and process id."""
    return b"%s:%d" % (socket.gethostname().encode(), os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process_name.cache_clear)


class Contender:
    """One contender in the line of a lock or an election.

    Args:
        client: Client whose session owns the node, with the serializer ``raw``.
        path: Parent node of all contenders, created if it is missing.
        naming: ``kazoo`` or ``curator``.
        kind: Kind of this contender.
        kinds: Kinds that it contends with.
        rule: Function that returns the contender to wait for.
        data: Data of the node, as bytes.
        levels: Number of ancestors of the node that become containers, starting with the parent.

    Attributes:
        node: Path of its node; empty before :meth:`enter` and after :meth:`leave`.
        czxid: Creation zxid of its node; 0 until it exists.
        token: Zxid that confirmed its turn; 0 until then.
    """

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        *,
        naming: str,
        kind: str,
        kinds: Sequence[str],
        rule: Rule = wait_for_predecessor,
        data: bytes = b"",
        levels: int = 1,
    ) -> None:
        self._client = client
        self._path = path
        self._naming = naming
        self._kind = kind
        self._kinds = kinds
        self._rule = rule
        self._data = data
        self._levels = levels
        self._prefix = prefix(naming, kind, client._core.new_uuid())
        self._listed: list[str] | None = None
        self._seen_zxid = 0  # zxid of the latest list or event
        self._lacks_parent = False  # whether the parent was missing, and is created together with the node
        self._name = ""  # name of its node
        self._watch: Watcher | None = None
        self._session_id = 0
        self._listens = False
        self.node = ""
        self.czxid = self.token = 0
        self._clock_offset: float | None = None  # server's clock minus the loop's clock

    def owns(self, path: str) -> bool:
        """Return whether a node belongs to this contender, even if it has left or does not know its node yet."""
        return self._prefix in path

    def server_time(self) -> float | None:
        """Return the current time of the server's clock, in seconds since the epoch; None until the node exists."""
        offset, loop = self._clock_offset, self._client._core.loop
        return None if offset is None or loop is None else offset + loop.time()

    def _record_node(self, node: str, stat: Stat, session_id: int) -> None:
        loop = self._client._core.loop
        assert loop is not None
        self._name = node.rpartition("/")[2]
        self.czxid, self._session_id = stat.czxid, session_id
        self._clock_offset = stat.ctime / 1000 - loop.time()

    def on_state(self, state: State) -> None:
        """Make a pending wait fail when the session ends, because the place in line is lost with it."""
        if self._watch is not None and state in (State.LOST, State.CLOSED):
            expired = SessionExpiredError(self._path, _SESSION_ENDED_REASON)
            self._watch._fail(expired if state is State.LOST else ClosedError(self._path))

    async def enter(self) -> None:
        """Join the end of the line, with a node that survives lost replies (``create_protected``).

        Raises:
            ConnectionLossError: No connection was available in time.
            SessionExpiredError: The session ended while the node was created.
        """
        client = self._client
        self.node = node = await create_protected(
            client, self._path, self._prefix, self._create, create_parent=self._mark_parent_missing
        )
        if not self.czxid:  # the reply was lost, and the node was found by its prefix
            stat = await client.exists(node)
            if stat is None:
                raise SessionExpiredError(node, NODE_LOST_REASON)
            self._record_node(node, stat, stat.ephemeralOwner)
        if self._listed is None:
            await self._list_contenders()

    async def _mark_parent_missing(self, path: str) -> None:
        """Record that the parent is missing. The next attempt creates it together with the node."""
        self._lacks_parent = True

    async def _list_contenders(self) -> None:
        listed = self._client.children(self._path)
        self._listed = await listed
        self._seen_zxid = listed.zxid

    async def _create(self) -> str:
        client, core, path = self._client, self._client._core, self._path
        if self._lacks_parent and (node := await self._create_with_parent()) is not None:
            return node
        acl = OPEN_ACL_UNSAFE if client._acl is None else client._acl
        # The record is encoded here, because the path needs no check: the path of the parent was checked.
        new_path = paths.join(path, self._prefix)
        body = r.CreateRequest(core.chroot + new_path, self._data, acl, _CREATE_MODE).encode()
        created = client._call(OpCode.CREATE2, body, r.Create2Response.decode, new_path)
        listed = client.children(path)
        try:
            response = await created
            node = core.strip_chroot(response.path)
            self._record_node(node, response.stat, response.stat.ephemeralOwner)
            try:
                names = await listed
            except ZooKeeperError:  # the node exists: the list can be requested again
                return node
            # A list that is older than the node is ignored. This happens if a busy server delays the create.
            if listed.zxid >= self.czxid:
                self._listed, self._seen_zxid = names, listed.zxid
        except BaseException:
            listed.cancel()
            raise
        finally:
            # The call's error refers to this frame, since Python 3.12 also to the callers' frames, and so to the lease.
            del created
        return node

    async def _create_with_parent(self) -> str | None:
        """Create the missing parent and the node in one transaction, which makes the node the first in line.

        Returns:
            The node's path; None if the parent exists now.
        """
        client, path = self._client, self._path
        self._lacks_parent, session_id = False, client._core.session.id
        while True:
            transaction = client.transaction()
            transaction.create(path, container=True)
            transaction.create(paths.join(path, self._prefix), self._data, ephemeral=True, sequential=True)
            try:
                node = str((await transaction.commit())[1])
            except NoNodeError:
                above = paths.parent(path)
                if self._levels == 1:
                    await client.ensure_path(above)
                else:
                    await ensure_container(client, above, levels=self._levels - 1)
            except NodeExistsError:
                return None
            except (ConnectionLossError, SessionExpiredError, ClosedError):
                raise
            except ZooKeeperError:  # for example, the server does not support containers
                await ensure_container(client, path, levels=self._levels)
                return None
            else:
                container = transaction._records[0][1]  # a 3.8 server returns only this Stat
                assert isinstance(container, r.Create2Response)
                self._record_node(node, container.stat, session_id)
                self._listed, self._seen_zxid = [self._name], self.czxid
                return node

    async def wait(self) -> None:
        """Wait until it is this contender's turn.

        Raises:
            SessionExpiredError: The session ended, or another client deleted the node.
        """
        if self._listed != [self._name]:  # most locks have a single contender, which need not wait
            await self._wait_in_line()
        self.token = self._seen_zxid or await self.confirm()
        if self._client._core.session.id != self._session_id:
            raise SessionExpiredError(self.node, _SESSION_ENDED_REASON)

    async def _wait_in_line(self) -> None:
        line: list[NodeName] | None = None
        while True:
            if line is None or self._rule is not wait_for_predecessor:
                line = sort_by_arrival(self._naming, self._kinds, self._listed or ())
            else:  # no node is inserted before an existing one: keep the previous line without the deleted nodes
                present = set(self._listed or ())
                line = [node for node in line if node.name in present]
            turn = self._wait_target(line)
            if turn.ahead is None or (await self._wait_for(turn.ahead) and turn.last):
                return
            await self._list_contenders()

    def _wait_target(self, line: list[NodeName]) -> WaitTarget:
        """Return the contender to wait for. Nodes after this contender's are removed from the line."""
        own = next((place for place, node in enumerate(line) if node.name == self._name), None)
        if own is None or self._client._core.session.id != self._session_id:
            raise SessionExpiredError(self.node, NODE_LOST_REASON)
        del line[own + 1 :]
        return self._rule(line, own)

    async def is_free(self) -> bool:
        """Return whether it would be this contender's turn immediately if it entered the line now."""
        try:
            names = await self._client.children(self._path)
        except NoNodeError:
            self._lacks_parent = True
            return True
        line = sort_by_arrival(self._naming, self._kinds, names)
        return self._rule([*line, NodeName("", ROWS[self._naming, self._kind], 0)], len(line)).ahead is None

    async def attempt(self) -> bool:
        """Enter the line only if it would be this contender's turn immediately. Return whether it is.

        No node is created if other contenders are ahead.

        Raises:
            ConnectionLossError: No connection was available in time.
            SessionExpiredError: The session ended during the attempt.
        """
        if not await self.is_free():
            return False
        try:
            await self.enter()
            if self._wait_target(sort_by_arrival(self._naming, self._kinds, self._listed or ())).ahead is None:
                await self.wait()
                return True
        except BaseException:  # a cancelled task also has to leave the line
            self.leave()
            raise
        self.leave()  # another contender was faster
        return False

    async def _wait_for(self, other: NodeName) -> bool:
        """Wait until the node of a different contender changes. Return whether it was deleted."""
        try:
            async with self._client.watch_data(paths.join(self._path, other.name)) as watch:
                self._watch = watch
                if not self._listens:
                    self._listens = True
                    self._client._core.add_listener(self)
                event = await watch.next()
                self._seen_zxid = event.zxid or 0
                return event.type == EventType.NODE_DELETED
        except NoNodeError:
            self._seen_zxid = 0
            return True
        finally:
            self._watch = None

    async def confirm(self) -> int:
        """Check that the node still exists, and return the zxid of the reply.

        Raises:
            SessionExpiredError: The node no longer exists.
        """
        call = self._client.exists(self.node)
        if await call is None:
            raise SessionExpiredError(self.node, NODE_LOST_REASON)
        return call.zxid

    def leave(self) -> None:
        """Leave the line: a background task deletes the node, even if the connection is lost."""
        if self.node and self._client.state is not State.CLOSED:
            delete_in_background(self._client, self.node)
            self.node = ""
