"""An event loop in virtual time: it never waits, because its time jumps to the next timer."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from zoolet.server.testing.clock import MANUAL_CLOCK_START
from zoolet.server.testing.sim.network import Network


class StuckError(RuntimeError):
    """Nothing will ever happen again, and tasks still wait."""


class TooLongError(RuntimeError):
    """More virtual time has passed than was allowed."""


def describe_pending_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Return the tasks that are not done, a line each, with the places where they wait."""
    lines = []
    for task in asyncio.all_tasks(loop):
        awaited: Any = task.get_coro()
        places = []
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
            awaited = awaited.cr_await
        lines.append(f"\n  {task.get_name()}: {' > '.join(places)}")
    return "".join(sorted(lines))


class SimLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time, whose connections go through a :class:`Network`.

    Args:
        rng: Where the network's randomness comes from.
        limit: Virtual seconds after which a run fails.

    Attributes:
        network: What connects clients and servers.
    """

    def __init__(self, rng: Random, limit: float) -> None:
        super().__init__()
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        self._now = 0.0
        self._limit = limit
        self.network = Network(self, rng)

    def __del__(self) -> None:
        if not self.is_closed():  # it was never run, and holds nothing that could leak
            self.close()

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Move the time on at once; no timer is called before the loop runs again.

        Raises:
            TooLongError: The time would pass the limit.
        """
        self._now += seconds
        if self._now > self._limit:
            limit, self._limit = self._limit, float("inf")  # what is cancelled now may take some time
            raise TooLongError(
                f"the run has taken more than {limit} virtual seconds; these tasks wait:{describe_pending_tasks(self)}"
            )

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no descriptors, so there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps, so that it need not be woken."""

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Listen in the simulated network; only ``host`` and ``port`` count."""
        return self.network.listen(protocol_factory, host, port)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect in the simulated network.

        Raises:
            ConnectionRefusedError: Nothing listens there.
        """
        return await self.network.connect(protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Resolve every name to itself."""
        return [(0, 0, 0, "", (host, port))]


class _Selector:
    """What the loop calls when nothing is ready: it moves the time on instead of waiting for descriptors."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Move the time on by *timeout* seconds."""
        if timeout is None:
            raise StuckError(
                f"nothing will ever happen again at {self._loop.time():.3f} s; these tasks wait:"
                f"{describe_pending_tasks(self._loop)}"
            )
        self._loop.pass_time(timeout)
        return []

    def close(self) -> None:
        """Do nothing: nothing is open."""


class LoopClock:
    """A loop's virtual time as a server's clock."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def read(self) -> tuple[int, int]:
        """Return milliseconds since the epoch, and milliseconds since the loop was made."""
        monotonic_ms = int(self._loop.time() * 1000)
        return MANUAL_CLOCK_START + monotonic_ms, monotonic_ms

    def forgive(self, milliseconds: int) -> None:
        """Change nothing: a loop in virtual time is never late."""
