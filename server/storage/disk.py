"""File operations whose results survive a crash. Each operation returns when it is complete, or raises OSError.

The operations are methods, because tests record them and compute the possible states after a power failure. The
executor and the clock also belong to the class, because tests run the operations in virtual time.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Final

_CANNOT_RESERVE: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV})
"""Errors of file systems that cannot reserve space."""


class Disk:
    """File operations. New files are readable by their owner only."""

    def executor(self, name: str) -> Executor:
        """Return an executor with a single thread, which runs operations in order.

        Args:
            name: The prefix of the thread's name.
        """
        return ThreadPoolExecutor(1, name)

    def now(self) -> float:
        """Return the time of a clock for measuring durations, in seconds."""
        return perf_counter()

    def create(self, path: Path) -> int:
        """Create a file, or empty it, and return its descriptor."""
        return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)

    def open(self, path: Path) -> int:
        """Open an existing file for writing, and return its descriptor."""
        return os.open(path, os.O_WRONLY)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write all of *data* at an offset."""
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written

    def reserve(self, descriptor: int, offset: int, size: int) -> None:
        """Reserve space at an offset, filled with zeros. Do nothing if the file system cannot reserve space.

        The free space is checked first, because some file systems fill the disk before they report a lack of space.

        Raises:
            OSError: The disk has less than *size* bytes of free space.
        """
        if hasattr(os, "fstatvfs"):
            disk = os.fstatvfs(descriptor)
            if disk.f_bavail * disk.f_frsize < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            os.posix_fallocate(descriptor, offset, size)
        except AttributeError:  # the platform has no posix_fallocate
            return
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate a file to *size* bytes."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Wait until everything written to a file is safe from a power failure."""
        getattr(os, "fdatasync", os.fsync)(descriptor)

    def has_path(self, descriptor: int, path: Path) -> bool:
        """Return whether a path refers to the file of a descriptor."""
        try:
            there = os.stat(path)
        except OSError:
            return False
        here = os.fstat(descriptor)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def close(self, descriptor: int) -> None:
        """Close a file."""
        os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file. An existing file with the new name is replaced."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file, unless it is already missing."""
        path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Wait until the names in a folder are safe from a power failure."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
