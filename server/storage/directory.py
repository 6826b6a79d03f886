"""The files of a data directory: finding and reading them, and renaming or removing them at a restart or in a purge.

::

    DIR/version-2/snapshot.ZXID    the tree at ZXID, in hexadecimal; also .gz and .snappy
    DIR/version-2/log.ZXID         the transactions from ZXID on; optionally in a separate directory for logs
    DIR/version-2/zoolet.lock      the notes of the last server; the folder is locked while a server uses it
    DIR/version-2/zoolet-*         files that are being written, and unusable files that were set aside

Source: FileTxnSnapLog, FileSnap.findNValidSnapshots, FileTxnLog.getLogFiles, PurgeTxnLog.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Final

from ...protocol.hexadecimal import hexadecimal
from ..core.journal import ERROR
from ..core.state import MAX_ZXID
from . import snapshot as snapshots
from .compression import SUFFIXES, pieces
from .disk import Disk
from .errors import StorageError
from .layout import LOCK, PRIVATE, SUBFOLDER, choose_log_path, find_folder, unused_path, write_file
from .lock import read_note
from .snapshot import Snapshot
from .txnlog import Log, LogEntry

Progress = Callable[[str, int, int], None]
"""A function that receives progress: the kind of items, the number done, and the total number (0 if it is unknown)."""


def no_progress(what: str, done: int, total: int) -> None:
    """Do nothing. This is the default for parameters of type :data:`Progress`."""


NEW_EPOCH: Final = -2
"""The xid of the transaction that starts a new epoch, because the last writes may be lost. In its field for the session
id, this transaction contains the last zxid of the old epoch.
"""
EPOCH_FILES: Final = ("acceptedEpoch", "currentEpoch")
"""The files in which a member of an ensemble notes its epoch. A member does not start if its snapshots or logs have a
later epoch.
"""
MAX_TRIED_SNAPSHOTS: Final = 100
"""Number of snapshots that are tried, from the newest to the oldest."""
MAX_UNPACKED_BYTES: Final = 1 << 34
"""The maximum size of a snapshot after decompression, in bytes."""
NO_SNAPSHOT: Final = (
    "found a log but no snapshot, so earlier transactions may be missing; if the logs are complete, as ZooKeeper 3.4 "
    "may leave them, set -Dsnapshot.trust.empty=true"
)


@dataclass
class Remainder:
    """The bytes after the last valid transaction of a log, including zeros.

    Args:
        log: The file of the log.
        at: The position where the valid part ends.
        size: The number of bytes after that position, without trailing zeros.
    """

    log: Path
    at: int
    size: int

    def unused_file(self) -> Path:
        """Return an unused path for a file that keeps the bytes."""
        return unused_path(self.log.with_name(f"{PRIVATE}remainder-{self.log.name}-at-{self.at}"))

    def truncate_log(self, disk: Disk) -> None:
        """Truncate the log after its valid part, and sync it, so the removed bytes cannot reappear.

        The removed bytes are kept in a separate file, unless all of them are zero. The sync is necessary because the
        transactions in the valid part may not be on the disk yet.
        """
        log, at = self.log, self.at
        if self.size:
            write_file(disk, self.unused_file(), Log.open(log).pieces(at, self.size))
        if at == 0:
            disk.remove(log)  # the log has no header, and ZooKeeper 3.8 would not start with it
            return
        descriptor = disk.open(log)
        try:
            disk.truncate(descriptor, at)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)


class _UnloggedError(StorageError):
    """A snapshot contains, or may contain, effects of transactions that are not in the logs.

    Args:
        where: The file of the snapshot.
        reason: Description of the missing transactions.
        snapshot: The snapshot.
        is_certain: Whether a node proves that the snapshot contains such effects.
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
        folder: The folder of the snapshots.
        log_folder: The folder of the logs.
        snapshots: The snapshots by zxid, the newest first.
        logs: The logs by the zxid of their first transaction, the oldest first.
        problems: Descriptions of the snapshots and transactions that were not used.
        notes: Descriptions of damage that costs no transaction.
        rejected: The unusable snapshots.
        remainder: The bytes after the valid part of the last log; None if no log was read.
        seen: The last zxid whose transaction may have left effects in the selected snapshot.
        is_live: Whether a server is writing the last log. An incomplete end is then not a problem.
        trusts_empty: Whether logs without a snapshot contain all transactions.
        stopped_at: The last zxid of the previous server, if it stopped cleanly; 0 if it is unknown.
        cuts: The end of the part that is read, by path, for each log that is not read completely.
    """

    path: Path
    folder: Path
    log_folder: Path
    snapshots: dict[int, Path]
    logs: dict[int, Path]
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rejected: list[Path] = field(default_factory=list)
    remainder: Remainder | None = None
    seen: int = 0
    is_live: bool = False
    trusts_empty: bool = False
    stopped_at: int = 0
    cuts: dict[Path, int] = field(default_factory=dict)

    @classmethod
    def find(cls, path: str | Path, log_path: str | Path | None = None) -> DataDir:
        """Return the files of a data directory, or of its subfolder ``version-2``.

        Args:
            path: The data directory.
            log_path: The directory of the logs, if different from *path*.

        Raises:
            StorageError: A directory does not exist, is not a directory, contains data of a different version, or
                contains files that belong in the other directory.
        """
        folder = find_folder(Path(path))
        log_path = choose_log_path(folder.parent if folder.name == SUBFOLDER else folder, log_path)
        directory = cls.within(folder, folder if log_path is None else find_folder(Path(log_path)), Path(path))
        directory.stopped_at = read_note(folder, "zxid")
        return directory

    @classmethod
    def within(cls, folder: Path, log_folder: Path | None = None, path: Path | None = None) -> DataDir:
        """Return the files in a folder of snapshots and a folder of logs.

        Args:
            folder: The folder of the snapshots.
            log_folder: The folder of the logs; None for the same folder.
            path: The data directory, for error messages; None for *folder*.

        Raises:
            StorageError: A folder contains files that belong in the other folder.
        """
        log_folder = log_folder or folder
        files, logs = sorted(folder.iterdir()), sorted(log_folder.iterdir())
        found: dict[int, Path] = {}
        for zxid, file in _named_files(files, "snapshot", SUFFIXES):
            # A snapshot may exist in several forms. The first file with a valid seal is used.
            if zxid not in found or not snapshots.has_seal(found[zxid]):
                found[zxid] = file
        if log_folder != folder:
            for _, wrong in _named_files(files, "log", ("",)):
                reason = (
                    f"found a log in dataDir, although dataLogDir is {log_folder}; correct dataLogDir, or move the log"
                )
                raise StorageError(str(wrong), reason)
            for _, wrong in _named_files(logs, "snapshot", SUFFIXES):
                reason = f"found a snapshot in dataLogDir, although dataDir is {folder}; correct dataDir, or move it"
                raise StorageError(str(wrong), reason)
        newest_first = dict(sorted(found.items(), reverse=True))
        return cls(path or folder, folder, log_folder, newest_first, dict(sorted(_named_files(logs, "log", ("",)))))

    def highest_zxid(self) -> int:
        """Return the highest zxid in the name of a file, or 0 without files."""
        return max((*self.snapshots, *self.logs), default=0)

    def snapshot(self, progress: Progress = no_progress) -> Snapshot | None:
        """Return the newest usable snapshot, and record the unusable ones in :attr:`problems` and :attr:`rejected`.

        A snapshot is usable if it is valid, and if the logs contain all transactions whose effects it contains. It was
        taken while the tree changed: without these logs, the server would serve parts of transactions. There are two
        exceptions, which are recorded as problems:

        - If the logs end before the zxid of the snapshot, for example because the snapshot was copied without the logs,
          it is used, because no better state exists.
        - If a snapshot may contain effects of later transactions, but no node proves it, the snapshot is used if all
          others are unusable.

        An incomplete snapshot of zxid 0 is not needed, because the tree was empty at that zxid.

        Returns:
            The snapshot; None if the logs start from an empty tree, or without files.

        Raises:
            StorageError: The directory contains files, but no usable snapshot. :meth:`entries` finds damaged logs.
        """
        may_have_seen: tuple[Path, Snapshot] | None = None
        for zxid, path in list(self.snapshots.items())[:MAX_TRIED_SNAPSHOTS]:
            try:
                snapshot = snapshots.parse(read(path), zxid, str(path), progress)
                self._check_logs_reach(path, snapshot)
                self.seen = snapshot.newest_change()
                return snapshot
            except StorageError as error:
                if may_have_seen is None and isinstance(error, _UnloggedError) and not error.is_certain:
                    may_have_seen = path, error.snapshot
                self.problems.append(str(error))
                self.rejected.append(path)
        if may_have_seen is not None:
            self.rejected.remove(may_have_seen[0])
            self.seen = may_have_seen[1].newest_change()
            return may_have_seen[1]
        if 0 in self.snapshots and snapshots.is_truncated(self.snapshots[0]):
            self.rejected.remove(self.snapshots[0])  # it stays until a new snapshot is written
            self.notes.append(self.problems.pop())
            return None
        if self.snapshots:
            raise StorageError(str(self.path), f"no snapshot can be used; {'; '.join(self.problems)}")
        if self.logs and not self.trusts_empty:
            raise StorageError(str(self.path), NO_SNAPSHOT)
        return None

    def _check_logs_reach(self, path: Path, snapshot: Snapshot) -> None:
        newest = snapshot.newest_change()
        if newest <= snapshot.zxid or newest <= (last := self._last_logged_zxid(snapshot.zxid)):
            return
        contained = f"the snapshot may contain parts of transactions up to {hexadecimal(newest)}"
        reason = f"{contained}, but the logs end with {hexadecimal(last)}"
        if last < snapshot.zxid:
            self.problems.append(f"{path}: {reason}; using the snapshot anyway")
        else:
            raise _UnloggedError(str(path), reason, snapshot, is_certain=snapshot.has_seen(last))

    def _last_logged_zxid(self, known: int) -> int:
        """Return the zxid of the last valid transaction in the logs, or 0 if there is none."""
        logs = (self._open(path, known) for path in reversed(self.logs.values()))
        return next((zxid for log in logs if (zxid := _last_valid_zxid(log))), 0)

    def _open(self, path: Path, known: int) -> Log:
        return Log.open(path, known, self.cuts.get(path))

    def logs_after(self, zxid: int) -> list[Path]:
        """Return the logs that may contain transactions after a zxid."""
        first = max((start for start in self.logs if start <= zxid + 1), default=0)
        return [path for start, path in self.logs.items() if start >= first]

    def entries(self, after: int) -> Iterator[LogEntry]:
        """Yield the transactions after a zxid, in order. Set :attr:`remainder` to the invalid end of the last log.

        Raises:
            StorageError: A log is damaged, or transactions are missing between two logs.
        """
        paths = self.logs_after(after)
        known, cut = after, ""
        for path in paths:
            log = self._open(path, known)
            last_here, is_first = 0, True
            for entry in log:
                zxid = entry.header.zxid
                _check_zxid(path, zxid)
                if zxid < last_here:
                    repeated = f"{hexadecimal(zxid)}, because it follows {hexadecimal(last_here)}"
                    self.problems.append(f"{path}: skipped transaction {repeated}")
                last_here = max(last_here, zxid)
                if zxid > after:  # a log may repeat transactions that were not synced in the previous log
                    if after < self.seen and zxid >> 32 > self.seen >> 32 and entry.header.cxid != NEW_EPOCH:
                        missing = f"the transactions up to {hexadecimal(self.seen)} are missing"
                        reason = f"{missing}, but the snapshot contains parts"
                        raise StorageError(str(path), f"{reason}; {cut}" if cut else reason)
                    if is_first:  # the previous log may be missing; gaps within a log are normal in ZooKeeper 3.8
                        _check_follows(path, after, entry, cut)
                    after, is_first = zxid, False
                    yield entry
            self.notes += [f"{path}: ignored damage at byte {at}; no transaction is lost" for at in log.skipped]
            size = log.tail_size()
            if path is paths[-1]:
                self.remainder = Remainder(path, log.end, size)
            if (log.incomplete or size) and not (self.is_live and path is paths[-1]):
                cut = f"{path}: the log ends at byte {log.end}; {size} bytes after it are ignored"
                self.problems.append(cut)

    def check_complete(self, last: int) -> None:
        """Check that the files contain all transactions up to the clean shutdown of the previous server.

        Args:
            last: The last zxid in the files.

        Raises:
            StorageError: The files end earlier.
        """
        if last < self.stopped_at:
            hint = f"if you restored older files on purpose, delete {SUBFOLDER}/{LOCK}"
            stopped = f"the previous server stopped at {hexadecimal(self.stopped_at)}"
            reason = f"{stopped}, but the files end with {hexadecimal(last)}"
            raise StorageError(str(self.path), f"{reason}: a log is missing; {hint}")

    def set_aside(self, disk: Disk) -> None:
        """Rename the unusable snapshots. Otherwise a server could combine them with transactions of later logs."""
        for path in self.rejected:
            disk.rename(path, unused_path(path.with_name(f"{PRIVATE}unusable-{path.name}")))
            disk.sync_folder(path.parent)

    def begin_epoch(self, epoch: int, disk: Disk) -> None:
        """Write an epoch to those of the files in :data:`EPOCH_FILES` that exist, ``acceptedEpoch`` first."""
        for name in EPOCH_FILES:
            path = self.folder / name
            if path.is_file():
                write_file(disk, path, b"%d" % epoch)

    def purge(self, retained: int, known: Container[Path], disk: Disk) -> list[Path]:
        """Keep the newest *retained* valid snapshots. Delete all older snapshots, and the logs that only those need.

        Delete nothing if the directory has fewer than *retained* valid snapshots.

        Args:
            retained: Number of snapshots to keep.
            known: Snapshots that are known to be valid. The seal of all others is checked.
            disk: The file operations.

        Returns:
            The deleted files.

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
    """Check that no transactions are missing before the first transaction of a log.

    Args:
        path: The log.
        last: The zxid of the previous transaction.
        entry: The first transaction of the log.
        cut: The problem at the end of an earlier log; empty if there is none.

    Raises:
        StorageError: Transactions are missing, so the log would be applied to the wrong state.
    """
    header = entry.header
    before = header.zxid - 1
    if header.type == ERROR and header.cxid == NEW_EPOCH:
        before = header.clientId
        follows = before == last
    else:  # the transaction may be the first of an epoch that a leader started: zxids of an epoch count from 1
        follows = before in (last, header.zxid >> 32 << 32)
    if not follows:
        reason = f"the transactions {hexadecimal(last + 1)} to {hexadecimal(before)} before this log are missing"
        raise StorageError(str(path), f"{reason}; {cut}" if cut else reason)


