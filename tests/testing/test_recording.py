"""``server.recording()``: the requests in a block, and assertions about them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgpack
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from support.waiting import DEADLINE_S
from support.wire import Wire

from zoolet.protocol import records as r
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.operations import OpCode
from zoolet.testing import Proxy, Recording, Server, delay, lose_reply
from zoolet.testing.frames.requests import RecordedRequest
from zoolet.testing.recording.canned import CannedServer
from zoolet.testing.recording.recording import FORMAT_NAME, FORMAT_VERSION

Dial = Callable[..., KazooClient]


def test_recording_has_requests_of_its_block(server: Server, client: KazooClient) -> None:
    client.exists("/before")
    with server.recording() as ops:
        client.create("/a", b"1", ephemeral=True)
        client.get("/a", watch=print)
        client.set("/a", b"2", version=0)
        with pytest.raises(NoNodeError):
            client.delete("/b", version=7)
    client.exists("/after")

    assert [(op.op, op.path, op.data, op.version, op.watch, op.error) for op in ops] == [
        ("create", "/a", b"1", None, False, 0),
        ("getData", "/a", None, None, True, 0),
        ("setData", "/a", b"2", 0, False, 0),
        ("delete", "/b", None, 7, False, -101),
    ]
    assert ops[0].flags == CreateMode.EPHEMERAL
    assert {op.client for op in ops} == {client.client_id[0]}
    assert ops[0].acl is not None


def test_transaction_has_parts_with_their_errors(server: Server, client: KazooClient) -> None:
    with server.recording() as ops:
        transaction = client.transaction()
        transaction.create("/a", b"1")
        transaction.check("/a", 5)
        transaction.delete("/a")
        transaction.commit()

    [multi] = ops
    assert multi.summary == "multi [create /a b'1', check /a, delete /a] -> BAD_VERSION"
    assert (multi.op, multi.path, multi.error) == ("multi", "/a", -103)
    assert [(part.op, part.path, part.data, part.version, part.error) for part in multi.parts] == [
        ("create", "/a", b"1", None, 0),
        ("check", "/a", None, 5, -103),
        ("delete", "/a", None, -1, -2),
    ]


def test_recording_is_limited_to_one_client(server: Server, kazoo: Dial) -> None:
    one, two = kazoo(server), kazoo(server)
    with server.recording(one) as ops, server.recording(two.client_id[0]) as others, server.recording("all") as both:
        one.exists("/one")
        two.exists("/two")

    assert [op.path for op in ops] == ["/one"]
    assert [op.path for op in others] == ["/two"]
    assert len(both) == 2


def test_times_of_recording_are_those_of_server_clock(manual: Server, kazoo: Dial) -> None:
    client = kazoo(manual)
    with manual.recording() as ops:
        client.exists("/a")
        manual.advance(7)
        client.exists("/b")

    assert ops[1].time - ops[0].time == 7


def test_recording_may_have_more_than_1000_operations(server: Server, wire: Wire) -> None:
    with server.recording() as ops:
        for number in range(1200):
            wire.exists(f"/{number}")

    assert len(ops) == 1200
    assert len(server.ops()) == 1000


def test_pings_and_credentials_are_left_out(server: Server, wire: Wire, client: KazooClient) -> None:
    with server.recording() as ops:
        wire.ask(OpCode.PING)
        client.add_auth("digest", "user:secret")

    assert [op.op for op in ops] == ["auth"]
    assert "secret" not in repr(ops[0])


def test_recording_starts_only_once(server: Server) -> None:
    recording = server.recording()
    with recording:
        pass
    with pytest.raises(RuntimeError, match="this recording has already been started"):
        recording.__enter__()


def test_later_client_is_recorded_from_its_start(server: Server, kazoo: Dial) -> None:
    client, other = kazoo(server, start=False), kazoo(server)
    with server.recording(client) as ops:
        other.exists("/other")
        client.start(DEADLINE_S)
        client.exists("/a")

    ops.assert_ops("connect", "exists /a -> NO_NODE")


# --- assertions ---


def recorded(server: Server, wire: Wire) -> Recording:
    """Record three requests."""
    with server.recording() as ops:
        wire.create("/a")
        wire.create("/locks/x")
        wire.exists("/a")
    return ops


def test_expected_requests_may_have_wildcards(server: Server, wire: Wire) -> None:
    ops = recorded(server, wire)

    ops.assert_ops("create /a", "create /locks/* -> NO_NODE", "exists /?")


def test_unexpected_requests_are_shown_as_diff(server: Server, wire: Wire) -> None:
    ops = recorded(server, wire)

    with pytest.raises(AssertionError) as failure:
        ops.assert_ops("create /a", "delete /a", "exists /a")

    assert str(failure.value).splitlines()[1:] == [
        "--- expected",
        "+++ recorded",
        "@@ -1,3 +1,3 @@",
        " create /a",
        "-delete /a",
        "+create /locks/x -> NO_NODE",
        " exists /a",
    ]


def test_wildcard_does_not_hide_unexpected_request(server: Server, wire: Wire) -> None:
    ops = recorded(server, wire)

    with pytest.raises(AssertionError) as failure:
        ops.assert_ops("*", "create /a")
    assert "+create /locks/x -> NO_NODE" in str(failure.value)
    assert "+exists /a" in str(failure.value)


def test_transaction_is_expected_with_its_parts(server: Server, client: KazooClient) -> None:
    with server.recording() as ops:
        transaction = client.transaction()
        transaction.create("/a")
        transaction.delete("/a")
        transaction.commit()

    ops.assert_ops("multi [create /a, delete /*]")
    with pytest.raises(AssertionError):
        ops.assert_ops("multi [create /a]")


def test_select_filters_recording_by_operation_and_path(server: Server, wire: Wire) -> None:
    ops = recorded(server, wire)

    assert [op.path for op in ops.select("create")] == ["/a", "/locks/x"]
    assert [op.op for op in ops.select(path="/a")] == ["create", "exists"]


# --- files, answers and replay ---


def test_saved_recording_round_trips(server: Server, wire: Wire, tmp_path: Path) -> None:
    ops = recorded(server, wire)
    ops.save(tmp_path / "ops")

    loaded = Recording.load(tmp_path / "ops")

    assert list(loaded) == list(ops)


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x80", b"hello", b"\x82\xb0zoolet recording\x09\xa7entries\x90"])
def test_non_recording_file_is_refused_with_reason(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)

    with pytest.raises(ValueError, match="other is not a zoolet recording"):
        Recording.load(tmp_path / "other")


@pytest.mark.parametrize(("errors", "is_valid"), [(2, True), (3, False), (1_000_000, False)])
def test_recording_with_too_many_part_errors_is_refused(tmp_path: Path, errors: int, is_valid: bool) -> None:
    entry = [False, *RecordedRequest(1, 1, 14, bytes(26), 1, 0, (0,) * errors, "", 0.0)]
    (tmp_path / "ops").write_bytes(msgpack.packb({FORMAT_NAME: FORMAT_VERSION, "entries": [entry]}))

    with nullcontext() if is_valid else pytest.raises(ValueError, match="not a zoolet recording"):
        assert len(Recording.load(tmp_path / "ops").entries[0].part_errors) == errors


def use_server(server: Any, kazoo: Dial) -> list[Any]:
    """Use a server like a program; return the answers."""
    events: list[Any] = []
    client = kazoo(server)
    answers: list[Any] = [client.create("/a", b"1"), client.get("/a", watch=events.append)]
    answers.append(client.set("/a", b"2"))
    answers.append(client.create("/a/n-", sequence=True))
    transaction = client.transaction()
    transaction.create("/t", b"x")
    transaction.set_data("/a", b"3")
    answers.append(transaction.commit())
    try:
        client.get("/gone")
    except NoNodeError as error:
        answers.append(repr(error))
    answers.append(client.client_id)
    client.stop()
    client.close()
    return [*answers, events]


def test_served_recording_answers_like_server(server: Server, kazoo: Dial) -> None:
    with server.recording() as ops:
        expected = use_server(server, kazoo)

    with ops.serve() as canned:
        assert use_server(canned, kazoo) == expected
        assert canned.unexpected == []


def test_recording_started_late_is_usable(server: Server, wire: Wire) -> None:
    ops = recorded(server, wire)

    with ops.serve() as canned, Wire(canned).welcomed() as other:  # type: ignore[arg-type]
        assert (other.create("/a"), other.id) == (0, wire.id)
    with Server() as empty:
        ops.assert_same(ops.replay(empty.hosts))


def test_unrecorded_request_to_served_recording_fails(server: Server, kazoo: Dial) -> None:
    with server.recording() as ops:
        kazoo(server).exists("/a")

    def ask_for_more(canned: CannedServer) -> None:
        with canned:
            client = kazoo(canned)
            client.exists("/a")
            client.get_async("/b").wait(DEADLINE_S)
            client.stop()

    with pytest.raises(AssertionError, match=r"were not recorded:\n  getData /b"):
        ask_for_more(ops.serve())
    lenient = ops.serve(strict=False)
    ask_for_more(lenient)
    assert lenient.unexpected[0] == "getData /b"


def test_error_in_block_names_unrecorded_request_in_note() -> None:
    with Server() as server, server.recording() as ops:
        with Wire(server).welcomed() as wire:
            wire.exists("/a")

    def use() -> None:
        with ops.serve() as canned, Wire(canned).welcomed() as wire:  # type: ignore[arg-type]
            wire.exists("/b")

    with pytest.raises(EOFError) as failure:
        use()
    assert failure.value.__notes__ == ["these requests were not recorded:\n  exists /b"]


def test_recording_is_replayed_at_different_server(server: Server, kazoo: Dial) -> None:
    with server.recording() as ops:
        use_server(server, kazoo)
        session_of_another = kazoo(server)
        session_of_another.create("/e", ephemeral=True)

    with Server() as other:
        again = ops.replay(other.hosts)
        assert other.tree()["/a"].data == b"3"

    ops.assert_same(again)
    with Server() as different:
        different.populate({"/a": "here already"})
        other_outcome = ops.replay(different.hosts)
    with pytest.raises(AssertionError, match=r"\+create /a -> NODE_EXISTS"):
        ops.assert_same(other_outcome)


def test_replay_loses_recorded_lost_reply_again(server: Server, kazoo: Dial) -> None:
    with server.recording() as ops, server.fault(lose_reply(), "create", times=1):
        client = kazoo(server)
        client.create_async("/a").wait(DEADLINE_S)
        server.wait_for(lambda: len(server.ops()) > 2)

    with ops.serve(strict=False) as canned:
        client = kazoo(canned)
        pending = client.create_async("/a")
        pending.wait(DEADLINE_S)
        assert type(pending.exception).__name__ == "ConnectionLoss"
        client.stop()


# --- a proxy ---


def test_proxy_records_forwarded_requests(server: Server, kazoo: Dial) -> None:
    with server.recording() as direct, Proxy(server.hosts) as proxy, proxy.recording() as passed:
        expected = use_server(proxy, kazoo)

    direct.assert_same(passed)
    assert [op.client for op in passed] == [op.client for op in direct]
    with passed.serve() as canned:
        assert use_server(canned, kazoo) == expected


def test_proxy_without_server_refuses_client(kazoo: Dial) -> None:
    with Server() as server:
        gone = server.hosts
    with Proxy(gone) as proxy:
        client = kazoo(proxy, start=False)
        with pytest.raises(client.handler.timeout_exception):
            client.start(timeout=0.3)


def test_proxy_uses_first_accepting_server(kazoo: Dial) -> None:
    with Server() as gone:
        hosts = gone.hosts
    with Server() as server, Proxy(f"{hosts},{server.hosts}") as proxy:
        kazoo(proxy).create("/a")
        assert "/a" in server.tree()
        with proxy.fault(delay(0), "exists", strict=True):
            kazoo(proxy).exists("/a")


@pytest.mark.parametrize("servers", ["", "a", "a:b", "a:0", ":1", "a:1/chroot", "::1:2181", "a b:1", "[x:1", None])
def test_invalid_servers_of_proxy_are_refused(servers: Any) -> None:
    with pytest.raises(ValueError, match=r"^servers? must be host:port"):
        Proxy(servers)


def test_four_letter_words_pass_proxy_unrecorded(server: Server) -> None:
    with Proxy(server.hosts) as proxy, proxy.recording() as ops:
        for endpoint in (server, proxy):
            with socket.create_connection(("127.0.0.1", endpoint.port), DEADLINE_S) as link:
                link.sendall(b"ruok")
                assert link.recv(10) == b"imok"
        assert len(ops) == len(proxy.ops()) == len(server.ops()) == 0


def test_proxy_stops_reading_for_non_reading_client(server: Server) -> None:
    server.populate({"/big": bytes(900_000)})
    with Proxy(server.hosts) as proxy, Wire(proxy).welcomed() as wire:  # type: ignore[arg-type]
        for _ in range(50):
            wire.send(OpCode.GET_DATA, r.GetDataRequest("/big", False))
        open_ones = proxy._interceptor.connections
        proxy.wait_for(lambda: any(not one.executor._server.is_reading() for one in open_ones.values()))  # type: ignore[attr-defined]
        unread = [one.write_buffer_size() for one in proxy._runner.daemon.connections.open.values()]
        assert sum(unread) < 4_000_000
        for _ in range(50):
            assert len(wire.payload()) > 900_000


def test_recording_is_readable_only_by_owner(server: Server, wire: Wire, tmp_path: Path) -> None:
    with server.recording() as recording:
        wire.create("/a")
    recording.save(tmp_path / "one.json")

    assert (tmp_path / "one.json").stat().st_mode & 0o777 == 0o600


def test_proxy_without_server_warns_once(kazoo: Dial, caplog: pytest.LogCaptureFixture) -> None:
    with Proxy("127.0.0.1:1") as proxy:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
                connection.sendall(b"x")
                assert connection.recv(1) == b""

    [line] = [record.getMessage() for record in caplog.records if record.name == "zoolet.proxy"]
    assert "cannot connect to any server: 127.0.0.1:1: " in line
