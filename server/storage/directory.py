"""A data directory: its files, its lock, and what a restart or a purge removes from it.

::

    DIR/version-2/snapshot.ZXID    the tree at ZXID, in hexadecimal; also .gz
    DIR/version-2/log.ZXID         the transactions from ZXID on; in another directory if there is one for logs
    DIR/version-2/zoolet.lock      locked while a server uses the directory; it has its process id until a clean end
    DIR/version-2/zoolet-*         what is being written, and what was behind the valid part of a log

Source: FileTxnSnapLog, FileSnap.findNValidSnapshots, FileTxnLog.getLogFiles, PurgeTxnLog.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.snapshot import Snapshot
from zoolet.server.storage.txnlog import Log, LogEntry

Progress = Callable[[str, int, int], None]
"""Receives how far something is: what it is, and how many of how many; 0 if that is not known."""


def no_progress(what: str, done: int, total: int) -> None:
    """Receive progress that nobody wants to see."""


GAP: Final = 1 << 22
"""Zxids that are left out at a start where the last writes may be lost: none is taken twice."""
SUBFOLDER: Final = "version-2"
"""Where the files are in a data directory."""
LOCK: Final = "zoolet.lock"
LOGS: Final = "zoolet.logs"
"""Says where the logs are, if they are in another directory."""
PRIVATE: Final = "zoolet-"
"""What the names of our own files begin with: ZooKeeper ignores them."""
MOVED: Final = f"if they were moved, delete {LOGS}"
KNOWN: Final = frozenset(
    {SUBFOLDER, LOCK, LOGS, "myid", "initialize", "zookeeper_server.pid", "lost+found", "zoolet.key"}
)
"""What may be in a data directory."""
MOST_TRIED: Final = 100
"""How many snapshots are tried, the newest first."""
MAX_ZXID: Final = (1 << 63) - (1 << 40)
"""The highest zxid with which a server begins."""
MAX_UNPACKED: Final = 1 << 34
"""The most bytes of a compressed snapshot that is unpacked."""


class MissingError(StorageError):
    """Transactions are missing before those of a log: what follows would be applied to something else."""


@dataclass
class Remainder:
    """What is behind the last valid transaction of the last log, whether zeros or not.

    Args:
        log: The file of the log.
        at: Where its valid part ends.
        tail: What follows, without zeros at the end.
    """

    log: Path
    at: int
    tail: bytes


@dataclass
class DataDir:
    """The files of a data directory.

    Args:
        path: The directory.
        folder: Where its snapshots are.
        log_folder: Where its logs are.
        snapshots: The snapshots by zxid, the newest first.
        logs: The logs by the zxid of their first transaction, the oldest first.
        problems: What is wrong with the snapshots and transactions that were not used.
        remainder: What the last log has behind its valid part; None for nothing.
    """

    path: Path
    folder: Path
    log_folder: Path
    snapshots: dict[int, Path]
    logs: dict[int, Path]
    problems: list[str] = field(default_factory=list)
    remainder: Remainder | None = None

    @classmethod
    def find(cls, path: str | Path, log_path: str | Path | None = None) -> DataDir:
        """Return the files of a data directory, or of its subfolder ``version-2``.

        Args:
            path: The directory.
            log_path: That of the logs, if it is another one.

        Raises:
            StorageError: One of them does not exist, is not a directory, is of another version, or has files of the
                other.
        """
        folder = _folder_in(Path(path))
        log_path = _log_path(Path(path), log_path)
        log_folder = folder if log_path is None else _folder_in(Path(log_path))
        files, logs = sorted(folder.iterdir()), sorted(log_folder.iterdir())
        snapshots = dict(_named(files, "snapshot", ("", ".gz", ".snappy")))
        if log_folder != folder:
            for wrong in [*_named(files, "log", ("",)), *_named(logs, "snapshot", ("", ".gz", ".snappy"))]:
                raise StorageError(str(wrong[1]), "logs belong into dataLogDir, and snapshots into dataDir")
        newest_first = dict(sorted(snapshots.items(), reverse=True))
        return cls(Path(path), folder, log_folder, newest_first, dict(sorted(_named(logs, "log", ("",)))))

    def snapshot(self, progress: Progress = no_progress) -> Snapshot | None:
        """Return the newest valid snapshot; None if there are no files.

        Raises:
            StorageError: There are files, but no valid snapshot.
        """
        for zxid, path in list(self.snapshots.items())[:MOST_TRIED]:
            try:
                return snapshots.parse(read(path), zxid, str(path), progress)
            except StorageError as error:
                self.problems.append(str(error))
        if self.snapshots:
            raise StorageError(str(self.path), f"no snapshot is valid; {'; '.join(self.problems)}")
        if self.logs:
            raise StorageError(str(self.path), "there is a log but no snapshot, so that what precedes it is missing")
        return None

    def entries(self, after: int, *, lenient: bool = False) -> Iterator[LogEntry]:
        """Yield the transactions after a zxid, in order.

        Args:
            after: The zxid.
            lenient: End at a damage of the last log, and note it, instead of raising an error.

        Raises:
            StorageError: A log is damaged.
        """
        starts = list(self.logs)
        first = max((start for start in starts if start <= after), default=0)
        paths = [self.logs[start] for start in starts if start >= first]
        for path in paths:
            log = Log(path.read_bytes(), str(path))
            try:
                for entry in log:
                    if entry.header.zxid > MAX_ZXID:
                        raise StorageError(str(path), f"a zxid of 0x{entry.header.zxid:x} leaves no room for others")
                    if entry.header.zxid > after:  # a log may repeat what was not synced in the one before it
                        self._check_gap(path, after, entry.header.zxid)
                        after = entry.header.zxid
                        yield entry
            except StorageError as error:
                if not lenient or path is not paths[-1] or isinstance(error, MissingError):
                    raise
                self.problems.append(str(error))
            tail = log.tail()
            if path is paths[-1]:
                self.remainder = Remainder(path, log.end, tail)
            if log.incomplete or tail:
                self.problems.append(
                    f"{path}: the log ends at byte {log.end}; {len(tail)} bytes behind it are not used"
                )

    def _check_gap(self, path: Path, last: int, zxid: int) -> None:
        """Check that no transactions are missing between two of one epoch, other than those that were left out."""
        if last >> 32 == zxid >> 32 and zxid - last not in (1, GAP):
            raise MissingError(str(path), f"the transactions 0x{last + 1:x} to 0x{zxid - 1:x}, before it, are missing")

    def truncate(self, disk: Disk) -> None:
        """Truncate the last log behind its last valid transaction, so that the rest does not come back. What is not
        zeros is kept in a file. What the log has was read, and may not be on the disk yet: it is synced.
        """
        if self.remainder is None:
            return
        log, at, tail = self.remainder.log, self.remainder.at, self.remainder.tail
        if tail:
            write_file(disk, log.with_name(f"{PRIVATE}remainder-{log.name}-at-{at}"), tail)
        if at == 0:
            disk.remove(log)  # not even its header is there: ZooKeeper 3.8 would not start
            return
        descriptor = os.open(log, os.O_WRONLY)
        try:
            disk.truncate(descriptor, at)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)

    def purge(self, retained: int, disk: Disk) -> list[Path]:
        """Delete all but the newest snapshots, and the logs that only older ones need; return what was deleted.

        Source: PurgeTxnLog.
        """
        kept = list(self.snapshots)[:retained]
        if not kept:
            return []
        first_log = max((start for start in self.logs if start <= kept[-1]), default=0)
        old = [path for zxid, path in self.snapshots.items() if zxid not in kept]
        old += [path for start, path in self.logs.items() if start < first_log]
        for path in old:
            disk.remove(path)
        return old


class Lock:
    """The lock of a directory, which one server has at a time. It ends with the process.

    Args:
        path: The directory.

    Raises:
        StorageError: Another server has it.
        OSError: The file of the lock cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve() / LOCK
        self._is_new = not self._path.exists()
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._descriptor, 20).decode(errors="replace").strip()
            os.close(self._descriptor)
            where = str(path).removesuffix(f"/{SUBFOLDER}")
            raise StorageError(where, f"another server uses this directory, process {owner or 'unknown'}") from None
        self._before = os.read(self._descriptor, 20)
        self.was_clean = not self._before
        """Whether the server before has ended in order, or there was none."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def note_clean_end(self) -> None:
        """Note that the server ends in order."""
        os.ftruncate(self._descriptor, 0)

    def undo(self) -> None:
        """Release the directory, and leave the file of the lock as it was before."""
        if self._is_new:
            self._path.unlink(missing_ok=True)
        else:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, self._before, 0)
        self.release()

    def release(self) -> None:
        """Release the directory for another server."""
        os.close(self._descriptor)


def check_new(path: Path) -> None:
    """Check that a directory that has no data can become a data directory.

    Raises:
        StorageError: It has something else in it.
    """
    if path.exists() and not path.is_dir():
        raise StorageError(str(path), "this is not a directory")
    _check_version(path)
    strange = sorted(inner.name for inner in path.iterdir() if inner.name not in KNOWN) if path.exists() else []
    if strange and not (path / SUBFOLDER).is_dir():
        others = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise StorageError(str(path), f"this is not a data directory: it has {strange[0]}{others}, and no {SUBFOLDER}")


def create(path: Path) -> None:
    """Create a data directory, if it is not there, for its owner only.

    Raises:
        OSError: It cannot be created.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    (path / SUBFOLDER).mkdir(mode=0o700, exist_ok=True)


