"""A proxy's recording of an Apache server gives the Java command line byte for byte the same answers as that server."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.apache import JARS, NEEDED_JARS, ApacheZooKeeper, require_apache
from support.waiting import DEADLINE_S

from zoolet.protocol.codec import int_at
from zoolet.protocol.enums import Xid
from zoolet.protocol.framing import Frames
from zoolet.testing import Proxy, Recording

COMMANDS = """\
create /app one
create -e /app/live two
create -s /app/seq- three
create -c /box
get -s -w /app
ls -R /app
set /app five
stat -w /app/live
getAcl /app
set -v 7 /app no
get /nowhere
addauth digest u:p
whoami
addWatch -m PERSISTENT_RECURSIVE /app
delete /app/live
deleteall /app
sync /box
quit
"""


class Tap:
    """A forwarder between a client and a server, which records the server's output."""

    def __init__(self, hosts: str) -> None:
        self._target = hosts.split(":")
        self._streams: list[bytearray] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Tap:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def hosts(self) -> str:
        """The connection string for clients."""
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = bytearray()
        self._streams.append(kept)
        from_server, to_server = await asyncio.open_connection(self._target[0], int(self._target[1]))
        for pair in ((reader, to_server, bytearray()), (from_server, writer, kept)):
            task = asyncio.create_task(self._copy(*pair))
            self._tasks.add(task)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
        while data := await reader.read(1 << 16):
            kept += data
            writer.write(data)
        writer.close()

    def frames(self) -> list[bytes]:
        """Return the frames that the server has sent, without answers to pings."""
        [stream] = self._streams
        first, *others = Frames(limit=None).feed(bytes(stream))
        return [first, *(payload for payload in others if int_at(payload, 0)[0] != Xid.PING)]


async def command_line(hosts: str) -> str:
    """Run zkCli with the commands. Return its output."""
    jars = ":".join(str(jar) for pattern in (*NEEDED_JARS, "jline*.jar") for jar in sorted(JARS.glob(pattern)))
    words = ["java", "-cp", jars, "org.apache.zookeeper.ZooKeeperMain", "-server", hosts]
    done: Any = await asyncio.to_thread(
        subprocess.run, words, input=COMMANDS, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return str(done.stdout)


@pytest.mark.slow
async def test_replay_sends_recorded_bytes_to_java_command_line(tmp_path: Path) -> None:
    require_apache()
    with ApacheZooKeeper() as apache:
        async with Proxy(apache.hosts) as proxy, Tap(proxy.hosts) as tap:
            with proxy.recording() as recording:
                output = await command_line(tap.hosts)
            from_apache = tap.frames()
    recording.save(tmp_path / "apache")

    async with Recording.load(tmp_path / "apache").serve() as canned, Tap(canned.hosts) as tap:
        again = await command_line(tap.hosts)

    assert tap.frames() == from_apache
    assert len(from_apache) >= 25
    assert canned.unexpected == []
    assert "Sync is OK" in output
    assert "Sync is OK" in again


@pytest.mark.slow
async def test_requests_replayed_at_apache_get_recorded_replies(tmp_path: Path) -> None:
    require_apache()
    with ApacheZooKeeper() as apache:
        async with Proxy(apache.hosts) as proxy:
            with proxy.recording() as recording:
                await command_line(proxy.hosts)
    with ApacheZooKeeper() as other:
        again = await asyncio.to_thread(recording.replay, other.hosts)

    recording.assert_same(again)
