"""A consistent copy of a data directory, made while its server runs or not.

The newest snapshot is copied, then the logs that it needs, the oldest first. The last log may end in the middle of a
transaction: a server that starts from the copy begins before it. If another log was begun meanwhile, the one before it
is copied again, because it is complete now. If a file was deleted meanwhile, because a later snapshot counts, the copy
begins again.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from zoolet.server.core.engine import Engine
from zoolet.server.storage import layout
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.lock import note_unclean_end, noted_session
from zoolet.server.storage.recovery import recover

TRIES: Final = 5
"""How often a copy is begun while files are deleted."""


class Backup(NamedTuple):
    """A copy that was made.

    Args:
        zxid: The last zxid that it has.
        nodes: How many nodes it has.
        files: How many files were copied.
        size: Their bytes.
    """

    zxid: int
    nodes: int
    files: int
    size: int


def back_up(path: Path, target: Path, log_path: Path | None = None) -> Backup:
    """Copy a data directory, and read the copy as a server does.

    Args:
        path: The directory.
        target: Where the copy goes: a directory that is empty or not there. Snapshots and logs are together in it.
        log_path: The directory of the logs, if it is another one.

    Raises:
        StorageError: The directory has no data, the target has some, or the copy cannot be read.
        OSError: A file cannot be read or written.
    """
    source = DataDir.find(path, log_path)
    if not source.snapshots:
        raise StorageError(str(path), "it has no snapshot")
    layout.check_new(target)
    if target.exists() and any(target.iterdir()):
        raise StorageError(str(target), "this is not empty")
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
        engine = Engine(rng=Random(0))
        recovered = recover(engine, DataDir.find(target))
        if recovered.problems:
            raise StorageError(str(target), f"the copy is not whole: {'; '.join(recovered.problems)}")
    except BaseException as error:
        shutil.rmtree(folder)
        (target / layout.KEY).unlink(missing_ok=True)
        if not was_there:
            target.rmdir()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)  # a failed write does not say where
        raise
    files = list(folder.iterdir())
    return Backup(recovered.zxid, engine.tree.size, len(files), sum(file.stat().st_size for file in files))


def _copy_completely(path: Path, folder: Path, log_path: Path | None) -> None:
    for _ in range(TRIES):
        try:
            return _copy_all(path, folder, log_path)
        except FileNotFoundError:  # purged: a later snapshot counts
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
            if start not in copied[:-1]:  # the last one was not complete when it was copied
                _copy(directory.logs[start], folder / directory.logs[start].name)
        copied = needed
    Disk().sync_folder(folder)


def _copy(source: Path, target: Path) -> None:
    """Copy a file, and wait until the copy outlives a loss of power."""
    disk = Disk()
    descriptor = disk.create(target)
    try:
        with open(source, "rb") as file, open(descriptor, "wb", closefd=False) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
