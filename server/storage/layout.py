"""Where the files of a data directory are: their names, a new directory, and the note that says where its logs are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError

SUBFOLDER: Final = "version-2"
"""Where the files are in a data directory."""
LOCK: Final = "zoolet.lock"
LOGS: Final = "zoolet.logs"
"""Says where the logs are, if they are in another directory."""
KEY: Final = "zoolet.key"
"""The key of session passwords, with which clients can resume their sessions."""
PRIVATE: Final = "zoolet-"
"""Prefix of the names of our own files, which ZooKeeper ignores."""
MOVED: Final = f"if they were moved, delete {LOGS}"


def check_new(path: Path) -> None:
    """Check that a directory that has no data can become a data directory; it may have other files.

    Raises:
        StorageError: It is a file, or has data of another version.
    """
    if path.exists() and not path.is_dir():
        raise StorageError(str(path), "this is not a directory")
    _check_version(path)


def create(path: Path) -> None:
    """Create a data directory, if it is not there, for its owner only.

    Raises:
        OSError: It cannot be created.
    """
    missing = [folder for folder in (path / SUBFOLDER, path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
        Disk().sync_folder(folder.parent)


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
    if not (noted / SUBFOLDER / LOCK).exists() and not (noted / LOCK).exists():
        raise StorageError(
            str(path), f"its logs are in {noted}, as {LOGS} says, which has none: is it mounted? {MOVED}"
        )
    return noted


def log_path_of(path: Path, log_path: str | Path | None) -> str | Path | None:
    """Return where the logs are: where the caller says, or where it was noted.

    Raises:
        StorageError: The note says something else.
    """
    noted = noted_logs(path)
    if noted is not None and log_path is not None and Path(log_path).resolve() != noted:
        raise StorageError(str(path), f"its logs are in {noted}, as {LOGS} says, and not in {log_path}; {MOVED}")
    return log_path if noted is None else noted


def folder_in(path: Path) -> Path:
    """Return the folder in a data directory that has its files.

    Raises:
        StorageError: It is no directory, or has data of another version.
    """
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
