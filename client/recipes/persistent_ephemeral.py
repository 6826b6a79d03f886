"""An ephemeral node that is made again with every new session."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from zoolet.client.states import State
from zoolet.client.surface import ClientSurface
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import (
    ClosedError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)


class PersistentEphemeral:
    """Keeps an ephemeral node there for as long as its program runs: ``async with PersistentEphemeral(zk, "/up/me"):``.

    Znodes: PATH, ephemeral, with the value; the nodes above it are made if they are missing.

    Guarantees: when a session ends, the node is made again in the next one, with the latest value; also when somebody
    deletes it. A node of that name that belongs to another session is waited out: it is often one's own of a session
    before. Leaving the block deletes the node.

    Limits: between the end of a session and the beginning of the next there is no node. Two programs that both want the
    same path take turns.

    Args:
        client: Whose session it is in.
        path: The node.
        value: What it holds.
    """

    def __init__(self, client: ClientSurface, path: str, value: Any = b"") -> None:
        client.add_chroot(path)
        self._client = client
        self._path = path
        self._value = value
        self._job: asyncio.Task[Any] | None = None
        self._there = asyncio.Event()
        self._changed = asyncio.Event()
        self._entered = False
        self._watch: Any = None

    def on_state(self, state: State) -> None:
        """Hear of the client's state."""
        if state is State.LOST:
            self._there.clear()
            self._poke(SessionExpiredError(self._path, "the session ended"))

    def _poke(self, why: Exception) -> None:
        if self._watch is not None:
            self._watch.fail(why)

    @property
    def there(self) -> bool:
        """Whether the node is there, as far as is known."""
        return self._there.is_set()

    async def set(self, value: Any) -> None:
        """Change what the node holds, now and whenever it is made again."""
        self._value = value
        if self._there.is_set():
            with contextlib.suppress(NoNodeError):  # it is made again with the new value in a moment
                await self._client.set(self._path, value)

    async def _keep(self) -> None:
        while True:
            try:
                await self._hold()
            except ClosedError:
                raise
            except ZooKeeperError:
                if not self._entered and self._client.state is State.CONNECTED:
                    raise  # whoever enters is to hear of it
                self._there.clear()
                await asyncio.sleep(0.01)

    async def _hold(self) -> None:
        """Make the node, and come back when it is gone."""
        client, value = self._client, self._value
        try:
            await client.create(self._path, value, ephemeral=True, parents=True)
        except NodeExistsError:
            async with client.watch_exists(self._path) as watch:
                if watch.initial is not None and watch.initial.ephemeralOwner != client.session_id:
                    self._watch = watch
                    await watch.next()
                    return
            await client.set(self._path, value)
        async with client.watch(self._path) as watch:
            self._watch = watch
            stat = await client.exists(self._path)
            if stat is None or stat.ephemeralOwner != client.session_id:
                return
            while value is not self._value:  # changed while it was being made
                value = self._value
                await client.set(self._path, value)
            self._there.set()
            async for event in watch:
                if event.type == EventType.NODE_DELETED:
                    self._there.clear()
                    return

    async def __aenter__(self) -> Self:
        self._client.add_listener(self)
        self._job = self._client.spawn(self._keep())
        there = asyncio.ensure_future(self._there.wait())
        try:
            await asyncio.wait((there, self._job), return_when=asyncio.FIRST_COMPLETED)
            if not self._there.is_set():
                self._job.result()
                raise ClosedError(self._path)
        except BaseException:
            await self._end()
            raise
        finally:
            there.cancel()
        self._entered = True
        return self

    async def _end(self) -> None:
        """Keep it no more, and delete it if it is one's own; in the background, if this is cancelled."""
        if self._job is not None:
            self._job.cancel()
        self._there.clear()
        if self._client.state is not State.CLOSED:
            await asyncio.shield(self._client.spawn(self._finish()))

    async def _finish(self) -> None:
        client = self._client
        if self._job is not None:
            await asyncio.wait((self._job,))
        while True:
            try:
                stat = await client.exists(self._path)
                if stat is not None and stat.ephemeralOwner == client.session_id:
                    await client.delete(self._path)
                return
            except (NoNodeError, SessionExpiredError):
                return
            except ConnectionLossError:
                await asyncio.sleep(0.1)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()
