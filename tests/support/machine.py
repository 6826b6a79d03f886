"""A machine in virtual time: a real daemon, its data directory, and a disk that is slow, full or broken, or without
power.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from support.stored import RememberingDisk, StoredServer

from zoolet.server.testing.sim.loop import LoopClock, SimLoop
from zoolet.server.testing.state.clock import SkewedClock
from zoolet.testing import Simulation

LATENCY_S: Final = (0.0005, 0.02)
"""The seconds that an operation beside the event loop takes."""


class Machine:
    """A machine with one port.

    Args:
        sim: The simulation.
        folder: A folder for its data directories: after each loss of power another one begins.
        rng: Decides how long the disk takes, and what a loss of power leaves.
        fsync: When the server syncs.

    Attributes:
        port: The port.
        disk: The present disk.
        clock: Its clock.
        losses: How often the power was lost.
        is_running: Whether the server runs.
    """

    disk: VirtualDisk
    clock: SkewedClock

    def __init__(self, sim: Simulation, folder: Path, rng: Random, fsync: str = "always") -> None:
        self._sim = sim
        self._settings: dict[str, Any] = {"fsync": fsync, "snap_count": 150}
        self._folder = folder
        self._rng = rng
        self._server: StoredServer
        self.port = 0
        self.losses = 0
        self.is_running = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the server gracefully, if it runs."""
        if self.is_running:
            await self._server.__aexit__(None, None, None)

    async def start(self) -> None:
        """Start a server on what the disk has."""
        if self.port == 0:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimLoop)
            self.clock = SkewedClock(LoopClock(loop))
        folder = self._folder / str(self.losses)
        folder.mkdir(exist_ok=True)
        self.disk = VirtualDisk(folder, self._rng)
        self._server = StoredServer(folder, self.disk, clock=self.clock, port=self.port, turn=inf, **self._settings)
        await self._server.__aenter__()
        self.port = self._server.daemon.port
        self.is_running = True

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock ahead of what it was at first, or back."""
        self.clock.skew_ms = round(seconds * 1000)
        self._server.daemon.connections.set_time()

    def is_failing(self) -> bool:
        """Return whether the log cannot be written: what reads show then may not be in it."""
        return self._server.engine.frozen

    async def lose_power(self) -> None:
        """Lose the power, with what was not synced, or some of it; or only the process, with nothing that was written.
        The server stays away until :meth:`start`.
        """
        disk, server = self.disk, self._server
        self._sim.network.drop(self.port)
        self._sim.network.refuse_connections(self.port)
        disk.lose_power()
        steps = len(disk.steps)
        self.is_running = False
        await server.__aexit__(None, None, None)  # it cannot write, and reaches nobody
        self.losses += 1
        folder = self._folder / str(self.losses)
        if self._rng.random() < 0.3:
            disk.after_kill(steps, folder)
        else:
            disk.after_power_loss(steps, self._rng, folder)
        self._sim.network.accept_connections(self.port)


class VirtualDisk(RememberingDisk):
    """A disk whose operations take virtual time, and fail as a test says.

    Args:
        folder: As for :class:`RememberingDisk`.
        rng: Decides how long operations take.

    Attributes:
        full: Whether no space can be reserved or written; a part of what is written is there all the same.
        syncs: Whether syncs succeed.
    """

    def __init__(self, folder: Path, rng: Random) -> None:
        super().__init__(folder)
        self._rng = rng
        self._executors: list[_VirtualExecutor] = []
        self._left = inf  # how many operations remain until the power is lost
        self.full = False
        self.syncs = True

    def executor(self, name: str) -> Executor:
        """Return an executor in virtual time."""
        executor = _VirtualExecutor(self._rng)
        self._executors.append(executor)
        return executor

    def now(self) -> float:
        """Return virtual time."""
        return asyncio.get_running_loop().time()

    def lose_power(self) -> None:
        """Do no more than a few operations of what was asked for, and fail from then on."""
        self._left = self._rng.randrange(6)
        for executor in self._executors:
            executor.run_one()
        self._left = 0

    def _use(self) -> None:
        if self._left <= 0:
            raise OSError(errno.EIO, "the power is lost")
        self._left -= 1

    def create(self, path: Path) -> int:
        """Create a file, with the power on."""
        self._use()
        return super().create(path)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write, or write a part and fail."""
        self._use()
        if self.full:
            super().write(descriptor, data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(descriptor, data, offset)

    def reserve(self, descriptor: int, offset: int, size: int) -> None:
        """Reserve, or fail."""
        self._use()
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().reserve(descriptor, offset, size)

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate, with the power on."""
        self._use()
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Sync, or fail."""
        self._use()
        if not self.syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, with the power on."""
        self._use()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        """Remove, with the power on."""
        self._use()
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        """Sync the names of a folder, or fail."""
        self._use()
        if not self.syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_folder(path)


class _VirtualExecutor(Executor):
    """Runs one function after the other in the event loop, each after a while of virtual time."""

    def __init__(self, rng: Random) -> None:
        self._loop = asyncio.get_running_loop()
        self._rng = rng
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Run a function after those before it."""
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: function(*arguments, **options)))
        if len(self._waiting) == 1:
            self._run_later()
        return future

    def _run_later(self) -> None:
        self._loop.call_later(self._rng.uniform(*LATENCY_S), self._run)

    def _run(self) -> None:
        self.run_one()
        if self._waiting:
            self._run_later()

    def run_one(self) -> None:
        """Run the next function, if there is one."""
        if not self._waiting:
            return
        future, job = self._waiting.popleft()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(job())
            except BaseException as error:  # whatever it is: the future has it
                future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: there is no thread."""
