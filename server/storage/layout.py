"""The layout of a data directory: the names of its files, its creation, and the note with the path of separate logs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ...protocol.messages import file_error_reason
from .disk import Disk
from .errors import NoDirectoryError, StorageError

SUBFOLDER: Final = "version-2"
"""The folder of the files in a data directory."""
INCOMPLETE: Final = f"{SUBFOLDER}.part"
"""The name of :data:`SUBFOLDER` in a backup that is not complete."""
LOCK: Final = "zoolet.lock"
LOGS: Final = "zoolet.logs"
"""The note with the path of the logs, if they are in a separate directory."""
KEY: Final = "zoolet.key"
"""The file with the key for session passwords. Clients need their password to resume a session."""
PRIVATE: Final = "zoolet-"
"""Prefix of zoolet's own files, which ZooKeeper ignores."""
MOVED: Final = f"if the logs were moved, delete {LOGS}"


def check_creatable(path: Path) -> None:
    """Check that a directory without data can become a data directory. It may contain other files.

    Raises:
        StorageError: *path* is a file, or contains data of a different version.
    """
    if path.exists() and not path.is_dir():
        raise NoDirectoryError(str(path), "is not a directory")
    _check_version(path)


def create(path: Path, subfolder: str = SUBFOLDER) -> None:
    """Create a data directory that only its owner can access, unless it exists.

    Raises:
        StorageError: The directory cannot be created.
    """
    missing = [folder for folder in (path / subfolder, path, *path.parents) if not folder.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
            Disk().sync_folder(folder.parent)
    except OSError as error:
        raise StorageError(str(path), f"cannot create this directory: {file_error_reason(error)}") from None


def write_file(disk: Disk, path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file atomically: after a crash it is complete, or its old version remains."""
    temporary = path.with_name(f"{PRIVATE}{path.name}.tmp")
    descriptor = disk.create(temporary)
    try:
        size = 0
        for piece in (data,) if isinstance(data, bytes) else data:
            disk.write(descriptor, piece, size)
            size += len(piece)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(temporary, path)
    disk.sync_folder(path.parent)


def unused_path(path: Path) -> Path:
    """Return a path that does not exist yet: *path*, or *path* with a number at its end."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def remove_leftovers(folder: Path, disk: Disk) -> None:
    """Remove the temporary files of a server that stopped while it was writing them."""
    for path in folder.glob(f"{PRIVATE}*.tmp"):
        disk.remove(path)


def write_log_note(path: Path, log_path: Path, disk: Disk) -> None:
    """Note the path of the logs in the data directory. A later server does not start without these logs."""
    note = path / LOGS
    if not note.exists():
        write_file(disk, note, f"{log_path.resolve()}\n".encode())


def read_log_note(path: Path) -> Path | None:
    """Return the path of the logs that a data directory notes, or None if it contains no note.

    Raises:
        StorageError: The noted directory does not exist or contains no logs.
    """
    note = path / LOGS
    if not note.is_file():
        return None
    noted = Path(note.read_text(encoding="utf-8", errors="replace").strip())
    if not noted.is_dir():
        raise StorageError(str(path), f"{LOGS} names {noted} as the log directory, which does not exist; {MOVED}")
    if not (noted / SUBFOLDER / LOCK).exists() and not (noted / LOCK).exists():
        reason = f"{LOGS} names {noted} as the log directory, which contains no logs"
        raise StorageError(str(path), f"{reason}; check that it is mounted, or, {MOVED}")
    return noted


def choose_log_path(path: Path, log_path: str | Path | None) -> str | Path | None:
    """Return the path of the logs: the path in the note of the data directory, or *log_path* if there is no note.

    Raises:
        StorageError: The note contains a different path.
    """
    noted = read_log_note(path)
    if noted is not None and log_path is not None and Path(log_path).resolve() != noted:
        raise StorageError(str(path), f"{LOGS} names {noted} as the log directory, not {log_path}; {MOVED}")
    return log_path if noted is None else noted


def find_folder(path: Path) -> Path:
    """Return the folder that contains the files of a data directory: ``version-2``, or the directory itself.

    Raises:
        StorageError: *path* does not exist or is not a directory, or contains data of a different version.
    """
    if not path.exists():
        raise NoDirectoryError(str(path), "does not exist")
    if not path.is_dir():
        raise NoDirectoryError(str(path), "is not a directory")
    inner = path / SUBFOLDER
    if inner.is_dir():
        return inner
    _check_version(path)
    return path


def _check_version(path: Path) -> None:
    if path.resolve().name == INCOMPLETE or (path / INCOMPLETE).exists():
        raise StorageError(
            str(path), f"this backup is incomplete (found {INCOMPLETE}); delete the directory, and repeat the backup"
        )
    for other in sorted(path.glob("version-*")):
        if other.name != SUBFOLDER:
            raise StorageError(str(path), f"unsupported data version: expected {SUBFOLDER}, found {other.name}")
