"""One transaction log that is being written.

It gets its name once its header is on the disk, so that a log is never empty: ZooKeeper 3.8.0 does not start on an
empty one. Space is reserved in advance: the file need not grow with each transaction, which makes a sync twice as fast,
and a full disk is noticed while there is room for what was applied already.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zoolet.server.storage import txnlog
from zoolet.server.storage.disk import Disk

RESERVE: Final = 4
"""What is kept in reserve: this part, a quarter, of the preallocated size."""


class LogFile:
    """A new log.

    Args:
        folder: Where its file is created.
        first_zxid: The zxid of its first transaction, which names it.
        disk: The operations on files.
        preallocated: How many bytes are reserved at a time.

    Attributes:
        is_short: Whether there was no space to reserve more.

    Raises:
        OSError: It cannot be created, or its beginning cannot be written.
    """

    def __init__(self, folder: Path, first_zxid: int, disk: Disk, preallocated: int) -> None:
        self.path = folder / f"log.{first_zxid:x}"
        self.is_short = False
        self._disk = disk
        self._preallocated = preallocated
        self._reserved = 0
        temporary = folder / "zoolet-log.tmp"
        self._descriptor = disk.create(temporary)
        try:
            header = txnlog.encode_header()
            self._size = len(header)
            disk.write(self._descriptor, header, 0)
            if preallocated:
                disk.reserve(self._descriptor, 0, preallocated)
            self._reserved = preallocated
            disk.sync(self._descriptor)
            disk.rename(temporary, self.path)
            disk.sync_folder(folder)
        except OSError:
            disk.close(self._descriptor)
            raise

    def append(self, data: bytes) -> None:
        """Write transactions behind those that the log has. After an error, they can be written again."""
        self._disk.write(self._descriptor, data, self._size)
        self._size += len(data)
        if self._preallocated and self._reserved - self._size < self._preallocated // RESERVE:
            self.try_reserve()

    def try_reserve(self) -> None:
        """Reserve more space; :attr:`is_short` says whether there was none."""
        start = max(self._reserved, self._size)
        try:
            self._disk.reserve(self._descriptor, start, self._preallocated)
        except OSError:
            self.is_short = True
        else:
            self._reserved = start + self._preallocated
            self.is_short = False

    def sync(self) -> None:
        """Wait until what was appended outlives a loss of power."""
        self._disk.sync(self._descriptor)

    def close(self) -> None:
        """Return the space that is not used, and close the file; nothing can be appended any more."""
        try:
            self._disk.truncate(self._descriptor, self._size)
            self._disk.sync(self._descriptor)
        finally:
            self._disk.close(self._descriptor)

    def abandon(self) -> None:
        """Close the file as it is: syncing it has failed, and what it has is not certain."""
        self._disk.close(self._descriptor)
