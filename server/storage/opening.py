"""The opening of a data directory for a server: locking, recovery, and the files that a server needs at its start."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from ...protocol.errors import ErrorCode
from ...protocol.hexadecimal import hexadecimal
from ...protocol.txns import ErrorTxn
from ..core.engine import Engine
from ..core.journal import ERROR, Transaction
from ..core.state import next_epoch
from . import layout, live, txnlog
from . import snapshot as snapshots
from .directory import NEW_EPOCH, DataDir, Progress, no_progress
from .disk import Disk
from .errors import StorageError
from .lock import DirectoryLock
from .log_file import LogFile
from .past import past
from .recovery import recover
from .settings import StorageSettings
from .store import Store

_log = logging.getLogger("zoolet.server")


class OpenDirectory:
    """A data directory that this process has locked.

    Args:
        settings: The settings of the directory.
        disk: The file operations.

    Raises:
        StorageError: The path is not a data directory, contains data of a different version, or is in use by another
            server. Nothing was changed.
        OSError: The directory cannot be created, read or written.
    """

    def __init__(self, settings: StorageSettings, disk: Disk | None = None) -> None:
        assert settings.data_dir is not None
        self.settings = settings
        self.disk = disk or Disk()
        paths = [Path(settings.data_dir)]
        if settings.log_dir is not None and Path(settings.log_dir).resolve() != paths[0].resolve():
            paths.append(Path(settings.log_dir))
        self._log_path = paths[1] if len(paths) > 1 else None
        self._locks: list[DirectoryLock] = []
        self._store: Store | None = None
        self._recovered: Engine | None = None
        self._has_replayed = False  # whether the recovery replayed transactions or found problems
        self._is_changed = False  # whether files were changed, so the old notes are outdated
        # Read before directories are created, because one of them may replace an unmounted directory with the logs.
        noted = layout.read_log_note(paths[0])
        new = [path for path in paths if not (path / layout.SUBFOLDER).is_dir()]
        for path in new:
            layout.check_creatable(path)
        try:
            for path in paths:
                if path in new:
                    layout.create(path)
                self._locks.append(DirectoryLock(path / layout.SUBFOLDER, self.disk))
            if self._log_path is None and noted is not None:
                self._log_path = noted
                self._locks.append(DirectoryLock(noted / layout.SUBFOLDER, self.disk))
            self.directory = DataDir.find(paths[0], self._log_path)
            self.directory.trusts_empty = settings.trust_empty
            # From the lock, which replaced the notes before find() read them.
            self.directory.stopped_at = self._locks[0].zxid
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock, and note in its file whether the server stopped cleanly.

        If the server never started and changed nothing, restore the file instead.
        """
        for lock in self._locks:
            if self._store is None and not self._is_changed:
                lock.undo()
                continue
            if self._store is not None and self._store.is_complete:
                lock.note_clean_end(self._store.logged_zxid, self._store.highest_session_id)
            lock.release()
        self._locks.clear()

    def recover(self, engine: Engine, progress: Progress | None = None) -> None:
        """Load the state of the directory into a new engine, repair its files, and write the files that a server needs.

        Raises:
            StorageError: The files are damaged or inconsistent. Nothing was changed.
            OSError: A file cannot be read or written.
        """
        started = perf_counter()
        directory, disk = self.directory, self.disk
        is_new = not directory.snapshots and not directory.logs
        try:
            recovered = recover(engine, directory, lenient=True, progress=progress or no_progress)
        except StorageError as error:
            if Path(error.where) not in directory.logs.values():
                raise
            dry_run = f"zoolet datadir repair {directory.path} --dry-run"
            hint = f"to list the transactions that a repair would discard, run: {dry_run}"
            raise StorageError(error.where, f"{error.reason}; {hint}") from None
        engine.sessions.skip_id(self._locks[0].session_id)
        self._set_password_key(engine)
        self._is_changed = True
        directory.set_aside(disk)
        if directory.remainder is not None:
            directory.remainder.truncate_log(disk)  # before a new log follows, which would make the torn end an error
        layout.remove_leftovers(directory.folder, disk)
        layout.remove_leftovers(directory.log_folder, disk)
        for problem in recovered.problems:
            _log.error("problem during recovery: %s", problem)
        for note in directory.notes:
            _log.warning("%s", note)
        if self._log_path is not None:
            disk.sync_folder(directory.log_folder)  # before the note, which requires the lock file in this folder
            layout.write_log_note(directory.path, self._log_path, disk)
        if recovered.snapshot_zxid is None:
            self._write_first_snapshot(engine)
        if is_new:
            _log.info("%s: initialized a new data directory", directory.path)
        elif recovered.problems or not self._locks[0].was_clean:
            self._begin_epoch(engine)
        self._locks[0].note_session(engine.sessions.highest_id)
        seconds = perf_counter() - started
        engine.metrics.summaries["dbinittime"].observe(seconds * 1000)
        engine.metrics.summaries["startup_txns_loaded"].observe(recovered.transactions)
        _log.info(
            "%s: loaded %d nodes and %d sessions at zxid %s, after replaying %d transactions, in %.1f s",
            directory.path,
            engine.tree.reported_size,
            len(engine.sessions.alive),
            hexadecimal(engine.zxid),
            recovered.transactions,
            seconds,
        )
        self._recovered = engine
        self._has_replayed = bool(recovered.transactions or recovered.problems)

    def store(self, engine: Engine) -> Store:
        """Return the store of a server with the recovered engine, for the running event loop.

        A snapshot is started if the recovery has replayed transactions or found problems.

        Raises:
            ValueError: *engine* was not recovered from this directory, so its transactions would overwrite the data.
        """
        if engine is not self._recovered:
            raise ValueError(f"{self.directory.path}: call recover() with this engine first")
        store = self._store = Store(engine, self.directory, self.settings, self.disk, self._locks[0].note_session)
        if self._has_replayed:
            store.snapshot_soon()
        return store

    @property
    def running(self) -> Store | None:
        """The store of the server; None until :meth:`store` is called."""
        return self._store

    def past(
        self,
        path: str | None,
        session_id: int | None,
        before: int,
        limit: int,
        matches: Callable[[Transaction], object] = lambda transaction: True,
    ) -> list[Transaction]:
        """Return transactions from the logs. See :func:`~zoolet.server.storage.past.past`. This may run in a thread."""
        return past(DataDir.find(self.directory.path, self._log_path), path, session_id, before, limit, matches)

    def configuration(self) -> dict[str, object]:
        """Return the paths of the directories and their sizes in bytes, for the four-letter command ``conf``."""
        facts: dict[str, object] = {}
        for name, size, folder in (
            ("dataDir", "dataDirSize", self.directory.folder),
            ("dataLogDir", "dataLogSize", self.directory.log_folder),
        ):
            facts[name] = str(folder)
            facts[size] = sum(map(_size, folder.iterdir()))
        return facts

    def last_snapshot(self) -> tuple[int, int] | None:
        """Return the zxid of the newest snapshot and the time of its file in seconds since the epoch, or None."""
        for zxid, path in DataDir.find(self.directory.path, self._log_path).snapshots.items():
            with suppress(FileNotFoundError):  # a purge may have removed the snapshot since find()
                return zxid, int(path.stat().st_mtime)
        return None

    def _set_password_key(self, engine: Engine) -> None:
        """Set the key for session passwords, and create its file if necessary. Without a key, use ZooKeeper's formula.

        Earlier servers of the directory used the same key, so clients can resume their sessions.

        Raises:
            StorageError: The file does not contain a key.
        """
        if not self.settings.keyed_passwords:
            engine.sessions.set_key(None)
            return
        path = self.directory.path / layout.KEY
        if path.exists():
            key = path.read_bytes()
            if len(key) != 32:
                raise StorageError(str(path), f"expected a session password key of 32 bytes, found {len(key)}")
        else:
            key = engine.rng.randbytes(32)
            layout.write_file(self.disk, path, key)
        engine.sessions.set_key(key)

    def _write_first_snapshot(self, engine: Engine) -> None:
        """Write a snapshot of a directory that has none, because ZooKeeper does not use a log without a snapshot."""
        path = self.directory.folder / f"snapshot.{engine.zxid:x}"
        layout.write_file(self.disk, path, b"".join(snapshots.encode(live.take_snapshot(engine))))

    def _begin_epoch(self, engine: Engine) -> None:
        """Start a new epoch of zxids, because writes may have been lost, and their zxids must not be used again.

        The epoch is recorded in a synced log. A gap within the old epoch is not possible, because ZooKeeper 3.9 rejects
        it.

        Source: ZKDatabase.addCommittedProposal.
        """
        last = engine.zxid
        epoch = next_epoch(max(last, self.directory.highest_zxid(), self.directory.seen), engine.now)
        self.directory.begin_epoch(epoch, self.disk)
        engine.zxid = (epoch << 32) + 1
        log = LogFile(self.directory.log_folder, self.disk, 0)
        failure = ErrorTxn(ErrorCode.OK)
        log.append(engine.zxid, txnlog.encode([(last, NEW_EPOCH, engine.zxid, engine.now, ERROR, failure)]))
        log.close()


def _size(path: Path) -> int:
    """Return the size of a file in bytes; 0 for a missing file and for a directory."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
