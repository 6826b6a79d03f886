"""A transaction log that is being written.

The file gets its name with its first transaction, after its header is on the disk, so a log is never empty: ZooKeeper
3.8.0 does not start with an empty log. Space is reserved in advance. This makes a sync twice as fast, because the file
does not grow with each transaction. Also, a full disk is noticed while there is still space for applied transactions.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

from . import txnlog
from .disk import Disk

RESERVE_DIVISOR: Final = 4
"""Divisor of the preallocated size: more space is reserved when less than this fraction of the size is left."""


class LogFile:
    """A new log, which gets its final name with its first transaction.

    Args:
        folder: The folder of the file.
        disk: The file operations.
        preallocated: Number of bytes to reserve in one step; 0 to reserve none.
        on_synced: A function that is called after each sync, in the same thread, with the duration in seconds.

    Attributes:
        path: The path of the file.
        is_short: Whether the disk had no space to reserve more.
        is_full: Whether the file has reached the maximum file size (RLIMIT_FSIZE). Later transactions go to a new file.
        has_failed: Whether a sync has failed. The content may not be on the disk, and a later sync could report success
            anyway, so the log accepts no more transactions.

    Raises:
        OSError: The file cannot be created.
    """

    _count = 0

    def __init__(
        self, folder: Path, disk: Disk, preallocated: int, on_synced: Callable[[float], object] = lambda seconds: None
    ) -> None:
        LogFile._count += 1
        self.path = folder / f"zoolet-log-{LogFile._count}.tmp"
        self.is_short = self.is_full = self.has_failed = False
        self._disk = disk
        self._on_synced = on_synced
        self._preallocated = preallocated
        self._reserved = self._size = 0
        self._is_named = self._is_name_synced = False  # whether the file was renamed, and whether the rename is synced
        self._has_entries = False
        self._descriptor = disk.create(self.path)
        if preallocated:
            self.try_reserve()

    def append(self, first_zxid: int, data: bytes) -> None:
        """Append transactions to the log. After an error, they can be written again.

        Args:
            first_zxid: The zxid of the first transaction.
            data: The encoded transactions.

        Raises:
            OSError: The transactions cannot be written, or the file has been removed.
        """
        self._check_usable()
        if not self._is_name_synced:
            self._begin(first_zxid)
        self._check_not_removed()
        try:
            self._disk.write(self._descriptor, data, self._size)
        except OSError as error:
            self._note_limit(error)
            raise
        self._size += len(data)
        self._has_entries = True
        if self._preallocated and self._reserved - self._size < self._preallocated // RESERVE_DIVISOR:
            self.try_reserve()

    def _begin(self, first_zxid: int) -> None:
        """Write the header, and name the file. The next call repeats a failed step."""
        header = txnlog.encode_header()
        if not self._is_named:
            self._disk.write(self._descriptor, header, 0)
            self._disk.sync(self._descriptor)
            path = self.path.with_name(f"log.{first_zxid:x}")
            self._disk.rename(self.path, path)
            self.path, self._size, self._is_named = path, len(header), True
        self._disk.sync_folder(self.path.parent)
        self._is_name_synced = True

    def _check_not_removed(self) -> None:
        """Check that the file still exists at its path, because writes to a deleted file would be lost."""
        if not self._disk.has_path(self._descriptor, self.path):
            raise OSError(errno.ENOENT, "the log file has been removed", str(self.path))

    def try_reserve(self) -> None:
        """Reserve more space, and set :attr:`is_short`.

        If the maximum file size is too small for the space, an empty log stops reserving, and any other log is full.
        """
        start = max(self._reserved, self._size)
        try:
            self._disk.reserve(self._descriptor, start, self._preallocated)
        except OSError as error:
            self.is_short = error.errno != errno.EFBIG
            self._note_limit(error)
            if not self.is_short and not self._has_entries:
                self._preallocated = 0
        else:
            self._reserved = start + self._preallocated
            self.is_short = False

    def _note_limit(self, error: OSError) -> None:
        """Set :attr:`is_full` at the maximum file size, unless the log is empty: a new file could not be larger."""
        self.is_full |= error.errno == errno.EFBIG and self._has_entries

    def sync(self) -> None:
        """Wait until everything appended is safe from a power failure.

        Raises:
            OSError: This or an earlier sync failed. The log can no longer be used.
        """
        self._check_usable()
        try:
            started = perf_counter()
            self._disk.sync(self._descriptor)
            self._on_synced(perf_counter() - started)
        except OSError:
            self.has_failed = True
            raise

    def _check_usable(self) -> None:
        if self.has_failed:
            raise OSError(errno.EIO, "an earlier sync of the log failed", str(self.path))

    def close(self) -> None:
        """Release the unused space, sync and close the file. Remove the file if it contains no transactions.

        Raises:
            OSError: The file cannot be truncated or synced.
        """
        try:
            if self._is_named:
                self._disk.truncate(self._descriptor, self._size)
                self.sync()
            else:
                self._disk.remove(self.path)
        finally:
            self._disk.close(self._descriptor)

    def abandon(self) -> None:
        """Close the file without changes, after a failed sync: its content may not be on the disk."""
        self._disk.close(self._descriptor)
