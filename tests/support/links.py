"""The network between the members of an ensemble: connections can be cut, or delayed in one direction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from support.apache import free_port
from support.waiting import DEADLINE_S

T = TypeVar("T")


class Link:
    """A forwarder of connections from one member to a port of another member.

    Args:
        target: The port of the other member.

    Attributes:
        port: The port that the first member connects to.
        cut: Whether the link is cut.
        is_down: Whether the other member is down.
        lag: Delay, in seconds, of everything that the other member sends.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.cut = self.is_down = False
        self.lag = 0.0
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start listening, unless the link is listening already."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Refuse new connections and close the open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()

    async def update(self) -> None:
        """Forward connections, unless the link is cut or the other member is down."""
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
            writer.close()  # the bytes written before still arrive
            raise ConnectionResetError("the other end is gone")

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            data = b"-"
            while data:
                data = await reader.read(1 << 16)
                late.put_nowait((loop.time() + lag(), data))


class Links:
    """All links between members, served by one separate thread.

    Args:
        ports: For each member, the ports that the others connect to.
    """

    def __init__(self, ports: list[tuple[int, ...]]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        numbers = range(len(ports))
        self.between = {
            (one, other): [Link(port) for port in ports[other]] for one in numbers for other in numbers if one != other
        }

    def start(self) -> None:
        """Listen on all links."""
        self._thread.start()
        self._in_loop(self._all(lambda link: link.start()))

    def stop(self) -> None:
        """Close all links and stop the thread."""
        self._in_loop(self._all(lambda link: link.stop()))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def partition(self, *groups: list[int]) -> None:
        """Cut the links between groups, and restore the links within each group."""
        group_of = {member: number for number, group in enumerate(groups) for member in group}

        async def cut() -> None:
            for (one, other), links in self.between.items():
                for link in links:
                    link.cut = group_of.get(one) != group_of.get(other)
                    await link.update()

        self._in_loop(cut())

    def set_down(self, member: int, is_down: bool) -> None:
        """Refuse connections to a member that is down, or forward them again."""

        async def update() -> None:
            for (_, other), links in self.between.items():
                for link in links if other == member else ():
                    link.is_down = is_down
                    await link.update()

        self._in_loop(update())

    def lag(self, member: int, seconds: float) -> None:
        """Delay all data that a member receives from its leader."""
        for (one, _), links in self.between.items():
            if one == member:
                links[0].lag = seconds

    def _in_loop(self, awaited: object) -> None:
        asyncio.run_coroutine_threadsafe(awaited, self._loop).result(DEADLINE_S)  # type: ignore[arg-type]

    async def _all(self, call: Callable[[Link], object]) -> None:
        for links in self.between.values():
            for link in links:
                await call(link)  # type: ignore[misc]
