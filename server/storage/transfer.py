"""Export and import of the whole state of a running server, for ``/commands/snapshot`` and ``/commands/restore``.

A snapshot shows the state at one moment. A forked process has a copy of the memory at that moment, and encodes the
state while the server keeps serving::

    fork --> the child encodes --pipe--> the caller
      |
      +----> the server keeps serving

A restore replaces the tree and the sessions in one step, and disconnects all clients. zxids continue above all zxids of
both states, so no fencing token is issued twice, and clients that have seen higher zxids than the snapshot's can
connect. With a data directory, the snapshot is first written to the disk, with the first zxid of a new epoch.
Transactions that are logged during the restore have lower zxids. After a crash, a server therefore finds either the old
state or the new state::

    checked --> written as snapshot.EPOCH00000000 --> named --> loaded; all clients are disconnected
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import struct
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from time import perf_counter
from typing import Final, NoReturn

from ...protocol import paths
from ...protocol.hexadecimal import hexadecimal
from ..core.engine import Engine
from ..core.node import is_session
from . import live, recovery
from . import snapshot as snapshots
from .errors import StorageError
from .snapshot import Snapshot
from .store import Store

_log = logging.getLogger("zoolet.server")
_SIZE: Final = struct.Struct(">q")
_CHUNK_BYTES: Final = 1 << 16
_MAX_SESSION_ID: Final = (1 << 63) - (1 << 40)
"""The highest accepted session id in a snapshot. New ids start after it, and could otherwise run out soon."""
_ZXID_LIMIT: Final = 1 << 62
"""The lowest rejected zxid of a snapshot. It is below MAX_ZXID, because each restore uses up an epoch."""


class SnapshotProcess:
    """A forked process that encodes the state of an engine at the time of the fork.

    Args:
        engine: The engine, between two requests.

    Attributes:
        zxid: The zxid of the state.
        pid: The process id.
    """

    def __init__(self, engine: Engine) -> None:
        self.zxid = engine.zxid
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Python warns because threads sync the log. The child needs no lock that a thread may have held.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _encode(engine, writing)
        os.close(writing)
        self.pid = pid
        self._pipe = open(reading, "rb", buffering=0)
        self._reader: asyncio.StreamReader | None = None
        self._transport: asyncio.ReadTransport | None = None

    async def size(self) -> int:
        """Return the size of the snapshot in bytes.

        Raises:
            OSError: The process exited before it had encoded the snapshot.
        """
        loop = asyncio.get_running_loop()
        self._reader = reader = asyncio.StreamReader(_CHUNK_BYTES)
        self._transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._pipe)
        try:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        except asyncio.IncompleteReadError:
            raise OSError("the snapshot process exited unexpectedly") from None
        return int(size)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the snapshot, after :meth:`size`."""
        assert self._reader is not None
        while piece := await self._reader.read(_CHUNK_BYTES):
            yield piece

    async def end(self) -> None:
        """Kill the process, even if it is still encoding, and wait for its end."""
        if self._transport is not None:
            self._transport.close()
        else:
            self._pipe.close()
        os.kill(self.pid, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, self.pid, 0)


def _encode(engine: Engine, descriptor: int) -> NoReturn:
    """Write the size and the bytes of a snapshot, and exit. This runs in the forked process."""
    code = 1
    try:
        gc.disable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))  # a client's socket must not stay open in this process
        with open(descriptor, "wb", buffering=_CHUNK_BYTES) as pipe:
            pipe.write(_SIZE.pack(sum(map(len, encode_snapshot(engine)))))
            for piece in encode_snapshot(engine):
                pipe.write(piece)
        code = 0
    finally:
        os._exit(code)  # os._exit() skips the server's exit handlers


def encode_snapshot(engine: Engine) -> Iterator[bytes]:
    """Yield the bytes of a snapshot of an engine. The engine must not change during the iteration."""
    tables = live.snapshot_tables(engine)
    return snapshots.encode_changing(tables, live.snapshot_nodes(engine.tree, tables), lambda: tables.zxid)


class StateTransfer:
    """The export and import of a server's state.

    Args:
        engine: The engine.
        store: The files of the server; None if it has no data directory.
        set_time: A function that sets the engine's time.
        deliver: A function that sends pending output, and closes the connections that the engine has closed.
    """

    def __init__(
        self, engine: Engine, store: Store | None, set_time: Callable[[], None], deliver: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._store = store
        self._set_time = set_time
        self._deliver = deliver

    @property
    def has_files(self) -> bool:
        """Whether the server has a data directory."""
        return self._store is not None

    def snapshot(self) -> SnapshotProcess:
        """Return a process that encodes the current state. The caller must end it."""
        return SnapshotProcess(self._engine)

    async def write_snapshot(self) -> tuple[int, int]:
        """Write a snapshot to the data directory. Return its zxid and its size in bytes.

        Raises:
            OSError: The snapshot could not be written.
        """
        assert self._store is not None
        return await self._store.snapshots.write_now()

    async def restore(self, data: bytes) -> int:
        """Replace the state. Return the zxid from which the server continues.

        Args:
            data: A snapshot, not compressed.

        Raises:
            StorageError: The data is damaged or not a valid snapshot. Nothing was changed.
            OSError: The snapshot could not be written to the data directory. Nothing was changed.
        """
        engine = self._engine
        snapshot = await asyncio.to_thread(_read_untrusted, data)
        newest = max(snapshot.newest_change(), snapshot.zxid)
        if newest >= _ZXID_LIMIT:
            expected = f"expected less than {hexadecimal(_ZXID_LIMIT)}"
            raise StorageError("", f"zxid {hexadecimal(newest)} in the snapshot is too high; {expected}")
        if self._store is not None:
            snapshot.zxid = self._store.next_epoch(newest) << 32
            await self._store.snapshots.write_restored(snapshot)
        else:
            snapshot.zxid = max(engine.zxid, newest) + 1
        started = perf_counter()
        self._set_time()
        recovery.replace(engine, snapshot)
        self._deliver()
        text = "replaced the state with a snapshot: %d nodes, %d sessions, zxids continue at %s; loaded in %.1f s"
        counts = engine.tree.reported_size, len(engine.sessions.alive)
        _log.warning(text, *counts, hexadecimal(engine.zxid), perf_counter() - started)
        return engine.zxid


def _read_untrusted(data: bytes) -> Snapshot:
    """Read a snapshot from an untrusted source.

    Raises:
        StorageError: The data is damaged, is not a snapshot, or contains entries that no server writes.
    """
    snapshot = snapshots.parse(data, 0)
    owned: set[str] = set()
    for node in snapshot.nodes:
        if node.path and (why := paths.path_error(node.path)) is not None:
            raise StorageError("", f"invalid path {node.path!r}: {why}")
        if node.path.rpartition("/")[0] in owned:
            raise StorageError("", f"{node.path} is below an ephemeral node")
        if is_session(node.owner):
            owned.add(node.path)
    for session_id, timeout in snapshot.sessions.items():
        if not is_session(session_id) or session_id > _MAX_SESSION_ID or timeout <= 0:
            raise StorageError("", f"invalid session {hexadecimal(session_id)} with a timeout of {timeout} ms")
    return snapshot
