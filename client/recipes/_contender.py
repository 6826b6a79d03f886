"""One contender's place in a line of sequential ephemeral nodes: what locks and elections have in common.

1. Create an own node and list all in the same round trip.
2. A contender that is not first watches exactly one node, that of the contender it has to wait for: when that goes, one
   client wakes up, not all (no herd).
3. A contender that gives up deletes its node, whatever becomes of the reply to that, or to the create.

The fencing token is the zxid at which the server showed that it is this contender's turn: that of the reply with the
list, or of the event that the one before has gone. The release of a holder has a higher zxid than its token, and the
next one's turn is seen at a zxid that is at least that of the release. So a later holder has a higher token whatever
the locks that both of them hold are made of, which is not true of czxids: a node can be created long before its turn.

Source: the lock recipe in ZooKeeper's documentation; the names in :mod:`._node_names`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

from zoolet.client import serializers
from zoolet.client.aio.call import Call
from zoolet.client.aio.client import Client
from zoolet.client.aio.reliable import create_protected, delete_in_background, ensure_container
from zoolet.client.aio.watcher import Watcher
from zoolet.client.recipes import _node_names as names
from zoolet.client.recipes._follow import children_of
from zoolet.client.recipes._node_names import NodeName
from zoolet.client.wire.states import State
from zoolet.protocol import paths
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import ClosedError, NoNodeError, SessionExpiredError, ZooKeeperError
from zoolet.protocol.records import Stat

_GONE = "the node is gone: the session ended, or somebody deleted it"
_ENDED = "the session ended while in line"


class Turn(NamedTuple):
    """Which contender one has to wait for.

    Args:
        ahead: Its node; None for none.
        last: Once it is gone there is no other to wait for.
    """

    ahead: NodeName | None
    last: bool


Rule = Callable[[Sequence[NodeName], int], Turn]
"""Given all contenders in order and one's own place, which to wait for."""


def wait_for_predecessor(line: Sequence[NodeName], own: int) -> Turn:
    """Wait for the contender right before."""
    return Turn(line[own - 1], own == 1) if own else Turn(None, True)


def wait_for_writer(line: Sequence[NodeName], own: int) -> Turn:
    """Wait for the last writer before."""
    ahead = [node for node in line[:own] if node.kind == "write"]
    return Turn(ahead[-1], len(ahead) == 1) if ahead else Turn(None, True)


def process_name() -> bytes:
    """Return this process's name for people: its host and its process id."""
    return b"%s:%d" % (_host_name(), os.getpid())  # the process may have been forked


@cache
def _host_name() -> bytes:
    return socket.gethostname().encode()


