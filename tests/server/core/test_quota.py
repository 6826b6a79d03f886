"""Quotas: valid texts, the cost of parsing, log lines, and the limits for a transaction."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.calls import connect_peer
from support.engine import make_engine
from support.log import Log
from support.numbers import QUOTA_EXCEEDED
from support.peer import Peer

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.errors import BadArgumentsError, MarshallingError, QuotaExceededError
from zoolet.protocol.operations import OpCode
from zoolet.protocol.quotas import MAX_TEXT_BYTES, Amount, _parse
from zoolet.server.core.settings import EngineSettings

moderate = settings(max_examples=40, deadline=None)
Operation = tuple[OpCode, Record]
QUOTA = "/zookeeper/quota"
LIMITS, STATS = QUOTA + "/q/zookeeper_limits", QUOTA + "/q/zookeeper_stats"
KEYS = ["count", "bytes", "countHardLimit", "byteHardLimit", "more"]


def connect_limited_peer(limits: bytes, log: Log | None = None, *, stats: bool = True) -> Peer:
    """Return a client of a server with a quota on node /q."""
    peer = connect_peer(make_engine(EngineSettings(enforce_quota=True), log=log))
    peer.create("/q")
    peer.create(QUOTA + "/q")
    peer.create(LIMITS, limits)
    for _ in range(stats):
        peer.create(STATS)
    return peer


def create(path: str, data: bytes = b"") -> Operation:
    return OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, 0)


def set_data(path: str, data: bytes) -> Operation:
    return OpCode.SET_DATA, r.SetDataRequest(path, data, -1)


def delete(path: str) -> Operation:
    return OpCode.DELETE, r.DeleteRequest(path, -1)


def errors(peer: Peer, *operations: Operation) -> list[int]:
    """Run a transaction. Return the error of each operation."""
    return [body.err if isinstance(body, r.ErrorResponse) else 0 for _, body in peer.multi(*operations)]


def text(numbers: dict[str, int]) -> bytes:
    return ",".join(f"{name}={number}" for name, number in numbers.items()).encode()


# --- texts of limits and stats ---


def test_text_of_256_bytes_is_a_quota() -> None:
    data = (b"count=1," + b"k=1," * 70)[: MAX_TEXT_BYTES - 9] + b",bytes=22"

    assert len(data) == MAX_TEXT_BYTES
    assert Amount.parse(data).size == 22


def test_text_of_257_bytes_is_not_a_quota() -> None:
    data = b"count=1,bytes=2,abc=" + b"1,k=" * 60

    with pytest.raises(ValueError, match="256"):
        Amount.parse(data[: MAX_TEXT_BYTES - 8] + b",bytes=22")
    assert len(data[: MAX_TEXT_BYTES - 8] + b",bytes=22") == MAX_TEXT_BYTES + 1


def test_oversized_quota_limits_fail_write() -> None:
    peer = connect_limited_peer(b"count=1," + b"k=1," * 100 + b"k=1")

    with pytest.raises(MarshallingError):
        peer.create("/q/a")


def test_oversized_quota_stats_are_left_unchanged() -> None:
    peer = connect_limited_peer(b"count=5")
    long = b"count=0," + b"k=1," * 100 + b"k=1"
    peer.set(STATS, long)

    peer.create("/q/a")

    assert peer.get(STATS)[0] == long


@moderate
@given(st.dictionaries(st.sampled_from(KEYS), st.integers(-1, 2**63 - 1)))
def test_quota_text_round_trips(numbers: dict[str, int]) -> None:
    amount = Amount.parse(text(numbers))

    assert (amount.nodes, amount.size, amount.node_hard_limit, amount.byte_hard_limit) == tuple(
        numbers.get(name, -1) for name in KEYS[:4]
    )


def test_quota_limits_are_parsed_once_for_many_writes() -> None:
    peer = connect_limited_peer(b"count=123456,bytes=-1")
    _parse.cache_clear()

    for number in range(50):
        peer.set("/q", b"x" * number)

    assert _parse.cache_info().misses <= 1 + 51  # the limits once, and the stats after each change


@pytest.mark.parametrize("name", [LIMITS, STATS], ids=["limits", "stats"])
def test_write_is_cheap_despite_oversized_quota_text(name: str) -> None:
    peer = connect_limited_peer(b"count=100000")
    peer.set(name, b"k=1," * 200_000)

    started = time.process_time()
    replies = [peer.send(OpCode.SET_DATA, r.SetDataRequest("/q", b"x" * (n % 7), -1).encode()) for n in range(200)]
    took = time.process_time() - started

    assert len(replies) == 200
    assert took < 2  # 5 ms; parsing them each time would take half a minute


# --- logged warnings ---


def test_repeatedly_exceeded_soft_limit_is_logged_once() -> None:
    log = Log()
    peer = connect_limited_peer(b"count=1", log)

    for number in range(100):
        peer.create(f"/q/{number}")

    assert [line for line in log if "quota" in line] == log
    assert len(log) == 1
    assert "/q" in log[0]


def test_unset_quota_limit_is_not_logged_as_exceeded() -> None:
    log = Log()
    peer = connect_limited_peer(b"bytes=1000", log)
    for number in range(3):
        peer.create(f"/q/{number}", b"x")

    assert log == []


def test_exceeded_soft_limit_is_logged_with_its_count() -> None:
    log = Log()
    peer = connect_limited_peer(b"count=1", log)
    for number in range(100):
        peer.create(f"/q/{number}")

    peer.engine.set_time(10_000, 10_000)
    peer.create("/q/late")

    assert len(log) == 2
    assert "(99 more like this were not logged)" in log[1]


@pytest.mark.slow
def test_log_of_many_exceeded_quotas_is_bounded() -> None:
    log = Log()
    peer = connect_limited_peer(b"count=1", log)
    for number in range(2_000):
        peer.create(f"/q{number}")
        peer.create(f"{QUOTA}/q{number}")
        peer.create(f"{QUOTA}/q{number}/zookeeper_limits", b"bytes=0")
        peer.create(f"{QUOTA}/q{number}/zookeeper_stats")

    for size in (1, 2, 3):
        for number in range(2_000):
            peer.set(f"/q{number}", b"x" * size)

    assert len(log) <= 2_000


# --- transactions ---


def test_creates_of_multi_may_exceed_limit_together() -> None:
    peer = connect_limited_peer(b"countHardLimit=3")

    outcome = errors(peer, create("/q/a"), create("/q/b"), create("/q/c"), create("/q/d"))

    assert outcome == [0, 0, 0, 0]  # as single requests, the third would be refused


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(delete(LIMITS), id="limits removed"),
        pytest.param(set_data(LIMITS, b"countHardLimit=100"), id="limits raised"),
        pytest.param(set_data(STATS, b"count=0,bytes=0"), id="usage set"),
        pytest.param(delete(STATS), id="usage removed"),
    ],
)
def test_quota_existing_before_transaction_applies_in_it(change: Any) -> None:
    peer = connect_limited_peer(b"countHardLimit=1")

    outcome = errors(peer, change, create("/q/a"))

    assert outcome[1] == QUOTA_EXCEEDED


def test_quota_limits_created_by_transaction_apply_after_it() -> None:
    peer = connect_limited_peer(b"countHardLimit=1")
    peer.create("/p")
    peer.create(QUOTA + "/p")
    new = [create(f"{QUOTA}/p/zookeeper_limits", b"countHardLimit=1"), create(f"{QUOTA}/p/zookeeper_stats")]

    inside = errors(peer, *new, create("/p/a"))

    assert inside == [0, 0, 0]
    with pytest.raises(QuotaExceededError):
        peer.create("/p/b")


def test_quota_stats_created_by_transaction_count_after_it() -> None:
    peer = connect_limited_peer(b"countHardLimit=1", stats=False)

    outcome = errors(peer, create(STATS, b"count=9,bytes=9"), create("/q/a"))

    assert outcome == [0, 0]


def test_failed_transaction_keeps_quota() -> None:
    peer = connect_limited_peer(b"countHardLimit=2")

    failed = errors(peer, delete(LIMITS), create("/q/a"), create("/nowhere/x"))
    peer.create("/q/a")

    assert failed[-1] != 0
    assert peer.get(STATS)[0] == b"count=2,bytes=0"
    with pytest.raises(QuotaExceededError):
        peer.create("/q/b")


datas = st.sampled_from([b"", b"12", b"12345"])
below = st.sampled_from(["/q/a", "/q/b", "/q/c", "/q/a/x"])
step = st.one_of(st.builds(create, below, datas), st.builds(set_data, below, datas))
steps = st.lists(step, max_size=5)
hard = st.fixed_dictionaries({}, optional={"countHardLimit": st.integers(1, 4), "byteHardLimit": st.integers(0, 12)})


def refused_alone(limits: dict[str, int], before: list[Operation], data: bytes) -> bool:
    """Return whether a single create of one more node is refused, after *before*."""
    peer = connect_limited_peer(text(limits))
    for op, body in before:
        peer.send(op, body.encode())
    (reply,) = peer.send(OpCode.CREATE, create("/q/new", data)[1].encode())
    return reply.err == QUOTA_EXCEEDED


@moderate
@given(hard, steps, st.lists(datas, min_size=1, max_size=4))
@example({"countHardLimit": 2}, [], [b"", b""])
@example({"byteHardLimit": 5}, [], [b"12", b"12345", b"12345"])
def test_each_create_of_multi_is_checked_separately(
    limits: dict[str, int], before: list[Operation], inside: list[bytes]
) -> None:
    peer = connect_limited_peer(text(limits))
    for op, body in before:
        peer.send(op, body.encode())

    outcome = errors(peer, *(create(f"/q/new{number}", data) for number, data in enumerate(inside)))

    assert (QUOTA_EXCEEDED in outcome) == any(refused_alone(limits, before, data) for data in inside)


def count_correct_stats(peer: Peer) -> bytes:
    """Return the correct stats of /q, counted in the tree."""
    nodes = [node for _, node in peer.engine.tree.walk("/q")]
    return f"count={len(nodes)},bytes={sum(len(node.data or b'') for node in nodes)}".encode()


@moderate
@given(st.lists(st.lists(st.one_of(st.builds(delete, below), step), min_size=1, max_size=4), max_size=6))
def test_quota_stats_are_exact_after_failed_transactions(transactions: list[list[Operation]]) -> None:
    peer = connect_limited_peer(b"countHardLimit=4")

    for operations in transactions:
        peer.send(OpCode.MULTI, wire.encode_operations(operations))

    assert peer.get(STATS)[0] == count_correct_stats(peer)


def test_multi_may_create_quota_stats_eight_times() -> None:
    peer = connect_limited_peer(b"count=5,bytes=5", stats=False)
    again = [create(STATS), delete(STATS)]

    assert errors(peer, *again * 8) == [0] * 16
    with pytest.raises(BadArgumentsError):
        errors(peer, *again * 8, create(STATS))
