"""A server with a data directory in the running event loop, and disks that fail, wait, or record operations."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from support.waiting import DEADLINE_S

from zoolet.client import Client, acl
from zoolet.protocol.operations import OpCode
from zoolet.protocol.txns import CreateTxn
from zoolet.server.app import assemble, new_engine
from zoolet.server.config import build
from zoolet.server.core.engine import Engine
from zoolet.server.net.clock import Clock, RealClock
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.turns import TURN
from zoolet.server.storage import txnlog
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.layout import LOCK, SUBFOLDER
from zoolet.server.storage.opening import OpenDirectory
from zoolet.server.storage.recovery import RecoveryResult, recover
from zoolet.server.storage.settings import StorageSettings
from zoolet.server.storage.store import Store

SECTOR_BYTES: Final = 512
WRITE_COUNT: Final = 6


class StoredServer:
    """A server that keeps its data in a directory, as an asynchronous context manager.

    Args:
        folder: The directory.
        disk: The operations on files.
        clock: The source of time.
        port: The port; 0 for a free one.
        turn: The *turn* of :func:`assemble`.
        settings: Settings of the storage.
    """

    def __init__(
        self,
        folder: Path,
        disk: Disk | None = None,
        *,
        clock: Clock | None = None,
        port: int = 0,
        turn: float = TURN,
        **settings: Any,
    ) -> None:
        self._clock, self._port, self._turn = clock or RealClock(), port, turn
        self._settings = StorageSettings(str(folder), **{"preallocated": 64, **settings})
        self._disk = disk
        self.daemon: Daemon  # set by __aenter__
        self.hosts = ""

    async def __aenter__(self) -> Self:
        self._data = OpenDirectory(self._settings, self._disk)
        try:
            config, clock = build(), self._clock
            engine = new_engine(config, clock, Random(0), data=self._data)
            self.daemon = assemble(config, engine, clock=clock, data=self._data, turn=self._turn)
        except BaseException:
            self._data.release()
            raise
        self.hosts = f"127.0.0.1:{await self.daemon.start('127.0.0.1', self._port)}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.daemon.stop(gracefully=False)
        self._data.release()

    @property
    def store(self) -> Store:
        """The server's files."""
        store = self.daemon.connections.log
        assert isinstance(store, Store)
        return store

    @property
    def engine(self) -> Engine:
        """The server's state."""
        return self.daemon.engine


async def connect_client(server: StoredServer) -> Client:
    """Return a connected client."""
    client = Client(server.hosts, timeout=20.0)
    await client.start()
    return client


async def write_snapshot_and_log(folder: Path, *, preallocated: int = 0) -> tuple[Path, Path]:
    """Write six transactions with a server. Return the preceding snapshot and the log."""
    async with StoredServer(folder, preallocated=preallocated) as server, Client(server.hosts, timeout=20.0) as client:
        for number in range(WRITE_COUNT):
            await client.create(f"/n{number}", b"data")
        inner = folder / "version-2"
        log, snapshot = sorted(path for path in inner.iterdir() if not path.name.startswith("zoolet"))
        whole = log.read_bytes()
    log.write_bytes(whole)  # remove the entries of the shutdown, as if the server had been killed
    log.with_name("zoolet.lock").write_text("pid 1\n")
    return snapshot, log


def create_transaction(zxid: int) -> bytes:
    """Return an encoded transaction that creates the node ``/nZXID``."""
    return txnlog.encode([(1, 1, zxid, 1, OpCode.CREATE, CreateTxn(f"/n{zxid}", b"", acl.OPEN, False, zxid))])


def write_log(folder: Path, first: int, count: int) -> Path:
    """Write a log of :func:`create_transaction` transactions into the folder of a data directory."""
    folder.mkdir(exist_ok=True)
    path = folder / f"log.{first:x}"
    path.write_bytes(txnlog.encode_header() + b"".join(map(create_transaction, range(first, first + count))))
    return path


def recover_leniently(folder: Path) -> tuple[Engine, RecoveryResult]:
    """Recover a data directory as a daemon does."""
    engine = Engine(build().settings, now=5, monotonic_ms=5, rng=Random(0))
    return engine, recover(engine, folder, lenient=True)


