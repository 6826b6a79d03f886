"""The files of a running server: its log (:mod:`.group_commit`) and its snapshots (:mod:`.snapshotter`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..core.engine import Engine
from ..core.state import next_epoch
from .directory import DataDir
from .disk import Disk
from .group_commit import GroupCommit
from .settings import StorageSettings
from .snapshotter import Snapshotter


class Store(GroupCommit):
    """The files of a running server.

    Args:
        engine: The engine, recovered from the directory.
        directory: The files of the directory.
        settings: The settings for syncing, snapshots and purging.
        disk: The file operations.
        note_session: A function that notes the highest assigned session id in the data directory.

    Attributes:
        snapshots: The schedule of the snapshots.
        is_complete: Whether the store is closed, and all applied transactions are on the disk.
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
        """The highest session id that was assigned."""
        return self._engine.sessions.highest_id

    def next_epoch(self, zxid: int) -> int:
        """Write a new epoch to the files of the directory, and return it. It is above *zxid* and all known zxids."""
        directory = DataDir.find(self._directory.path, self._settings.log_dir)
        epoch = next_epoch(max(zxid, self._engine.zxid, directory.highest_zxid()), self._engine.now)
        directory.begin_epoch(epoch, self._disk)
        return epoch

    def snapshot_soon(self) -> asyncio.Task[None]:
        """Start a snapshot. If a snapshot is already being written, start after it. Return the task that writes."""
        return self.snapshots.begin()

    async def snapshot_written(self) -> None:
        """Wait until no snapshot is being written."""
        await self.snapshots.written()

    async def close(self) -> bool:
        """Log the remaining transactions, and close the files. On a full or failing disk, give up after three seconds.

        Returns:
            Whether all transactions are on the disk.
        """
        self.snapshots.end()
        lost = await self.stop_logging()
        await self.snapshots.ended()
        is_certain = await self.close_logs()
        self.is_complete = is_certain and not lost and self.doubtful_zxid <= self.snapshots.zxid
        return self.is_complete
