"""Opening a data directory for a server: the lock, the recovery, and what is written before the server serves."""

from __future__ import annotations

import logging
import stat
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.txns import ErrorTxn
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import ERROR
from zoolet.server.storage import layout, live, txnlog
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.directory import NEW_EPOCH, DataDir, Progress, no_progress
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.lock import Lock
from zoolet.server.storage.log_file import LogFile
from zoolet.server.storage.past import Past, past
from zoolet.server.storage.recovery import Recovered, recover
from zoolet.server.storage.settings import StorageSettings
from zoolet.server.storage.store import Store

_log = logging.getLogger("zoolet.server")


class OpenDirectory:
    """A data directory that this process has locked.

    Args:
        settings: Which directory, and how it is used.
        disk: The operations on files.

    Raises:
        StorageError: It is not a data directory, is of another version, or another server uses it. Nothing was changed.
        OSError: It cannot be created, read or written.
    """

    def __init__(self, settings: StorageSettings, disk: Disk | None = None) -> None:
        assert settings.data_dir is not None
        self.settings = settings
        self.disk = disk or Disk()
        paths = [Path(settings.data_dir)]
        if settings.log_dir is not None and Path(settings.log_dir).resolve() != paths[0].resolve():
            paths.append(Path(settings.log_dir))
        self._log_path = paths[1] if len(paths) > 1 else None
        self._locks: list[Lock] = []
        self._store: Store | None = None
        noted = layout.noted_logs(paths[0])  # before anything is created where they should be
        new = [path for path in paths if not (path / layout.SUBFOLDER).is_dir()]
        for path in new:
            layout.check_new(path)
        try:
            for path in paths:
                if path in new:
                    layout.create(path)
                self._locks.append(Lock(path / layout.SUBFOLDER, self.disk))
            if self._log_path is None and noted is not None:
                self._log_path = noted
                self._locks.append(Lock(noted / layout.SUBFOLDER, self.disk))
            self.directory = DataDir.find(paths[0], self._log_path)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock, and record in its file whether the stop was clean; restore the file if the server never
        started.
        """
        for lock in self._locks:
            if self._store is None:
                lock.undo()
                continue
            if self._store.is_complete:
                lock.note_clean_end(self._store.logged_zxid, self._store.highest_session_id)
            lock.release()
        self._locks.clear()

    def recover(self, engine: Engine, progress: Progress | None = None) -> Recovered:
        """Load the state of the directory into a new engine, and write what a server needs before it serves.

        Raises:
            StorageError: The files are not what they should be. Nothing was changed.
            OSError: A file cannot be read or written.
        """
        started = perf_counter()
        directory, disk = self.directory, self.disk
        is_new = not directory.snapshots and not directory.logs
        first = engine.zxid
        recovered = recover(engine, directory, lenient=True, progress=progress or no_progress)
        self._check_complete(engine)
        self._use_passwords(engine)
        directory.set_aside(disk)
        directory.truncate(disk)  # before another log follows: from then on it is damage
        layout.remove_leftovers(directory.folder, disk)
        layout.remove_leftovers(directory.log_folder, disk)
        for problem in recovered.problems:
            _log.error("while recovering: %s", problem)
        if self._log_path is not None:
            disk.sync_folder(directory.log_folder)  # the name of the lock, by which the folder is known
            layout.remember_logs(directory.path, self._log_path, disk)
        if is_new:
            _log.info("%s: a new data directory", directory.path)
            engine.zxid = first
            self._write_first_snapshot(engine)
        elif recovered.problems or not self._locks[0].was_clean:
            self._begin_epoch(engine)
        self._locks[0].note_session(engine.sessions.highest_id)
        seconds = perf_counter() - started
        engine.metrics.summaries["dbinittime"].observe(seconds * 1000)
        engine.metrics.summaries["startup_txns_loaded"].observe(recovered.transactions)
        _log.info(
            "%s: %d nodes and %d sessions at zxid 0x%x, after replaying %d transactions, in %.1f s",
            directory.path,
            engine.tree.size,
            len(engine.sessions.alive),
            engine.zxid,
            recovered.transactions,
            seconds,
        )
        return recovered

    def store(self, engine: Engine, recovered: Recovered) -> Store:
        """Return the files of the server, in the running event loop; a snapshot is begun if there is something new."""
        store = self._store = Store(engine, self.directory, self.settings, self.disk, self._locks[0].note_session)
        if recovered.transactions or recovered.problems:
            store.snapshot_soon()
        return store

    @property
    def running(self) -> Store | None:
        """The files of the server, once :meth:`store` was called."""
        return self._store

    def past(self, path: str | None, session_id: int | None, before: int, limit: int) -> list[Past]:
        """Return transactions of the logs, as :func:`~zoolet.server.storage.past.past` does; a thread may call this."""
        return past(DataDir.find(self.directory.path, self._log_path), path, session_id, before, limit)

    def configuration(self) -> dict[str, object]:
        """Return what the four-letter command ``conf`` says of the directory, the sizes in bytes."""
        facts: dict[str, object] = {}
        for name, size, folder in (
            ("dataDir", "dataDirSize", self.directory.folder),
            ("dataLogDir", "dataLogSize", self.directory.log_folder),
        ):
            facts[name] = str(folder)
            facts[size] = sum(map(_size, folder.iterdir()))
        return facts

    def last_snapshot(self) -> tuple[int, int] | None:
        """Return the zxid of the newest snapshot in the directory, and when it was written, in seconds since the
        epoch; None without one.
        """
        for zxid, path in DataDir.find(self.directory.path, self._log_path).snapshots.items():
            with suppress(FileNotFoundError):  # it was purged a moment ago
                return zxid, int(path.stat().st_mtime)
        return None

    def _use_passwords(self, engine: Engine) -> None:
        """Compute session passwords as the servers before this one, so that their clients can resume sessions."""
        if not self.settings.keyed_passwords:
            engine.sessions.set_key(None)
            return
        path = self.directory.path / layout.KEY
        if path.exists():
            key = path.read_bytes()
            if len(key) != 32:
                raise StorageError(str(path), f"a key of session passwords has 32 bytes; this has {len(key)}")
        else:
            key = engine.rng.randbytes(32)
            layout.write_file(self.disk, path, key)
        engine.sessions.set_key(key)

    def _write_first_snapshot(self, engine: Engine) -> None:
        """Write what an empty server has: without a snapshot ZooKeeper does not use a log."""
        path = self.directory.folder / f"snapshot.{engine.zxid:x}"
        layout.write_file(self.disk, path, b"".join(snapshots.encode(live.snapshot_of(engine))))

    def _check_complete(self, engine: Engine) -> None:
        """Check that the files have all that the previous server had when it stopped cleanly.

        Raises:
            StorageError: They end earlier.
        """
        lock = self._locks[0]
        engine.sessions.skip_id(lock.session_id)
        last = engine.zxid if self.directory.snapshots or self.directory.logs else 0
        if last < lock.zxid:
            hint = f"if these files are of an earlier time on purpose, delete {layout.SUBFOLDER}/{layout.LOCK}"
            reason = (
                f"the previous server stopped at 0x{lock.zxid:x}, and the files end with 0x{last:x}: a log is missing"
            )
            raise StorageError(str(self.directory.path), f"{reason}; {hint}")

    def _begin_epoch(self, engine: Engine) -> None:
        """Go on with the zxids of a new epoch, so that none is taken twice if writes were lost; a log that is synced
        remembers it. Within an epoch ZooKeeper 3.9 allows no gap.

        Source: ZKDatabase.addCommittedProposal.
        """
        last = engine.zxid
        epoch = (max(last, self.directory.highest_zxid(), self.directory.seen) >> 32) + 1
        self.directory.begin_epoch(epoch, self.disk)
        engine.zxid = (epoch << 32) + 1
        log = LogFile(self.directory.log_folder, self.disk, 0)
        failure = ErrorTxn(ErrorCode.OK)
        log.append(engine.zxid, txnlog.encode([(last, NEW_EPOCH, engine.zxid, engine.now, ERROR, failure)]))
        log.close()


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 for one that is not there any more, and for a directory."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
