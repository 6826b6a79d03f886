"""cons, dump, wchs, wchc and wchp: connections, sessions and watches."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.calls import connect_peer, engine_with_settings
from support.frames import exists
from support.live_server import LiveServer

from zoolet.protocol import records as r
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.operations import OpCode
from zoolet.server.admin.four_letter import dump, wchc, wchp
from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.core.client_connection import ClientConnection

Answer = Callable[[MonitoredServer, ClientConnection], str]

pytestmark = pytest.mark.usefixtures("no_error_is_logged")


# --- cons ---


async def test_cons_has_line_per_connection_and_ends_with_empty_line(server: LiveServer) -> None:
    session = await server.session()
    await session.call(exists(7))

    one, two, empty = (await server.ask(b"cons")).removesuffix("\n").split("\n")

    assert re.fullmatch(
        rf" {re.escape(session.address)}\[1\]\(queued=0,recved=2,sent=2,sid=0x{session.id:x},"
        r"lop=EXIS,est=\d{13},to=30000,lcxid=0x7,lzxid=0x1,lresp=\d+,llat=\d+,minlat=\d+,avglat=\d+,maxlat=\d+\)",
        one,
    )
    assert re.fullmatch(r" /127\.0\.0\.1:\d+\[0\]\(queued=0,recved=1,sent=0\)", two)
    assert empty == ""


# --- session ids ---


@pytest.mark.parametrize("answer", [dump, wchp, wchc])
def test_session_id_with_high_server_number_is_shown_unsigned(answer: Answer) -> None:
    engine = engine_with_settings()
    engine.sessions.continue_after(-(2 << 56))  # like an ensemble with a server number of 254
    peer = connect_peer(engine)
    peer.create("/e", b"", CreateMode.EPHEMERAL)
    peer.exists("/e", watch=True)

    assert "0xfe00000000000001" in answer(MonitoredServer(engine), peer.client)


# --- dump ---


async def test_dump_of_fresh_server_has_one_connection(server: LiveServer) -> None:
    answer = await server.ask(b"dump")

    assert re.fullmatch(
        r"SessionTracker dump:\nSession Sets \(0\)/\(0\):\nephemeral nodes dump:\nSessions with Ephemerals \(0\):\n"
        r"Connections dump:\nConnections Sets \(1\)/\(1\):\n"
        r"(1 expire at .+:\n)?\tip: /127\.0\.0\.1:\d+ sessionId: 0x0\n",
        answer,
    )


async def test_dump_lists_deadlines_and_ephemeral_nodes(server: LiveServer) -> None:
    session = await server.session()
    await session.create("/e1", CreateMode.EPHEMERAL)
    await session.create("/e2", CreateMode.EPHEMERAL)

    answer = await server.ask(b"dump")

    day = r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d UTC \d{4}"
    assert re.search(
        rf"Session Sets \(1\)/\(1\):\n1 expire at {day}:\n\t0x{session.id:x}\nephemeral nodes dump:\n", answer
    )
    assert f"Sessions with Ephemerals (1):\n0x{session.id:x}:\n\t/e1\n\t/e2\nConnections dump:\n" in answer
    assert f"\tip: {session.address} sessionId: 0x{session.id:x}\n" in answer


async def test_dump_has_deadline_for_each_connection_bucket(server: LiveServer) -> None:
    await server.session()

    answer = await server.ask(b"dump")

    assert re.search(r"Connections Sets \(\d+\)/\(2\):\n\d+ expire at .+:\n\tip: ", answer)


# --- wchs, wchc, wchp ---


@pytest.mark.parametrize(
    ("word", "answer"),
    [("wchs", "0 connections watching 0 paths\nTotal watches:0\n"), ("wchc", "\n"), ("wchp", "\n")],
)
async def test_watch_words_report_no_watches_on_fresh_server(server: LiveServer, word: str, answer: str) -> None:
    assert await server.ask(word.encode()) == answer


async def test_wchs_wchc_and_wchp_report_watches(server: LiveServer) -> None:
    first, second = await server.session(), await server.session()
    await first.watch("/a")
    await first.watch("/b")
    await second.watch("/a")
    one, two = first.id, second.id

    assert await server.ask(b"wchs") == "2 connections watching 2 paths\nTotal watches:3\n"
    assert await server.ask(b"wchc") == f"0x{one:x}\n\t/a\n\t/b\n0x{two:x}\n\t/a\n\n"
    assert await server.ask(b"wchp") == f"/a\n\t0x{one:x}\n\t0x{two:x}\n/b\n\t0x{one:x}\n\n"


async def test_wchs_and_wchp_omit_only_child_watches(server: LiveServer) -> None:
    session = await server.session()
    await session.ask(OpCode.GET_CHILDREN, r.GetChildrenRequest("/", True))
    await session.ask(OpCode.ADD_WATCH, r.AddWatchRequest("/p", 0))

    assert await server.ask(b"wchs") == "1 connections watching 1 paths\nTotal watches:1\n"
    assert await server.ask(b"wchp") == f"/p\n\t0x{session.id:x}\n\n"


async def test_dump_lists_session_after_its_last_ephemeral_is_deleted(server: LiveServer) -> None:
    session = await server.session()
    await session.create("/e1", CreateMode.EPHEMERAL)
    await session.ask(OpCode.DELETE, r.DeleteRequest("/e1", -1))

    answer = await server.ask(b"dump")

    assert f"Sessions with Ephemerals (1):\n0x{session.id:x}:\nConnections dump:\n" in answer
