"""The operations on files that must not be lost: each returns when it is done, or raises OSError.

They are methods, so that a test can record them and work out what a power loss may leave; and what runs them beside the
event loop is the disk's, and so is the clock, so that a test can run them in virtual time.
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
    """The operations on files. Those that this creates are readable by their owner only."""

    def executor(self, name: str) -> Executor:
        """Return what runs operations one after the other, beside the event loop: a thread of that name."""
        return ThreadPoolExecutor(1, name)

    def now(self) -> float:
        """Return the seconds of a clock that measures how long something takes."""
        return perf_counter()

    def create(self, path: Path) -> int:
        """Create a file, or empty it, and return its descriptor."""
        return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)

    def open(self, path: Path) -> int:
        """Open a file that is there for writing, and return its descriptor."""
        return os.open(path, os.O_WRONLY)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write all of *data* at an offset."""
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written

    def reserve(self, descriptor: int, offset: int, size: int) -> None:
        """Reserve space, which reads as zeros, as far as the file system can.

        Raises:
            OSError: There is not so much space.
        """
        try:
            os.posix_fallocate(descriptor, offset, size)
        except AttributeError:  # this platform cannot
            return
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate a file."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Wait until what was written to a file outlives a loss of power."""
        getattr(os, "fdatasync", os.fsync)(descriptor)

    def is_at(self, descriptor: int, path: Path) -> bool:
        """Return whether a path leads to the file of a descriptor."""
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
        """Rename a file; one that has the name already is replaced."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Wait until the names in a folder outlive a loss of power."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
