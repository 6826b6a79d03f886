"""A snapshot that is written incrementally, while the server keeps serving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Final

from .disk import Disk
from .layout import PRIVATE

SLICE_SECONDS: Final = 0.001
"""Seconds of encoding between two pauses. In each pause, the server serves clients for at least the same time."""
SYNC_BYTES: Final = 4 << 20
"""Bytes of a snapshot between two syncs. A single sync of the whole file would delay the syncs of the log."""
BYTES_PER_CHECK: Final = 64 << 10
"""Bytes that are encoded between two checks of the clock."""
BYTES_PER_PIECE: Final = 1 << 10
"""Fixed cost of encoding a node, as a number of bytes that is added to its encoded size."""


class SnapshotFile:
    """A new snapshot file. It has a temporary name until :meth:`publish` is called.

    Args:
        folder: The folder of the file.
        zxid: The zxid of the snapshot, for the name of the file.
        disk: The file operations.
        executor: The thread that writes.

    Attributes:
        path: The path of the published file.
    """

    def __init__(self, folder: Path, zxid: int, disk: Disk, executor: Executor) -> None:
        self._temporary = folder / f"{PRIVATE}snapshot.tmp"
        self.path = folder / f"snapshot.{zxid:x}"
        self._disk = disk
        self._executor = executor

    async def write(self, pieces: Iterator[bytes], stopping: Callable[[], bool]) -> int:
        """Write the snapshot, and return its size in bytes.

        Args:
            pieces: The bytes of the snapshot. Each piece is encoded when it is requested.
            stopping: A function that returns whether the server is stopping, which interrupts the writing.

        Raises:
            OSError: The server is stopping, or the file cannot be written. The file is removed.
        """
        disk = self._disk
        descriptor = disk.create(self._temporary)
        size, synced, more = 0, 0, True
        try:
            while more:
                if stopping():
                    raise OSError("the server is stopping")
                data, more = _encode_for(pieces, SLICE_SECONDS, disk.now)
                await asyncio.gather(asyncio.sleep(SLICE_SECONDS), self._in_thread(disk.write, descriptor, data, size))
                size += len(data)
                if size - synced > SYNC_BYTES or not more:
                    await self._in_thread(disk.sync, descriptor)
                    synced = size
        except BaseException:
            disk.remove(self._temporary)
            raise
        finally:
            disk.close(descriptor)
        return size

    async def publish(self) -> None:
        """Rename the file to its final name. A recovery can use it after that.

        Raises:
            OSError: The file cannot be renamed.
        """
        await self._in_thread(self._disk.rename, self._temporary, self.path)
        await self._in_thread(self._disk.sync_folder, self.path.parent)

    def discard(self) -> None:
        """Remove the file, unless it already has its final name."""
        with suppress(OSError):  # the file may already have its name, or have been removed
            self._disk.remove(self._temporary)

    async def _in_thread(self, function: Callable[..., None], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, lambda: function(*arguments))


def _encode_for(pieces: Iterator[bytes], seconds: float, now: Callable[[], float]) -> tuple[bytes, bool]:
    """Encode pieces for a time. Return their bytes, and whether more pieces follow."""
    some: list[bytes] = []
    until = now() + seconds
    unchecked = 0
    for piece in pieces:
        some.append(piece)
        unchecked += BYTES_PER_PIECE + len(piece)
        if unchecked > BYTES_PER_CHECK:
            if now() > until:
                return b"".join(some), True
            unchecked = 0
    return b"".join(some), False
