"""Log records of the loops' threads, which must not wait for a log handler.

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
MAX_WAITING: Final = 1000
"""Maximum number of waiting records. Others are dropped, and their number is logged."""


class _Writer:
    """A thread that logs records, one after another."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._records: SimpleQueue[tuple[logging.LogRecord, threading.Lock]] = SimpleQueue()
        self._latest = threading.Lock()  # locked until the latest record is logged
        self._dropped = 0
        _thread.start_new_thread(self._run, ())

    def write(self, record: logging.LogRecord) -> None:
        """Log a record, and wait for it at most :data:`LOG_TIMEOUT`."""
        if self._records.qsize() >= MAX_WAITING:
            self._dropped += 1
            return
        is_behind, written = self._latest.locked(), threading.Lock()
        written.acquire()
        self._latest = written
        self._records.put((record, written))
        if not is_behind and written.acquire(timeout=LOG_TIMEOUT):
            written.release()

    def wait(self, seconds: float) -> None:
        """Wait until all records are logged, at most *seconds*."""
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
    """Passes the records of the threads in :attr:`threads` to the writer."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()
        self.writer: _Writer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the logger has to log a record itself."""
        if threading.get_ident() not in self.threads:
            return True
        try:
            if self.writer is None or self.writer.pid != os.getpid():
                self.writer = _Writer()
        except RuntimeError:  # Python cannot start a thread, for example because the interpreter is ending
            return True
        self.writer.write(record)
        return False


of_loops: Final = _LoopRecordFilter()
log.addFilter(of_loops)


def wait_for_records(seconds: float) -> None:
    """Wait until the records of all loops are logged, at most *seconds*."""
    if of_loops.writer is not None and of_loops.writer.pid == os.getpid():
        of_loops.writer.wait(seconds)
