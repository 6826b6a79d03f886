"""Coverage-guided fuzzing: inputs that reach new code are kept and mutated further.

Every reader of untrusted bytes or text has a target here: the ports of server and client, data files, files of
``zoolet dump``, recordings, zoo.cfg, and the lines of the shell. A reader may reject an input with the errors that it
documents. Anything else is a finding, which atheris prints with the input. Needs atheris (`pip install atheris`)::

    python -m fuzz.guided server -max_total_time=60
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import atheris

with atheris.instrument_imports(include=["zoolet", "h11"]):
    import h11
    from fuzz import engines, frames

    from zoolet.cli.shell import flags, words
    from zoolet.cli.transfer import files as dumps
    from zoolet.client.blocking import Client
    from zoolet.client.wire.phases import ConnectionBroken
    from zoolet.client.wire.session import ClientSession
    from zoolet.protocol.errors import ZooKeeperError
    from zoolet.server.admin.http import HttpError, check_browser, shows_token
    from zoolet.server.config import ConfigError
    from zoolet.server.config.properties import parse_properties
    from zoolet.server.net.http import _request
    from zoolet.server.storage import snapshot, txnlog
    from zoolet.server.storage.errors import StorageError
    from zoolet.server.storage.live import take_snapshot
    from zoolet.testing.checking.checker import UnreadableError, check
    from zoolet.testing.recording.recording import Recording
    from zoolet.testing.server import Server

Target = Callable[[bytes], object]
TARGETS: Final[dict[str, Target]] = {}
ROUNDS_PER_SERVER: Final = 200
"""Number of inputs before a server is checked as a whole and replaced."""


@cache
def folder() -> Path:
    """Return a temporary folder of this process, in memory if possible; it is deleted at exit."""
    made = tempfile.mkdtemp(prefix="zoolet-guided-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def target(function: Target) -> Target:
    """Register a target."""
    TARGETS[function.__name__] = function
    return function


class _Server:
    """The server that receives the frames, replaced after some rounds."""

    def __init__(self) -> None:
        self.rounds = 0
        self.engine = engines.engine_for(0)

    def feed(self, data: bytes) -> None:
        """Connect, open a session, and send bytes."""
        if self.rounds == ROUNDS_PER_SERVER:
            engines.check_invariants(self.engine)
            self.rounds = 0
            self.engine = engines.engine_for(Random(data).randrange(100))
        self.rounds += 1
        connection = engines.connection_to(self.engine, "127.0.0.1")
        engines.receive(connection, frames.HELLO + data)
        connection.data_to_send()
        connection.connection_lost()


_SERVER: Final = _Server()


@target
def server(data: bytes) -> None:
    """Feed the server's port with bytes after a handshake."""
    _SERVER.feed(data)


@target
def client(data: bytes) -> None:
    """Feed a client's connection with bytes from a server."""
    session = ClientSession(10_000, Random(0))
    with contextlib.suppress(ConnectionBroken, ZooKeeperError):
        session.start(0.0)
        session.receive(data, 0.0)


@target
def http(data: bytes) -> None:
    """Parse the head of a request at the admin port."""
    connection = h11.Connection(h11.SERVER)
    with contextlib.suppress(h11.RemoteProtocolError, HttpError):
        connection.receive_data(data)
        head = connection.next_event()
        if isinstance(head, h11.Request):
            asked = _request(head, b"{}")
            check_browser(asked, ["localhost"])
            shows_token(asked, "secret")
            asked.parameters()


@target
def snapshots(data: bytes) -> None:
    """Parse a file ``snapshot.*``."""
    with contextlib.suppress(StorageError):
        snapshot.parse(data, 1)


@target
def logs(data: bytes) -> None:
    """Parse a file ``log.*``."""
    with contextlib.suppress(StorageError):
        list(txnlog.Log(data))


@target
def recordings(data: bytes) -> None:
    """Load and check a file of ``zoolet check``."""
    (folder() / "recording").write_bytes(data)
    try:
        recording = Recording.load(folder() / "recording")
    except ValueError:
        return
    with contextlib.suppress(UnreadableError):
        check(recording)


@target
def dumped(data: bytes) -> None:
    """Parse a file of ``zoolet load``."""
    (folder() / "dump").write_bytes(data)
    with contextlib.suppress(dumps.FileError, ValueError):
        list(dumps.read(folder() / "dump"))


@target
def settings(data: bytes) -> None:
    """Parse a zoo.cfg."""
    with contextlib.suppress(ConfigError):
        parse_properties(data.decode("utf-8", "replace"), "zoo.cfg")


@target
def shell(data: bytes) -> None:
    """Parse a line of the shell."""
    with contextlib.suppress(flags.FlagError, ValueError):
        words.split(data.decode("utf-8", "replace"))
        words.last_word(data.decode("utf-8", "replace"))


def _recording() -> bytes:
    with Server() as server, server.recording() as recording, Client(server.hosts) as zk:
        zk.create("/a", b"1")
        zk.get("/a")
    recording.save(folder() / "seed")
    return (folder() / "seed").read_bytes()


def _snapshot() -> bytes:
    return b"".join(snapshot.encode(take_snapshot(engines.engine_for(0))))


SEEDS: Final[dict[str, Callable[[], list[bytes]]]] = {
    "server": lambda: frames.make_pool(Random(1), 300),
    "http": lambda: [b"POST /commands/ruok?a=1&b=%20 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n"],
    "snapshots": lambda: [_snapshot()],
    "logs": lambda: [txnlog.encode_header()],
    "recordings": lambda: [_recording()],
    "dumped": lambda: [b'{"/a": "1"}'],
    "settings": lambda: [b"tickTime=2000\nserver.1=a:1:2\n"],
    "shell": lambda: [b"create -e -s /a 'b c' world:anyone:r"],
}
"""The initial inputs."""


def main() -> None:
    """Run one target."""
    name, *options = sys.argv[1:] or [""]
    logging.disable(logging.WARNING)
    if name not in TARGETS:
        sys.exit(f"there is no target {name}; there are {', '.join(TARGETS)}")
    corpus = folder() / "corpus"
    corpus.mkdir()
    for number, data in enumerate(SEEDS[name]() if name in SEEDS else [b""]):
        (corpus / str(number)).write_bytes(data)
    atheris.Setup([sys.argv[0], "-max_len=4096", *options, str(corpus)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
