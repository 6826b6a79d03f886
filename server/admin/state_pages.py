"""``/commands/snapshot`` and ``/commands/restore``: the whole state as a file, and back.

=================================================  ===================================================================
``GET /commands/snapshot``                         200 and the file, with ``last_zxid`` and ``snapshot_size`` as headers
``GET /commands/snapshot?streaming=false``         the same headers; the file is in the data directory
``POST /commands/restore``, the file as body       ``{"last_zxid": N}``: from there on zxids go on
=================================================  ===================================================================

One of them is executed at a time. 429 refuses a second one, 503 one that the server cannot do, 400 a body that is no
snapshot, 500 one that could not be written; then nothing was changed.

Source: Commands.SnapshotCommand, Commands.RestoreCommand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from zoolet.server.admin.facts import Facts
from zoolet.server.admin.http import HttpError, Request, Response
from zoolet.server.admin.java import pretty_json

MAX_BODY: Final = 4 << 30
"""The most bytes of a snapshot that is restored; it is in memory meanwhile."""


class Encoding(Protocol):
    """A snapshot that is being encoded."""

    zxid: int

    async def size(self) -> int:
        """Return how many bytes it has."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield them."""
        ...

    async def end(self) -> None:
        """End the encoding, done or not."""
        ...


class Transfer(Protocol):
    """Gives the state away, and takes another one: a ``StateTransfer``."""

    @property
    def has_files(self) -> bool:
        """Whether the server has a data directory."""
        ...

    def snapshot(self) -> Encoding:
        """Return the state as it is now."""
        ...

    async def write_snapshot(self) -> tuple[int, int]:
        """Write it to the data directory; return its zxid and its bytes."""
        ...

    async def restore(self, data: bytes) -> int:
        """Replace it; return the zxid from which on the server goes on. ValueError says what is wrong with the data."""
        ...


class StatePages:
    """Answers both commands.

    Args:
        transfer: What they do; None for a server that does not offer them.
    """

    def __init__(self, transfer: Transfer | None) -> None:
        self._transfer = transfer
        self._is_busy = False

    async def answer(self, name: str, request: Request) -> Response:
        """Answer one of them, whose method and token were checked.

        Raises:
            HttpError: It is refused.
        """
        transfer = self._transfer
        if transfer is None:
            raise HttpError(503, f"this server does not offer {name}")
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
                raise HttpError(500, f"the snapshot could not be made: {error}") from None
            raise
        headers = ("last_zxid", f"0x{encoding.zxid:x}"), ("snapshot_size", str(size)), ("Content-Length", str(size))
        return Response(content_type="application/octet-stream", headers=headers, stream=_Pieces(self, encoding))

    async def _write(self, transfer: Transfer) -> Response:
        if not transfer.has_files:
            raise HttpError(503, "the server has no data directory: without streaming=false the answer is the file")
        with self._one_at_a_time():
            try:
                zxid, size = await transfer.write_snapshot()
            except OSError as error:
                raise HttpError(500, f"the snapshot could not be written: {error}") from None
        return _facts(
            {"command": "snapshot", "error": None}, ("last_zxid", f"0x{zxid:x}"), ("snapshot_size", str(size))
        )

    async def _restore(self, transfer: Transfer, request: Request) -> Response:
        if not request.body:
            raise HttpError(400, "the body is empty; it must be a snapshot, not compressed")
        self._begin()
        # A task of its own: it must not be cancelled between naming the file and loading it.
        work = asyncio.get_running_loop().create_task(transfer.restore(request.body))
        work.add_done_callback(self._restored)
        try:
            zxid = await asyncio.shield(work)
        except ValueError as error:
            raise HttpError(400, f"nothing was changed: {error}") from None
        except OSError as error:
            raise HttpError(500, f"nothing was changed: {error}") from None
        return _facts({"last_zxid": zxid, "command": "restore", "error": None})

    def _restored(self, work: asyncio.Task[int]) -> None:
        self._is_busy = False
        if not work.cancelled():
            work.exception()  # the request has it; without one, nothing was changed

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        finally:
            self._is_busy = False

    def _begin(self) -> None:
        if self._is_busy:
            raise HttpError(429, "another snapshot or restore is under way", ("Retry-After", "1"))
        self._is_busy = True

    async def end(self, encoding: Encoding | None) -> None:
        """End an encoding, so that another one may begin."""
        try:
            if encoding is not None:
                await encoding.end()
        finally:
            self._is_busy = False


class _Pieces:
    """The body of a snapshot."""

    def __init__(self, pages: StatePages, encoding: Encoding) -> None:
        self._pages = pages
        self._encoding = encoding

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._encoding.pieces()

    async def aclose(self) -> None:
        await self._pages.end(self._encoding)


def _facts(facts: Facts, *headers: tuple[str, str]) -> Response:
    return Response(pretty_json(facts).encode(), "application/json", headers=headers)
