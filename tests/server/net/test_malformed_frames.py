"""Invalid frames on a live port: lengths, handshakes, truncated requests, and silence.

Source: the framing and handshake tables of the wire specification (NIOServerCnxn.readLength, readPayload;
ZooKeeperServer.processConnectRequest).
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from support.frames import HELLO, NULL_VALUE, create, exists, ping, request, set_data
from support.live_server import Dial, LiveServer
from support.numbers import UNIMPLEMENTED
from support.peer import Reply
from support.waiting import until

from zoolet.protocol import records as r
from zoolet.protocol.codec import pack_int
from zoolet.protocol.enums import MAX_FRAME
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.operations import OpCode

pytestmark = pytest.mark.usefixtures("no_error_is_logged")

BAD_LENGTHS: Final = {f"length {length}": pack_int(length) for length in (MAX_FRAME + 1, 2**31 - 1, -1, -(2**31))}
TOO_SHORT: Final = {f"{length} bytes": frame(bytes(length)) for length in range(8)}
"""Requests that are shorter than their header."""
NO_HANDSHAKE: Final = {
    "empty": frame(b""),
    "version only": frame(bytes(4)),
    "no password": frame(bytes(27)),
    "password cut short": frame(bytes(24) + pack_int(16) + bytes(15)),
    "password of -2": frame(bytes(24) + pack_int(-2)),
    "password of 2 GiB": frame(bytes(24) + pack_int(2**31 - 1)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "all ones": b"\xff" * 64,
    "a read": exists(1),
    "a write": create(1, "/a", b"x" * 100),
    "a ping": ping(),
}


def rows(*tables: dict[str, bytes]) -> list[Any]:
    """Return the parameters of a test for each row of the tables."""
    return [pytest.param(data, id=name) for table in tables for name, data in table.items()]


# --- lengths ---


@pytest.mark.parametrize("broken", rows(BAD_LENGTHS, TOO_SHORT))
async def test_requests_before_broken_frame_are_answered(dial: Dial, broken: bytes) -> None:
    client = await dial()

    client.send(exists(1) + exists(2) + broken + exists(3))

    assert await client.xids(2) == [1, 2]
    assert await client.closed() == b""


@pytest.mark.parametrize("broken", rows(BAD_LENGTHS, NO_HANDSHAKE))
async def test_invalid_handshake_closes_connection(dial: Dial, broken: bytes) -> None:
    client = await dial(shake=False)

    client.send(broken)

    assert await client.rest() == b""


async def test_frame_at_limit_is_answered(dial: Dial) -> None:
    client = await dial()
    client.send(create(1, "/big"))
    await client.answer()
    data = b"x" * (MAX_FRAME - len(set_data(2, "/big", b"")) + 4)
    longest = set_data(2, "/big", data)
    assert len(longest) == 4 + MAX_FRAME

    client.send(longest + request(3, OpCode.GET_DATA, r.GetDataRequest("/big", False).encode()))

    assert (await client.answer()).err == 0
    assert r.GetDataResponse.decode((await client.answer()).body).data == data


@pytest.mark.parametrize("live", [{"max_frame": 100}], indirect=True)
@pytest.mark.parametrize(("size", "answered"), [(100, True), (101, False)])
async def test_configured_frame_limit_applies(dial: Dial, size: int, answered: bool) -> None:
    client = await dial()
    body = b"".join([pack_int(1), b"/", b"\0", bytes(size - 8 - 6)])

    client.send(request(7, OpCode.EXISTS, body))
    client.end()

    assert (pack_int(7) in await client.rest()) is answered


# --- the first frame ---


async def test_connect_request_without_password_is_accepted(dial: Dial) -> None:
    client = await dial(shake=False)

    client.send(frame(bytes(24) + NULL_VALUE))

    assert ConnectResponse.decode(await client.payload()).session_id != 0


async def test_second_handshake_is_unknown_operation(dial: Dial) -> None:
    client = await dial()

    client.send(HELLO)

    assert await client.answer() == Reply(0, -1, UNIMPLEMENTED, b"")
    assert await client.rest() == b""


async def test_handshake_and_requests_may_share_segment(dial: Dial) -> None:
    client = await dial(shake=False)

    client.send(HELLO + exists(1) + exists(2))
    await client.payload()

    assert await client.xids(2) == [1, 2]


# --- truncated input and half-closed clients ---


async def test_truncated_request_is_not_executed(live: LiveServer, dial: Dial) -> None:
    client = await dial()

    client.send(create(1, "/whole") + create(2, "/truncated")[:-1])
    client.end()

    assert (await client.answer()).xid == 1
    assert await client.rest() == b""
    assert list(live.engine.tree.find("/").children or ()) == ["zookeeper", "whole"]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 20, len(HELLO) - 1])
async def test_truncated_handshake_is_not_answered(live: LiveServer, dial: Dial, count: int) -> None:
    client = await dial(shake=False)

    client.send(HELLO[:count])
    client.end()

    assert await client.rest() == b""
    assert live.engine.sessions.alive == {}


async def test_half_closed_client_gets_all_replies(dial: Dial) -> None:
    client = await dial()

    client.send(b"".join(exists(xid) for xid in range(500)))
    client.end()

    assert await client.xids(500) == list(range(500))
    assert await client.rest() == b""


async def test_session_of_half_closed_client_continues(live: LiveServer, dial: Dial) -> None:
    client = await dial()

    client.end()
    await client.rest()
    await until(lambda: not live.daemon.connections.open)

    assert client.welcome is not None
    assert list(live.engine.sessions.alive) == [client.welcome.session_id]


# --- silent clients ---


@pytest.mark.parametrize("part", [b"", b"ruo", HELLO[:4], HELLO[:-1]], ids=["nothing", "3 bytes", "a length", "most"])
@pytest.mark.parametrize("live", [{"sessionless_timeout": 200}], indirect=True)
async def test_unfinished_handshake_is_closed_in_time(live: LiveServer, dial: Dial, part: bytes) -> None:
    client, other = await dial(shake=False), await dial()
    client.send(part)
    await until(lambda: len(live.daemon.connections.open) == 2)

    live.advance(401)

    assert await client.rest() == b""
    other.send(exists(1))
    assert (await other.answer()).xid == 1


@pytest.mark.parametrize("live", [{"sessionless_timeout": 200}], indirect=True)
async def test_handshake_just_before_time_limit_is_accepted(live: LiveServer, dial: Dial) -> None:
    client = await dial(shake=False)
    await until(lambda: live.daemon.connections.open)

    live.advance(199)
    await client.shake_hands()

    assert client.welcome is not None
    assert client.welcome.session_id != 0


async def test_client_in_mid_frame_is_closed_on_expiry(live: LiveServer, dial: Dial) -> None:
    client = await dial()
    client.send(pack_int(1000) + bytes(10))

    live.advance(33_000)

    assert await client.rest() == b""
    assert live.engine.sessions.alive == {}
