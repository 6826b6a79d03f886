"""A node's value, kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from zoolet.client.serializers import UndecodableError
from zoolet.client.states import State, WatchOverflowError
from zoolet.client.surface import ClientSurface, Stat
from zoolet.protocol.errors import ClosedError, NoNodeError, ZooKeeperError


class NodeCache:
    """The present value of one node: ``async with NodeCache(zk, "/a") as cache: cache.value``.

    Znodes: none. One persistent watch on PATH.

    Guarantees: ``value`` is at some time the value of every change that lasts; it never goes back. While disconnected
    it is what it was; what changed meanwhile is read as soon as the client is back, also in a new session.

    Limits: values that are replaced at once by others may never be seen. It may be behind by as long as an event takes.

    Args:
        client: Whose watch it is; its codec reads the value.
        path: The node; it need not exist.

    Attributes:
        value: What the node holds; None if there is none.
        stat: Its Stat; None if there is none.
        error: Why the codec could not read the latest value; ``value`` is the last one that it could.
    """

    def __init__(self, client: ClientSurface, path: str) -> None:
        client.add_chroot(path)
        self._client = client
        self._path = path
        self._job: asyncio.Task[Any] | None = None
        self._ready = asyncio.Event()
        self._changed: asyncio.Event = asyncio.Event()
        self._count = 0
        self.error: UndecodableError | None = None
        self.value: Any = None
        self.stat: Stat | None = None

    async def _follow(self) -> None:
        while True:
            try:
                async with self._client.watch(self._path) as events:
                    await self._read()
                    self._ready.set()
                    async for _ in events:
                        await self._read()
            except ClosedError:
                raise
            except (ZooKeeperError, WatchOverflowError):
                if not self._ready.is_set() and self._client.state is State.CONNECTED:
                    raise  # whoever enters is to hear of it
                await asyncio.sleep(0.05)

    async def refresh(self) -> None:
        """Read the node now: what this client has written before this is seen after it."""
        await self._read()

    async def _read(self) -> None:
        value: Any = None
        stat: Stat | None = None
        try:
            value, stat = await self._client.get(self._path)
        except NoNodeError:
            pass
        except UndecodableError as error:
            self.error = error
            return
        self.error = None
        if (
            stat is not None
            and self.stat is not None
            and stat.mzxid < self.stat.mzxid
            and stat.czxid == self.stat.czxid
        ):
            return  # an answer that was overtaken
        if (stat.mzxid if stat else None) != (self.stat.mzxid if self.stat else None):
            self._count += 1
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        self.value, self.stat = value, stat

    async def changes(self) -> AsyncIterator[Any]:
        """Iterate the value: now, and after each change; values that come fast may be left out."""
        seen = -1
        while True:
            if seen != self._count:
                seen = self._count
                yield self.value
                continue
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        self._job = await started(self._client, self._follow(), self._ready)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await ended(self._job)


async def started(client: ClientSurface, following: Any, ready: asyncio.Event) -> asyncio.Task[Any]:
    """Start a job that follows something, and wait until it is up to date; its error is raised here."""
    job = client.spawn(following)
    first = asyncio.ensure_future(ready.wait())
    try:
        await asyncio.wait((first, job), return_when=asyncio.FIRST_COMPLETED)
        if not ready.is_set():
            job.result()
            raise ClosedError(detail="the client is closed")
    except BaseException:
        job.cancel()
        raise
    finally:
        first.cancel()
    return job


async def ended(job: asyncio.Task[Any] | None) -> None:
    """End a job."""
    if job is not None and not job.done():
        job.cancel()
        await asyncio.wait((job,))
