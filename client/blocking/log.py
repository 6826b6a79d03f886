"""Log records of the event-loop threads, which must not wait for a log handler.

A signal handler may interrupt a thread that holds the lock of a log handler, and call the client. If the loop waited
for that lock to log something itself, both threads would wait forever. So a separate thread logs the records of the
loops. A loop waits for it only for a moment, which is usually enough to log the record before the loop continues.

Limits: this covers the logger of the client, not the logger ``asyncio``. A loop may still wait for the lock of the
module :mod:`logging`, which programs hold while they create loggers and handlers or change levels.
"""

from __future__ import annotations

import _thread
import logging
import os
import threading
import traceback
from queue import SimpleQueue
from typing import Final

log: Final = logging.getLogger("zoolet.client")
LOG_TIMEOUT: Final = 0.05
"""Seconds that a loop waits until its record is logged. It does not wait if an earlier record is not logged yet."""
MAX_WAITING_RECORDS: Final = 1000
"""Maximum number of waiting records. Others are dropped, and their number is logged."""


class _LogWriter:
    """A thread that logs records, one after another."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._records: SimpleQueue[tuple[logging.LogRecord, threading.Lock]] = SimpleQueue()
        self._latest = threading.Lock()  # locked until the latest record is logged
        self._dropped = 0
        _thread.start_new_thread(self._run, ())

    def write(self, record: logging.LogRecord) -> None:
        """Queue a record, and wait up to :data:`LOG_TIMEOUT` until it is logged. Drop it if the queue is full."""
        if self._records.qsize() >= MAX_WAITING_RECORDS:
            self._dropped += 1
            return
        is_behind, written = self._latest.locked(), threading.Lock()
        written.acquire()
        self._latest = written
        self._records.put((record, written))
        if not is_behind and written.acquire(timeout=LOG_TIMEOUT):
            written.release()

    def wait(self, seconds: float) -> None:
        """Wait up to *seconds* until all records are logged."""
        latest = self._latest
        if latest.acquire(timeout=seconds):
            latest.release()

    def _run(self) -> None:
        while True:
            record, written = self._records.get()
            try:
                log.handle(record)
                dropped, self._dropped = self._dropped, 0
                if dropped:
                    log.warning("%d records of the client were not logged, because the log handlers are slow", dropped)
            except BaseException:  # a log handler raised it; this thread has to continue
                traceback.print_exc()
            finally:
                written.release()
            del record, written  # the record may refer to an error and its frames


class _LoopRecordFilter(logging.Filter):
    """A log filter that passes the records of the threads in :attr:`threads` to the writer."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()
        self.writer: _LogWriter | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a record that is passed to the writer, and True if the logger must log the record itself."""
        if threading.get_ident() not in self.threads:
            return True
        try:
            if self.writer is None or self.writer.pid != os.getpid():
                self.writer = _LogWriter()
        except RuntimeError:  # Python cannot start a thread, for example because the interpreter is exiting
            return True
        self.writer.write(record)
        return False


loop_record_filter: Final = _LoopRecordFilter()
log.addFilter(loop_record_filter)


def wait_for_records(seconds: float) -> None:
    """Wait up to *seconds* until the records of all loops are logged."""
    if loop_record_filter.writer is not None and loop_record_filter.writer.pid == os.getpid():
        loop_record_filter.writer.wait(seconds)
