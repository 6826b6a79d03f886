"""Repairing a data directory whose logs are damaged: the transactions from the damage on are set aside, not deleted."""

from __future__ import annotations

from pathlib import Path

from zoolet.server.storage.directory import DataDir, Remainder
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.layout import PRIVATE, SUBFOLDER
from zoolet.server.storage.lock import Lock
from zoolet.server.storage.txnlog import Log


def repair(path: Path, log_path: Path | None = None, disk: Disk | None = None) -> list[str]:
    """Set the transactions aside that follow a damage of the logs, so that a server starts with what precedes it.

    Args:
        path: The directory.
        log_path: That of the logs, if it is another one.
        disk: The operations on files.

    Returns:
        What was done, in lines; none if there was nothing to do.

    Raises:
        StorageError: It cannot be repaired, or a server uses it.
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
        lock.undo()  # what it says is still true
        raise
    lock.release()
    return lines


def _damage(directory: DataDir) -> StorageError | None:
    """Return why the first log that cannot be used cannot; None if all can."""
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
    """Cut a log before its damage, and set the later ones aside."""
    paths = list(directory.logs.values())
    lines = [_set_aside(path, disk) for path in reversed(paths[paths.index(damaged) + 1 :])]
    log, whole = Log.open(damaged), False
    try:
        whole = log.last_zxid() is not None
        for _ in log:
            continue
    except StorageError:
        whole = False
    if whole or not log.end:  # what precedes it is missing, or nothing of it is valid
        return [*lines, _set_aside(damaged, disk)]
    directory.remainder = Remainder(damaged, log.end, log.tail())
    directory.truncate(disk)
    return [*lines, f"{damaged}: cut at byte {log.end}; the rest is in {PRIVATE}remainder-{damaged.name}-at-{log.end}"]


def _set_aside(path: Path, disk: Disk) -> str:
    aside = path.with_name(f"{PRIVATE}unusable-{path.name}")
    disk.rename(path, aside)
    disk.sync_folder(path.parent)
    return f"{path}: renamed to {aside.name}"


def _note_end(lock: Lock, directory: DataDir, *, is_whole: bool) -> list[str]:
    """Note where the files end. Unless that is where a server stopped cleanly, the next one begins an epoch, so that no
    zxid of what is given up is taken again.
    """
    snapshot = directory.snapshot()
    last = 0
    if snapshot is not None:
        last = max((entry.header.zxid for entry in directory.entries(snapshot.zxid)), default=snapshot.zxid)
    was_complete = last >= lock.zxid
    if lock.was_clean and was_complete and is_whole:
        lock.note_clean_end(lock.zxid, lock.session_id)
    return [] if was_complete else [f"{SUBFOLDER}/{lock.name}: the transactions up to 0x{lock.zxid:x} are given up"]
