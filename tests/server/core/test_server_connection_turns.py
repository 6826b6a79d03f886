"""The turns of one connection: how much of what has arrived it answers before others get their turn.

There are no sockets, and time is a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine import make_engine
from support.frames import HELLO, create, exists, get, request, set_data

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import int_at, pack_int
from zoolet.protocol.framing import Frames
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import CHECK_AFTER, ServerConnection

STAT_SIZE: Final = 68
"""Bytes of a reply to exists."""


class Time:
    """A clock that returns the given times; after those, one that is late.

    Args:
        moments: What it says first.
    """

    def __init__(self, *moments: float) -> None:
        self._moments = chain(moments, repeat(2.0))
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return next(self._moments)


UNTIL: Final = 1.0
"""The end of a turn, on a clock that says 2 when it is late."""


@pytest.fixture
def connection() -> ServerConnection:
    return opened(make_engine())


def opened(engine: Engine) -> ServerConnection:
    connection = ServerConnection(engine, ClientConnection())
    connection.receive_data(HELLO)
    connection.client.outbox.clear()
    return connection


def xids(connection: ServerConnection) -> list[int]:
    """The xids of the replies that are in the outbox, which is empty then."""
    payloads = Frames(limit=None).feed(b"".join(connection.client.outbox))
    connection.client.outbox.clear()
    return [int_at(payload)[0] for payload in payloads]


COSTLY: Final = {
    "create": (OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode()),
    "create2": (OpCode.CREATE2, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode()),
    "delete": (OpCode.DELETE, r.DeleteRequest("/a", -1).encode()),
    "setData": (OpCode.SET_DATA, r.SetDataRequest("/", b"", -1).encode()),
    "setACL": (OpCode.SET_ACL, r.SetACLRequest("/", OPEN_ACL_UNSAFE, -1).encode()),
    "multi": (OpCode.MULTI, wire.encode_operations([(OpCode.CHECK, r.CheckVersionRequest("/", -1))])),
    "multiRead": (OpCode.MULTI_READ, wire.encode_operations([(OpCode.GET_DATA, r.GetDataRequest("/", False))])),
    "getACL": (OpCode.GET_ACL, r.GetACLRequest("/").encode()),
    "getEphemerals": (OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest("/").encode()),
    "getAllChildrenNumber": (OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest("/").encode()),
    "setWatches": (OpCode.SET_WATCHES, r.SetWatches(0, [], [], []).encode()),
    "setWatches2": (OpCode.SET_WATCHES2, r.SetWatches2(0, [], [], [], [], []).encode()),
    "whoAmI": (OpCode.WHO_AM_I, b""),
    "auth": (OpCode.AUTH, r.AuthPacket(0, "digest", b"u:p").encode()),
    "sasl": (OpCode.SASL, r.GetSASLRequest(b"").encode()),
}
CHEAP: Final = {
    "exists": (OpCode.EXISTS, r.ExistsRequest("/", False).encode()),
    "getData": (OpCode.GET_DATA, r.GetDataRequest("/", False).encode()),
    "getChildren": (OpCode.GET_CHILDREN, r.GetChildrenRequest("/", False).encode()),
    "sync": (OpCode.SYNC, r.SyncRequest("/").encode()),
    "ping": (OpCode.PING, b""),
}


@pytest.mark.parametrize("name", COSTLY)
def test_after_a_costly_request_the_clock_is_read(connection: ServerConnection, name: str) -> None:
    op, body = COSTLY[name]

    left = connection.receive_data(b"".join(request(xid, op, body) for xid in range(1, 4)), UNTIL, Time())

    assert left
    assert xids(connection) == [1]


@pytest.mark.parametrize("name", COSTLY)
def test_what_is_left_of_costly_requests_is_answered_in_later_turns_one_each(
    connection: ServerConnection, name: str
) -> None:
    op, body = COSTLY[name]
    connection.receive_data(b"".join(request(xid, op, body) for xid in range(1, 4)), UNTIL, Time())
    xids(connection)

    turns = [(connection.receive_data(b"", UNTIL, Time()), xids(connection)) for _ in range(3)]

    assert turns == [(True, [2]), (False, [3]), (False, [])]


def test_eight_kilobytes_of_replies_are_given_between_looks_at_the_clock(connection: ServerConnection) -> None:
    clock = Time()

    left = connection.receive_data(exists(1) * 1_000, UNTIL, clock)

    assert left
    assert clock.reads == 1
    assert len(xids(connection)) == CHECK_AFTER // STAT_SIZE + 1


def test_requests_that_fail_use_up_a_turn_as_well(connection: ServerConnection) -> None:
    missing = request(1, OpCode.EXISTS, r.ExistsRequest("/none", False).encode())

    left = connection.receive_data(missing * 1_000, UNTIL, Time())

    assert left
    assert len(xids(connection)) < 100


@pytest.mark.parametrize("name", CHEAP)
def test_cheap_requests_are_answered_without_a_look_at_the_clock_each(connection: ServerConnection, name: str) -> None:
    op, body = CHEAP[name]
    clock = Time(*[0.0] * 1_000)

    connection.receive_data(request(-2, op, body) * 1_000, UNTIL, clock)

    assert clock.reads <= 50
    assert len(xids(connection)) == 1_000


def test_cheap_requests_go_on_for_as_long_as_it_is_not_late(connection: ServerConnection) -> None:
    one = exists(1)
    clock = Time(0.1, 0.5, 1.0)

    connection.receive_data(one * 1_000, UNTIL, clock)

    assert clock.reads == 4
    assert len(xids(connection)) == 4 * (CHECK_AFTER // STAT_SIZE + 1)


def test_a_turn_that_ends_at_this_very_moment_has_not_ended(connection: ServerConnection) -> None:
    left = connection.receive_data(set_data(1, "/") + set_data(2, "/"), UNTIL, Time(UNTIL))

    assert not left
    assert xids(connection) == [1, 2]


def test_without_an_end_everything_is_answered(connection: ServerConnection) -> None:
    left = connection.receive_data(b"".join(set_data(xid, "/") for xid in range(500)))

    assert not left
    assert xids(connection) == list(range(500))


def test_a_turn_that_ends_with_the_last_request_leaves_none(connection: ServerConnection) -> None:
    assert not connection.receive_data(set_data(1, "/"), UNTIL, Time())


def test_a_part_of_a_request_is_no_whole_request_that_is_left(connection: ServerConnection) -> None:
    left = connection.receive_data(set_data(1, "/") + set_data(2, "/")[:-1], UNTIL, Time())

    assert not left
    assert xids(connection) == [1]


def test_the_rest_of_a_request_that_comes_behind_a_turn_makes_it_whole(connection: ServerConnection) -> None:
    connection.receive_data(set_data(1, "/") + set_data(2, "/") + set_data(3, "/")[:-5], UNTIL, Time())

    connection.receive_data(set_data(3, "/")[-5:], UNTIL, Time())
    connection.receive_data(b"", UNTIL, Time())

    assert xids(connection) == [1, 2, 3]


def test_what_is_behind_the_end_of_a_session_is_not_answered_in_a_later_turn(connection: ServerConnection) -> None:
    connection.receive_data(set_data(1, "/") + request(2, OpCode.CLOSE_SESSION) + set_data(3, "/"), UNTIL, Time())

    turns = [connection.receive_data(b"", UNTIL, Time()) for _ in range(2)]

    assert turns == [False, False]
    assert xids(connection) == [1, 2]


def test_a_frame_that_can_be_none_behind_the_end_of_a_turn_closes(connection: ServerConnection) -> None:
    left = connection.receive_data(set_data(1, "/") + pack_int(-1), UNTIL, Time())

    assert (left, connection.client.closing) == (False, True)


def test_what_is_left_for_later_turns_is_counted_until_it_is_answered(connection: ServerConnection) -> None:
    one = set_data(1, "/")

    connection.receive_data(one * 3, UNTIL, Time())
    left = connection.engine.partial_requests
    connection.receive_data(b"")

    assert (left, connection.engine.partial_requests) == (2 * len(one), 0)


steps = st.sampled_from(
    [
        lambda xid: exists(xid),
        lambda xid: get(xid, "/a"),
        lambda xid: set_data(xid, "/a", b"x" * (xid % 50)),
        lambda xid: create(xid, f"/n{xid % 7}"),
        lambda xid: request(xid, OpCode.DELETE, r.DeleteRequest(f"/n{xid % 7}", -1).encode()),
        lambda xid: request(xid, OpCode.GET_ACL, r.GetACLRequest("/").encode()),
        lambda xid: request(-2, OpCode.PING),
        lambda xid: request(xid, OpCode.GET_CHILDREN, b"\xff"),
        lambda xid: request(xid, OpCode.EXISTS, r.ExistsRequest("/n1", True).encode()),
    ]
)


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


def receive_in_turns(connection: ServerConnection, data: bytes, clock: Time) -> None:
    """Return a connection bytes and then turns, until nothing is left."""
    while connection.receive_data(data, UNTIL, clock):
        data = b""


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=40), st.lists(st.integers(1, 300), max_size=20), st.lists(st.booleans(), max_size=200))
def test_however_a_pipeline_is_cut_and_interrupted_its_bytes_are_the_same(
    pipeline: list[Callable[[int], bytes]], sizes: list[int], late: list[bool]
) -> None:
    data = b"".join(step(xid) for xid, step in enumerate(pipeline, 1))
    whole, cut = opened(make_engine()), opened(make_engine())
    clock = Time(*(2.0 * flag for flag in late))

    whole.receive_data(data)
    for piece in pieces(data, sizes):
        receive_in_turns(cut, piece, clock)

    assert b"".join(cut.client.outbox) == b"".join(whole.client.outbox)
    assert cut.engine.zxid == whole.engine.zxid


def test_a_handshake_that_uses_up_the_turn_is_answered_before_its_requests() -> None:
    connection = ServerConnection(make_engine(), ClientConnection())

    more = connection.receive_data(HELLO + exists(1, "/") + exists(2, "/"), UNTIL, Time())

    assert more
    assert len(connection.client.outbox) == 1
    connection.client.outbox.clear()
    assert not connection.receive_data(b"")
    assert xids(connection) == [1, 2]
