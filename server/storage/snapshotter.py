"""When a running server writes a snapshot, and what has to be true before it counts.

::

    log long enough, or unusable --> another log begins --> tree written, bit by bit --> log on disk --> named --> purge

Invariants:

- A snapshot is written while the tree changes, so it has effects of later transactions. It gets its name, and counts,
  only when the log has all of them on the disk; the logs from its zxid on are the other half of it.
- One is written at a time. If another is wanted meanwhile, because the log has become unusable, it follows; and while
  something acknowledged is only in a log that could not be synced, one that fails is tried again each second.
- Files are deleted only when a later snapshot counts, by the rule of :meth:`DataDir.purge`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from zoolet.server.core.engine import Engine
from zoolet.server.storage import group_commit, live
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.group_commit import GroupCommit
from zoolet.server.storage.settings import StorageSettings
from zoolet.server.storage.snapshot import Snapshot
from zoolet.server.storage.snapshot_file import SnapshotFile

_log = logging.getLogger("zoolet.server")
MIN_LOG_BYTES: Final = 256 << 20
"""Bytes that are logged before the next snapshot, at least, where no limit is set."""
LOG_BYTES_A_SNAPSHOT_BYTE: Final = 4
"""How many times the size of the last snapshot they are, if that is more."""


class Snapshotter:
    """The snapshots of a running server.

    Args:
        engine: The engine.
        commits: Its log.
        directory: The files.
        settings: When to write a snapshot, and how many to keep.
        disk: The operations on files.
        note_session: Notes the highest session id that was given, beside the files.

    Attributes:
        task: The snapshot that is being written; None if none is.
        zxid: That of the last one which this process has written, and which counts; 0 for none.
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
        self._ending = self._another = False
        self._transactions = self._bytes = 0  # since the last one was begun
        self._size = self.zxid = 0  # of the last one that counts
        self._problem = ""  # what was last logged of one that does not
        self._retry: asyncio.TimerHandle | None = None
        self._valid: set[Path] = set()  # those that were read or written by this process
        self._valid.update(path for path in list(directory.snapshots.values())[:1] if path not in directory.rejected)
        self.task: asyncio.Task[None] | None = None
        commits.on_committed = self._count
        commits.on_log_unusable = self._begin_if_running

    def _count(self, transactions: int, size: int) -> None:
        """Begin a snapshot if so much was logged that the next start would take long, or need much space."""
        self._transactions += transactions
        self._bytes += size
        limit = self._settings.log_size << 10 or max(MIN_LOG_BYTES, LOG_BYTES_A_SNAPSHOT_BYTE * self._size)
        if self.task is None and (self._transactions >= self._settings.snap_count or self._bytes >= limit):
            self._begin_if_running()

    def _begin_if_running(self) -> None:
        if not self._ending:
            self.begin()

    def begin(self) -> asyncio.Task[None]:
        """Begin to write a snapshot, and a new log; after the present one, if one is being written."""
        if self.task is not None:
            self._another = True
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
        if self._another and not self._ending:
            self._another = False
            self.begin()

    def _report(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a snapshot was not written", "exception": error})

    async def _write(self) -> None:
        started, zxid = perf_counter(), self._engine.zxid
        try:
            await self._commits.begin_another_log()
            tables = live.tables_of(self._engine)
            zxid = tables.zxid
            journal = self._commits.journal
            pieces = snapshots.encode_growing(tables, live.nodes_of(self._engine.tree, tables), lambda: journal.zxid)
            file = SnapshotFile(self._directory.folder, zxid, self._disk, self._thread)
            written = await file.write(pieces, lambda: self._ending)
            try:
                await self._commits.on_disk(zxid, self._engine.zxid)  # what it has seen while it was written
                # Sessions that have begun and ended before it will be in no file, and no id may be given again.
                highest = self._engine.sessions.highest_id
                await self._loop.run_in_executor(self._thread, self._note_session, highest)
                await file.publish()
            except BaseException:
                file.discard()
                raise
            self.zxid, self._problem = zxid, ""
            self._size = written
            self._valid.add(file.path)
            seconds = perf_counter() - started
            self._engine.metrics.summaries["snapshottime"].observe(seconds * 1000)
            _log.info("wrote snapshot.%x: %d bytes in %.1f s", zxid, written, seconds)
            if self._settings.purge:
                await self._loop.run_in_executor(self._thread, self._purge)
        except OSError as error:
            self._engine.metrics.snapshot_errors += 1
            if str(error) != self._problem and not self._ending:
                self._problem = str(error)
                _log.error("the snapshot of zxid 0x%x could not be written: %s", zxid, error)
            if self._commits.doubtful_zxid > self.zxid and not self._ending:
                self._retry = self._loop.call_later(group_commit.RETRY, self._begin_if_running)

    def _purge(self) -> None:
        try:
            directory = DataDir.find(self._directory.path, self._settings.log_dir)
            directory.purge(self._settings.retained, self._valid, self._disk)
        except (OSError, StorageError) as error:
            _log.error("files that are not needed could not be deleted: %s", error)

    async def write_now(self) -> tuple[int, int]:
        """Write a snapshot of the present state or a later one; return its zxid and its bytes.

        Raises:
            OSError: It could not be written.
        """
        wanted = self._engine.zxid
        await self.written()
        self._begin_if_running()
        await self.written()
        if self.zxid < wanted:
            raise OSError(self._problem or "the server stops")
        return self.zxid, self._size

    async def write_restored(self, snapshot: Snapshot) -> None:
        """Write a state that the engine will have; from then on it counts.

        Raises:
            OSError: It could not be written.
        """
        await self.written()
        if self._ending:
            raise OSError("the server stops")
        await self._run(self._write_state(snapshot))

    async def _write_state(self, snapshot: Snapshot) -> None:
        file = SnapshotFile(self._directory.folder, snapshot.zxid, self._disk, self._thread)
        self._size = await file.write(snapshots.encode(snapshot), lambda: self._ending)
        try:
            await file.publish()
        except BaseException:
            file.discard()
            raise
        self.zxid, self._problem = snapshot.zxid, ""
        self._valid.add(file.path)

    async def written(self) -> None:
        """Wait until the snapshot that is being written is complete, and one that follows it."""
        while (task := self.task) is not None:
            await asyncio.wait((task,))
            await asyncio.sleep(0)

    def end(self) -> None:
        """Write no more; one that is not complete is removed."""
        self._ending = True
        if self._retry is not None:
            self._retry.cancel()

    async def ended(self) -> None:
        """Wait until nothing is written any more."""
        if self.task is not None:
            await asyncio.wait((self.task,))
        self._thread.shutdown()
