"""The console of a server with a million nodes and 5,000 sessions: its answers are fast, and clients do not wait."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from support.daemon import running_daemon
from support.waiting import DEADLINE_S

from zoolet.client import Client
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.server.admin.descriptors import raise_limit
from zoolet.server.storage.snapshot import Snapshot, StoredNode, encode

pytest.importorskip("h11")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("ZOOLET_FULL") != "1", reason="makes a million nodes: ZOOLET_FULL=1"),
]
SESSION_COUNT: Final = 5_000
MAX_CPU_S: Final = 0.25
"""Limit for the CPU time of the server until a client is answered, in seconds (usually 0.02)."""
ROOT_NODE: Final = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def nodes() -> Iterator[StoredNode]:
    """Yield a million nodes: 899 folders with 1,000 each, and one with 100,000."""
    yield ROOT_NODE
    for folder in range(899):
        yield ROOT_NODE._replace(path=f"/p{folder}", czxid=1, creates=1000)
    yield ROOT_NODE._replace(path="/wide", czxid=1, creates=100_000)
    for folder in range(899):
        for number in range(1000):
            yield ROOT_NODE._replace(path=f"/p{folder}/n{number:04}", data=b"x" * 20, czxid=1)
    for number in range(100_000):
        yield ROOT_NODE._replace(path=f"/wide/n{number:06}", czxid=1)


@asynccontextmanager
async def sessions(port: int) -> AsyncIterator[None]:
    """Keep many sessions open during the block."""
    raise_limit()
    writers = []
    for number in range(SESSION_COUNT):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(ConnectRequest(timeout_ms=40_000).encode()))
        writers.append(writer)
        if not number % 100:
            await asyncio.sleep(0.02)
    try:
        yield
    finally:
        for writer in writers:
            writer.close()


async def request_url(url: str) -> Any:
    """Request a URL. Return the answer, or the last line of a stream."""

    def get() -> bytes:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:
            data: bytes = response.read()
            return data

    return json.loads((await asyncio.to_thread(get)).splitlines()[-1])


async def test_console_shows_million_nodes_and_many_sessions_quickly(tmp_path: Path) -> None:
    folder = tmp_path / "version-2"
    folder.mkdir()
    (folder / "snapshot.1").write_bytes(b"".join(encode(Snapshot(1, list(nodes())))))
    options = ("--port", "0", "--admin-port", "0", "--data-dir", str(tmp_path), "-DmaxClientCnxns=0")
    with running_daemon(*options) as daemon:
        port = daemon.port(2 * DEADLINE_S)
        api = daemon.read_line(1).rpartition(" ")[2] + "console/api/"
        cpu = Path(f"/proc/{daemon.process.pid}/schedstat")

        def cpu_s() -> float:
            """Return the CPU time of the thread with the event loop."""
            return int(cpu.read_text().split()[0]) / 1e9

        async with sessions(port), Client(f"127.0.0.1:{port}") as zk:
            waits: list[float] = []
            done = asyncio.Event()

            async def read() -> None:
                while not done.is_set():
                    started = cpu_s()
                    await zk.get("/p1")
                    waits.append(cpu_s() - started)
                    await asyncio.sleep(0.002)

            async def measured(name: str) -> tuple[Any, float]:
                started = cpu_s()
                return await request_url(api + name), cpu_s() - started

            reading = asyncio.create_task(read())
            overview = await request_url(api + "overview")
            window, quick = await measured("children?path=/wide&offset=50000&limit=100")
            listed, listing = await measured("sessions?limit=100")
            found = await request_url(api + "search?name=n0999")
            nothing = await request_url(api + "search?text=nowhere")
            locks, looking = await measured("locks")
            done.set()
            await reading

    assert overview["nodes"] > 999_000
    assert overview["sessions"] == SESSION_COUNT + 1
    assert window["rows"][0][0] == "n050000"
    assert listed["total"] == SESSION_COUNT + 1
    assert found["more"]
    assert nothing["searched"] > 999_000
    assert locks["shared"] == []
    assert max(quick, listing) < 1.0
    assert looking < 3.0
    assert max(waits) < MAX_CPU_S
