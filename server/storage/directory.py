"""A data directory: what is read from its files, and what a restart or a purge removes from them.

::

    DIR/version-2/snapshot.ZXID    the tree at ZXID, in hexadecimal; also .gz
    DIR/version-2/log.ZXID         the transactions from ZXID on; in another directory if there is one for logs
    DIR/version-2/zoolet.lock      what the last server has noted of itself; the folder is locked while one uses it
    DIR/version-2/zoolet-*         what is being written, and what was set aside because it cannot be used

Source: FileTxnSnapLog, FileSnap.findNValidSnapshots, FileTxnLog.getLogFiles, PurgeTxnLog.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from zoolet.server.core.journal import ERROR
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.layout import PRIVATE, folder_in, log_path_of, write_file
from zoolet.server.storage.snapshot import Snapshot
from zoolet.server.storage.txnlog import Log, LogEntry

Progress = Callable[[str, int, int], None]
"""Receives how far something is: what it is, and how many of how many; 0 if that is not known."""


def no_progress(what: str, done: int, total: int) -> None:
    """Receive progress that nobody wants to see."""


NEW_EPOCH: Final = -2
"""The xid of the transaction with which zxids go on in a new epoch, at a start where the last writes may be lost; its
session is the last zxid before.
"""
EPOCHS: Final = ("acceptedEpoch", "currentEpoch")
"""The files in which a member of an ensemble notes its epoch: it does not start if the files have a later one."""
MAX_TRIED: Final = 100
"""How many snapshots are tried, the newest first."""
MAX_ZXID: Final = (1 << 63) - (1 << 40)
"""The highest zxid with which a server begins."""
MAX_UNPACKED: Final = 1 << 34
"""The most bytes of a compressed snapshot that is unpacked."""


@dataclass
class Remainder:
    """The bytes after the last valid transaction of the last log, zeros or not.

    Args:
        log: The file of the log.
        at: Where its valid part ends.
        tail: What follows, without zeros at the end.
    """

    log: Path
    at: int
    tail: bytes


class _SeenError(StorageError):
    """A snapshot has seen more than the logs have, or may have.

    Args:
        where: Its file.
        reason: What is missing.
        snapshot: It.
        is_certain: Whether one of its nodes shows it.
    """

    def __init__(self, where: str, reason: str, snapshot: Snapshot, *, is_certain: bool) -> None:
        super().__init__(where, reason)
        self.snapshot = snapshot
        self.is_certain = is_certain


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
        rejected: The snapshots that cannot be used.
        remainder: What the last log has behind its valid part; None for nothing.
        seen: The last zxid that the snapshot that is used may have seen.
    """

    path: Path
    folder: Path
    log_folder: Path
    snapshots: dict[int, Path]
    logs: dict[int, Path]
    problems: list[str] = field(default_factory=list)
    rejected: list[Path] = field(default_factory=list)
    remainder: Remainder | None = None
    seen: int = 0

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
        folder = folder_in(Path(path))
        log_path = log_path_of(Path(path), log_path)
        log_folder = folder if log_path is None else folder_in(Path(log_path))
        files, logs = sorted(folder.iterdir()), sorted(log_folder.iterdir())
        snapshots = dict(_named(files, "snapshot", ("", ".gz", ".snappy")))
        if log_folder != folder:
            for wrong in [*_named(files, "log", ("",)), *_named(logs, "snapshot", ("", ".gz", ".snappy"))]:
                raise StorageError(str(wrong[1]), "logs belong into dataLogDir, and snapshots into dataDir")
        newest_first = dict(sorted(snapshots.items(), reverse=True))
        return cls(Path(path), folder, log_folder, newest_first, dict(sorted(_named(logs, "log", ("",)))))

    def highest_zxid(self) -> int:
        """Return the highest zxid that the name of a file has; 0 without files."""
        return max((*self.snapshots, *self.logs), default=0)

    def snapshot(self, progress: Progress = no_progress) -> Snapshot | None:
        """Return the newest snapshot that can be used; None if there are no files.

        It can be used if it is valid, and the logs have all that it has seen: it was taken while the tree changed, and
        without the rest of those transactions a part of them would be served. If the logs end before its own zxid
        already, as beside a snapshot that was copied without them, there is nothing better, and it is used with that
        problem; so is one that only may have seen more, if no other one can be used.

        Raises:
            StorageError: There are files, but no such snapshot. Damage of a log is found by :meth:`entries`.
        """
        may_have_seen: tuple[Path, Snapshot] | None = None
        for zxid, path in list(self.snapshots.items())[:MAX_TRIED]:
            try:
                snapshot = snapshots.parse(read(path), zxid, str(path), progress)
                self._check_logged(path, snapshot)
                self.seen = snapshot.newest_change()
                return snapshot
            except StorageError as error:
                if may_have_seen is None and isinstance(error, _SeenError) and not error.is_certain:
                    may_have_seen = path, error.snapshot
                self.problems.append(str(error))
                self.rejected.append(path)
        if may_have_seen is not None:
            self.rejected.remove(may_have_seen[0])
            self.seen = may_have_seen[1].newest_change()
            return may_have_seen[1]
        if self.snapshots:
            raise StorageError(str(self.path), f"no snapshot can be used; {'; '.join(self.problems)}")
        if self.logs:
            raise StorageError(str(self.path), "there is a log but no snapshot, so that what precedes it is missing")
        return None

    def _check_logged(self, path: Path, snapshot: Snapshot) -> None:
        newest = snapshot.newest_change()
        if newest <= snapshot.zxid or newest <= (last := self._last_logged()):
            return
        reason = f"it may have a part of the transactions up to 0x{newest:x}, and the logs end with 0x{last:x}"
        if last < snapshot.zxid:
            self.problems.append(f"{path}: {reason}; it is used as it is")
        else:
            raise _SeenError(str(path), reason, snapshot, is_certain=snapshot.has_seen(last))

    def _last_logged(self) -> int:
        """Return the zxid of the last valid transaction of the logs; 0 for none."""
        return next((zxid for path in reversed(self.logs.values()) if (zxid := _last_valid(path))), 0)

    def entries(self, after: int) -> Iterator[LogEntry]:
        """Yield the transactions after a zxid, in order; what the last log has after them is noted.

        Raises:
            StorageError: A log is damaged, or transactions are missing between two logs.
        """
        starts = list(self.logs)
        first = max((start for start in starts if start <= after), default=0)
        paths = [self.logs[start] for start in starts if start >= first]
        cut = ""
        for path in paths:
            log = Log.open(path)
            last_here, is_first = 0, True
            for entry in log:
                zxid = entry.header.zxid
                if zxid > MAX_ZXID:
                    raise StorageError(str(path), f"a zxid of 0x{zxid:x} leaves no room for others")
                if zxid < last_here:
                    self.problems.append(f"{path}: the transaction 0x{zxid:x}, after 0x{last_here:x}, is not applied")
                last_here = max(last_here, zxid)
                if zxid > after:  # a log may repeat what was not synced in the one before it
                    if after < self.seen and zxid >> 32 > self.seen >> 32 and entry.header.cxid != NEW_EPOCH:
                        reason = f"the transactions up to 0x{self.seen:x}, which the snapshot has seen, are missing"
                        raise StorageError(str(path), f"{reason}; {cut}" if cut else reason)
                    if is_first:  # ZooKeeper 3.8 leaves zxids out between others; whole logs may be missing
                        _check_follows(path, after, entry, cut)
                    after, is_first = zxid, False
                    yield entry
            tail = log.tail()
            if path is paths[-1]:
                self.remainder = Remainder(path, log.end, tail)
            if log.incomplete or tail:
                cut = f"{path}: the log ends at byte {log.end}; {len(tail)} bytes after that are not used"
                self.problems.append(cut)

    def set_aside(self, disk: Disk) -> None:
        """Rename the snapshots that cannot be used, so that no server uses them with what is written from now on."""
        for path in self.rejected:
            disk.rename(path, path.with_name(f"{PRIVATE}unusable-{path.name}"))
            disk.sync_folder(path.parent)

    def begin_epoch(self, epoch: int, disk: Disk) -> None:
        """Note an epoch where a member of an ensemble has noted its own, the accepted one first."""
        for name in EPOCHS:
            path = self.folder / name
            if path.is_file():
                write_file(disk, path, b"%d" % epoch)

    def truncate(self, disk: Disk) -> None:
        """Truncate the last log after its last valid transaction, so that the rest does not come back. What is not
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
        descriptor = disk.open(log)
        try:
            disk.truncate(descriptor, at)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)

    def purge(self, retained: int, known: Container[Path], disk: Disk) -> list[Path]:
        """Delete all but the newest valid snapshots, and the logs that only older ones need; nothing if there are fewer
        valid ones.

        Args:
            retained: How many are kept.
            known: Those that are known to be valid; of others the seal is checked.
            disk: The operations on files.

        Returns:
            What was deleted.

        Source: PurgeTxnLog; FileSnap.findNValidSnapshots.
        """
        valid = (zxid for zxid, path in self.snapshots.items() if path in known or snapshots.has_seal(path))
        kept = list(islice(valid, retained))
        if len(kept) < retained:
            return []
        first_log = max((start for start in self.logs if start <= kept[-1]), default=0)
        old = [path for zxid, path in self.snapshots.items() if zxid < kept[-1]]
        old += [path for start, path in self.logs.items() if start < first_log]
        for path in old:
            disk.remove(path)
        return old


def _check_follows(path: Path, last: int, entry: LogEntry, cut: str) -> None:
    """Check that no transactions are missing between one and the first of a log.

    Args:
        path: The log.
        last: The zxid of the one before it.
        entry: The first of the log.
        cut: What is wrong with the end of a log before it, if anything.

    Raises:
        StorageError: Some are missing: what follows would be applied to something else.
    """
    header = entry.header
    before = header.zxid - 1
    if header.type == ERROR and header.cxid == NEW_EPOCH:
        before = header.clientId
        follows = before == last
    else:  # in an epoch that a leader has begun, counting begins with 1
        follows = before in (last, header.zxid >> 32 << 32)
    if not follows:
        reason = f"the transactions 0x{last + 1:x} to 0x{before:x}, before it, are missing"
        raise StorageError(str(path), f"{reason}; {cut}" if cut else reason)


def _last_valid(path: Path) -> int | None:
    """Return the zxid of the last transaction of a log, or the last one before its damage; None if it has none."""
    log = Log.open(path)
    try:
        return log.last_zxid()
    except StorageError:
        log, last = Log.open(path), None
        with suppress(StorageError):
            for entry in log:
                last = entry.header.zxid
        return last


def _named(files: list[Path], kind: str, suffixes: tuple[str, ...]) -> Iterator[tuple[int, Path]]:
    for path in files:
        name, _, rest = path.name.partition(".")
        number = rest.removesuffix(path.suffix) if path.suffix in suffixes else rest
        if name == kind and number and not set(number) - set("0123456789abcdefABCDEF"):
            if path.is_dir():
                raise StorageError(str(path), f"this is a directory, and its name is that of a {kind} file")
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
