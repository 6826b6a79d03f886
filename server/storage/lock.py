"""The lock of a data directory, and the notes in its file."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Final

from .disk import Disk
from .errors import StorageError
from .layout import LOCK, SUBFOLDER

LOCK_SIZE: Final = 128
LOCK_ATTEMPTS: Final = 10
"""Number of attempts to acquire the lock, in a tenth of a second."""
_NOTE_PATTERN: Final = re.compile(r"(pid|zxid|session) (\d{1,19})")


class DirectoryLock:
    """The lock of a directory, held by one server at a time, and its file with the notes of the last server.

    The lock is released when the process exits. It is a lock on the folder, so deleting the file does not release it.

    The file contains these lines, padded with spaces to :data:`LOCK_SIZE` bytes:

    - ``pid N`` while a server runs, or ``zxid N`` after a clean shutdown. The file contains both while a server reads
      the files of a clean shutdown: if it is interrupted, the next server can still check that no log is missing.
    - ``session N``, the highest session id that was assigned.

    Args:
        path: The directory.
        disk: The file operations.

    Attributes:
        was_clean: Whether the previous server stopped cleanly, or the directory is new.
        zxid: The last zxid of the previous server; 0 if it is unknown.
        session_id: The highest session id that the previous server noted; 0 if there is no note.

    Raises:
        StorageError: Another server holds the lock.
        OSError: The file cannot be created.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self._path = path.resolve() / LOCK
        self._is_new = not self._path.exists()
        self._folder = os.open(path, os.O_RDONLY)
        self._descriptor = -1
        try:
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            is_free = self._acquire()
            self._before = os.read(self._descriptor, 200)  # after _acquire(), which may wait for a server to stop
            facts: dict[str, str] = dict(_NOTE_PATTERN.findall(self._before.decode(errors="replace")))
            if not is_free:
                where, owner = str(path).removesuffix(f"/{SUBFOLDER}"), facts.get("pid", "unknown")
                raise StorageError(where, f"a server (process {owner}) is using this directory")
            self.was_clean = self._is_new or ("zxid" in facts and "pid" not in facts)
            self.zxid, self.session_id = int(facts.get("zxid", 0)), int(facts.get("session", 0))
            # Otherwise, after a crash of this server, the notes would still show a clean shutdown.
            self._note(b"zxid %d\n" % self.zxid if self.zxid else b"", self.session_id)
        except BaseException:
            self.release()
            raise

    def note_session(self, session_id: int) -> None:
        """Write and sync a note of the highest session id that was assigned, while the server is running.

        Raises:
            OSError: The note may not be on the disk.
        """
        self._note(b"", session_id)

    def _note(self, end: bytes, session_id: int) -> None:
        self._write(b"pid %d\n%ssession %d\n" % (os.getpid(), end, session_id))
        self._disk.sync(self._descriptor)

    def _acquire(self) -> bool:
        for _ in range(LOCK_ATTEMPTS):  # is_locked() may hold the lock for a moment
            with suppress(BlockingIOError):
                fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            sleep(0.01)
        return False

    def note_clean_end(self, zxid: int, session_id: int) -> None:
        """Note that the server stopped cleanly, with its last zxid and the highest session id."""
        self._write(b"zxid %d\nsession %d\n" % (zxid, session_id))

    def undo(self) -> None:
        """Release the directory, and restore the previous content of the file, or remove the file if it was new."""
        if self._is_new:
            self._path.unlink(missing_ok=True)
        else:
            self._write(self._before)
        self.release()

    def release(self) -> None:
        """Release the directory for another server."""
        for descriptor in (self._descriptor, self._folder):
            if descriptor >= 0:
                os.close(descriptor)

    def _write(self, data: bytes) -> None:
        os.pwrite(self._descriptor, data.ljust(LOCK_SIZE), 0)  # a single write of fixed size never empties the file


def is_locked(folder: Path) -> bool:
    """Return whether a server is using a directory.

    Raises:
        OSError: The directory cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_note(folder: Path, fact: str) -> int:
    """Return a number from the notes in a directory, or 0 if it is not noted. The directory may be in use.

    Args:
        folder: The directory.
        fact: ``zxid``, the last zxid of a server that has stopped cleanly, or ``session``, the highest session id.
    """
    try:
        text = (folder / LOCK).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(dict(_NOTE_PATTERN.findall(text)).get(fact, 0))


def note_unclean_end(folder: Path, session_id: int) -> None:
    """Note in a copy that its server did not stop cleanly.

    A server that uses the copy then starts a new epoch, so it never reuses a zxid.
    """
    data = b"pid 0\nsession %d\n" % session_id
    descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data.ljust(LOCK_SIZE))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
