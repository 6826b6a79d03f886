"""A simulated machine: a real daemon with its data directory, in virtual time.

Its disk can be slow, full or broken, and the machine can lose power.
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

from zoolet.testing import Simulation
from zoolet.testing.sim.loop import LoopClock, SimLoop
from zoolet.testing.state.clock import SkewedClock

LATENCY_S: Final = (0.0005, 0.02)
"""The shortest and longest duration, in seconds, of an operation outside the event loop."""


class Machine:
    """A machine that runs one server on a fixed port.

    Args:
        sim: The simulation.
        folder: The parent of its data directories; each power loss starts a new directory.
        rng: Source of the durations of disk operations and of the data that survives a power loss.
        fsync: The server's sync policy.

    Attributes:
        port: The port.
        disk: The current disk.
        clock: Its clock.
        losses: Number of power losses.
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
        """Stop the server gracefully, if it is running."""
        if self.is_running:
            await self._server.__aexit__(None, None, None)

    async def start(self) -> None:
        """Start a server with the files on the disk."""
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
        """Set the offset of the wall clock from its initial value, forwards or backwards."""
        self.clock.skew_ms = round(seconds * 1000)
        self._server.daemon.connections.set_time()

    def is_failing(self) -> bool:
        """Return whether the log cannot be written. Reads may then show changes that are not in the log."""
        return self._server.engine.frozen

    async def lose_power(self) -> None:
        """Lose the power, and with it all or some of the unsynced writes; or kill only the process, which loses no
        writes. The server stays down until :meth:`start`.
        """
        disk, server = self.disk, self._server
        self._sim.network.drop(self.port)
        self._sim.network.refuse_connections(self.port)
        disk.lose_power()
        steps = len(disk.steps)
        self.is_running = False
        await server.__aexit__(None, None, None)  # clean up the object only: it can neither write nor reach a client
        self.losses += 1
        folder = self._folder / str(self.losses)
        if self._rng.random() < 0.3:
            disk.after_kill(steps, folder)
        else:
            disk.after_power_loss(steps, self._rng, folder)
        self._sim.network.accept_connections(self.port)


class VirtualDisk(RememberingDisk):
    """A disk whose operations take virtual time and can be made to fail.

    Args:
        folder: As for :class:`RememberingDisk`.
        rng: Source of the durations of operations.

    Attributes:
        full: Whether reserving and writing fail; a failed write still writes half of its data.
        syncs: Whether syncs succeed.
    """

    def __init__(self, folder: Path, rng: Random) -> None:
        super().__init__(folder)
        self._rng = rng
        self._executors: list[_VirtualExecutor] = []
        self._operations_left = inf  # number of operations until the power is lost
        self.full = False
        self.syncs = True

    def executor(self, name: str) -> Executor:
        """Return an executor in virtual time."""
        executor = _VirtualExecutor(self._rng)
        self._executors.append(executor)
        return executor

    def now(self) -> float:
        """Return the virtual time."""
        return asyncio.get_running_loop().time()

    def lose_power(self) -> None:
        """Finish at most a few of the pending operations; all later operations fail."""
        self._operations_left = self._rng.randrange(6)
        for executor in self._executors:
            executor.run_one()
        self._operations_left = 0

    def _use(self) -> None:
        if self._operations_left <= 0:
            raise OSError(errno.EIO, "the power is lost")
        self._operations_left -= 1

    def create(self, path: Path) -> int:
        """Create a file, if the power is on."""
        self._use()
        return super().create(path)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write, or write half of the data and fail."""
        self._use()
        if self.full:
            super().write(descriptor, data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(descriptor, data, offset)

    def reserve(self, descriptor: int, offset: int, size: int) -> None:
        """Reserve space, or fail if the disk is full."""
        self._use()
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().reserve(descriptor, offset, size)

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate, if the power is on."""
        self._use()
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Sync a file, or fail if syncs fail."""
        self._use()
        if not self.syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, if the power is on."""
        self._use()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        """Remove, if the power is on."""
        self._use()
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        """Sync the names of a folder, or fail."""
        self._use()
        if not self.syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_folder(path)


class _VirtualExecutor(Executor):
    """An executor in the event loop: it runs its functions in order, each after some virtual time."""

    def __init__(self, rng: Random) -> None:
        self._loop = asyncio.get_running_loop()
        self._rng = rng
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Run a function after those submitted earlier."""
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
        """Run the next function in the queue, if any."""
        if not self._waiting:
            return
        future, job = self._waiting.popleft()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(job())
            except BaseException as error:  # every error is passed to the caller through the future
                future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: the executor has no thread."""
