"""The network between the members of an ensemble: connections that can be cut, or be slow in one direction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from support.apache import free_port

T = TypeVar("T")
CALL_S: Final = 10.0


class Link:
    """Passes connections of one member to a port of another.

    Args:
        target: The port of the other.

    Attributes:
        port: Where the one connects.
        cut: Whether nothing passes.
        is_down: Whether the other does not run.
        lag: Seconds by which what the other sends is late.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.cut = self.is_down = False
        self.lag = 0.0
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, unless it does."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Refuse connections, and close those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()

    async def update(self) -> None:
        """Pass connections, unless the link is cut or the other is down."""
        await (self.stop() if self.cut or self.is_down else self.start())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            its, to_it = await asyncio.open_connection("127.0.0.1", self._target)
            ends.append(to_it)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, to_it, lambda: 0.0))
                group.create_task(self._pump(its, writer, lambda: self.lag))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for end in ends:
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lag: Callable[[], float]) -> None:
        loop = asyncio.get_running_loop()
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def send() -> None:
            data = b"-"
            while data:
                when, data = await late.get()
                await asyncio.sleep(max(when - loop.time(), 0.0))
                writer.write(data)
            await writer.drain()
            writer.close()  # what was said last is heard
            raise ConnectionResetError("the other end is gone")

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            data = b"-"
            while data:
                data = await reader.read(1 << 16)
                late.put_nowait((loop.time() + lag(), data))


class Links:
    """All links between members, served by a thread of their own.

    Args:
        ports: Of each member the ports that the others connect to.
    """

    def __init__(self, ports: list[tuple[int, ...]]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        numbers = range(len(ports))
        self.between = {
            (one, other): [Link(port) for port in ports[other]] for one in numbers for other in numbers if one != other
        }

    def start(self) -> None:
        """Listen on all."""
        self._thread.start()
        self._in_loop(self._all(lambda link: link.start()))

    def stop(self) -> None:
        """Close all, and end the thread."""
        self._in_loop(self._all(lambda link: link.stop()))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def partition(self, *groups: list[int]) -> None:
        """Cut the links between groups, and restore those inside."""
        group_of = {member: number for number, group in enumerate(groups) for member in group}

        async def cut() -> None:
            for (one, other), links in self.between.items():
                for link in links:
                    link.cut = group_of.get(one) != group_of.get(other)
                    await link.update()

        self._in_loop(cut())

    def set_down(self, member: int, is_down: bool) -> None:
        """Refuse connections to a member that does not run, or pass them again."""

        async def update() -> None:
            for (_, other), links in self.between.items():
                for link in links if other == member else ():
                    link.is_down = is_down
                    await link.update()

        self._in_loop(update())

    def lag(self, member: int, seconds: float) -> None:
        """Delay what a member receives from its leader."""
        for (one, _), links in self.between.items():
            if one == member:
                links[0].lag = seconds

    def _in_loop(self, awaited: object) -> None:
        asyncio.run_coroutine_threadsafe(awaited, self._loop).result(CALL_S)  # type: ignore[arg-type]

    async def _all(self, call: Callable[[Link], object]) -> None:
        for links in self.between.values():
            for link in links:
                await call(link)  # type: ignore[misc]
