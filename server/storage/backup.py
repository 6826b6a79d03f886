"""Consistent copies of data directories, even while a server is using them.

All files are opened before they are copied, because a server may delete them at any time: first the newest usable
snapshot, then the logs that it needs. A server names a snapshot only after it has logged all transactions that the
snapshot may contain. The logs that exist afterwards therefore contain these and all acknowledged transactions. The
copies of the logs are truncated after their last complete transactions, because the server may have been writing.

Until the copy is checked and on the disk, its name is ``version-2.part``, which all commands refuse.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import BinaryIO, Final, NamedTuple

from ..core.engine import Engine
from . import layout
from .directory import DataDir, Remainder
from .disk import Disk
from .errors import StorageError
from .lock import note_unclean_end, read_note
from .recovery import RecoveryResult, recover
from .txnlog import Log

OPEN_ATTEMPTS: Final = 100
"""Number of attempts to open files while the server deletes them."""


class Backup(NamedTuple):
    """The result of a backup.

    Args:
        zxid: The last zxid in the copy.
        nodes: Number of nodes in the copy.
        files: Number of files in the copy.
        size: Size of the files in bytes.
        left_out: Bytes after the last complete transactions of the logs. They were not copied.
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
        raise StorageError(
            str(path), "the directory contains no snapshot; start a server with this directory once to write one"
        )
    if source.folder.resolve() in (target.resolve(), *target.resolve().parents):
        raise StorageError("", f"target directory {target} is inside {source.folder}; choose a different one")
    layout.check_creatable(target)
    if target.exists() and any(target.iterdir()):
        raise StorageError("", f"target directory {target} is not empty")
    was_there = target.exists()
    layout.create(target, layout.INCOMPLETE)
    folder = target / layout.INCOMPLETE
    try:
        engine, recovered, left_out = _copy_usable(path, folder, log_path)
        source.check_complete(recovered.zxid)
        root = source.folder.parent if source.folder.name == layout.SUBFOLDER else source.folder
        if (key := root / layout.KEY).is_file():
            with key.open("rb") as file:
                _copy(file, target / layout.KEY)
        note_unclean_end(folder, read_note(source.folder, "session"))
        Disk().sync_folder(folder)
        files = list(folder.iterdir())
        size = sum(file.stat().st_size for file in files)
        Disk().rename(folder, target / layout.SUBFOLDER)
        folder = target / layout.SUBFOLDER
        Disk().sync_folder(target)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        (target / layout.KEY).unlink(missing_ok=True)
        if not was_there:
            target.rmdir()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)  # the error of a failed write does not name the file
        raise
    return Backup(recovered.zxid, engine.tree.reported_size, len(files), size, left_out)


def _copy_usable(path: Path, folder: Path, log_path: Path | None) -> tuple[Engine, RecoveryResult, int]:
    """Copy the newest usable snapshot and its logs.

    Returns:
        The engine with the state of the copy, the result of the recovery, and the number of bytes that were not copied.

    Raises:
        StorageError: No snapshot can be used, or the server deletes files faster than they can be opened.
        OSError: A file cannot be read or written.
    """
    problem: StorageError | None = None
    for _ in range(OPEN_ATTEMPTS):
        for zxid, snapshot in DataDir.find(path, log_path).snapshots.items():
            try:
                left_out = _copy_files(snapshot, zxid, path, folder, log_path)
                engine = Engine(rng=Random(0))
                recovered = recover(engine, DataDir.within(folder))
                if not recovered.problems:
                    return engine, recovered, left_out
                problem = problem or StorageError("", f"the copy is incomplete: {'; '.join(recovered.problems)}")
            except FileNotFoundError:
                break  # the server has deleted the file, because a newer snapshot is complete
            except StorageError as error:
                problem = problem or error
            if not snapshot.exists():
                break
        else:
            assert problem is not None
            raise problem
    raise StorageError(str(path), "the server deleted files before they could be copied; try again")


def _copy_files(snapshot: Path, zxid: int, path: Path, folder: Path, log_path: Path | None) -> int:
    """Copy a snapshot and the logs after it. Return the number of bytes that were not copied.

    Raises:
        FileNotFoundError: The server has deleted a file.
        StorageError: A log is damaged.
    """
    for before in folder.iterdir():
        before.unlink()
    with ExitStack() as stack:
        files: list[BinaryIO] = [stack.enter_context(snapshot.open("rb"))]
        files += [stack.enter_context(log.open("rb")) for log in DataDir.find(path, log_path).logs_after(zxid)]
        for file in files:
            _copy(file, folder / Path(file.name).name)
    return sum(_truncate_log(log, zxid) for log in DataDir.within(folder).logs.values())


def _truncate_log(path: Path, known: int) -> int:
    """Truncate a log after its last complete transaction. Return the number of removed bytes, without trailing zeros.

    Raises:
        StorageError: The log is damaged.
    """
    log = Log.open(path, known)
    for _ in log.zxids():
        continue
    left_out = log.tail_size()
    Remainder(path, log.end, 0).truncate_log(Disk())
    return left_out


def _copy(file: BinaryIO, target: Path) -> None:
    """Copy a file, and wait until the copy is safe from a power failure."""
    disk = Disk()
    descriptor = disk.create(target)
    try:
        with open(descriptor, "wb", closefd=False) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
