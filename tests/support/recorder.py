"""A protocol that records the data received over a connection of the simulated network, and pairs of them."""

from __future__ import annotations

import asyncio
from typing import Any


class Recorder(asyncio.Protocol):
    """A protocol that keeps the received fragments and their times."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.pieces: list[tuple[float, bytes]] = []
        self.ended: asyncio.Future[Exception | None] = self.loop.create_future()
        self.transport: Any = None
        self.calls: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append((self.loop.time(), data))

    def eof_received(self) -> None:
        self.calls.append("eof")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    @property
    def data(self) -> bytes:
        """All received bytes."""
        return b"".join(piece for _, piece in self.pieces)


async def connect_pair(port: int = 700) -> tuple[Recorder, Recorder]:
    """Connect two recorders, and return those of the client and of the server."""
    loop = asyncio.get_running_loop()
    served: list[Recorder] = []

    def serve() -> Recorder:
        served.append(Recorder())
        return served[-1]

    await loop.create_server(serve, "127.0.0.1", port)
    _, client = await loop.create_connection(Recorder, "127.0.0.1", port)
    while not served or served[0].transport is None:
        await asyncio.sleep(0.001)
    return client, served[0]