class Contender:
    """A place in line.

    Args:
        client: Whose session it is in.
        path: The node above all contenders; created if it is missing.
        naming: ``kazoo`` or ``curator``.
        kind: The kind of this one.
        kinds: The kinds that it contends with.
        rule: Which contender it waits for.
        data: What its node holds, as bytes.

    Attributes:
        node: Its node's path; empty until it has one, and after it has left.
        czxid: Its node's czxid; 0 until then.
        token: The zxid at which it was known to be its turn; 0 until then.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        naming: str,
        kind: str,
        kinds: Sequence[str],
        rule: Rule = wait_for_predecessor,
        data: bytes = b"",
    ) -> None:
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._naming = naming
        self._kind = kind
        self._kinds = kinds
        self._rule = rule
        self._data = data
        self._prefix = names.prefix(naming, kind, client.new_uuid())
        self._listed: list[str] | None = None
        self._seen_at = 0  # the zxid of the list, or of the event after it
        self._watch: Watcher | None = None
        self._session_id = 0
        self._listens = False
        self.node = ""
        self.czxid = self.token = 0
        self._clock_offset: float | None = None  # of the server's clock from the loop's

    def owns(self, path: str) -> bool:
        """Return whether a node is this one's, also if it has left, or does not know its node yet."""
        return self._prefix in path

    def server_time(self) -> float | None:
        """Return the present time by the server's clock, in seconds since the epoch; None if it has no node yet."""
        offset = self._clock_offset
        return None if offset is None else offset + asyncio.get_running_loop().time()

    def _record_node(self, stat: Stat) -> None:
        self.czxid, self._session_id = stat.czxid, stat.ephemeralOwner
        self._clock_offset = stat.ctime / 1000 - asyncio.get_running_loop().time()

    def on_state(self, state: State) -> None:
        """Receive the client's state: with the session the place in line is gone."""
        if self._watch is not None and state in (State.LOST, State.CLOSED):
            gone = SessionExpiredError if state is State.LOST else ClosedError
            self._watch.fail(gone(self._path, _ENDED))

    async def enter(self) -> None:
        """Join the end of the queue, with a node that survives lost replies (``create_protected``).

        Raises:
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended meanwhile.
        """
        in_container = partial(ensure_container, self._client)
        self.node = await create_protected(
            self._client, self._path, self._prefix, self._create, create_parent=in_container
        )
        if not self.czxid:  # the reply was lost, and the node found by its prefix
            stat = await self._client.exists(self.node)
            if stat is None:
                raise SessionExpiredError(self.node, "the node is gone again")
            self._record_node(stat)
        if self._listed is None:
            await self._list(self._client.children(self._path))

    async def _list(self, listed: Call[list[str]]) -> None:
        self._listed = await listed
        self._seen_at = listed.zxid

    async def _create(self) -> str:
        client, path = self._client, paths.join(self._path, self._prefix)
        created = client.create_and_stat(path, self._data, ephemeral=True, sequential=True)
        listed = client.children(self._path)
        try:
            node, stat = await created
            self._record_node(stat)
            with contextlib.suppress(ZooKeeperError):  # the node is there: the list can be asked for again
                await self._list(listed)
                if self._seen_at < self.czxid:  # the server was too busy to create it at once
                    self._listed = None
        finally:
            listed.cancel()
        return node

    async def wait(self) -> None:
        """Wait until it is this one's turn.

        Raises:
            SessionExpiredError: The session ended, or somebody deleted the node.
        """
        line: list[NodeName] | None = None
        while True:
            if line is None or self._rule is not wait_for_predecessor:
                line = names.in_order(self._naming, self._kinds, self._listed or ())
            else:  # nobody comes in before one that is there: the line of before, without those that have gone
                present = set(self._listed or ())
                line = [node for node in line if node.name in present]
            turn = self._turn(line)
            if turn.ahead is None or (await self._wait_for(turn.ahead) and turn.last):
                await self._record_grant()
                return
            await self._list(self._client.children(self._path))

    def _turn(self, line: list[NodeName]) -> Turn:
        """Return which one to wait for; those after it are removed from the line."""
        name = paths.name(self.node)
        own = next((place for place, node in enumerate(line) if node.name == name), None)
        if own is None or self._client.session_id != self._session_id:
            raise SessionExpiredError(self.node, _GONE)
        del line[own + 1 :]
        return self._rule(line, own)

    async def _record_grant(self) -> None:
        self.token = self._seen_at or await self.confirm()
        if self._client.session_id != self._session_id:
            raise SessionExpiredError(self.node, _ENDED)

    async def is_free(self) -> bool:
        """Return whether it would be this one's turn at once."""
        line = names.in_order(self._naming, self._kinds, await children_of(self._client, self._path))
        return self._rule([*line, NodeName("", self._kind, 0)], len(line)).ahead is None

    async def attempt(self) -> bool:
        """Enter if it would be this one's turn at once; return whether it is. It creates no node if others are ahead.

        Raises:
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended meanwhile.
        """
        if not await self.is_free():
            return False
        try:
            await self.enter()
            if self._turn(names.in_order(self._naming, self._kinds, self._listed or ())).ahead is None:
                await self._record_grant()
                return True
        except BaseException:  # cancelled, too
            self.leave()
            raise
        self.leave()  # another one came first
        return False

    async def _wait_for(self, other: NodeName) -> bool:
        """Wait until something happens to another contender's node; return whether it is gone."""
        try:
            async with self._client.watch_data(paths.join(self._path, other.name)) as watch:
                self._watch = watch
                if not self._listens:
                    self._listens = True
                    self._client.add_listener(self)
                event = await watch.next()
                self._seen_at = event.zxid or 0
                return event.type == EventType.NODE_DELETED
        except NoNodeError:
            self._seen_at = 0
            return True
        finally:
            self._watch = None

    async def confirm(self) -> int:
        """Return the zxid at which the place is still there.

        Raises:
            SessionExpiredError: It is not.
        """
        call = self._client.exists(self.node)
        if await call is None:
            raise SessionExpiredError(self.node, _GONE)
        return call.zxid

    def leave(self) -> None:
        """Leave the line: the node is deleted, guaranteed, in the background."""
        if self.node and self._client.state is not State.CLOSED:
            delete_in_background(self._client, self.node)
            self.node = ""

    async def acquire(self) -> None:
        """Enter and wait. If that fails or is cancelled, the caller calls :meth:`leave`: others would wait for nobody.

        Raises:
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended, or somebody deleted the node.
        """
        await self.enter()
        await self.wait()
