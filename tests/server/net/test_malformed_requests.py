"""Invalid requests on a live port: each gets ZooKeeper's answer, and other clients are not affected.

Source: the error tables of the wire specification (ZooKeeperServer.processPacket).
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

import pytest
from support.frames import HELLO, NULL_VALUE, exists, ping, request
from support.live_server import Dial
from support.numbers import MARSHALLING_ERROR, UNIMPLEMENTED
from support.peer import Reply

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import pack_int
from zoolet.protocol.enums import MAX_FRAME
from zoolet.protocol.framing import frame
from zoolet.protocol.operations import OpCode

pytestmark = pytest.mark.usefixtures("no_error_is_logged")


# --- bodies and op codes ---


BAD_BODIES: Final = {
    "nothing": b"",
    "a path of -2 bytes": pack_int(-2),
    "a path beyond the frame": pack_int(100) + b"/",
    "a path of 2 GiB": pack_int(2**31 - 1),
    "a path and no more": pack_int(1) + b"/",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.SET_DATA, OpCode.CREATE, OpCode.DELETE, OpCode.ADD_WATCH])
async def test_undecodable_body_keeps_connection(dial: Dial, op: OpCode, body: bytes) -> None:
    client = await dial()

    client.send(request(5, op, body) + ping())

    refusal, pong = await client.answers(2)
    assert refusal == Reply(5, 1, MARSHALLING_ERROR, b"")  # zxid 1 belongs to the session: the request used none
    assert (pong.xid, pong.err) == (-2, 0)


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (OpCode.AUTH, b""),
        (OpCode.AUTH, pack_int(0) + pack_int(9) + b"dig"),
        (OpCode.SASL, b"\0"),
        (OpCode.SASL, NULL_VALUE),
    ],
    ids=["auth, nothing", "auth, cut short", "sasl, cut short", "sasl, null"],
)
async def test_undecodable_login_closes_connection(dial: Dial, op: OpCode, body: bytes) -> None:
    client = await dial()

    client.send(request(-4, op, body) + ping())

    assert await client.rest() == b""


@pytest.mark.parametrize("op", [0, 10, 13, 23, 99, 108, 2**31 - 1, -1, -10, -12, -(2**31)])
async def test_unknown_op_code_closes_connection(dial: Dial, op: int) -> None:
    client = await dial()

    client.send(exists(1) + request(2, op, b"whatever") + exists(3))

    assert (await client.answer()).xid == 1
    assert await client.answer() == Reply(2, -1, UNIMPLEMENTED, b"")
    assert await client.rest() == b""


async def test_bytes_after_body_are_ignored(dial: Dial) -> None:
    client = await dial()

    client.send(request(1, OpCode.EXISTS, r.ExistsRequest("/", False).encode() + b"more") + exists(2))

    assert [(answer.xid, answer.err) for answer in await client.answers(2)] == [(1, 0), (2, 0)]


# --- other clients ---


MALFORMED_INPUTS: Final = {
    "a long length": pack_int(MAX_FRAME + 1),
    "a negative length": pack_int(-5),
    "an empty frame": frame(b""),
    "a short frame": frame(bytes(7)),
    "half a frame": pack_int(1000) + bytes(10),
    "an undecodable read": request(1, OpCode.GET_DATA, pack_int(-2)),
    "an undecodable write": request(1, OpCode.SET_DATA, pack_int(-2)),
    "an undecodable login": request(1, OpCode.AUTH, b""),
    "an undecodable multi": request(1, OpCode.MULTI, b"\xff" * 5),
    "an unknown operation": request(1, 99),
    "a second handshake": HELLO,
    "a four-letter word": b"ruok",
}


@pytest.mark.parametrize("nonsense", MALFORMED_INPUTS.values(), ids=MALFORMED_INPUTS.keys())
async def test_malformed_input_does_not_affect_other_clients(dial: Dial, nonsense: bytes) -> None:
    offender, other = await dial(), await dial()

    other.send(b"".join(exists(xid) for xid in range(100)))
    offender.send(nonsense)
    offender.end()
    other.send(b"".join(exists(xid) for xid in range(100, 200)))
    await offender.rest()

    assert await other.xids(200) == list(range(200))


def scrambled(rng: Random) -> bytes:
    """Write a frame with a likely op code and a body that is mostly wrong."""
    op = rng.choice([*(op for op in OpCode if op != OpCode.CLOSE_SESSION)])
    good = r.CreateRequest("/a", b"data", OPEN_ACL_UNSAFE, 0).encode()
    body = bytearray(good[: rng.randrange(len(good) + 1)])
    body[rng.randrange(len(body) + 1) :] = rng.randbytes(rng.randrange(8))
    return request(rng.randrange(100), op, bytes(body))


@pytest.mark.parametrize("seed", range(20))
async def test_random_bytes_do_not_affect_other_clients(dial: Dial, seed: int) -> None:
    rng = Random(seed)
    first, behind, other = await dial(shake=False), await dial(), await dial()

    first.send(rng.randbytes(200))
    behind.send(b"".join(scrambled(rng) for _ in range(50)))
    first.end()
    behind.end()
    await asyncio.gather(first.rest(), behind.rest())

    other.send(exists(1))
    assert (await other.answer()).err == 0
