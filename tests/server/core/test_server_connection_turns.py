"""The turns of one connection: how much of its input it answers before other connections get their turn.

The tests use no sockets, and a function in place of a clock.
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

REPLY_SIZE: Final = 20 + 68
"""Bytes of a reply to exists: its header and the Stat."""


class Time:
    """A clock that returns the given times, and after them a time when the turn is over.

    Args:
        moments: The first times.
    """

    def __init__(self, *moments: float) -> None:
        self._moments = chain(moments, repeat(2.0))
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return next(self._moments)


END_OF_TURN: Final = 1.0
"""The end of a turn, on a clock that returns 2 when the turn is over."""


@pytest.fixture
def connection() -> ServerConnection:
    return open_connection(make_engine())


def open_connection(engine: Engine) -> ServerConnection:
    connection = ServerConnection(engine, ClientConnection())
    connection.receive_data(HELLO)
    connection.client.outbox.clear()
    return connection


def xids(connection: ServerConnection) -> list[int]:
    """Return the xids of the replies in the outbox, and empty it."""
    payloads = Frames(limit=None).feed(b"".join(connection.client.outbox))
    connection.client.outbox.clear()
    return [int_at(payload)[0] for payload in payloads]


COSTLY_REQUESTS: Final = {
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
CHEAP_REQUESTS: Final = {
    "exists": (OpCode.EXISTS, r.ExistsRequest("/", False).encode()),
    "getData": (OpCode.GET_DATA, r.GetDataRequest("/", False).encode()),
    "getChildren": (OpCode.GET_CHILDREN, r.GetChildrenRequest("/", False).encode()),
    "sync": (OpCode.SYNC, r.SyncRequest("/").encode()),
    "ping": (OpCode.PING, b""),
}


@pytest.mark.parametrize("name", COSTLY_REQUESTS)
def test_clock_is_read_after_costly_request(connection: ServerConnection, name: str) -> None:
    op, body = COSTLY_REQUESTS[name]

    left = connection.receive_data(b"".join(request(xid, op, body) for xid in range(1, 4)), END_OF_TURN, Time())

    assert left
    assert xids(connection) == [1]


@pytest.mark.parametrize("name", COSTLY_REQUESTS)
def test_each_remaining_costly_request_takes_its_own_turn(connection: ServerConnection, name: str) -> None:
    op, body = COSTLY_REQUESTS[name]
    connection.receive_data(b"".join(request(xid, op, body) for xid in range(1, 4)), END_OF_TURN, Time())
    xids(connection)

    turns = [(connection.receive_data(b"", END_OF_TURN, Time()), xids(connection)) for _ in range(3)]

    assert turns == [(True, [2]), (False, [3]), (False, [])]


def test_clock_is_read_after_eight_kb_of_replies(connection: ServerConnection) -> None:
    clock = Time()

    left = connection.receive_data(exists(1) * 1_000, END_OF_TURN, clock)

    assert left
    assert clock.reads == 1
    assert len(xids(connection)) == CHECK_AFTER // REPLY_SIZE + 1


def test_failing_requests_count_toward_turn(connection: ServerConnection) -> None:
    missing = request(1, OpCode.EXISTS, r.ExistsRequest("/none", False).encode())

    left = connection.receive_data(missing * 1_000, END_OF_TURN, Time())

    assert left
    assert len(xids(connection)) < 100


@pytest.mark.parametrize("name", CHEAP_REQUESTS)
def test_clock_is_not_read_after_each_cheap_request(connection: ServerConnection, name: str) -> None:
    op, body = CHEAP_REQUESTS[name]
    clock = Time(*[0.0] * 1_000)

    connection.receive_data(request(-2, op, body) * 1_000, END_OF_TURN, clock)

    assert clock.reads <= 50
    assert len(xids(connection)) == 1_000


def test_cheap_requests_are_answered_until_turn_is_over(connection: ServerConnection) -> None:
    one = exists(1)
    clock = Time(0.1, 0.5, 1.0)

    connection.receive_data(one * 1_000, END_OF_TURN, clock)

    assert clock.reads == 4
    assert len(xids(connection)) == 4 * (CHECK_AFTER // REPLY_SIZE + 1)


def test_request_at_end_time_of_turn_is_still_answered(connection: ServerConnection) -> None:
    left = connection.receive_data(set_data(1, "/") + set_data(2, "/"), END_OF_TURN, Time(END_OF_TURN))

    assert not left
    assert xids(connection) == [1, 2]


def test_all_requests_are_answered_in_turn_without_time_limit(connection: ServerConnection) -> None:
    left = connection.receive_data(b"".join(set_data(xid, "/") for xid in range(500)))

    assert not left
    assert xids(connection) == list(range(500))


def test_turn_that_ends_with_last_request_leaves_nothing_to_do(connection: ServerConnection) -> None:
    assert not connection.receive_data(set_data(1, "/"), END_OF_TURN, Time())


def test_partial_request_does_not_count_as_remaining(connection: ServerConnection) -> None:
    left = connection.receive_data(set_data(1, "/") + set_data(2, "/")[:-1], END_OF_TURN, Time())

    assert not left
    assert xids(connection) == [1]


def test_partial_request_is_completed_in_later_turn(connection: ServerConnection) -> None:
    connection.receive_data(set_data(1, "/") + set_data(2, "/") + set_data(3, "/")[:-5], END_OF_TURN, Time())

    connection.receive_data(set_data(3, "/")[-5:], END_OF_TURN, Time())
    connection.receive_data(b"", END_OF_TURN, Time())

    assert xids(connection) == [1, 2, 3]


def test_requests_after_close_are_not_answered_later(connection: ServerConnection) -> None:
    connection.receive_data(set_data(1, "/") + request(2, OpCode.CLOSE_SESSION) + set_data(3, "/"), END_OF_TURN, Time())

    turns = [connection.receive_data(b"", END_OF_TURN, Time()) for _ in range(2)]

    assert turns == [False, False]
    assert xids(connection) == [1, 2]


def test_invalid_frame_after_turn_closes_connection(connection: ServerConnection) -> None:
    left = connection.receive_data(set_data(1, "/") + pack_int(-1), END_OF_TURN, Time())

    assert (left, connection.client.closing) == (False, True)


def test_requests_left_for_later_turns_are_counted(connection: ServerConnection) -> None:
    one = set_data(1, "/")

    connection.receive_data(one * 3, END_OF_TURN, Time())
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


def split_data(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


def receive_in_turns(connection: ServerConnection, data: bytes, clock: Time) -> None:
    """Feed bytes to a connection, and run turns until no request remains."""
    while connection.receive_data(data, END_OF_TURN, clock):
        data = b""


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=40), st.lists(st.integers(1, 300), max_size=20), st.lists(st.booleans(), max_size=200))
def test_replies_are_independent_of_input_pieces_and_turns(
    pipeline: list[Callable[[int], bytes]], sizes: list[int], late: list[bool]
) -> None:
    data = b"".join(step(xid) for xid, step in enumerate(pipeline, 1))
    whole, cut = open_connection(make_engine()), open_connection(make_engine())
    clock = Time(*(2.0 * flag for flag in late))

    whole.receive_data(data)
    for piece in split_data(data, sizes):
        receive_in_turns(cut, piece, clock)

    assert b"".join(cut.client.outbox) == b"".join(whole.client.outbox)
    assert cut.engine.zxid == whole.engine.zxid


def test_handshake_may_use_up_its_turn() -> None:
    connection = ServerConnection(make_engine(), ClientConnection())

    more = connection.receive_data(HELLO + exists(1, "/") + exists(2, "/"), END_OF_TURN, Time())

    assert more
    assert len(connection.client.outbox) == 1
    connection.client.outbox.clear()
    assert not connection.receive_data(b"")
    assert xids(connection) == [1, 2]
