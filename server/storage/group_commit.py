"""Group commit: what a turn has changed goes from the journal into the log, and output that may show it waits::

    turn --journal--> commit --bytes--> log, sync --output--> sockets

While one commit is being synced, the next turns run; their transactions and output are the next commit. So there is one
sync for everything that arrived during the one before. No output overtakes the transactions that it may show, whether
it is a reply, an event, or what another client reads; for a log that is failing see below.
With ``interval`` and ``never`` output waits for a sync only where a log follows another: the bytes are given to the
operating system before the output is sent.

States of the log::

    fine --no space to reserve--> short --space again--> fine
      |                             |
      +--a write or sync failed--> failing --retried each second, done--> fine

While it is short, the writes of clients are refused, and sessions begin and end in what is reserved. While it is
failing, writes are refused as well, no session ends and no node expires, and the output of clients that have changed
something that is not logged waits. All other output is sent, so that reads are served; they may show what is not logged
yet. But nobody may see the end of a session that is not logged, for somebody may hold its lock then, and it is alive
again after a crash: if one is among what is not logged, all output waits. Because space is reserved, a full disk leads
here only where none can be.

Invariants:

- Nothing is sent that shows a transaction that is not in the log, except for reads while it is failing.
- One commit is under way at most. Logs are synced, closed and abandoned by the log's thread alone, one after the other.
- A log that could not be synced takes nothing more, and what it has is not certain. With ``interval`` and ``never`` it
  was acknowledged: :attr:`GroupCommit.doubtful_zxid` is the end of it, and no snapshot counts that needs it.
- A log gets its name only after the one before it is on the disk: first commits run in the log's thread, after its
  close. So what a loss of power leaves has no gap between two logs, with ``interval`` and ``never``, too.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import Applied, Journal
from zoolet.server.storage import txnlog
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.log_file import LogFile
from zoolet.server.storage.output import Output
from zoolet.server.storage.settings import StorageSettings

_log = logging.getLogger("zoolet.server")
RETRY: Final = 1.0
"""Seconds between two attempts to write to a disk that is full or failing."""
SYNC_INTERVAL: Final = 1.0
"""Seconds between two syncs with ``interval``."""
STOP_SECONDS: Final = 3.0
"""Seconds that a server which stops waits for a disk that is full or failing."""


@dataclass
class Commit:
    """Transactions that are being logged, and the output that waits for it."""

    entries: list[Applied]
    data: bytes
    outputs: list[tuple[Output, bytes, bool]]
    began: float


class GroupCommit:
    """The log of a running server.

    Args:
        engine: The engine, which was recovered from the directory.
        folder: Where the logs are.
        settings: When to sync, and how much space to reserve.
        disk: The operations on files.

    Attributes:
        journal: What the engine has applied since the last commit.
        logged_zxid: The zxid of the last transaction that was logged.
        doubtful_zxid: The zxid of the last transaction that was acknowledged and may be lost with the power for good,
            until a snapshot has it; 0 for none.
        on_committed: Called after each commit with its number of transactions and of bytes.
        on_log_unusable: Called when only a snapshot and another log help: this one could not be synced.
    """

    def __init__(self, engine: Engine, folder: Path, settings: StorageSettings, disk: Disk) -> None:
        self._engine = engine
        self._folder = folder
        self._settings = settings
        self._disk = disk
        self._loop = asyncio.get_running_loop()
        self.journal = Journal(engine.zxid)
        engine.use_journal(self.journal)
        self.logged_zxid = engine.zxid
        self.doubtful_zxid = 0
        self.on_committed: Callable[[int, int], object] = lambda entries, size: None
        self.on_log_unusable: Callable[[], object] = lambda: None
        self._waits = settings.fsync == "always"
        self._log: LogFile | None = None
        self._next: LogFile | None = self._new_log()  # in reserve, so that a full disk does not prevent it
        self._log_thread = disk.executor("zoolet-log")
        self._closing = self._has_stopped = False
        self._is_certain = True  # at the end: no sync has failed
        self._waiting: dict[Output, None] = {}  # those whose output is for the next commit
        self._paused: dict[Output, None] = {}
        self._committing: Commit | None = None
        self._failing = self._short = False
        self._failure = ""  # what was last logged of it
        self._scheduled = False
        self._unsynced = False  # with interval: something was written since the last sync
        self._sync_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._reserve_timer: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []  # for a zxid to be logged
        self._retiring: asyncio.Future[asyncio.Future[None] | None] | None = None  # another log is to begin
        self._check_space()  # the disk may be full from the beginning

    # --- output ---

    def paused(self) -> list[Output]:
        """Return the connections from which nothing is received at present: their sessions must not expire."""
        return list(self._paused)

    def hold(self, output: Output) -> bool:
        """Return whether the output of a connection has to wait; it is sent later then."""
        if not self.journal.entries and self._committing is None:
            return False
        if output in self._waiting:
            if self._committing is not None and output not in self._paused:
                self._paused[output] = None  # it is two commits ahead: what it may send is limited
                output.pause()
            return True
        if self._failing and not self._must_wait(output):
            return False
        self._waiting[output] = None
        self.commit_soon()
        return True

    def _must_wait(self, output: Output) -> bool:
        """Return whether the output of a connection waits while the log is failing: it has changed something that is
        not logged, or a session has ended, which nobody must see.
        """
        commit = self._committing
        assert commit is not None
        if any(
            entry[4] == OpCode.CLOSE_SESSION for entries in (commit.entries, self.journal.entries) for entry in entries
        ):
            return True
        unlogged = {entry[0] for entries in (commit.entries, self.journal.entries) for entry in entries} - {0}
        return output.session_id in unlogged or any(held is output for held, _, _ in commit.outputs)

    def forget(self, output: Output) -> None:
        """Forget a connection that is gone."""
        self._waiting.pop(output, None)
        self._paused.pop(output, None)

    def commit_soon(self) -> None:
        """Log what was applied, at the end of this iteration of the event loop or behind the present commit."""
        idle = not self._scheduled and self._committing is None and not self._has_stopped
        if idle and (self.journal.entries or self._waiting):
            self._scheduled = True
            self._loop.call_soon(self._commit)

    # --- the commit ---

    def _commit(self) -> None:
        self._scheduled = False
        if self._committing is not None:
            return
        data = txnlog.encode(self.journal.entries)  # if this fails, nothing is forgotten
        entries = self.journal.pop_all()
        outputs = [(output, *output.pop_output()) for output in self._waiting]
        self._waiting.clear()
        self._committing = Commit(entries, data, outputs, perf_counter())
        self._write()

    def _write(self) -> None:
        commit = self._committing
        assert commit is not None
        if not commit.entries:
            self._committed(None)
        elif self._waits or self._failing or (log := self._log) is None or log.has_failed or log.is_full:
            # The first commit of a log comes after the close of the log before it.
            future = self._log_thread.submit(self._append, commit, sync=self._waits or self._failing)
            future.add_done_callback(self._in_loop(self._committed))
        else:
            try:
                log.append(commit.entries[0][2], commit.data)
            except (OSError, MemoryError) as error:
                self._committed(error)
            else:
                self._committed(None)

    def _append(self, commit: Commit, *, sync: bool) -> None:
        """Write a commit to the log, or to another if it takes no more; this runs in the log's thread."""
        log = self._log
        if log is not None and log.has_failed:
            self._log = None
            log.abandon()
        elif log is not None and log.is_full:
            log.sync()
            self._log = None  # whatever becomes of its end, which is zeros
            log.close()
        if (log := self._log) is None:
            log, self._next = self._next or self._new_log(), None
            self._log = log
        log.append(commit.entries[0][2], commit.data)
        if sync:
            log.sync()

    def _new_log(self) -> LogFile:
        return LogFile(self._folder, self._disk, self._settings.preallocated << 10, self._on_synced)

    def _on_synced(self, seconds: float) -> None:
        self._engine.metrics.summaries["fsynctime"].observe(seconds * 1000)

    def _in_loop(self, function: Callable[[BaseException | None], None]) -> Callable[[Future[None]], None]:
        def done(future: Future[None]) -> None:
            self._loop.call_soon_threadsafe(function, future.exception())

        return done

    def _committed(self, error: BaseException | None) -> None:
        commit = self._committing
        assert commit is not None
        if error is not None:
            self._fail(error)
            return
        self._committing = None
        self._retire()
        if commit.entries:
            self.logged_zxid = commit.entries[-1][2]
            if self.journal.heard is not None:
                self.journal.heard(commit.entries)
            summaries, count = self._engine.metrics.summaries, len(commit.entries)
            summaries["sync_processor_batch_size"].observe(count)
            summaries["updatelatency"].observe((perf_counter() - commit.began) * 1000, count)
            self.on_committed(len(commit.entries), len(commit.data))
            if not self._waits:
                self._sync_soon()
        self._wake_waiters()
        if self._failing:
            self._failing, self._failure = False, ""
            _log.warning("the log is written again: %s", self._folder)
        self._check_space()
        for output, data, closing in commit.outputs:
            output.send_output(data, closing, output not in self._waiting)
        if not self._closing:  # otherwise nothing more is received
            paused, self._paused = self._paused, {}
            for output in paused:
                output.resume()
        if self.journal.entries or self._waiting:
            self.commit_soon()
        else:
            self._drained.set()

    # --- trouble ---

    def _fail(self, error: BaseException) -> None:
        self._failing = True
        if self._log is not None and self._log.has_failed:
            self._note_doubt()
        if str(error) != self._failure:
            self._failure = str(error)
            _log.error("writes are refused: the log cannot be written: %s; trying again each second", error)
        self._update_writable()
        for output in [output for output in self._waiting if not self._must_wait(output)]:
            del self._waiting[output]
            output.send_output(*output.pop_output(), True)
            if output in self._paused and not self._closing:
                del self._paused[output]
                output.resume()
        if not self._has_stopped:
            self._write_timer = self._loop.call_later(RETRY, self._write)

    def _note_doubt(self) -> None:
        """Note that what the present log has is not certain: with ``always`` it was not acknowledged."""
        if not self._waits and self.doubtful_zxid < self.logged_zxid:
            self.doubtful_zxid = self.logged_zxid
            self.on_log_unusable()

    def _check_space(self) -> None:
        log = self._log or self._next
        short = log is not None and log.is_short
        if short and not self._short:
            size = f"{self._settings.preallocated} kilobytes (preAllocSize)"
            _log.error("writes are refused: no space for %s more of the log; trying again each second", size)
        elif self._short and not short:
            _log.warning("writes are accepted again")
        self._short = short
        self._update_writable()
        if short and self._reserve_timer is None:
            self._reserve_timer = self._loop.call_later(RETRY, self._try_reserve)

    def _try_reserve(self) -> None:
        self._reserve_timer = None
        if self._committing is not None:  # the log's thread has the file
            self._reserve_timer = self._loop.call_later(RETRY, self._try_reserve)
            return
        if (log := self._log or self._next) is not None:
            log.try_reserve()
        self._check_space()

    def _update_writable(self) -> None:
        refusal = f"the log cannot be written: {self._failure}" if self._failing else ""
        if self._short and not refusal:
            refusal = f"no space for {self._settings.preallocated} kilobytes (preAllocSize) more of the log"
        if (refusal, self._failing) != (self._engine.refusal, self._engine.frozen):
            self._engine.refuse_writes(refusal, frozen=self._failing)

    # --- syncing each second ---

    def _sync_soon(self) -> None:
        self._unsynced = True
        if self._sync_timer is None and self._settings.fsync == "interval":
            self._sync_timer = self._loop.call_later(SYNC_INTERVAL, self._sync_now)

    def _sync_now(self) -> None:
        self._sync_timer = None
        log = self._log
        if log is not None and self._unsynced:
            self._unsynced = False
            future = self._log_thread.submit(log.sync)
            future.add_done_callback(self._in_loop(self._synced))

    def _synced(self, error: BaseException | None) -> None:
        if error is not None and self._closing:
            self._is_certain = False
        elif error is not None:
            _log.error("the log could not be synced, so that a snapshot is written: %s", error)
            self._note_doubt()

    # --- for snapshots ---

    async def begin_another_log(self) -> None:
        """End the log between two commits; the next one begins another log.

        Raises:
            OSError: There is no space for another one.
        """
        if self._next is None:
            await self._in_log_thread(self._prepare_log)
        if (log := self._log) is not None and not self._waits:
            try:  # so that commits do not wait for long when it is closed
                await self._in_log_thread(log.sync)
            except OSError as error:
                self._synced(error)
        if self._has_stopped:
            raise OSError("the server stops")
        self._retiring = retired = self._loop.create_future()
        if self._committing is None:
            self._retire()
        closing = await retired
        if closing is not None:
            try:
                await closing
            except OSError as error:  # no loss, once the snapshot counts: it has what that log has
                _log.error("the log could not be synced at its end: %s", error)
                self._note_doubt()

    def _retire(self) -> None:
        """Detach and close the log between two commits, if that was asked for."""
        if self._retiring is not None:
            log, self._log = self._log, None
            retiring, self._retiring = self._retiring, None
            retiring.set_result(None if log is None else self._loop.run_in_executor(self._log_thread, log.close))

    def _prepare_log(self) -> None:
        """Create the next log while the present one has its space.

        Raises:
            OSError: There is no space for another one.
        """
        log = self._new_log()
        if log.is_short:
            log.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._next = log

    async def on_disk(self, after: int, zxid: int) -> None:
        """Wait until the transactions after one zxid, up to another, outlive a loss of power, however many follow.

        Raises:
            OSError: They may not: a log could not be synced, or the server stops.
        """
        if self._has_stopped:
            raise OSError("the server stops")
        if self.logged_zxid < zxid and self.journal.zxid > self.logged_zxid:
            self._waiters.append((min(zxid, self.journal.zxid), waiter := self._loop.create_future()))
            self.commit_soon()
            await waiter
        if (log := self._log) is not None and not self._waits:
            try:
                await self._in_log_thread(log.sync)
            except OSError as error:
                self._synced(error)
                raise
        if self.doubtful_zxid > after:
            raise OSError(f"the transactions up to 0x{self.doubtful_zxid:x}, which it needs, may not be on the disk")

    def _wake_waiters(self) -> None:
        for zxid, waiter in self._waiters:
            if zxid <= self.logged_zxid and not waiter.done():
                waiter.set_result(None)
        self._waiters = [(zxid, waiter) for zxid, waiter in self._waiters if not waiter.done()]

    async def _in_log_thread(self, function: Callable[[], None]) -> None:
        await self._loop.run_in_executor(self._log_thread, function)

    # --- the end ---

    async def drain(self) -> None:
        """Wait until everything that was applied is in the log, and the output that waited for it is sent."""
        while self._committing is not None or self.journal.entries:
            self._drained.clear()
            self.commit_soon()
            await self._drained.wait()

    async def stop_logging(self) -> int:
        """Log what remains; a disk that is full or failing gets three seconds.

        Returns:
            How many transactions could not be logged.
        """
        lost = 0
        self._closing = True
        try:
            await asyncio.wait_for(self.drain(), STOP_SECONDS)
        except TimeoutError:
            lost = len(self.journal.entries) + (len(self._committing.entries) if self._committing is not None else 0)
            _log.error("%d transactions could not be logged before the end", lost)
        self._has_stopped = True
        for timer in (self._sync_timer, self._write_timer, self._reserve_timer):
            if timer is not None:
                timer.cancel()
        for _, waiter in self._waiters:
            waiter.cancel()
        if self._retiring is not None:
            self._retiring.cancel()
            self._retiring = None
        return lost

    async def close_logs(self) -> bool:
        """Close the files, after what their thread still does; return whether all that was logged is on the disk."""
        await self._in_log_thread(self._close_logs)
        self._log_thread.shutdown()
        return self._is_certain

    def _close_logs(self) -> None:
        for log in filter(None, (self._log, self._next)):
            try:
                log.close()
            except OSError as error:
                self._is_certain = False
                _log.error("the log could not be closed: %s", error)
