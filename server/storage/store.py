"""The files of a running server: its log (:mod:`.group_commit`), and now and then a snapshot (:mod:`.snapshotter`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from zoolet.server.core.engine import Engine
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.group_commit import GroupCommit
from zoolet.server.storage.settings import StorageSettings
from zoolet.server.storage.snapshotter import Snapshotter


class Store(GroupCommit):
    """The files of a running server.

    Args:
        engine: The engine, which was recovered from the directory.
        directory: Its files.
        settings: When to sync, to snapshot and to purge.
        disk: The operations on files.
        note_session: Notes the highest session id that was given, beside the files.

    Attributes:
        snapshots: The snapshots.
        is_complete: Whether all that was applied is on the disk, and nothing can follow.
    """

    def __init__(
        self,
        engine: Engine,
        directory: DataDir,
        settings: StorageSettings,
        disk: Disk,
        note_session: Callable[[int], None] = lambda session_id: None,
    ) -> None:
        super().__init__(engine, directory.log_folder, settings, disk)
        self._directory = directory
        self.snapshots = Snapshotter(engine, self, directory, settings, disk, note_session)
        self.is_complete = False

    @property
    def highest_session_id(self) -> int:
        """The highest session id that was given."""
        return self._engine.sessions.highest_id

    def next_epoch(self, zxid: int) -> int:
        """Begin an epoch above all zxids that the server and its files have had, and one more; return it."""
        directory = DataDir.find(self._directory.path, self._settings.log_dir)
        epoch = (max(zxid, self._engine.zxid, directory.highest_zxid()) >> 32) + 1
        directory.begin_epoch(epoch, self._disk)
        return epoch

    def snapshot_soon(self) -> asyncio.Task[None]:
        """Begin to write a snapshot; after the present one, if one is being written."""
        return self.snapshots.begin()

    async def snapshot_written(self) -> None:
        """Wait until no snapshot is being written."""
        await self.snapshots.written()

    async def close(self) -> bool:
        """Log what remains, and close the files; a disk that is full or failing gets three seconds.

        Returns:
            Whether all is on the disk.
        """
        self.snapshots.end()
        lost = await self.stop_logging()
        await self.snapshots.ended()
        is_certain = await self.close_logs()
        self.is_complete = is_certain and not lost and self.doubtful_zxid <= self.snapshots.zxid
        return self.is_complete
