"""One contender's place in a line of sequential ephemeral nodes: what locks and elections have in common.

1. Make an own node and list all in the same round trip.
2. Whoever is not in front watches exactly one node, that of the contender it has to wait for: when that goes, one
   client wakes up, not all (no herd).
3. Whoever gives up deletes its node, whatever becomes of the reply to that, or to the create.

Source: the lock recipe in ZooKeeper's documentation; spec of both libraries' names in :mod:`.layout`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from zoolet.client import serializers
from zoolet.client.recipes import _node_names as names
from zoolet.client.recipes._node_names import Entry
from zoolet.client.reliable import create_protected, delete_guaranteed
from zoolet.client.states import State
from zoolet.client.surface import ClientSurface
from zoolet.client.watcher import Watcher
from zoolet.protocol import paths
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import ClosedError, NoNodeError, SessionExpiredError, ZooKeeperError


class Turn(NamedTuple):
    """Whom a contender has to wait for.

    Args:
        behind: Its entry; None for nobody.
        last: Once it is gone there is nobody else to wait for.
    """

    behind: Entry | None
    last: bool


Rule = Callable[[Sequence[Entry], int], Turn]
"""Given all contenders in order and one's own place, whom to wait for."""


def wait_for_predecessor(entries: Sequence[Entry], mine: int) -> Turn:
    """Wait for whoever came right before."""
    return Turn(entries[mine - 1], mine == 1) if mine else Turn(None, True)


def wait_for_writer(entries: Sequence[Entry], mine: int) -> Turn:
    """Wait for the last writer who came before."""
    ahead = [entry for entry in entries[:mine] if entry.kind == "write"]
    return Turn(ahead[-1], len(ahead) == 1) if ahead else Turn(None, True)


class Contender:
    """A place in line.

    Args:
        client: Whose session it is in.
        path: The node above all contenders; made if it is missing.
        layout: The naming, ``kazoo`` or ``curator``.
        kind: What this one is.
        kinds: What it has to do with.
        rule: Whom it waits for.
        data: What its node holds, as bytes.

    Attributes:
        node: Its node's path; empty until it has one.
        token: Its node's czxid; 0 until then.
    """

    def __init__(
        self,
        client: ClientSurface,
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
        self._kinds = kinds
        self._rule = rule
        self._data = data
        self._mark = names.prefix(naming, kind, client.new_uuid())
        self._listed: list[str] | None = None
        self._watch: Watcher | None = None
        self._session_id = 0
        self._listens = False
        self.node = ""
        self.token = 0

    def on_state(self, state: State) -> None:
        """Hear of the client's state: with the session the place in line is gone."""
        if self._watch is not None and state in (State.LOST, State.CLOSED):
            gone = SessionExpiredError if state is State.LOST else ClosedError
            self._watch.fail(gone(self._path, "the session ended while in line"))

    async def enter(self) -> None:
        """Take a place at the end of the line.

        Raises:
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended meanwhile.
        """
        self.node = await create_protected(self._client, self._path, self._mark, self._make)
        if not self.token:  # the reply was lost, and the node found by its mark
            stat = await self._client.exists(self.node)
            if stat is None:
                raise SessionExpiredError(self.node, "the node is gone again")
            self.token, self._session_id = stat.czxid, stat.ephemeralOwner
        if self._listed is None:
            self._listed = await self._client.children(self._path)

    async def _make(self) -> str:
        client = self._client
        made = client.create_and_stat(paths.join(self._path, self._mark), self._data, ephemeral=True, sequential=True)
        listed = client.children(self._path)
        try:
            node, stat = await made
            self.token, self._session_id = stat.czxid, stat.ephemeralOwner
            with contextlib.suppress(ZooKeeperError):  # the node is made: the list can be asked for again
                self._listed = await listed
        finally:
            listed.cancel()
        return node

    async def wait(self) -> None:
        """Wait until it is this one's turn.

        Raises:
            SessionExpiredError: The session ended, or somebody deleted the node.
        """
        name = self.node.rpartition("/")[2]
        entries: list[Entry] | None = None
        while True:
            if entries is None or self._rule is not wait_for_predecessor:
                entries = names.in_order(self._naming, self._kinds, self._listed or ())
            else:  # nobody comes in before one who is there: those of before, without who has gone
                left = set(self._listed or ())
                entries = [entry for entry in entries if entry.name in left]
            mine = next((place for place, entry in enumerate(entries) if entry.name == name), None)
            if mine is None or self._client.session_id != self._session_id:
                raise SessionExpiredError(self.node, "the node is gone: the session ended, or somebody deleted it")
            del entries[mine + 1 :]
            turn = self._rule(entries, mine)
            if turn.behind is None or (await self._gone(turn.behind) and turn.last):
                if self._client.session_id != self._session_id:
                    raise SessionExpiredError(self.node, "the session ended while in line")
                return
            self._listed = await self._client.children(self._path)

    async def _gone(self, entry: Entry) -> bool:
        """Wait until something happens to somebody else's node; say whether it is gone."""
        try:
            async with self._client.watch_data(paths.join(self._path, entry.name)) as watch:
                self._watch = watch
                if not self._listens:
                    self._listens = True
                    self._client.add_listener(self)
                return (await watch.next()).type == EventType.NODE_DELETED
        except NoNodeError:
            return True
        finally:
            self._watch = None

    async def confirm(self) -> None:
        """Do nothing if the place is still there.

        Raises:
            SessionExpiredError: It is not.
        """
        if await self._client.exists(self.node) is None:
            raise SessionExpiredError(self.node, "the node is gone: the session ended, or somebody deleted it")

    def leave(self) -> None:
        """Give up the place: the node is deleted for certain, in the background."""
        if self.node and self._client.state is not State.CLOSED:
            self._client.spawn(delete_guaranteed(self._client, self.node))
            self.node = ""

    async def take(self, seconds: float | None) -> None:
        """Enter and wait; whatever goes wrong leaves no node.

        Raises:
            TimeoutError: It did not become this one's turn in time.
        """
        try:
            if seconds is None:
                await self.enter()
                await self.wait()
            else:
                async with asyncio.timeout(seconds):
                    await self.enter()
                    await self.wait()
        except BaseException:
            self.leave()
            raise
