"""The group commit, which writes the changes of each turn to the log, and holds the output that may show them.

::

    turn --journal--> commit --bytes--> log, sync --output--> sockets

While one commit is being synced, the next turns run. Their transactions and output form the next commit, so a single
sync covers everything that arrived during the previous one. Unless the log is failing, no output (reply, event or read
of a different client) overtakes the transactions that it may show. With ``interval`` and ``never``, the bytes are
passed to the operating system before the output is sent, and output waits for a sync only at the change from one log to
the next.

States of the log::

    fine --no space to reserve--> short --space again--> fine
      |                             |
      +--a write or sync failed--> failing --retried each second, done--> fine

While the log is short, writes of clients are rejected. Sessions still open and close, in the reserved space.

While the log is failing:

- Writes are rejected, no session ends and no node expires.
- The output of clients with unlogged changes waits. All other output is sent, so reads are served. They may show
  changes that are not logged yet.
- If the end of a session is not logged, all output waits. Otherwise a client could see the end and acquire a lock of
  that session, and after a crash the session would be alive again.

Because space is reserved, a full disk causes this state only if the file system cannot reserve any.

Invariants:

- No output shows a transaction that is not in the log, except for reads while the log is failing.
- At most one commit is in progress. Only the log's thread syncs, closes and abandons logs, one after the other.
- After a failed sync, a log accepts no more transactions, and its content may not be on the disk. With ``interval`` and
  ``never``, its transactions have already been acknowledged. :attr:`GroupCommit.doubtful_zxid` is the last of them, and
  a snapshot that needs them is discarded.
- A log gets its name only after the previous log is on the disk: its first commit runs in the log's thread, after the
  close of the previous log. So a power failure leaves no gap between two logs, even with ``interval`` and ``never``.
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

from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OpCode
from ..core.engine import Engine
from ..core.journal import Applied, Journal
from . import txnlog
from .disk import Disk
from .log_file import LogFile
from .output import ConnectionOutput
from .settings import StorageSettings

_log = logging.getLogger("zoolet.server")
RETRY: Final = 1.0
"""Seconds between two attempts to write to a disk that is full or failing."""
SYNC_INTERVAL: Final = 1.0
"""Seconds between two syncs with ``interval``."""
STOP_SECONDS: Final = 3.0
"""Seconds that a stopping server waits for a disk that is full or failing."""


@dataclass
class Commit:
    """A commit in progress: transactions that are being logged, and the output that waits for them."""

    entries: list[Applied]
    data: bytes
    outputs: list[tuple[ConnectionOutput, bytes, bool]]
    began: float


class GroupCommit:
    """The log of a running server.

    Args:
        engine: The engine, recovered from the directory.
        folder: The folder of the logs.
        settings: The settings for syncing and reserving space.
        disk: The file operations.

    Attributes:
        journal: The transactions that the engine has applied since the last commit.
        logged_zxid: The zxid of the last logged transaction.
        doubtful_zxid: The zxid of the last acknowledged transaction that a power failure may destroy, because a sync of
            its log failed; 0 if there is none. The transaction is safe again once a snapshot contains it.
        on_committed: A function that is called after each commit, with the number of transactions and of bytes.
        on_log_unusable: A function that is called after a failed sync, when a snapshot and a new log are needed.
    """

    def __init__(self, engine: Engine, folder: Path, settings: StorageSettings, disk: Disk) -> None:
        self._engine = engine
        self._folder = folder
        self._settings = settings
        self._disk = disk
        self._loop = asyncio.get_running_loop()
        self.journal = Journal(engine.zxid, txnlog.decode, txnlog.sessions)
        engine.use_journal(self.journal)
        self.logged_zxid = engine.zxid
        self.doubtful_zxid = 0
        self.on_committed: Callable[[int, int], object] = lambda entries, size: None
        self.on_log_unusable: Callable[[], object] = lambda: None
        self._waits = settings.fsync == "always"
        self._log: LogFile | None = None
        self._next: LogFile | None = self._new_log()  # the next log file, created before the disk can become full
        self._log_thread = disk.executor("zoolet-log")
        self._closing = self._has_stopped = False
        self._all_synced = True  # False after a failed sync or close during shutdown
        self._waiting: dict[ConnectionOutput, None] = {}  # connections with output for the next commit
        self._paused: dict[ConnectionOutput, None] = {}
        self._committing: Commit | None = None
        self._failing = self._short = False
        self._failure = ""  # the last failure that was reported in the server's log
        self._scheduled = False
        self._unsynced = False  # whether anything was written since the last sync, for fsync=interval
        self._sync_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._reserve_timer: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []  # callers that wait until a zxid is logged
        self._retiring: asyncio.Future[asyncio.Future[None] | None] | None = None  # set during start_new_log()
        self._check_space()  # the disk may already be full

    # --- output ---

    def paused(self) -> list[ConnectionOutput]:
        """Return the connections whose sockets are not read, because of the log. Their sessions must not expire."""
        return list(self._paused)

    def hold(self, output: ConnectionOutput) -> bool:
        """Return whether the output of a connection has to wait. If so, the log sends it later."""
        if not self.journal.entries and self._committing is None:
            return False
        if output in self._waiting:
            if self._committing is not None and output not in self._paused:
                self._paused[output] = None  # the connection has output for two commits, so stop its requests
                output.pause()
            return True
        if self._failing and not self._must_wait(output):
            return False
        self._waiting[output] = None
        self.commit_soon()
        return True

    def _must_wait(self, output: ConnectionOutput) -> bool:
        """Return whether the output of a connection waits while the log is failing.

        It waits if the connection has unlogged changes. It also waits if the end of any session is not logged, because
        no client may see that end.
        """
        commit = self._committing
        assert commit is not None
        if any(
            entry[4] == OpCode.CLOSE_SESSION for entries in (commit.entries, self.journal.entries) for entry in entries
        ):
            return True
        unlogged = {entry[0] for entries in (commit.entries, self.journal.entries) for entry in entries} - {0}
        return output.session_id in unlogged or any(held is output for held, _, _ in commit.outputs)

    def forget(self, output: ConnectionOutput) -> None:
        """Forget a connection that was closed, and its waiting output."""
        self._waiting.pop(output, None)
        self._paused.pop(output, None)

    def commit_soon(self) -> None:
        """Log the applied transactions, at the end of this event-loop iteration or after the current commit."""
        idle = not self._scheduled and self._committing is None and not self._has_stopped
        if idle and (self.journal.entries or self._waiting):
            self._scheduled = True
            self._loop.call_soon(self._commit)

    # --- the commit ---

    def _commit(self) -> None:
        self._scheduled = False
        if self._committing is not None:
            return
        data = txnlog.encode(self.journal.entries)  # encoded before the journal is emptied, because encoding may fail
        entries = self.journal.pop_all()
        outputs = [(output, *output.pop_output()) for output in self._waiting]
        self._waiting.clear()
        self._committing = Commit(entries, data, outputs, perf_counter())
        self._write()

    def _write(self) -> None:
        commit = self._committing
        assert commit is not None
        if not commit.entries:
            self._finish_commit(None)
        elif self._waits or self._failing or (log := self._log) is None or log.has_failed or log.is_full:
            # In the log's thread, which syncs, and starts a new log only after the previous one is closed.
            future = self._log_thread.submit(self._append, commit, sync=self._waits or self._failing)
            future.add_done_callback(self._in_loop(self._finish_commit))
        else:
            try:
                log.append(commit.entries[0][2], commit.data)
            except (OSError, MemoryError) as error:
                self._finish_commit(error)
            else:
                self._finish_commit(None)

    def _append(self, commit: Commit, *, sync: bool) -> None:
        """Write a commit to the log, or to a new log if the current one is full or has failed.

        This runs in the log's thread.

        Raises:
            OSError: The commit cannot be written or synced.
        """
        log = self._log
        if log is not None and log.has_failed:
            self._log = None
            log.abandon()
        elif log is not None and log.is_full:
            log.sync()
            self._log = None  # before the close, which may fail: the log is synced, and only zeros follow its end
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

    def _finish_commit(self, error: BaseException | None) -> None:
        commit = self._committing
        assert commit is not None
        if error is not None:
            self._fail(error)
            return
        self._committing = None
        self._close_for_new_log()
        if commit.entries:
            self.logged_zxid = commit.entries[-1][2]
            if self.journal.on_logged is not None:
                self.journal.on_logged(commit.data)
            summaries, count = self._engine.metrics.summaries, len(commit.entries)
            summaries["sync_processor_batch_size"].observe(count)
            summaries["updatelatency"].observe((perf_counter() - commit.began) * 1000, count)
            self.on_committed(len(commit.entries), len(commit.data))
            if not self._waits:
                self._sync_soon()
        self._wake_waiters()
        if self._failing:
            self._failing, self._failure = False, ""
            _log.warning("the log in %s is writable again; accepting writes", self._folder)
        self._check_space()
        for output, data, closing in commit.outputs:
            output.send_output(data, closing, output not in self._waiting)
        if not self._closing:  # a closing server reads no more requests
            paused, self._paused = self._paused, {}
            for output in paused:
                output.resume()
        if self.journal.entries or self._waiting:
            self.commit_soon()
        else:
            self._drained.set()

    # --- failures ---

    def _fail(self, error: BaseException) -> None:
        self._failing = True
        if self._log is not None and self._log.has_failed:
            self._set_doubtful()
        if str(error) != self._failure:
            self._failure = str(error)
            _log.error("refusing writes: cannot write the log: %s; retrying every second", error)
        self._update_writable()
        for output in [output for output in self._waiting if not self._must_wait(output)]:
            del self._waiting[output]
            output.send_output(*output.pop_output(), True)
            if output in self._paused and not self._closing:
                del self._paused[output]
                output.resume()
        if not self._has_stopped:
            self._write_timer = self._loop.call_later(RETRY, self._write)

    def _set_doubtful(self) -> None:
        """Set :attr:`doubtful_zxid`, because the content of the current log may not be on the disk.

        With ``always``, do nothing, because the content was not acknowledged.
        """
        if not self._waits and self.doubtful_zxid < self.logged_zxid:
            self.doubtful_zxid = self.logged_zxid
            self.on_log_unusable()

    def _check_space(self) -> None:
        log = self._log or self._next
        short = log is not None and log.is_short
        if short and not self._short:
            size = f"{self._settings.preallocated} kB"
            _log.error("refusing writes: less than %s free for the log (preAllocSize); retrying every second", size)
        elif self._short and not short:
            _log.warning("the log in %s has space again; accepting writes", self._folder)
        self._short = short
        self._update_writable()
        if short and self._reserve_timer is None:
            self._reserve_timer = self._loop.call_later(RETRY, self._try_reserve)

    def _try_reserve(self) -> None:
        self._reserve_timer = None
        if self._committing is not None:  # the log's thread is using the file
            self._reserve_timer = self._loop.call_later(RETRY, self._try_reserve)
            return
        if (log := self._log or self._next) is not None:
            log.try_reserve()
        self._check_space()

    def _update_writable(self) -> None:
        refusal = f"cannot write the log: {self._failure}" if self._failing else ""
        if self._short and not refusal:
            refusal = f"less than {self._settings.preallocated} kB free for the log (preAllocSize)"
        if (refusal, self._failing) != (self._engine.refusal, self._engine.frozen):
            self._engine.refuse_writes(refusal, frozen=self._failing)

    # --- syncing with "interval" ---

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
            future.add_done_callback(self._in_loop(self._handle_sync_result))

    def _handle_sync_result(self, error: BaseException | None) -> None:
        if error is not None and self._closing:
            self._all_synced = False
        elif error is not None:
            _log.error("could not sync the log; writing a snapshot instead: %s", error)
            self._set_doubtful()

    # --- changing to a new log, for snapshots ---

    async def start_new_log(self) -> None:
        """Close the log between two commits. The next commit starts a new log.

        Raises:
            OSError: The disk has no space for a new log, or the server is stopping.
        """
        if self._next is None:
            await self._in_log_thread(self._prepare_log)
        if (log := self._log) is not None and not self._waits:
            try:  # sync now, because commits must wait while the log is closed
                await self._in_log_thread(log.sync)
            except OSError as error:
                self._handle_sync_result(error)
        if self._has_stopped:
            raise OSError("the server is stopping")
        self._retiring = retired = self._loop.create_future()
        if self._committing is None:
            self._close_for_new_log()
        closing = await retired
        if closing is not None:
            try:
                await closing
            except OSError as error:  # the snapshot will contain all transactions of this log
                _log.error("could not sync the log before closing it: %s", error)
                self._set_doubtful()

    def _close_for_new_log(self) -> None:
        """Detach the log, and start to close it, if a caller of :meth:`start_new_log` waits for this."""
        if self._retiring is not None:
            log, self._log = self._log, None
            retiring, self._retiring = self._retiring, None
            retiring.set_result(None if log is None else self._loop.run_in_executor(self._log_thread, log.close))

    def _prepare_log(self) -> None:
        """Create the file of the next log, before the reserved space of the current log is released.

        Raises:
            OSError: The disk has no space for a new log.
        """
        log = self._new_log()
        if log.is_short:
            log.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._next = log

    async def wait_until_on_disk(self, after: int, zxid: int) -> None:
        """Wait until the transactions after zxid *after*, up to *zxid*, are safe from a power failure.

        Raises:
            OSError: A sync of their log failed, or the server is stopping.
        """
        if self._has_stopped:
            raise OSError("the server is stopping")
        if self.logged_zxid < zxid and self.journal.zxid > self.logged_zxid:
            self._waiters.append((min(zxid, self.journal.zxid), waiter := self._loop.create_future()))
            self.commit_soon()
            await waiter
        if (log := self._log) is not None and not self._waits:
            try:
                await self._in_log_thread(log.sync)
            except OSError as error:
                self._handle_sync_result(error)
                raise
        if self.doubtful_zxid > after:
            raise OSError(f"the required transactions up to {hexadecimal(self.doubtful_zxid)} may not be on the disk")

    def _wake_waiters(self) -> None:
        for zxid, waiter in self._waiters:
            if zxid <= self.logged_zxid and not waiter.done():
                waiter.set_result(None)
        self._waiters = [(zxid, waiter) for zxid, waiter in self._waiters if not waiter.done()]

    async def _in_log_thread(self, function: Callable[[], None]) -> None:
        await self._loop.run_in_executor(self._log_thread, function)

    # --- stopping ---

    async def drain(self) -> None:
        """Wait until all applied transactions are in the log, and the output that waited for them is sent."""
        while self._committing is not None or self.journal.entries:
            self._drained.clear()
            self.commit_soon()
            await self._drained.wait()

    async def stop_logging(self) -> int:
        """Log the remaining transactions. If the disk is full or failing, give up after three seconds.

        Returns:
            The number of transactions that could not be logged.
        """
        lost = 0
        self._closing = True
        try:
            await asyncio.wait_for(self.drain(), STOP_SECONDS)
        except TimeoutError:
            lost = len(self.journal.entries) + (len(self._committing.entries) if self._committing is not None else 0)
            _log.error("stopping with %d transactions not logged; they are lost", lost)
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
        """Close the files, after all pending operations in the log's thread.

        Returns:
            Whether all logged transactions are on the disk.
        """
        await self._in_log_thread(self._close_logs)
        self._log_thread.shutdown()
        return self._all_synced

    def _close_logs(self) -> None:
        for log in filter(None, (self._log, self._next)):
            try:
                log.close()
            except OSError as error:
                self._all_synced = False
                _log.error("could not close the log in %s: %s", self._folder, error)
