"""``/commands/snapshot`` and ``/commands/restore``: export the whole state as a file, and import it.

=================================================  ===================================================================
``GET /commands/snapshot``                         200 and the file, with ``last_zxid`` and ``snapshot_size`` as headers
``GET /commands/snapshot?streaming=false``         the same headers, but the file is written to the data directory
``POST /commands/restore``, the file as body       ``{"last_zxid": N}``; new zxids follow N
=================================================  ===================================================================

Only one of these commands is executed at a time. A command that fails changes nothing:

- 429: another snapshot or restore is in progress. A restore is rejected before its body is received.
- 503: the server does not support the command.
- 400: the body is not a snapshot.
- 500: the snapshot could not be written.

Source: Commands.SnapshotCommand, Commands.RestoreCommand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from ...protocol.hexadecimal import hexadecimal
from .facts import Facts
from .http import HttpError, HttpRequest, Response
from .java_json import pretty_json

MAX_BODY: Final = 4 << 30
"""Maximum size of a snapshot in bytes for a restore. The snapshot is kept in memory during the restore."""


class Encoding(Protocol):
    """A snapshot that is being encoded."""

    zxid: int

    async def size(self) -> int:
        """Return the size of the snapshot in bytes."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the snapshot."""
        ...

    async def end(self) -> None:
        """Release the encoding, even if it is incomplete."""
        ...


class Transfer(Protocol):
    """An object that exports and imports the state of a server, such as ``StateTransfer``."""

    @property
    def has_files(self) -> bool:
        """Whether the server has a data directory."""
        ...

    def snapshot(self) -> Encoding:
        """Return a snapshot of the current state."""
        ...

    async def write_snapshot(self) -> tuple[int, int]:
        """Write a snapshot to the data directory, and return its zxid and its size in bytes."""
        ...

    async def restore(self, data: bytes) -> int:
        """Replace the state, and return its zxid. The server continues with the next zxid.

        Raises:
            ValueError: The data is not a valid snapshot.
        """
        ...


class StatePages:
    """The pages of the HTTP commands ``snapshot`` and ``restore``.

    Args:
        transfer: Implementation of the commands; None for a server that does not support them.
    """

    def __init__(self, transfer: Transfer | None) -> None:
        self._transfer = transfer
        self._is_busy = self._is_receiving = False

    @contextmanager
    def reserve_restore(self) -> Iterator[None]:
        """Reserve the only place for a restore. In the block, other restores are rejected before their bodies arrive.

        Raises:
            HttpError: Another restore or a snapshot is in progress.
        """
        if self._is_receiving or self._is_busy:
            raise _busy_error()
        self._is_receiving = True
        try:
            yield
        finally:
            self._is_receiving = False

    async def answer(self, name: str, request: HttpRequest) -> Response:
        """Answer one of the commands. The method and the token must have been checked.

        Raises:
            HttpError: The command is rejected or fails.
        """
        transfer = self._transfer
        if transfer is None:
            raise HttpError(503, f"this server does not support {name}")
        if name == "restore":
            return await self._restore(transfer, request)
        if dict(reversed(request.parameters())).get("streaming", "true").lower() != "true":
            return await self._write(transfer)
        return await self._stream(transfer)

    async def _stream(self, transfer: Transfer) -> Response:
        self._begin()
        encoding = None
        try:
            encoding = transfer.snapshot()
            size = await encoding.size()
        except BaseException as error:
            await self.end(encoding)
            if isinstance(error, OSError):
                raise HttpError(500, f"cannot create the snapshot: {error}") from None
            raise
        headers = ("last_zxid", hexadecimal(encoding.zxid)), ("snapshot_size", str(size)), ("Content-Length", str(size))
        return Response(
            content_type="application/octet-stream", headers=headers, stream=_SnapshotStream(self, encoding)
        )

    async def _write(self, transfer: Transfer) -> Response:
        if not transfer.has_files:
            raise HttpError(503, "the server has no data directory; omit streaming=false to download the snapshot")
        with self._exclusive_access():
            try:
                zxid, size = await transfer.write_snapshot()
            except OSError as error:
                raise HttpError(500, f"cannot write the snapshot: {error}") from None
        return _json_response(
            {"command": "snapshot", "error": None}, ("last_zxid", hexadecimal(zxid)), ("snapshot_size", str(size))
        )

    async def _restore(self, transfer: Transfer, request: HttpRequest) -> Response:
        if not request.body:
            raise HttpError(400, "the body is empty; expected an uncompressed snapshot")
        self._begin()
        # In a separate task: if the client disconnects, the restore must not stop between naming and loading the file.
        work = asyncio.get_running_loop().create_task(transfer.restore(request.body))
        work.add_done_callback(self._finish_restore)
        try:
            zxid = await asyncio.shield(work)
        except ValueError as error:
            raise HttpError(400, f"nothing was changed: {error}") from None
        except OSError as error:
            raise HttpError(500, f"nothing was changed: {error}") from None
        return _json_response({"last_zxid": zxid, "command": "restore", "error": None})

    def _finish_restore(self, work: asyncio.Task[int]) -> None:
        self._is_busy = False
        if not work.cancelled():
            work.exception()  # mark the exception as retrieved, because the client may have disconnected

    @contextmanager
    def _exclusive_access(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        finally:
            self._is_busy = False

    def _begin(self) -> None:
        if self._is_busy:
            raise _busy_error()
        self._is_busy = True

    async def end(self, encoding: Encoding | None) -> None:
        """Release an encoding, and allow the next snapshot or restore."""
        try:
            if encoding is not None:
                await encoding.end()
        finally:
            self._is_busy = False


class _SnapshotStream:
    """The response body of a snapshot. It releases the encoding when it is closed."""

    def __init__(self, pages: StatePages, encoding: Encoding) -> None:
        self._pages = pages
        self._encoding = encoding

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._encoding.pieces()

    async def aclose(self) -> None:
        await self._pages.end(self._encoding)


def _busy_error() -> HttpError:
    return HttpError(429, "another snapshot or restore is in progress; try again later", ("Retry-After", "1"))


def _json_response(facts: Facts, *headers: tuple[str, str]) -> Response:
    return Response(pretty_json(facts).encode(), "application/json", headers=headers)
