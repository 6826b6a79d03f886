"""Repair a data directory with damaged logs. The damaged transaction and all later ones are set aside, not deleted."""

from __future__ import annotations

from pathlib import Path

from .directory import DataDir, Remainder
from .disk import Disk
from .errors import StorageError
from .layout import PRIVATE, SUBFOLDER
from .lock import Lock
from .txnlog import Log


def repair(path: Path, log_path: Path | None = None, disk: Disk | None = None) -> list[str]:
    """Set aside all transactions from the first damage on, so that a server can start with the earlier ones.

    Args:
        path: The data directory.
        log_path: The directory of the logs, if different from *path*.
        disk: The file operations.

    Returns:
        A line for each action; empty if no log is damaged.

    Raises:
        StorageError: The directory cannot be repaired, or a server is using it.
        OSError: A file cannot be read or written.
    """
    disk = disk or Disk()
    lock = Lock(DataDir.find(path, log_path).folder)
    try:
        lines: list[str] = []
        while True:
            directory = DataDir.find(path, log_path)
            damage = _damage(directory)
            if damage is None:
                break
            lines += _set_aside_from(directory, Path(damage.where), disk)
        lines += _note_end(lock, directory, is_whole=not lines)
    except BaseException:
        lock.undo()  # the notes of the last server still apply
        raise
    lock.release()
    return lines


def _damage(directory: DataDir) -> StorageError | None:
    """Return the error of the first unusable log; None if all logs are usable."""
    snapshot = directory.snapshot()
    try:
        for _ in directory.entries(-1 if snapshot is None else snapshot.zxid):
            continue
    except StorageError as error:
        if Path(error.where) not in directory.logs.values():
            raise
        return error
    return None


def _set_aside_from(directory: DataDir, damaged: Path, disk: Disk) -> list[str]:
    """Truncate a log before its damage, and set the later logs aside."""
    paths = list(directory.logs.values())
    lines = [_set_aside(path, disk) for path in reversed(paths[paths.index(damaged) + 1 :])]
    log, whole = Log.open(damaged), False
    try:
        whole = log.last_zxid() is not None
        for _ in log:
            continue
    except StorageError:
        whole = False
    if whole or not log.end:  # earlier transactions are missing, or nothing in the log is valid
        return [*lines, _set_aside(damaged, disk)]
    directory.remainder = Remainder(damaged, log.end, log.tail())
    directory.truncate(disk)
    rest = f"{PRIVATE}remainder-{damaged.name}-at-{log.end}"
    return [*lines, f"{damaged}: truncated at byte {log.end}; the rest is in {rest}"]


def _set_aside(path: Path, disk: Disk) -> str:
    aside = path.with_name(f"{PRIVATE}unusable-{path.name}")
    disk.rename(path, aside)
    disk.sync_folder(path.parent)
    return f"{path}: renamed to {aside.name}"


def _note_end(lock: Lock, directory: DataDir, *, is_whole: bool) -> list[str]:
    """Note where the files end, if a server stopped cleanly there. Otherwise the next server starts a new epoch, which
    never reuses a zxid of an abandoned transaction.
    """
    snapshot = directory.snapshot()
    last = 0
    if snapshot is not None:
        last = max((entry.header.zxid for entry in directory.entries(snapshot.zxid)), default=snapshot.zxid)
    was_complete = last >= lock.zxid
    if lock.was_clean and was_complete and is_whole:
        lock.note_clean_end(lock.zxid, lock.session_id)
    return [] if was_complete else [f"{SUBFOLDER}/{lock.name}: abandoned the transactions up to 0x{lock.zxid:x}"]
