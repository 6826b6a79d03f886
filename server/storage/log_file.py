"""One transaction log that is being written.

It gets its name with its first transaction, once its header is on the disk, so that a log is never empty: ZooKeeper
3.8.0 does not start on an empty one. Space is reserved in advance: the file need not grow with each transaction, which
makes a sync twice as fast, and a full disk is noticed while there is room for what was applied already.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

from zoolet.server.storage import txnlog
from zoolet.server.storage.disk import Disk

RESERVE: Final = 4
"""The reserve is this part, a quarter, of the preallocated size."""


class LogFile:
    """A new log, which has no name yet.

    Args:
        folder: Where its file is created.
        disk: The operations on files.
        preallocated: How many bytes are reserved at a time; 0 for none.
        on_synced: Called after each sync with the seconds that it has taken, in the thread that has called it.

    Attributes:
        path: Its file.
        is_short: Whether there was no space to reserve more.
        is_full: Whether a file may not be larger (RLIMIT_FSIZE): another one takes what follows.
        has_failed: Whether a sync has failed: what it has is not certain, and a later sync might succeed wrongly. It
            takes nothing more.

    Raises:
        OSError: It cannot be created.
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
        self._is_named = self._is_begun = False  # it has its name; the name is on the disk
        self._has_entries = False
        self._descriptor = disk.create(self.path)
        if preallocated:
            self.try_reserve()

    def append(self, first_zxid: int, data: bytes) -> None:
        """Write transactions after those that the log has. After an error, they can be written again.

        Args:
            first_zxid: The zxid of the first of them.
            data: Their bytes.

        Raises:
            OSError: They cannot be written, or the file has gone.
        """
        self._check_usable()
        if not self._is_begun:
            self._begin(first_zxid)
        self._check_in_place()
        try:
            self._disk.write(self._descriptor, data, self._size)
        except OSError as error:
            self._note_limit(error)
            raise
        self._size += len(data)
        self._has_entries = True
        if self._preallocated and self._reserved - self._size < self._preallocated // RESERVE:
            self.try_reserve()

    def _begin(self, first_zxid: int) -> None:
        """Write the header, and name the file; each step that has failed is done again."""
        header = txnlog.encode_header()
        if not self._is_named:
            self._disk.write(self._descriptor, header, 0)
            self._disk.sync(self._descriptor)
            path = self.path.with_name(f"log.{first_zxid:x}")
            self._disk.rename(self.path, path)
            self.path, self._size, self._is_named = path, len(header), True
        self._disk.sync_folder(self.path.parent)
        self._is_begun = True

    def _check_in_place(self) -> None:
        """Check that the file is where it was created: what is written to one that was deleted is lost."""
        if not self._disk.is_at(self._descriptor, self.path):
            raise OSError(errno.ENOENT, "the file of the log has gone", str(self.path))

    def try_reserve(self) -> None:
        """Reserve more space; :attr:`is_short` says whether there was none. Where a file may not be so large, the log
        does without.
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
        """Note whether another file may have what this one may not; one without transactions is such a file."""
        self.is_full |= error.errno == errno.EFBIG and self._has_entries

    def sync(self) -> None:
        """Wait until what was appended outlives a loss of power.

        Raises:
            OSError: It may not, now and from now on.
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
            raise OSError(errno.EIO, "a sync of the log has failed before", str(self.path))

    def close(self) -> None:
        """Return the space that is not used, and close the file; one without a name is removed."""
        try:
            if self._is_named:
                self._disk.truncate(self._descriptor, self._size)
                self.sync()
            else:
                self._disk.remove(self.path)
        finally:
            self._disk.close(self._descriptor)

    def abandon(self) -> None:
        """Close the file as it is: syncing it has failed, and what it has is not certain."""
        self._disk.close(self._descriptor)
