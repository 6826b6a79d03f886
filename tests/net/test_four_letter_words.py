"""The four-letter words on a live port: how they are told from a handshake, who may use them, and what they answer.

Source: the four-letter words' specification (NIOServerCnxn.checkFourLetterWord, FourLetterCommands, and the replies
observed of ZooKeeper 3.8.0 and 3.9.5).
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import int_at
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server.app import assemble
from zoolet.server.config import Config
from zoolet.server.core.settings import Settings
from zoolet.server.net.daemon import Daemon

DEADLINE_S: Final = 5.0  # only ever reached on failure
OFFERED: Final = (
    "cons", "crst", "dirs", "dump", "envi", "isro", "mntr",
    "ruok", "srst", "srvr", "stat", "wchc", "wchp", "wchs",
)  # fmt: skip
VERSION: Final = r"Zookeeper version: 3\.9\.\d+\S*, built on .+\n"
FIGURES: Final = (
    r"Latency min/avg/max: \d+/\d+\.\d+/\d+\n"
    r"Received: \d+\nSent: \d+\nConnections: \d+\nOutstanding: \d+\nZxid: 0x[0-9a-f]+\nMode: standalone\n"
    r"Node count: \d+\n"
)


# --- what the tests say it with ---


class Port:
    """A server in this loop, and clients that end with their test.

    Args:
        listener: The server.
        number: Its port.
        host: Its address.
    """

    def __init__(self, listener: Daemon, number: int, host: str) -> None:
        self.listener = listener
        self.number = number
        self.host = host
        self.writers: list[asyncio.StreamWriter] = []

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, and say nothing yet."""
        reader, writer = await asyncio.open_connection(self.host, self.number)
        link: socket.socket = writer.get_extra_info("socket")
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.writers.append(writer)
        return reader, writer

    async def ask(self, *pieces: bytes) -> str:
        """Send the pieces, each once the server has got the one before; return what comes back until it closes."""
        reader, writer = await self.dial()
        missing = 4
        for piece in pieces[:-1]:
            writer.write(piece)
            missing -= len(piece)
            await self.until_missing(missing)
        writer.write(pieces[-1])
        answer = await until_closed(reader)
        writer.close()  # or the server waits a second for it
        with suppress(ConnectionError):
            await writer.wait_closed()
        return answer.decode()

    async def until_missing(self, count: int) -> None:
        """Wait until the server has read all but so many of the first four bytes of a connection."""
        await until(lambda: any(one.connection and one.connection._missing == count for one in self.listener.open))

    async def session(self) -> Session:
        """Open a session."""
        reader, writer = await self.dial()
        writer.write(frame(ConnectRequest(timeout_ms=30_000).encode()))
        session = Session(reader, writer)
        session.id = ConnectResponse.decode(await session.payload()).session_id
        return session

    async def close(self) -> None:
        """Close all clients."""
        for writer in self.writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


class Session:
    """A client with a session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.id = 0

    @property
    def address(self) -> str:
        """The client's address as ZooKeeper writes it."""
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"/{host}:{port}"

    async def payload(self) -> bytes:
        """Wait for one frame."""
        async with asyncio.timeout(DEADLINE_S):
            (length,) = int_at(await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def call(self, op: OpCode, body: bytes = b"", xid: int = 1) -> None:
        """Send one request and wait for its reply, skipping events."""
        self.writer.write(frame(r.RequestHeader(xid, op).encode() + body))
        while int_at(await self.payload()) != (xid,):
            pass

    async def create(self, path: str, mode: CreateMode = CreateMode.PERSISTENT) -> None:
        """Make a node."""
        await self.call(OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, mode).encode())

    async def watch(self, path: str) -> None:
        """Set a data watch; the node need not be there."""
        await self.call(OpCode.EXISTS, r.ExistsRequest(path, True).encode())