def count_writes(engine: Engine) -> int:
    """Return how many writes of :func:`write_snapshot_and_log` are present. Fail if a write before a present one is
    missing.
    """
    there = [engine.tree.get(f"/n{number}") is not None for number in range(WRITE_COUNT)]
    assert there == sorted(there, reverse=True), there
    return sum(there)


def recover_state(folder: Path | DataDir) -> Engine:
    """Return the state that a server would start with."""
    engine = Engine(build().settings, now=5, monotonic_ms=5, rng=Random(0))
    recover(engine, folder, lenient=True)
    return engine


def persistent_state(engine: Engine) -> dict[str, object]:
    """Return the whole persistent state: nodes, with every field, and sessions."""
    nodes = {
        path: (
            *(node.data, engine.acls.list(node.acl), node.owner, node.czxid, node.mzxid, node.pzxid),
            *(node.ctime, node.mtime, node.version, node.aversion, node.creates),
        )
        for path, node in engine.tree.walk()
    }
    return {"nodes": nodes, "sessions": set(engine.sessions.alive)}


class FullDisk(Disk):
    """A disk without free space while ``reserves`` or ``writes`` is false. Its syncs can also be made to fail."""

    def __init__(self) -> None:
        self.reserves = self.writes = self.syncs = True
        self.max_file = sys.maxsize

    def reserve(self, descriptor: int, offset: int, size: int) -> None:
        """Reserve space, or fail if the disk is full."""
        if not self.reserves:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if offset + size > self.max_file:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        super().reserve(descriptor, offset, size)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write, or write half of the data and fail."""
        if not self.writes:
            super().write(descriptor, data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if offset + len(data) > self.max_file:
            super().write(descriptor, data[: self.max_file - offset], offset)
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        super().write(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        """Sync a file, or fail if syncs fail."""
        if not self.syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)


class SlowDisk(Disk):
    """A disk whose syncs wait for ``may_sync``; ``syncing`` counts the started syncs, ``synced`` the finished ones.

    Args:
        seconds: The minimum duration of each sync.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.syncing = self.synced = 0

    def sync(self, descriptor: int) -> None:
        """Wait, then sync."""
        self.syncing += 1
        assert self.may_sync.wait(DEADLINE_S)
        time.sleep(self._seconds)
        self.synced += 1
        super().sync(descriptor)


class Step(NamedTuple):
    """One operation on files: its name, the file, and its arguments."""

    what: str
    file: int
    arguments: tuple[Any, ...]


