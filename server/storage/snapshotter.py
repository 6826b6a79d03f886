"""The schedule of a running server's snapshots. Each snapshot is published only when it is safe.

::

    log long enough, or unusable --> new log --> tree written incrementally --> log on disk --> named --> purge

Invariants:

- A snapshot is written while the tree changes, so it contains effects of later transactions. It gets its name only when
  all of them are on the disk in the log. Without the logs from its zxid on, the snapshot is incomplete.
- Only one snapshot is written at a time. A snapshot that is requested during this time, because the log is
  unusable, is written afterwards. While acknowledged transactions exist only in a log that could not be synced, a
  failed snapshot is retried every second.
- Files are deleted only when a newer snapshot is complete, by the rule of :meth:`DataDir.purge`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from ...protocol.hexadecimal import hexadecimal
from ..core.engine import Engine
from . import group_commit, live
from . import snapshot as snapshots
from .directory import DataDir
from .disk import Disk
from .errors import StorageError
from .group_commit import GroupCommit
from .settings import StorageSettings
from .snapshot import Snapshot
from .snapshot_file import SnapshotFile

_log = logging.getLogger("zoolet.server")
MIN_LOG_BYTES: Final = 256 << 20
"""Minimum number of logged bytes between two snapshots, if the settings contain no limit."""
LOG_BYTES_PER_SNAPSHOT_BYTE: Final = 4
"""Logged bytes per byte of the last snapshot, if that is more than the minimum."""


class Snapshotter:
    """The snapshots of a running server.

    Args:
        engine: The engine.
        commits: The log of the engine.
        directory: The files.
        settings: The settings for snapshots.
        disk: The file operations.
        note_session: A function that notes the highest assigned session id in the data directory.

    Attributes:
        task: The task that is writing a snapshot; None if no snapshot is being written.
        zxid: The zxid of the last snapshot that this process has published; 0 if it has published none.
    """

    def __init__(
        self,
        engine: Engine,
        commits: GroupCommit,
        directory: DataDir,
        settings: StorageSettings,
        disk: Disk,
        note_session: Callable[[int], None],
    ) -> None:
        self._engine = engine
        self._commits = commits
        self._directory = directory
        self._settings = settings
        self._disk = disk
        self._note_session = note_session
        self._loop = asyncio.get_running_loop()
        self._thread = disk.executor("zoolet-snapshot")
        self._is_stopping = self._is_requested = False
        self._transactions = self._bytes = 0  # counts since the start of the last snapshot
        self._size = self.zxid = 0  # size and zxid of the last published snapshot
        self._problem = ""  # the last failure that was reported in the server's log
        self._retry: asyncio.TimerHandle | None = None
        self._valid_paths: set[Path] = set()  # snapshots that this process has read or written
        self._valid_paths.update(
            path for path in list(directory.snapshots.values())[:1] if path not in directory.rejected
        )
        self.task: asyncio.Task[None] | None = None
        commits.on_committed = self._count
        commits.on_log_unusable = self._begin_unless_stopping

    def _count(self, transactions: int, size: int) -> None:
        """Add a commit to the counts, and start a snapshot if one of them has reached its limit."""
        self._transactions += transactions
        self._bytes += size
        limit = self._settings.log_size << 10 or max(MIN_LOG_BYTES, LOG_BYTES_PER_SNAPSHOT_BYTE * self._size)
        if self.task is None and (self._transactions >= self._settings.snap_count or self._bytes >= limit):
            self._begin_unless_stopping()

    def _begin_unless_stopping(self) -> None:
        if not self._is_stopping:
            self.begin()

    def begin(self) -> asyncio.Task[None]:
        """Start a new log and a snapshot. If a snapshot is already being written, start both after it.

        Returns:
            The task that writes the current or the new snapshot.
        """
        if self.task is not None:
            self._is_requested = True
            return self.task
        self._transactions = self._bytes = 0
        task = self._run(self._write())
        task.add_done_callback(self._report)
        return task

    def _run(self, writing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.task = self._loop.create_task(writing)
        self.task.add_done_callback(self._ended)
        return self.task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.task = None
        if self._is_requested and not self._is_stopping:
            self._is_requested = False
            self.begin()

    def _report(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "unexpected error in a snapshot", "exception": error})

    async def _write(self) -> None:
        started, zxid = perf_counter(), self._engine.zxid
        try:
            await self._commits.start_new_log()
            tables = live.snapshot_tables(self._engine)
            zxid = tables.zxid
            journal = self._commits.journal
            pieces = snapshots.encode_changing(
                tables, live.snapshot_nodes(self._engine.tree, tables), lambda: journal.zxid
            )
            file = SnapshotFile(self._directory.folder, zxid, self._disk, self._thread)
            written = await file.write(pieces, lambda: self._is_stopping)
            try:
                # The snapshot may contain all transactions up to now.
                await self._commits.wait_until_on_disk(zxid, self._engine.zxid)
                # A purge may delete the last record of sessions that ended earlier. Their ids must not be reused.
                highest = self._engine.sessions.highest_id
                await self._loop.run_in_executor(self._thread, self._note_session, highest)
                await file.publish()
            except BaseException:
                file.discard()
                raise
            self.zxid, self._problem = zxid, ""
            self._size = written
            self._valid_paths.add(file.path)
            seconds = perf_counter() - started
            self._engine.metrics.summaries["snapshottime"].observe(seconds * 1000)
            _log.info("wrote snapshot.%x: %d bytes in %.1f s", zxid, written, seconds)
            if self._settings.purge:
                await self._loop.run_in_executor(self._thread, self._purge)
        except OSError as error:
            self._engine.metrics.snapshot_errors += 1
            if str(error) != self._problem and not self._is_stopping:
                self._problem = str(error)
                _log.error("could not write the snapshot of zxid %s: %s", hexadecimal(zxid), error)
            if self._commits.doubtful_zxid > self.zxid and not self._is_stopping:
                self._retry = self._loop.call_later(group_commit.RETRY, self._begin_unless_stopping)

    def _purge(self) -> None:
        try:
            directory = DataDir.find(self._directory.path, self._settings.log_dir)
            directory.purge(self._settings.retained, self._valid_paths, self._disk)
        except (OSError, StorageError) as error:
            _log.error("could not delete unneeded files: %s", error)

    async def write_now(self) -> tuple[int, int]:
        """Write a snapshot of the current state or a later one. Return its zxid and its size in bytes.

        Raises:
            OSError: The snapshot could not be written.
        """
        wanted = self._engine.zxid
        await self.written()
        self._begin_unless_stopping()
        await self.written()
        if self.zxid < wanted:
            raise OSError(self._problem or "the server is stopping")
        return self.zxid, self._size

    async def write_restored(self, snapshot: Snapshot) -> None:
        """Write and publish a snapshot, before the engine loads its state.

        Raises:
            OSError: The snapshot could not be written.
        """
        await self.written()
        if self._is_stopping:
            raise OSError("the server is stopping")
        await self._run(self._write_state(snapshot))

    async def _write_state(self, snapshot: Snapshot) -> None:
        file = SnapshotFile(self._directory.folder, snapshot.zxid, self._disk, self._thread)
        self._size = await file.write(snapshots.encode(snapshot), lambda: self._is_stopping)
        try:
            await file.publish()
        except BaseException:
            file.discard()
            raise
        self.zxid, self._problem = snapshot.zxid, ""
        self._valid_paths.add(file.path)

    async def written(self) -> None:
        """Wait until the current snapshot is complete, including a snapshot that was requested after it."""
        while (task := self.task) is not None:
            await asyncio.wait((task,))
            await asyncio.sleep(0)

    def end(self) -> None:
        """Stop writing snapshots. An incomplete snapshot is removed."""
        self._is_stopping = True
        if self._retry is not None:
            self._retry.cancel()

    async def ended(self) -> None:
        """Wait until the current snapshot has stopped, and shut down the thread that writes. Call :meth:`end` first."""
        if self.task is not None:
            await asyncio.wait((self.task,))
        self._thread.shutdown()
