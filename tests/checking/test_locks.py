"""Locks: two holders and tokens that go back are found where other requests are missing in the history, too."""

from __future__ import annotations

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.operations import OpCode
from zoolet.server.testing.checking.checker import check, joined
from zoolet.server.testing.frames.requests import Entry, RecordedRequest
from zoolet.testing import Recording

A, B = 1, 2


def answered(client: int, zxid: int, opcode: OpCode, body: Record, reply: Record | None = None) -> RecordedRequest:
    """Return a request of a client that succeeded."""
    payload = r.ReplyHeader(1, zxid, 0).encode() + (b"" if reply is None else reply.encode())
    return RecordedRequest(client, client, int(opcode), body.encode(), zxid, 0, (), "", 0.0, payload)


def contends(client: int, zxid: int, number: int) -> RecordedRequest:
    """Return the creation of a contender's node."""
    request = r.CreateRequest("/l/a__lock__", b"", OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL)
    return answered(client, zxid, OpCode.CREATE, request, r.CreateResponse(f"/l/a__lock__{number:010}"))


def sees(client: int, zxid: int, *numbers: int) -> RecordedRequest:
    """Return a list of those who contend."""
    names = [f"a__lock__{number:010}" for number in numbers]
    return answered(client, zxid, OpCode.GET_CHILDREN, r.GetChildrenRequest("/l", False), r.GetChildrenResponse(names))


def releases(client: int, zxid: int, number: int) -> RecordedRequest:
    """Return the end of a contender's node."""
    return answered(client, zxid, OpCode.DELETE, r.DeleteRequest(f"/l/a__lock__{number:010}", -1))


HANDED_OVER: list[Entry] = [
    contends(A, 10, 1), sees(A, 10, 1), contends(B, 12, 2), sees(B, 12, 1, 2), releases(A, 14, 1), sees(B, 14, 2)
]  # fmt: skip


def test_a_lock_that_is_handed_over_is_in_order() -> None:
    assert check(HANDED_OVER) is None


def test_two_holders_are_found() -> None:
    entries = [contends(A, 10, 1), sees(A, 10, 1), contends(B, 12, 2), sees(B, 12, 2), releases(A, 14, 1)]

    found = check(entries)

    assert found is not None
    assert found.rule == "Two clients hold the lock /l."
    assert found.entries == tuple(entries)
    assert "3. session 0x2 on connection 2: create /l/a__lock__" in found.story


def test_tokens_that_go_back_are_found() -> None:
    entries = [
        contends(A, 10, 1), contends(B, 12, 2), sees(B, 12, 2), releases(B, 14, 2), sees(A, 16, 1), releases(A, 18, 1)
    ]  # fmt: skip

    found = check(entries)

    assert found is not None
    assert found.rule == "The tokens of the lock /l go back."
    assert "has the token 0xa, which is below that of 2, 0xc" in found.because


def test_a_holder_that_may_have_expired_is_no_second_one() -> None:
    assert check([contends(A, 10, 1), sees(A, 10, 1), contends(B, 12, 2), sees(B, 14, 2)]) is None


def test_recordings_of_several_servers_are_checked_together() -> None:
    write = answered(1, 5, OpCode.SET_DATA, r.SetDataRequest("/a", b"1", -1), r.StatResponse(stat_of(5, 1)))
    read = answered(1, 6, OpCode.EXISTS, r.ExistsRequest("/a", False), r.StatResponse(stat_of(4, 0)))
    entries = joined([Recording([write]), Recording([read])])

    found = check(entries)

    assert [entry.connection for entry in entries] == [1, 2]
    assert found is not None
    assert "misses a write" in found.rule


def stat_of(mzxid: int, version: int) -> r.Stat:
    return r.Stat(1, mzxid, 0, 0, version, 0, 0, 0, 0, 0, 1)