def write_file(disk: Disk, path: Path, data: bytes) -> None:
    """Write a file that is there as a whole, or not at all."""
    temporary = path.with_name(f"{PRIVATE}{path.name}.tmp")
    descriptor = disk.create(temporary)
    try:
        disk.write(descriptor, data, 0)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(temporary, path)
    disk.sync_folder(path.parent)


def remove_leftovers(folder: Path, disk: Disk) -> None:
    """Remove what was being written when a server ended."""
    for path in folder.glob(f"{PRIVATE}*.tmp"):
        disk.remove(path)


def remember_logs(path: Path, log_path: Path, disk: Disk) -> None:
    """Note in a data directory where its logs are, so that nobody begins without them."""
    note = path / LOGS
    if not note.exists():
        write_file(disk, note, f"{log_path.resolve()}\n".encode())


def noted_logs(path: Path) -> Path | None:
    """Return where the logs of a data directory are, if that was noted.

    Raises:
        StorageError: They are not there.
    """
    note = path / LOGS
    if not note.is_file():
        return None
    noted = Path(note.read_text(encoding="utf-8", errors="replace").strip())
    if not noted.is_dir():
        raise StorageError(str(path), f"its logs are in {noted}, as {LOGS} says, which is not there; {MOVED}")
    return noted


