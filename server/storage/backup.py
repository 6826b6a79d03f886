"""Make a consistent copy of a data directory, even while its server is running.

The newest snapshot is copied first, then the logs that it needs, from the oldest to the newest. The copy of the last
log may end in the middle of a transaction that the server was writing, so it is truncated after the last complete one.
If the server starts a new log during the copy, the previous log is copied again, because it is complete now. If it
deletes a file because a newer snapshot is complete, the copy starts over.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from ..core.engine import Engine
from . import layout
from .directory import DataDir, Remainder
from .disk import Disk
from .errors import StorageError
from .lock import note_unclean_end, noted_session
from .recovery import recover
from .txnlog import Log

TRIES: Final = 5
"""Number of attempts to copy while the server deletes files."""


class Backup(NamedTuple):
    """The result of a backup.

    Args:
        zxid: The last zxid in the copy.
        nodes: Number of nodes in the copy.
        files: Number of files in the copy.
        size: Size of the files in bytes.
        left_out: Bytes after the last complete transaction of the last log. They were not copied.
    """

    zxid: int
    nodes: int
    files: int
    size: int
    left_out: int


def back_up(path: Path, target: Path, log_path: Path | None = None) -> Backup:
    """Copy a data directory, and check the copy by loading it as a server does.

    Args:
        path: The data directory.
        target: The directory for the copy, empty or not existing yet. It receives both snapshots and logs.
        log_path: The directory of the logs, if different from *path*.

    Raises:
        StorageError: The directory contains no data, the target is not empty, or the copy cannot be loaded.
        OSError: A file cannot be read or written.
    """
    source = DataDir.find(path, log_path)
    if not source.snapshots:
        raise StorageError(str(path), "the directory contains no snapshot")
    layout.check_new(target)
    if target.exists() and any(target.iterdir()):
        raise StorageError("", f"target directory {target} is not empty")
    was_there = target.exists()
    layout.create(target)
    folder = target / layout.SUBFOLDER
    try:
        _copy_completely(path, folder, log_path)
        root = source.folder.parent if source.folder.name == layout.SUBFOLDER else source.folder
        key = root / layout.KEY
        if key.is_file():
            _copy(key, target / layout.KEY)
        note_unclean_end(folder, noted_session(source.folder))
        Disk().sync_folder(target)
        left_out = _cut_last_log(DataDir.find(target))
        engine = Engine(rng=Random(0))
        recovered = recover(engine, DataDir.find(target))
        if recovered.problems:
            raise StorageError(str(target), f"the copy is incomplete: {'; '.join(recovered.problems)}")
    except BaseException as error:
        shutil.rmtree(folder)
        (target / layout.KEY).unlink(missing_ok=True)
        if not was_there:
            target.rmdir()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)  # the error of a failed write does not name the file
        raise
    files = list(folder.iterdir())
    size = sum(file.stat().st_size for file in files)
    return Backup(recovered.zxid, engine.tree.reported_size, len(files), size, left_out)


def _copy_completely(path: Path, folder: Path, log_path: Path | None) -> None:
    for _ in range(TRIES):
        try:
            return _copy_all(path, folder, log_path)
        except FileNotFoundError:  # the server purged the file, because a newer snapshot is complete
            for file in folder.iterdir():
                file.unlink()
    raise StorageError(str(path), "files are deleted faster than they are copied; try again")


def _copy_all(path: Path, folder: Path, log_path: Path | None) -> None:
    copied: list[int] = []
    snapshot: int | None = None
    while True:
        directory = DataDir.find(path, log_path)
        if snapshot is None:
            snapshot = next(iter(directory.snapshots))
            _copy(directory.snapshots[snapshot], folder / directory.snapshots[snapshot].name)
        first = max((start for start in directory.logs if start <= snapshot), default=0)
        needed = [start for start in directory.logs if start >= first]
        if needed == copied:
            break
        for start in needed:
            if start not in copied[:-1]:  # the last log was incomplete when it was copied
                _copy(directory.logs[start], folder / directory.logs[start].name)
        copied = needed
    Disk().sync_folder(folder)


def _cut_last_log(directory: DataDir) -> int:
    """Truncate the last log after its last complete transaction.

    Returns:
        The number of bytes after that transaction, without trailing zeros.

    Raises:
        StorageError: The log is damaged.
    """
    if not directory.logs:
        return 0
    path = directory.logs[max(directory.logs)]
    log = Log.open(path)
    log.last_zxid()
    left_out = len(log.tail())
    directory.remainder = Remainder(path, log.end, b"")
    directory.truncate(Disk())
    return left_out


def _copy(source: Path, target: Path) -> None:
    """Copy a file, and wait until the copy is safe from a power failure."""
    disk = Disk()
    descriptor = disk.create(target)
    try:
        with open(source, "rb") as file, open(descriptor, "wb", closefd=False) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
