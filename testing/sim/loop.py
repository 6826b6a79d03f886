"""An event loop with virtual time: it never waits, because its time jumps to the next timer."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from ..state.clock import MANUAL_CLOCK_START
from .network import SimNetwork


class StuckError(RuntimeError):
    """A deadlock of a simulation: no timer is pending, but tasks are still waiting."""

    __module__ = "zoolet.testing"  # programs import it from there, so tracebacks name it


class TooLongError(RuntimeError):
    """A run of a simulation that has exceeded its limit of virtual time."""

    __module__ = "zoolet.testing"  # programs import it from there, so tracebacks name it


def describe_pending_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Return a line for each pending task, with the stack of coroutines that it waits in."""
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
    """An event loop with virtual time, whose connections go through a :class:`SimNetwork`.

    Args:
        rng: The network's source of randomness.
        limit: Virtual seconds after which a run fails.

    Attributes:
        network: The network between clients and servers.
        client_rng: The source of randomness of clients that get no other source.
        resolves_names: Whether the loop accepts host names as addresses, so clients need not look them up.
    """

    resolves_names = True

    def __init__(self, rng: Random, limit: float) -> None:
        super().__init__()
        self.client_rng = Random(0)
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        self._now = 0.0
        self._limit = limit
        self.network = SimNetwork(self, rng)

    def __del__(self) -> None:
        if not self.is_closed():  # a loop that is still open here was never run, so nothing can leak
            self.close()

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Advance the time immediately. Timers that become due are called when the loop runs again.

        Raises:
            TooLongError: The time exceeds the limit.
        """
        self._now += seconds
        if self._now > self._limit:
            limit, self._limit = self._limit, float("inf")  # the clean-up of cancelled tasks may take time
            raise TooLongError(
                f"the run exceeded {limit} virtual seconds; these tasks are waiting:{describe_pending_tasks(self)}"
            )

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing, because a loop without file descriptors has no events."""

    def _write_to_self(self) -> None:
        """Do nothing, because the loop never sleeps and need not be woken."""

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Listen on a port of the simulated network. Options are ignored."""
        return self.network.listen(protocol_factory, host, port)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect to a server in the simulated network. Options are ignored.

        Raises:
            ConnectionRefusedError: No server listens on the port, or connections are refused.
        """
        return await self.network.connect(protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Resolve every name to itself."""
        return [(0, 0, 0, "", (host, port))]


class _Selector:
    """The loop's selector, which advances the time instead of waiting for file descriptors."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the time by *timeout* seconds. With None, raise a StuckError, because no timer is pending."""
        if timeout is None:
            advice = ""
            if getattr(self._loop, "_default_executor", None) is not None:
                advice = "; virtual time does not wait for threads, such as those of asyncio.to_thread"
            raise StuckError(
                f"deadlock at {self._loop.time():.3f} s: no timer is pending{advice}; these tasks are waiting:"
                f"{describe_pending_tasks(self._loop)}"
            )
        self._loop.pass_time(timeout)
        return []

    def close(self) -> None:
        """Do nothing, because there are no file descriptors."""


class LoopClock:
    """A server clock that uses the loop's virtual time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def read(self) -> tuple[int, int]:
        """Return the wall-clock time since the epoch, and the time since the loop was created, in milliseconds."""
        monotonic_ms = int(self._loop.time() * 1000)
        return MANUAL_CLOCK_START + monotonic_ms, monotonic_ms

    def subtract_pause(self, milliseconds: int) -> None:
        """Do nothing, because a loop with virtual time is never paused."""