def _log_path(path: Path, log_path: str | Path | None) -> str | Path | None:
    """Return where the logs are: where the caller says, or where it was noted.

    Raises:
        StorageError: The note says something else.
    """
    noted = noted_logs(path)
    if noted is not None and log_path is not None and Path(log_path).resolve() != noted:
        raise StorageError(str(path), f"its logs are in {noted}, as {LOGS} says, and not in {log_path}; {MOVED}")
    return log_path if noted is None else noted


def _folder_in(path: Path) -> Path:
    if not path.is_dir():
        raise StorageError(str(path), "this is not a directory")
    inner = path / SUBFOLDER
    if inner.is_dir():
        return inner
    _check_version(path)
    return path


def _check_version(path: Path) -> None:
    for other in sorted(path.glob("version-*")):
        if other.name != SUBFOLDER:
            raise StorageError(str(path), f"it has data of another version: {other.name}; known is {SUBFOLDER}")


def _named(files: list[Path], kind: str, suffixes: tuple[str, ...]) -> Iterator[tuple[int, Path]]:
    for path in files:
        name, _, rest = path.name.partition(".")
        number = rest.removesuffix(path.suffix) if path.suffix in suffixes else rest
        if name == kind and number and not set(number) - set("0123456789abcdefABCDEF"):
            if int(number, 16) > MAX_ZXID:
                raise StorageError(str(path), f"a zxid of 0x{int(number, 16):x} leaves no room for others")
            yield int(number, 16), path


def read(path: Path) -> bytes:
    """Return the bytes of a snapshot's file, decompressed.

    Raises:
        StorageError: It cannot be decompressed, is compressed by something else than gzip, or is too large.
    """
    if path.suffix == ".snappy":
        raise StorageError(str(path), "snapshots that are compressed with snappy are not supported; use gz or none")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            begin = stream.read(len(snapshots.MAGIC))
            if begin != snapshots.MAGIC:
                raise StorageError(str(path), snapshots.NO_SNAPSHOT)  # before a bomb is unpacked
            data = begin + stream.read(MAX_UNPACKED + 1 - len(begin))
    except (OSError, EOFError, zlib.error) as error:
        if path.suffix != ".gz":
            raise
        raise StorageError(str(path), f"the gzip stream is damaged: {error}") from None
    except MemoryError:
        raise StorageError(str(path), "it is larger than the memory of this machine") from None
    if len(data) > MAX_UNPACKED:
        raise StorageError(str(path), f"it has more than {MAX_UNPACKED} bytes when it is unpacked")
    return data
