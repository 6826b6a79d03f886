"""One snapshot that is being written, bit by bit, while the server serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Final

from zoolet.server.storage.disk import Disk
from zoolet.server.storage.layout import PRIVATE

SLICE: Final = 0.001
"""Seconds for which a snapshot is encoded before the server serves for as long at least."""
SYNC_BYTES: Final = 4 << 20
"""Bytes of a snapshot between two syncs: all at once would delay the syncs of the log."""
CHECK_EVERY: Final = 64 << 10
"""Bytes that are encoded between two looks at the clock."""
BYTES_A_PIECE: Final = 1 << 10
"""Added to the bytes of each node."""


class SnapshotFile:
    """A new snapshot, which gets its name by :meth:`publish`.

    Args:
        folder: Where its file is created.
        zxid: Its zxid, which names it.
        disk: The operations on files.
        executor: The thread that writes.

    Attributes:
        path: Its name.
    """

    def __init__(self, folder: Path, zxid: int, disk: Disk, executor: Executor) -> None:
        self._temporary = folder / f"{PRIVATE}snapshot.tmp"
        self.path = folder / f"snapshot.{zxid:x}"
        self._disk = disk
        self._executor = executor

    async def write(self, pieces: Iterator[bytes], stopping: Callable[[], bool]) -> int:
        """Write the bytes of the snapshot, and return how many they are.

        Args:
            pieces: The bytes; each is encoded when it is asked for.
            stopping: Whether the server stops, and the snapshot is not needed any more.

        Raises:
            OSError: The server stops, or the file cannot be written; nothing remains of it.
        """
        disk = self._disk
        descriptor = disk.create(self._temporary)
        size, synced, more = 0, 0, True
        try:
            while more:
                if stopping():
                    raise OSError("the server stops")
                data, more = _some(pieces, SLICE, disk.now)
                await asyncio.gather(asyncio.sleep(SLICE), self._in_thread(disk.write, descriptor, data, size))
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
        """Name the file: from now on it counts."""
        await self._in_thread(self._disk.rename, self._temporary, self.path)
        await self._in_thread(self._disk.sync_folder, self.path.parent)

    def discard(self) -> None:
        """Remove the file, if it has no name yet."""
        with suppress(OSError):  # it has its name, or has gone
            self._disk.remove(self._temporary)

    async def _in_thread(self, function: Callable[..., None], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, lambda: function(*arguments))


def _some(pieces: Iterator[bytes], seconds: float, now: Callable[[], float]) -> tuple[bytes, bool]:
    """Return what can be encoded in some time, and whether there is more."""
    some: list[bytes] = []
    until = now() + seconds
    unchecked = 0
    for piece in pieces:
        some.append(piece)
        unchecked += BYTES_A_PIECE + len(piece)
        if unchecked > CHECK_EVERY:
            if now() > until:
                return b"".join(some), True
            unchecked = 0
    return b"".join(some), False
