"""The whole state of a server that goes on serving, to somebody else and back: ``/commands/snapshot`` and ``restore``.

A snapshot is of one moment. A forked process has the memory of that moment; it encodes the state, and the server serves
meanwhile::

    fork --> the child encodes --pipe--> the caller
      |
      +----> the server goes on

A restore replaces the tree and the sessions in one step, and disconnects all clients. zxids go on above all that either
state has had, so that no fencing token is given twice, and clients that have seen more than the snapshot can connect.
With a data directory the snapshot is on the disk first, as the first one of a new epoch: whatever is logged meanwhile
comes before it, and a start after a crash finds either the state before or the one after::

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

from zoolet.protocol import paths
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import is_session
from zoolet.server.storage import live, recovery
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.snapshot import Snapshot
from zoolet.server.storage.store import Store

_log = logging.getLogger("zoolet.server")
_SIZE: Final = struct.Struct(">q")
_CHUNK: Final = 1 << 16
_MAX_SESSION: Final = (1 << 63) - (1 << 40)
"""A snapshot with a session above is refused: ids go on from there, and would end soon."""
_MAX_ZXID: Final = 1 << 62
"""A snapshot from here on is refused: zxids would end soon."""


class SnapshotProcess:
    """A process that has the state of an engine as it was when it was forked, and encodes it.

    Args:
        engine: The engine, between two requests.

    Attributes:
        zxid: The zxid of the state.
        pid: The number of the process.
    """

    def __init__(self, engine: Engine) -> None:
        self.zxid = engine.zxid
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Threads sync the log. The child runs none of their code, and calls nothing that they may have locked.
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
        """Return how many bytes the snapshot has.

        Raises:
            OSError: It could not be encoded.
        """
        loop = asyncio.get_running_loop()
        self._reader = reader = asyncio.StreamReader(_CHUNK)
        self._transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._pipe)
        try:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        except asyncio.IncompleteReadError:
            raise OSError("the process that encodes the snapshot has ended") from None
        return int(size)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the snapshot, after :meth:`size`."""
        assert self._reader is not None
        while piece := await self._reader.read(_CHUNK):
            yield piece

    async def end(self) -> None:
        """End the process, done or not."""
        if self._transport is not None:
            self._transport.close()
        else:
            self._pipe.close()
        os.kill(self.pid, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, self.pid, 0)


def _encode(engine: Engine, descriptor: int) -> NoReturn:
    """Write the size and the bytes of a snapshot, and end the process: this is the forked one."""
    code = 1
    try:
        gc.disable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))  # a client's socket must close with the server's
        with open(descriptor, "wb", buffering=_CHUNK) as pipe:
            pipe.write(_SIZE.pack(sum(map(len, encoded(engine)))))
            for piece in encoded(engine):
                pipe.write(piece)
        code = 0
    finally:
        os._exit(code)  # without the server's handlers at exit


def encoded(engine: Engine) -> Iterator[bytes]:
    """Yield the bytes of a snapshot of an engine, which does not change meanwhile."""
    tables = live.tables_of(engine)
    return snapshots.encode_growing(tables, live.nodes_of(engine.tree, tables), lambda: tables.zxid)


class StateTransfer:
    """Gives the state of a server away, and takes another one.

    Args:
        engine: The engine.
        store: Its files; None without any.
        set_time: Sets the engine's time.
        deliver: Sends what is pending, and closes the connections that the engine has closed.
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
        """Return the state as it is now; the caller ends the process."""
        return SnapshotProcess(self._engine)

    async def write_snapshot(self) -> tuple[int, int]:
        """Write a snapshot to the data directory; return its zxid and its bytes.

        Raises:
            OSError: It could not be written.
        """
        assert self._store is not None
        return await self._store.snapshots.write_now()

    async def restore(self, data: bytes) -> int:
        """Replace the state; return the zxid from which on the server goes on.

        Args:
            data: A snapshot, not compressed.

        Raises:
            StorageError: It is damaged, or no snapshot; nothing was changed.
            OSError: It cannot be written; nothing was changed.
        """
        engine = self._engine
        snapshot = await asyncio.to_thread(_checked, data)
        newest = max(snapshot.newest_change(), snapshot.zxid)
        if newest >= _MAX_ZXID:
            raise StorageError("", f"it has a change of zxid {newest:#x}; this server takes those below {_MAX_ZXID:#x}")
        if self._store is not None:
            snapshot.zxid = self._store.next_epoch(newest) << 32
            await self._store.snapshots.write_restored(snapshot)
        else:
            snapshot.zxid = max(engine.zxid, newest) + 1
        started = perf_counter()
        self._set_time()
        recovery.replace(engine, snapshot)
        self._deliver()
        text = "the state was replaced by a snapshot: %d nodes, %d sessions, zxids go on at 0x%x; loaded in %.1f s"
        counts = engine.tree.size, len(engine.sessions.alive)
        _log.warning(text, *counts, engine.zxid, perf_counter() - started)
        return engine.zxid


def _checked(data: bytes) -> Snapshot:
    """Read a snapshot that anybody may have made.

    Raises:
        StorageError: It is damaged, no snapshot, or has what no server writes.
    """
    snapshot = snapshots.parse(data, 0)
    if not data.endswith(snapshots.END):
        raise StorageError("", "there is more behind its end")
    owned: set[str] = set()
    for node in snapshot.nodes:
        if node.path and (why := paths.path_error(node.path)) is not None:
            raise StorageError("", f"the path {node.path!r}: {why}")
        if node.path.rpartition("/")[0] in owned:
            raise StorageError("", f"{node.path} is below an ephemeral node")
        if is_session(node.owner):
            owned.add(node.path)
    for session_id, timeout in snapshot.sessions.items():
        if not is_session(session_id) or session_id > _MAX_SESSION or timeout <= 0:
            raise StorageError("", f"session {hexadecimal(session_id)} with a timeout of {timeout} ms")
    return snapshot
