"""Fault rules with conditions in code, broken replies, unreleased faults, and faults that match nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError as KazooNoNodeError
from support.wire import Wire, creating

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.testing import (
    Server,
    corrupt_reply,
    cut_reply,
    delay,
    error,
    hold,
    slow_reply,
    withhold_event,
)

NO_NODE: Final = -101
Dial = Callable[..., KazooClient]

# --- conditions in code ---


def test_condition_sees_decoded_request(server: Server, client: KazooClient) -> None:
    with server.fault(error(NO_NODE), when=lambda op: op.data == b"poison") as fault:
        client.create("/a", b"good")
        with pytest.raises(KazooNoNodeError):
            client.create("/b", b"poison")
        client.get("/a")

    assert (fault.hits, fault.seen) == (1, 1)


def test_condition_sees_parts_of_transaction(server: Server, client: KazooClient) -> None:
    with server.fault(error(NO_NODE), "multi", when=lambda op: len(op.parts) == 2 and op.parts[1].version == 7):
        small = client.transaction()
        small.create("/a")
        small.commit()
        large = client.transaction()
        large.create("/b")
        large.delete("/a", version=7)
        with pytest.raises(KazooNoNodeError):
            large.commit()


def test_condition_sees_events_with_types(server: Server, client: KazooClient) -> None:
    events: list[Any] = []
    client.exists("/a", watch=events.append)
    client.exists("/b", watch=events.append)
    with server.fault(withhold_event(), when=lambda event: event.op == "nodeCreated" and event.path == "/a") as fault:
        server.populate({"/a": b"", "/b": b""})
        server.wait_for(lambda: events)
        fault.release()
        server.wait_for(lambda: len(events) == 2)

    assert [event.path for event in events] == ["/b", "/a"]


def test_error_in_condition_is_raised_by_fault_block(server: Server, client: KazooClient) -> None:
    def run() -> None:
        with server.fault(error("NO_NODE"), when=lambda op: op.nothing):  # type: ignore[attr-defined]
            client.create("/a")

    with pytest.raises(AttributeError, match="nothing"):
        run()
    assert "/a" in server.tree()


def test_invalid_condition_is_refused(server: Server) -> None:
    with pytest.raises(ValueError, match=r"when must be a function of a request, .* not 'create'"):
        server.fault(delay(0), when="create")  # type: ignore[arg-type]


# --- broken replies ---


def test_corrupt_reply_has_wrong_xid(server: Server, wire: Wire) -> None:
    with server.fault(corrupt_reply(), "create", strict=True):
        wire.send(OpCode.CREATE, creating("/a"))
        header = r.ReplyHeader.decode(wire.payload())

    assert header.xid == wire.xid ^ 0x55555555
    assert header.err == 0
    assert "/a" in server.tree()


def test_reply_is_corruptible_at_any_offset(server: Server, wire: Wire) -> None:
    with server.fault(corrupt_reply(16), "create"):
        assert wire.create("/abcd") == 0
    assert wire.body == bytes(byte ^ 0x55 for byte in b"\0\0\0\x05") + b"/abcd"
    with server.fault(corrupt_reply(1000), "exists"):
        assert wire.exists("/a") != 0  # its last byte belongs to the error code


def test_cut_reply_sends_only_first_bytes(server: Server, wire: Wire) -> None:
    with server.fault(cut_reply(7), "create"):
        wire.send(OpCode.CREATE, creating("/a"))
        assert b"".join(iter(lambda: wire.link.recv(100), b"")) == b"\0\0\0\x16\0\0\0"
    assert "/a" in server.tree()


def test_slow_reply_comes_in_pieces_and_in_order(manual: Server) -> None:
    with Wire(manual).welcomed() as wire, manual.fault(slow_reply(40), "exists", times=1):
        wire.send(OpCode.EXISTS, r.ExistsRequest("/a", False))
        wire.send(OpCode.CREATE, creating("/a"))
        received = b""
        manual.wait_for(lambda: "/a" in manual.tree())
        for _ in range(10):  # 20 bytes, 2 in each twentieth of a second
            received += wire.link.recv(100)
            manual.advance(0.05)
        assert len(received) == 20
        wire.link.setblocking(False)
        manual.wait_for(wire.has_something)
        assert len(wire.link.recv(100)) == 26


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: delay(-1), "delay: seconds must be 0 or more, not -1"),
        (lambda: delay(1, -1), "delay: jitter must be 0 or more, not -1"),
        (lambda: corrupt_reply(-1), "corrupt_reply: at must be an offset in the reply, 0 or more, not -1"),
        (lambda: cut_reply(-1), "cut_reply: at must be a number of bytes, 0 or more, not -1"),
        (lambda: slow_reply(0), "slow_reply: bytes_per_second must be more than 0, not 0"),
        (lambda: hold(0), "hold: limit must be more than 0 seconds, not 0"),
    ],
)
def test_invalid_numbers_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# --- unreleased and unmatched faults ---


def test_hold_raises_if_not_released_within_limit(manual: Server) -> None:
    with Wire(manual).welcomed() as wire:
        fault = manual.fault(hold(limit=3))
        wire.send(OpCode.CREATE, creating("/a"))
        manual.wait_for(lambda: "held or delayed" in manual.report())
        manual.advance(2)
        assert "/a" not in manual.tree()
        manual.advance(1)
        assert wire.reply() == 0
        with pytest.raises(TimeoutError, match=r"held a request for its limit of 3 s"):
            fault.__exit__(None, None, None)


def strict_fault_message(server: Server, *conditions: Any, request: Callable[[], object]) -> str:
    """Return why a strict fault was never applied."""

    def run() -> None:
        with server.fault(delay(0), *conditions, strict=True):
            request()

    with pytest.raises(AssertionError) as failure:
        run()
    return str(failure.value).partition("never applied; ")[2]


def test_strict_fault_lists_near_misses(server: Server, client: KazooClient) -> None:
    server.populate({"/app": {}, "/q": {}})
    inside = KazooClient(server.hosts + "/app")
    inside.start()

    def transaction() -> None:
        both = client.transaction()
        both.create("/t")
        both.commit()

    close = "near misses:\n  "
    assert strict_fault_message(server, "create", "/t", request=transaction) == (
        f"{close}multi [create /t]: the op is multi; use op='multi', or leave op out"
    )
    assert strict_fault_message(server, "create", "/q", request=lambda: client.create("/q/x")) == (
        f"{close}create /q/x: the path is a child; use /q/*"
    )
    assert strict_fault_message(server, "create", "/b", request=lambda: inside.create("/b")) == (
        f"{close}create /app/b: the path includes the client's chroot; use */b"
    )
    assert (
        strict_fault_message(server, "getData", "/q", request=lambda: client.exists("/q"))
        == f"{close}exists /q: the op is exists"
    )
    assert strict_fault_message(server, "delete", request=lambda: client.exists("/q")).startswith(
        "no request or event matched"
    )
    inside.stop()
    inside.close()


def test_strict_fault_lists_mistyped_path_as_near_miss(server: Server, client: KazooClient) -> None:
    assert strict_fault_message(server, "create", "/jbos/*", request=lambda: client.create("/jobs")) == (
        "near misses:\n  create /jobs: the path differs slightly from /jbos/*"
    )
    assert strict_fault_message(server, "create", "/b", request=lambda: client.create("/a")).startswith(
        "no request or event matched"
    )


def test_strict_fault_suggests_wildcard_for_sequential_name(server: Server, client: KazooClient) -> None:
    path = client.create("/n-", sequence=True)

    assert strict_fault_message(server, "delete", "/n-", request=lambda: client.delete(path)) == (
        f"near misses:\n  delete {path}: the name has a sequence number; use /n-*"
    )


# --- several faults together ---


def test_delays_of_faults_add_up_and_lowest_bandwidth_applies(manual: Server) -> None:
    with Wire(manual).welcomed() as wire:
        with manual.fault(delay(2), "create"), manual.fault(delay(3), "create"):
            wire.send(OpCode.CREATE, creating("/a"))
            manual.wait_for(lambda: "held or delayed" in manual.report())
            manual.advance(4)
            assert "/a" not in manual.tree()
            manual.advance(1)
            assert wire.reply() == 0
        with manual.fault(slow_reply(20), "exists"), manual.fault(slow_reply(2000), "exists"):
            wire.send(OpCode.EXISTS, r.ExistsRequest("/b", False))
            assert len(wire.link.recv(100)) == 1