class RememberingDisk(Disk):
    """A disk that records all operations in order, to compute the possible files after a power loss.

    Args:
        folder: The data directory. Files that exist already survive every power loss.
    """

    def __init__(self, folder: Path) -> None:
        self.steps: list[Step] = []
        self._files: dict[int, int] = {}
        self.lock = b"pid 1\n"  # content of the lock file at its last sync
        before = (path for path in (folder / SUBFOLDER).glob("*") if path.name != LOCK)
        self._before = dict(enumerate(sorted(before), 1))
        self._contents = {number: path.read_bytes() for number, path in self._before.items()}
        self._count = len(self._before)

    def create(self, path: Path) -> int:
        """Create a file."""
        descriptor = super().create(path)
        self._count += 1
        self._files[descriptor] = self._count
        self.steps.append(Step("create", self._count, (path,)))
        return descriptor

    def open(self, path: Path) -> int:
        """Open a file that existed at the start."""
        descriptor = super().open(path)
        self._files[descriptor] = next(number for number, known in self._before.items() if known == path)
        return descriptor

    def _add(self, what: str, descriptor: int, *arguments: Any) -> None:
        if descriptor in self._files:
            self.steps.append(Step(what, self._files[descriptor], arguments))

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write."""
        super().write(descriptor, data, offset)
        self._add("write", descriptor, data, offset)

    def reserve(self, descriptor: int, offset: int, size: int) -> None:
        """Reserve."""
        super().reserve(descriptor, offset, size)
        self._add("reserve", descriptor, offset + size)

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate."""
        super().truncate(descriptor, size)
        self._add("truncate", descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Sync."""
        super().sync(descriptor)
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(LOCK):
            self.lock = os.pread(descriptor, 200, 0)
        else:
            self._add("sync", descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Rename."""
        super().rename(source, target)
        self.steps.append(Step("rename", 0, (source, target)))

    def remove(self, path: Path) -> None:
        """Remove."""
        super().remove(path)
        self.steps.append(Step("remove", 0, (path,)))

    def sync_folder(self, path: Path) -> None:
        """Sync the names of a folder."""
        super().sync_folder(path)
        self.steps.append(Step("sync_folder", 0, ()))

    def after_kill(self, count: int, folder: Path) -> None:
        """Write into an empty folder the files after a kill at *count* steps. A kill loses no data."""
        self._write(folder, self._names(self.steps[:count], None), self.steps[:count], Random(0), 1.0)

    def after_power_loss(self, count: int, random: Random, folder: Path) -> None:
        """Write into an empty folder one possible state of the files after a power loss at *count* steps.

        None, all, or some sectors of the unsynced data are left. None, all, or the first few of the unsynced names are
        left.
        """
        steps = self.steps[:count]
        names = self._names(steps, random)
        self._write(folder, names, steps, random, random.choice((0.0, 1.0, random.random())))

    def _write(self, folder: Path, names: dict[Path, int], steps: list[Step], random: Random, share: float) -> None:
        inner = folder / SUBFOLDER
        inner.mkdir(parents=True)
        (inner / LOCK).write_bytes(self.lock)
        for path, file in names.items():
            (inner / path.name).write_bytes(self._content(steps, file, random, share))

    def _names(self, steps: list[Step], random: Random | None) -> dict[Path, int]:
        synced = max((number for number, step in enumerate(steps) if step.what == "sync_folder"), default=-1)
        changes = [number for number, step in enumerate(steps) if step.what in ("create", "rename", "remove")]
        certain = [number for number in changes if number < synced]
        uncertain = [number for number in changes if number > synced]
        names = {path: number for number, path in self._before.items()}
        most = len(uncertain)
        kept = most if random is None else random.choice((0, most, random.randint(0, most)))
        for number in certain + uncertain[:kept]:
            step = steps[number]
            if step.what == "create":
                names[step.arguments[0]] = step.file
            elif step.what == "remove":
                names.pop(step.arguments[0], None)
            elif step.arguments[0] in names:
                names[step.arguments[1]] = names.pop(step.arguments[0])
        return names

    def _content(self, steps: list[Step], file: int, random: Random, share: float) -> bytes:
        def is_written(sector: int) -> bool:
            if random.random() >= share:
                lost.add(sector)
            return sector not in lost

        mine = [step for step in steps if step.file == file]
        synced = max((number for number, step in enumerate(mine) if step.what == "sync"), default=-1)
        content = bytearray(self._contents.get(file, b""))
        lost: set[int] = set()  # cached sectors are whole, so a later write includes earlier ones
        for number, step in enumerate(mine):
            if step.what == "truncate":
                if number < synced or random.random() < share:
                    del content[step.arguments[0] :]
            elif step.what == "reserve":
                content.extend(bytes(max(0, step.arguments[0] - len(content))))
            elif step.what == "write":
                data, offset = step.arguments
                content.extend(bytes(max(0, offset + len(data) - len(content))))
                _write_sectors(content, data, offset, lambda sector, kept=number < synced: kept or is_written(sector))
        return bytes(content)


class GatedDisk(RememberingDisk):
    """A recording disk whose syncs of logs and snapshots wait at gates.

    Attributes:
        gates: The gates, ``log`` and ``snapshot``; initially open.
        arrived: Number of syncs that have reached each gate.
        log_fails: Whether syncs of logs fail.
    """

    log_fails = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gates = {"log": threading.Event(), "snapshot": threading.Event()}
        for gate in self.gates.values():
            gate.set()
        self.arrived = dict.fromkeys(self.gates, 0)

    def sync(self, descriptor: int) -> None:
        """Wait at the gate, then sync."""
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        gate = "snapshot" if "snapshot" in Path(name).name else "log"
        self.arrived[gate] += 1
        if gate == "log" and self.log_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        assert self.gates[gate].wait(DEADLINE_S)
        super().sync(descriptor)


def _write_sectors(content: bytearray, data: bytes, offset: int, is_written: Callable[[int], bool]) -> None:
    """Write those sectors of the data that *is_written* selects, each as a whole."""
    at, end = offset, offset + len(data)
    while at < end:
        upto = min(end, at - at % SECTOR_BYTES + SECTOR_BYTES)
        if is_written(at // SECTOR_BYTES):
            content[at:upto] = data[at - offset : upto - offset]
        at = upto
