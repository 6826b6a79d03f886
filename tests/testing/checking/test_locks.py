"""Locks: two holders and decreasing tokens are found even if other requests are missing in the history."""

from __future__ import annotations

from support.histories import answered_request, make_stat

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.operations import OpCode
from zoolet.testing import Recording
from zoolet.testing.checking.checker import check, join_recordings
from zoolet.testing.frames.requests import Entry, RecordedRequest

A, B = 1, 2


def contends(client: int, zxid: int, number: int) -> RecordedRequest:
    """Return the create of a contender's node."""
    request = r.CreateRequest("/l/a__lock__", b"", OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL)
    return answered_request(client, zxid, OpCode.CREATE, request, r.CreateResponse(f"/l/a__lock__{number:010}"))


def sees(client: int, zxid: int, *numbers: int) -> RecordedRequest:
    """Return a list of the contenders."""
    names = [f"a__lock__{number:010}" for number in numbers]
    return answered_request(
        client, zxid, OpCode.GET_CHILDREN, r.GetChildrenRequest("/l", False), r.GetChildrenResponse(names)
    )


def releases(client: int, zxid: int, number: int) -> RecordedRequest:
    """Return the delete of a contender's node."""
    return answered_request(client, zxid, OpCode.DELETE, r.DeleteRequest(f"/l/a__lock__{number:010}", -1))


HANDED_OVER: list[Entry] = [
    contends(A, 10, 1), sees(A, 10, 1), contends(B, 12, 2), sees(B, 12, 1, 2), releases(A, 14, 1), sees(B, 14, 2)
]  # fmt: skip


def test_handed_over_lock_is_not_a_violation() -> None:
    assert check(HANDED_OVER) is None


def test_two_holders_of_lock_are_found() -> None:
    entries = [contends(A, 10, 1), sees(A, 10, 1), contends(B, 12, 2), sees(B, 12, 2), releases(A, 14, 1)]

    found = check(entries)

    assert found is not None
    assert found.rule == "Two clients hold the lock /l."
    assert found.entries == tuple(entries)
    assert "3. session 0x2 on connection 2: create /l/a__lock__" in found.story


def test_two_holders_are_found_around_sequence_overflow() -> None:
    last, first = 2**31 - 1, -(2**31)
    entries = [contends(A, 10, last), sees(A, 10, last), contends(B, 12, first), sees(B, 12, first)]

    found = check([*entries, releases(A, 14, last)])

    assert found is not None
    assert found.rule == "Two clients hold the lock /l."


def test_handover_to_negative_sequence_number_is_accepted() -> None:
    last, first = 2**31 - 1, -(2**31)
    entries: list[Entry] = [
        contends(A, 10, last), sees(A, 10, last), contends(B, 12, first), sees(B, 12, last, first),
        releases(A, 14, last), sees(B, 14, first),
    ]  # fmt: skip

    assert check(entries) is None


def test_decreasing_fencing_tokens_are_found() -> None:
    entries = [
        contends(A, 10, 1), contends(B, 12, 2), sees(B, 12, 2), releases(B, 14, 2), sees(A, 16, 1), releases(A, 18, 1)
    ]  # fmt: skip

    found = check(entries)

    assert found is not None
    assert found.rule == "The tokens of the lock /l decrease."
    assert "has the token 0xa, lower than the token of 2, 0xc" in found.because


def test_holder_that_may_have_expired_is_no_second_holder() -> None:
    assert check([contends(A, 10, 1), sees(A, 10, 1), contends(B, 12, 2), sees(B, 14, 2)]) is None


def test_recordings_of_two_servers_are_checked_together() -> None:
    write = answered_request(1, 5, OpCode.SET_DATA, r.SetDataRequest("/a", b"1", -1), r.StatResponse(make_stat(5, 1)))
    read = answered_request(1, 6, OpCode.EXISTS, r.ExistsRequest("/a", False), r.StatResponse(make_stat(4, 0)))
    entries = join_recordings([Recording([write]), Recording([read])])

    found = check(entries)

    assert [entry.connection for entry in entries] == [1, 2]
    assert found is not None
    assert "does not show a write" in found.rule