def _last_valid_zxid(log: Log) -> int | None:
    """Return the zxid of the last transaction before the end of a log or before damage, or None if there is none."""
    last: int | None = None
    with suppress(StorageError):
        for zxid in log.zxids():
            last = zxid
    return last


def _check_zxid(path: Path, zxid: int) -> None:
    """Check that a zxid is not above the maximum.

    Raises:
        StorageError: The zxid is too high.
    """
    if zxid > MAX_ZXID:
        raise StorageError(str(path), f"zxid {hexadecimal(zxid)} is too high; the maximum is {hexadecimal(MAX_ZXID)}")


def _named_files(files: list[Path], kind: str, suffixes: tuple[str, ...]) -> Iterator[tuple[int, Path]]:
    for path in files:
        name, _, rest = path.name.partition(".")
        number = rest.removesuffix(path.suffix) if path.suffix in suffixes else rest
        if name == kind and number and not set(number) - set("0123456789abcdefABCDEF"):
            if path.is_dir():
                raise StorageError(str(path), f"expected a {kind} file, found a directory")
            _check_zxid(path, zxid := int(number, 16))
            yield zxid, path


def read(path: Path) -> bytes:
    """Return the content of a snapshot file, decompressed.

    Raises:
        StorageError: The file is not a snapshot, cannot be decompressed, or is too large.
        OSError: The file cannot be read.
    """
    data = BytesIO()
    try:
        for piece in pieces(path):
            if not data.tell() and not piece.startswith(snapshots.MAGIC):
                raise StorageError(str(path), snapshots.NO_SNAPSHOT)  # the rest could decompress to gigabytes
            if data.write(piece) and data.tell() > MAX_UNPACKED_BYTES:
                raise StorageError(str(path), f"the decompressed snapshot is larger than {MAX_UNPACKED_BYTES} bytes")
    except MemoryError:
        raise StorageError(str(path), "the snapshot does not fit into memory") from None
    return data.getvalue()  # getvalue() returns the buffer without a copy