Serve = Callable[..., Awaitable[Port]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A function that starts a server with a whitelist and an address."""
    ports: list[Port] = []

    async def start(*whitelist: str, host: str = "127.0.0.1") -> Port:
        listener = assemble(Config(host=host, whitelist=whitelist, settings=Settings()))
        port = Port(listener, await listener.start(host, 0), host)
        ports.append(port)
        return port

    yield start
    for port in ports:
        await port.close()
        await port.listener.stop()


@pytest.fixture
async def port(serve: Serve) -> Port:
    """A server that answers every word."""
    return await serve("*")


@pytest.fixture(autouse=True)
def no_error_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No word is ever an error of the server."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Wait for the server to close; return all that came before."""
    async with asyncio.timeout(DEADLINE_S):
        return await reader.read()


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


def figures(text: str) -> dict[str, str]:
    """Read what mntr answers."""
    return dict(line.split("\t") for line in text.splitlines())


# --- telling a word from a handshake ---


@pytest.mark.parametrize("pieces", [(b"ru", b"ok"), (b"r", b"u", b"o", b"k"), (b"ruo", b"k\r\n")])
async def test_a_word_may_come_in_pieces(port: Port, pieces: tuple[bytes, ...]) -> None:
    assert await port.ask(*pieces) == "imok"


@pytest.mark.parametrize("rest", [b"\n", b"\r\n", b" now", b"ruok", bytes(100_000)])
async def test_what_stands_behind_a_word_is_ignored(port: Port, rest: bytes) -> None:
    assert await port.ask(b"ruok" + rest) == "imok"


@pytest.mark.parametrize("word", ["ruok", "mntr"])
async def test_a_client_that_has_sent_too_much_still_gets_the_whole_answer(port: Port, word: str) -> None:
    reader, writer = await port.dial()

    writer.write(word.encode() + bytes(1_000_000))
    await writer.drain()

    assert (await until_closed(reader)).startswith({"ruok": b"imok", "mntr": b"zk_version"}[word])


@pytest.mark.parametrize("word", OFFERED)
async def test_a_client_that_ends_its_side_first_is_answered(port: Port, word: str) -> None:
    reader, writer = await port.dial()

    writer.write(word.encode())
    writer.write_eof()

    assert await until_closed(reader)


async def test_a_client_that_ends_its_side_in_the_middle_of_a_word_gets_nothing(port: Port) -> None:
    reader, writer = await port.dial()

    writer.write(b"ruo")
    writer.write_eof()

    assert await until_closed(reader) == b""


@pytest.mark.parametrize("word", ["abcd", "RUOK", "Ruok", "kill", "reqs", "GET "])
async def test_an_unknown_word_closes_the_connection(port: Port, word: str) -> None:
    assert await port.ask(word.encode()) == ""


async def test_a_connection_answers_one_word(port: Port) -> None:
    assert await port.ask(b"ruokruok") == "imok"


@pytest.mark.parametrize("word", OFFERED)
async def test_a_word_after_the_handshake_closes_the_connection(port: Port, word: str) -> None:
    session = await port.session()

    session.writer.write(word.encode() + bytes(100))

    assert await until_closed(session.reader) == b""


async def test_a_word_after_the_handshake_does_not_close_the_session(port: Port) -> None:
    session = await port.session()

    session.writer.write(b"ruok")
    await until_closed(session.reader)

    assert list(port.listener.engine.sessions.alive) == [session.id]


async def test_the_close_sequence_of_telnet_closes_without_a_word(port: Port) -> None:
    assert await port.ask(b"\xff\xf4\xff\xfd") == ""


async def test_a_word_opens_no_session_and_takes_no_zxid(port: Port) -> None:
    await port.ask(b"mntr")

    assert (port.listener.engine.zxid, port.listener.engine.sessions.alive) == (0, {})


# --- who may ---


@pytest.mark.parametrize("word", [*(word for word in OFFERED if word != "srvr"), "conf", "gtmk", "hash", "stmk"])
async def test_a_word_that_is_not_allowed_is_refused_by_name(serve: Serve, word: str) -> None:
    port = await serve()

    assert await port.ask(word.encode()) == f"{word} is not executed because it is not in the whitelist.\n"


@pytest.mark.parametrize("whitelist", [(), ("",), ("ruok",), ("nonsense",), ("*",)])
async def test_srvr_is_always_allowed(serve: Serve, whitelist: tuple[str, ...]) -> None:
    port = await serve(*whitelist)

    assert (await port.ask(b"srvr")).startswith("Zookeeper version: ")


async def test_the_whitelist_allows_what_it_names_and_no_more(serve: Serve) -> None:
    port = await serve("ruok", " mntr ", "nonsense")

    assert await port.ask(b"ruok") == "imok"
    assert (await port.ask(b"mntr")).startswith("zk_version\t")
    assert "whitelist" in await port.ask(b"stat")


@pytest.mark.parametrize("word", OFFERED)
async def test_a_star_allows_every_word(port: Port, word: str) -> None:
    assert "whitelist" not in await port.ask(word.encode())


# --- ruok, isro, dirs ---


@pytest.mark.parametrize(
    ("word", "answer"),
    [("ruok", "imok"), ("isro", "rw"), ("dirs", "datadir_size: 0\nlogdir_size: 0\n")],
)
async def test_a_short_answer(port: Port, word: str, answer: str) -> None:
    assert await port.ask(word.encode()) == answer


async def test_a_read_only_server_says_so(port: Port) -> None:
    port.listener.engine.set_read_only(True)

    assert await port.ask(b"isro") == "ro"
    assert "\nMode: read-only\n" in await port.ask(b"srvr")


# --- srvr and stat ---


async def test_srvr_has_its_lines_in_their_order(port: Port) -> None:
    assert re.fullmatch(VERSION + FIGURES, await port.ask(b"srvr"))


async def test_srvr_of_a_fresh_server(port: Port) -> None:
    answer = await port.ask(b"srvr")

    assert "\nReceived: 1\nSent: 0\nConnections: 1\nOutstanding: 0\nZxid: 0x0\n" in answer
    assert answer.endswith("\nNode count: 5\n")


async def test_srvr_counts_nodes_requests_and_zxids(port: Port) -> None:
    session = await port.session()
    await session.create("/a")

    answer = await port.ask(b"srvr")

    assert "\nReceived: 3\nSent: 2\nConnections: 2\nOutstanding: 0\nZxid: 0x2\n" in answer
    assert answer.endswith("\nNode count: 6\n")


async def test_stat_lists_the_connections_behind_the_version(port: Port) -> None:
    session = await port.session()
    await session.create("/a")

    answer = await port.ask(b"stat")

    client = r" /127\.0\.0\.1:\d+\[[015]\]\(queued=0,recved=\d+,sent=\d+\)\n"
    assert re.fullmatch(VERSION + "Clients:\n" + client * 2 + "\n" + FIGURES, answer)
    assert f" {session.address}[1](queued=0,recved=2,sent=2)\n" in answer


@pytest.mark.parametrize("word", ["stat", "cons"])
async def test_an_ipv6_address_is_written_in_full_and_in_brackets(serve: Serve, word: str) -> None:
    try:
        port = await serve("*", host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")

    assert re.search(r"^ /\[0:0:0:0:0:0:0:1\]:\d+\[", await port.ask(word.encode()), re.MULTILINE)


# --- mntr ---


async def test_mntr_starts_with_the_version_and_the_state(port: Port) -> None:
    first, second, *_ = (await port.ask(b"mntr")).splitlines()

    assert re.fullmatch(r"zk_version\t3\.9\.\d+\S*, built on .+", first)
    assert second == "zk_server_state\tstandalone"


async def test_every_figure_of_mntr_is_a_number(port: Port) -> None:
    await (await port.session()).create("/a")

    seen = figures(await port.ask(b"mntr"))

    del seen["zk_version"], seen["zk_server_state"]
    assert [key for key, value in seen.items() if not re.fullmatch(r"-?\d+(\.\d+(E-?\d+)?)?", value)] == []


@pytest.mark.parametrize(
    "figure",
    [
        "avg_latency",
        "max_latency",
        "min_latency",
        "packets_received",
        "packets_sent",
        "num_alive_connections",
        "outstanding_requests",
        "znode_count",
        "watch_count",
        "ephemerals_count",
        "approximate_data_size",
        "open_file_descriptor_count",
        "max_file_descriptor_count",
    ],
)
async def test_mntr_has_what_exporters_read(port: Port, figure: str) -> None:
    assert f"\nzk_{figure}\t" in await port.ask(b"mntr")


async def test_mntr_of_a_fresh_server(port: Port) -> None:
    seen = figures(await port.ask(b"mntr"))

    assert (seen["zk_znode_count"], seen["zk_approximate_data_size"]) == ("5", "44")
    assert (seen["zk_watch_count"], seen["zk_ephemerals_count"], seen["zk_global_sessions"]) == ("0", "0", "0")


async def test_mntr_counts_what_there_is(port: Port) -> None:
    session = await port.session()
    await session.create("/a")
    await session.create("/e", CreateMode.EPHEMERAL)
    await session.watch("/a")
    await session.call(OpCode.GET_CHILDREN, r.GetChildrenRequest("/", True).encode())

    seen = figures(await port.ask(b"mntr"))

    assert (seen["zk_znode_count"], seen["zk_approximate_data_size"]) == ("7", "48")
    assert (seen["zk_watch_count"], seen["zk_ephemerals_count"], seen["zk_global_sessions"]) == ("2", "1", "1")
    assert (seen["zk_packets_received"], seen["zk_num_alive_connections"]) == ("6", "2")


# --- cons, and the counters ---


async def test_cons_has_a_line_for_each_connection_and_an_empty_one(port: Port) -> None:
    session = await port.session()
    await session.call(OpCode.EXISTS, r.ExistsRequest("/", False).encode(), xid=7)

    one, two, empty = (await port.ask(b"cons")).removesuffix("\n").split("\n")

    assert re.fullmatch(
        rf" {re.escape(session.address)}\[1\]\(queued=0,recved=2,sent=2,sid=0x{session.id:x},lop=EXIS,est=\d{{13}},"
        r"to=30000,lcxid=0x7,lzxid=0x1,lresp=\d+,llat=\d+,minlat=\d+,avglat=\d+,maxlat=\d+\)",
        one,
    )
    assert re.fullmatch(r" /127\.0\.0\.1:\d+\[0\]\(queued=0,recved=1,sent=0\)", two)
    assert empty == ""


async def test_crst_resets_the_counters_of_connections(port: Port) -> None:
    session = await port.session()
    await session.create("/a")

    assert await port.ask(b"crst") == "Connection stats reset.\n"

    assert f"{session.address}[1](queued=0,recved=0,sent=0" in await port.ask(b"cons")


async def test_srst_resets_the_counters_of_the_server(port: Port) -> None:
    await (await port.session()).create("/a")

    assert await port.ask(b"srst") == "Server stats reset.\n"

    assert "\nReceived: 1\nSent: 0\n" in await port.ask(b"srvr")


async def test_srst_leaves_no_latency_of_requests_before_it(port: Port) -> None:
    session = await port.session()
    for _ in range(20):
        await session.create("/a")

    await port.ask(b"srst")
    await until(lambda: len(port.listener.open) == 1)

    metrics = port.listener.engine.metrics
    assert 0 <= metrics.latency_count <= 1
    assert metrics.latency_total >= 0


# --- dump ---


async def test_dump_of_a_fresh_server(port: Port) -> None:
    answer = await port.ask(b"dump")

    assert re.fullmatch(
        r"SessionTracker dump:\nSession Sets \(0\)/\(0\):\nephemeral nodes dump:\nSessions with Ephemerals \(0\):\n"
        r"Connections dump:\nConnections Sets \(1\)/\(1\):\n"
        r"(1 expire at .+:\n)?\tip: /127\.0\.0\.1:\d+ sessionId: 0x0\n",
        answer,
    )


async def test_dump_tells_sessions_by_deadline_and_their_ephemeral_nodes(port: Port) -> None:
    session = await port.session()
    await session.create("/e1", CreateMode.EPHEMERAL)
    await session.create("/e2", CreateMode.EPHEMERAL)

    answer = await port.ask(b"dump")

    day = r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d UTC \d{4}"
    assert re.search(
        rf"Session Sets \(1\)/\(1\):\n1 expire at {day}:\n\t0x{session.id:x}\nephemeral nodes dump:\n", answer
    )
    assert f"Sessions with Ephemerals (1):\n0x{session.id:x}:\n\t/e1\n\t/e2\nConnections dump:\n" in answer
    assert f"\tip: {session.address} sessionId: 0x{session.id:x}\n" in answer


async def test_dump_has_a_deadline_for_each_bucket_of_connections(port: Port) -> None:
    await port.session()

    answer = await port.ask(b"dump")

    assert re.search(r"Connections Sets \(\d+\)/\(2\):\n\d+ expire at .+:\n\tip: ", answer)


# --- envi ---


async def test_envi_has_the_keys_of_java_in_their_order(port: Port) -> None:
    first, *lines = (await port.ask(b"envi")).splitlines()

    assert first == "Environment:"
    assert [line.split("=")[0] for line in lines] == [
        "zookeeper.version",
        "host.name",
        "java.version",
        "java.vendor",
        "java.home",
        "java.class.path",
        "java.library.path",
        "java.io.tmpdir",
        "java.compiler",
        "os.name",
        "os.arch",
        "os.version",
        "user.name",
        "user.home",
        "user.dir",
        "os.memory.free",
        "os.memory.max",
        "os.memory.total",
    ]


async def test_envi_tells_the_version_as_srvr_does(port: Port) -> None:
    version = (await port.ask(b"envi")).splitlines()[1].removeprefix("zookeeper.version=")

    assert (await port.ask(b"srvr")).startswith(f"Zookeeper version: {version}\n")


# --- wchs, wchc, wchp ---


@pytest.mark.parametrize(
    ("word", "answer"),
    [("wchs", "0 connections watching 0 paths\nTotal watches:0\n"), ("wchc", "\n"), ("wchp", "\n")],
)
async def test_nobody_watches_a_fresh_server(port: Port, word: str, answer: str) -> None:
    assert await port.ask(word.encode()) == answer


async def test_the_watches_by_count_by_session_and_by_path(port: Port) -> None:
    first, second = await port.session(), await port.session()
    await first.watch("/a")
    await first.watch("/b")
    await second.watch("/a")

    assert await port.ask(b"wchs") == "2 connections watching 2 paths\nTotal watches:3\n"
    assert await port.ask(b"wchc") == f"0x{first.id:x}\n\t/a\n\t/b\n0x{second.id:x}\n\t/a\n\n"
    assert await port.ask(b"wchp") == f"/a\n\t0x{first.id:x}\n\t0x{second.id:x}\n/b\n\t0x{first.id:x}\n\n"


async def test_child_watches_are_not_listed_and_persistent_ones_are(port: Port) -> None:
    session = await port.session()
    await session.call(OpCode.GET_CHILDREN, r.GetChildrenRequest("/", True).encode())
    await session.call(OpCode.ADD_WATCH, r.AddWatchRequest("/p", 0).encode())

    assert await port.ask(b"wchs") == "1 connections watching 1 paths\nTotal watches:1\n"
    assert await port.ask(b"wchp") == f"/p\n\t0x{session.id:x}\n\n"
