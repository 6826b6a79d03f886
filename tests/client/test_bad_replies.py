"""Servers with wrong, truncated or missing replies: the client reports why the connection was lost and reconnects.

A relay between the client and an embedded server breaks frames of the first connection, see :mod:`support.relay`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.relay import FIRST, Answer, Relay, event, reply, text
from support.simulation import Connect
from support.waiting import DEADLINE_S

from zoolet.client import ConnectionLossError, State
from zoolet.protocol import records as r
from zoolet.protocol.codec import pack_int
from zoolet.protocol.framing import frame
from zoolet.testing import Server

BROKEN_REPLIES: dict[str, tuple[Answer, str, str]] = {
    "garbage": (lambda payload: b"\xff" * 40, "go on", "the server sent a malformed message: invalid frame length -1"),
    "a huge frame": (
        lambda payload: pack_int((64 << 20) + 1),
        "go on",
        "the server sent a malformed message: invalid frame length 67108865",
    ),
    "HTTP": (
        lambda payload: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "go on",
        "the server sent a malformed message: invalid frame length 1213486160",
    ),
    "an empty frame": (lambda payload: frame(b""), "go on", "expected a reply of at least 16 bytes, found 0"),
    "a short reply": (lambda payload: frame(payload[:15]), "go on", "expected a reply of at least 16 bytes, found 15"),
    "a wrong xid": (lambda payload: reply(77), "go on", "unexpected reply to request 77; expected the"),
    "the next xid": (lambda payload: reply(2), "go on", "unexpected reply to request 2; expected the"),
    "a ping nobody sent": (lambda payload: reply(-2), "go on", "unexpected reply to request -2; expected the"),
    "an auth nobody sent": (lambda payload: reply(-4), "go on", "unexpected reply to request -4; expected the"),
    "watches nobody set": (lambda payload: reply(-8), "go on", "unexpected reply to request -8; expected the"),
    "an unknown event": (lambda payload: event(99, text(b"/a")), "go on", "an event of unknown type 99"),
    "half an event": (lambda payload: event(1, pack_int(50) + b"/a"), "go on", "the server sent a malformed message"),
    "an event without a path": (lambda payload: event(1, pack_int(-1)), "go on", "the server sent a malformed message"),
    "half a body": (lambda payload: frame(payload[:-5]), "go on", "the server's reply is malformed"),
    "no body": (lambda payload: frame(payload[:16]), "go on", "the server's reply is malformed"),
    "no answer": (lambda payload: b"", "close", "the server closed the connection"),
    "a reset": (lambda payload: b"", "reset", "the connection was lost: "),
    "silence": (lambda payload: b"", "stall", "no complete message from the server for 0."),
    "half an answer": (lambda payload: frame(payload)[:30], "stall", "no complete message from the server for 0."),
}


def has_reconnected(relay: Relay) -> bool:
    """Return whether the client has reconnected once, or repeatedly if its short timeout expires on a busy machine."""
    return relay.connections == 2 or (relay.then == "stall" and relay.connections > 2)


@pytest.mark.parametrize("name", BROKEN_REPLIES)
async def test_broken_reply_to_write_is_explained_and_client_continues(
    relay: Relay, connect: Connect, name: str
) -> None:
    relay.breaks, relay.then, why = BROKEN_REPLIES[name]
    relay.number = FIRST
    zk = await connect(relay.hosts, timeout=0.45 if relay.then == "stall" else 10.0, operation_timeout=DEADLINE_S)

    with pytest.raises(ConnectionLossError) as caught:
        await zk.set("/", b"v")

    assert why in str(caught.value)
    assert caught.value.path == "/"
    assert caught.value.maybe_applied
    value, stat = await zk.get("/")
    assert (value, stat.version) == (b"v", 1)
    assert has_reconnected(relay)


@pytest.mark.parametrize("name", [name for name in BROKEN_REPLIES if "body" not in name])
async def test_read_with_broken_reply_is_repeated_on_next_connection(relay: Relay, connect: Connect, name: str) -> None:
    relay.breaks, relay.then, _ = BROKEN_REPLIES[name]
    relay.number = FIRST
    zk = await connect(relay.hosts, timeout=0.45 if relay.then == "stall" else 10.0, operation_timeout=DEADLINE_S)

    assert await zk.children("/") == ["zookeeper"]
    assert has_reconnected(relay)


async def test_read_with_malformed_reply_is_not_repeated(relay: Relay, connect: Connect) -> None:
    relay.breaks, relay.number = (lambda payload: frame(payload[:-5])), FIRST
    zk = await connect(relay.hosts)

    with pytest.raises(ConnectionLossError, match="/: the connection was lost: the server's reply is malformed"):
        await zk.get("/")
    assert await zk.exists("/") is not None


async def test_connection_loss_reason_names_server(relay: Relay, connect: Connect) -> None:
    relay.number, relay.then, relay.breaks = FIRST, "close", lambda payload: b""
    zk = await connect(relay.hosts)

    with pytest.raises(ConnectionLossError, match=f"^/: the connection was lost: {relay.hosts}: the server closed"):
        await zk.set("/", b"")


async def test_write_is_lost_if_connection_closes_within_its_reply(server: Server, connect: Connect) -> None:
    for length in range(4 + 16 + 68):
        async with Relay(server.hosts) as relay:
            relay.number, relay.then, relay.breaks = FIRST, "close", lambda payload, n=length: frame(payload)[:n]
            zk = await connect(relay.hosts)

            with pytest.raises(ConnectionLossError, match="the server closed the connection"):
                await zk.set("/", b"")
            assert await zk.exists("/") is not None
            await zk.aclose()


async def test_replies_split_into_bytes_are_read(relay: Relay, connect: Connect) -> None:
    relay.chop = True
    zk = await connect(relay.hosts)

    async with zk.watch("/a") as events:
        await zk.create("/a", b"v")
        assert (await events.next()).path == "/a"
    assert (await zk.get("/a"))[0] == b"v"
    assert relay.connections == 1


async def test_all_pending_writes_are_lost_together(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST + 1, lambda payload: reply(77)
    zk = await connect(relay.hosts)

    answered, *lost = await asyncio.gather(*[zk.set("/", b"") for _ in range(10)], return_exceptions=True)

    assert isinstance(answered, r.Stat)
    assert [type(one) for one in lost] == [ConnectionLossError] * 9


async def test_duplicate_reply_breaks_connection_but_not_its_call(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST, lambda payload: frame(payload) * 2
    zk = await connect(relay.hosts)
    states = zk.states()

    assert (await zk.set("/", b"v")).version == 1
    assert (await zk.get("/"))[0] == b"v"
    await zk.wait_for(State.CONNECTED)
    await zk.aclose()
    assert [state async for state in states][1:3] == [State.SUSPENDED, State.CONNECTED]


async def test_request_without_reply_is_lost_despite_answered_pings(relay: Relay, connect: Connect) -> None:
    # Only this reply is dropped; later frames, such as pings, are forwarded.
    relay.number, relay.breaks = FIRST, lambda payload: b""
    zk = await connect(relay.hosts, timeout=0.45)

    with pytest.raises(ConnectionLossError):
        async with asyncio.timeout(DEADLINE_S):
            await zk.set("/", b"v")


async def test_extra_bytes_after_reply_body_are_ignored(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST, lambda payload: frame(payload + b"something new")
    zk = await connect(relay.hosts)

    assert (await zk.set("/", b"v")).version == 1
    assert relay.connections == 1


async def test_unknown_error_code_is_raised(relay: Relay, connect: Connect) -> None:
    from zoolet.client import ZooKeeperError

    relay.number, relay.breaks = FIRST, lambda payload: reply(1, err=-9999)
    zk = await connect(relay.hosts)

    with pytest.raises(ZooKeeperError, match="/: the server answered with unknown error code -9999"):
        await zk.set("/", b"v")
    assert relay.connections == 1


@pytest.mark.parametrize("path", [b"", b"a", b"no/slash"])
async def test_event_with_invalid_path_closes_connection(relay: Relay, connect: Connect, path: bytes) -> None:
    relay.number, relay.breaks = FIRST + 2, lambda payload: event(1, text(path))
    zk = await connect(relay.hosts)
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))

    async with zk.watch("/zookeeper/quota", recursive=True):  # the replies to its addWatch and getChildren come first
        with pytest.raises(ConnectionLossError, match="an event for an invalid path"):
            await zk.set("/", b"v")

    assert not complaints


async def test_multi_read_with_too_few_results_is_lost(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST, lambda payload: reply(1, body=r.MultiHeader(-1, True, -1).encode())
    zk = await connect(relay.hosts)

    with pytest.raises(ConnectionLossError, match="the server's reply is malformed"):
        await zk.multi_read(("get", "/"), ("get", "/"))


async def test_transaction_with_too_few_results_is_lost(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST, lambda payload: reply(1, body=r.MultiHeader(-1, True, -1).encode())
    zk = await connect(relay.hosts)
    t = zk.transaction()
    t.create("/a")

    with pytest.raises(ConnectionLossError, match="the server's reply is malformed"):
        await t.commit()
