"""A proxy: faults, pauses, drops and recordings work like in an embedded server."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

import pytest
from support.tls_clients import client_context
from support.waiting import DEADLINE_S
from support.wire import Wire, creating

from zoolet.client import Client
from zoolet.protocol import records as r
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.testing import (
    Proxy,
    Server,
    close_after,
    corrupt_reply,
    cut_reply,
    delay,
    drop_request,
    error,
    hold,
    lose_reply,
    slow_reply,
    withhold_event,
)
from zoolet.testing.frames import upstream
from zoolet.testing.frames.frame_queue import FrameQueue
from zoolet.testing.frames.interceptor import Interceptor
from zoolet.testing.frames.upstream import Upstream

NO_NODE: Final = -101


@pytest.fixture(params=["server", "proxy"])
def endpoint(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    """A server, or a proxy in front of it."""
    if request.param == "server":
        yield server
    else:
        with Proxy(server.hosts, seed=1) as proxy:
            yield proxy


def outcome(wire: Wire) -> str:
    """Send three requests together; the second is a create. Return the answer to each request."""
    wire.send(OpCode.EXISTS, r.ExistsRequest("/", False))
    wire.send(OpCode.CREATE, creating("/a"))
    wire.send(OpCode.EXISTS, r.ExistsRequest("/", False))
    answers = []
    try:
        for _ in range(3):
            header = r.ReplyHeader.decode(wire.payload())
            answers.append(f"{header.err}" if 0 < header.xid < 4 else "corrupt")
    except (EOFError, MarshallingError):
        answers.append("closed")
    return " ".join(answers)


@pytest.mark.parametrize(
    ("make", "answers", "applied", "recorded"),
    [
        (lambda: delay(0.02), "0 0 0", True, 0),
        (lambda: error("NO_NODE"), "0 -101 0", False, NO_NODE),
        (drop_request, "0 closed", False, None),
        (lose_reply, "0 closed", True, None),
        (close_after, "0 0 closed", True, 0),
        (corrupt_reply, "0 corrupt 0", True, 0),
        (lambda: cut_reply(7), "0 closed", True, None),
        (lambda: slow_reply(2000), "0 0 0", True, 0),
    ],
    ids=["delay", "error", "drop_request", "lose_reply", "close_after", "corrupt_reply", "cut_reply", "slow_reply"],
)
def test_fault_has_same_effect_at_proxy_and_server(
    server: Server, endpoint: Any, make: Callable[[], Any], answers: str, applied: bool, recorded: int | None
) -> None:
    with Wire(endpoint).welcomed() as wire, endpoint.fault(make(), "create", "/a", times=1, strict=True):
        assert outcome(wire) == answers
        endpoint.wait_for(lambda: [op for op in endpoint.ops() if op.op == "create"])

    assert ("/a" in server.tree()) is applied
    [op] = [op for op in endpoint.ops() if op.op == "create"]
    assert op.error == recorded


def test_request_is_held_until_released(server: Server, endpoint: Any) -> None:
    with Wire(endpoint).welcomed() as wire, endpoint.fault(hold(), "create") as fault:
        wire.send(OpCode.CREATE, creating("/a"))
        endpoint.wait_for(lambda: fault.hits)
        assert "requests that are held or delayed" in endpoint.report()
        assert "/a" not in server.tree()
        fault.release()
        assert wire.reply() == 0


def test_event_is_withheld_until_released(server: Server, endpoint: Any) -> None:
    with Wire(endpoint).welcomed() as wire:
        wire.watch("/a")
        wire.watch("/b")
        with endpoint.fault(withhold_event(), path="/a") as fault:
            server.populate({"/a": b"", "/b": b""})
            assert wire.event() == (1, "/b")
            assert fault.hits == 1
            fault.release()
            assert wire.event() == (1, "/a")


def test_pause_holds_both_directions_and_drop_closes(server: Server, endpoint: Any) -> None:
    with Wire(endpoint).welcomed() as wire:
        endpoint.pause(wire.id)
        wire.send(OpCode.CREATE, creating("/a"))
        with pytest.raises(TimeoutError):
            server.wait_for_node("/a", timeout=0.1)
        endpoint.resume(wire.id)
        assert wire.reply() == 0
        endpoint.drop(wire.id)
        assert wire.ended()
        assert wire.id in server.sessions()


@pytest.mark.parametrize("who", ["this client", "all"])
def test_pause_can_stop_one_direction(server: Server, endpoint: Any, who: str) -> None:
    with Wire(endpoint).welcomed() as wire:
        whom = wire.id if who == "this client" else "all"
        wire.watch("/b")
        endpoint.pause(whom, direction="replies")
        assert "(replies only)" in endpoint.report()
        wire.send(OpCode.CREATE, creating("/a"))
        server.wait_for_node("/a")
        endpoint.pause(whom, direction="requests")
        assert wire.reply() == 0
        wire.send(OpCode.DELETE, r.DeleteRequest("/a", -1))
        server.populate({"/b": b""})
        assert wire.event() == (1, "/b")
        assert "/a" in server.tree()
        endpoint.resume(whom)
        assert wire.reply() == 0
        assert "/a" not in server.tree()


def test_unknown_direction_is_refused(endpoint: Any) -> None:
    with pytest.raises(ValueError, match="direction must be one of 'both', 'requests', 'replies', not 'up'"):
        endpoint.pause("all", direction="up")


async def test_tls_passes_and_can_be_paused_and_dropped() -> None:
    pytest.importorskip("cryptography")
    async with Server(tls=True) as server, Proxy(server.hosts) as proxy:
        context = client_context(server.tls_ca)
        async with Client(proxy.hosts, tls=context) as client:
            with pytest.raises(LookupError, match="it cannot see the sessions of TLS connections, so use 'all'"):
                proxy.pause(client)
            proxy.pause("all")
            made = asyncio.ensure_future(client.create("/a"))
            with pytest.raises(TimeoutError):
                await server.until_node("/a", timeout=0.1)
            proxy.resume("all")
            assert await made == "/a"
            proxy.drop("all")
            assert await client.exists("/a") is not None  # over a new connection


def test_heal_stops_delays_and_slow_replies(endpoint: Any) -> None:
    with Wire(endpoint).welcomed() as wire, Wire(endpoint).welcomed() as other:
        slow = endpoint.fault(slow_reply(0.01), "exists", client=wire.id)
        late = endpoint.fault(delay(3600), "exists", client=other.id)
        for each in (wire, other):
            each.send(OpCode.EXISTS, r.ExistsRequest("/", False))
        endpoint.wait_for(lambda: slow.hits and late.hits)
        endpoint.heal()
        assert (wire.reply(), other.reply()) == (0, 0)


def test_heal_stops_slowness_of_unsent_reply(server: Server) -> None:
    with Proxy(server.hosts) as proxy, Wire(proxy).welcomed() as wire:
        held = server.fault(hold(), "exists")
        slow = proxy.fault(slow_reply(0.01), "exists")
        wire.send(OpCode.EXISTS, r.ExistsRequest("/", False))
        proxy.wait_for(lambda: slow.hits and held.hits)
        proxy.heal()
        held.release()
        assert wire.reply() == 0


def test_fault_without_operation_ignores_handshakes(endpoint: Any) -> None:
    with endpoint.fault(error("NO_NODE")), Wire(endpoint).welcomed() as wire:
        assert wire.exists("/") == NO_NODE


def test_session_of_second_proxy_is_unknown(server: Server) -> None:
    with Proxy(server.hosts) as proxy, Wire(server).welcomed() as wire:
        with pytest.raises(LookupError, match=f"0x{wire.id:x} has no connection through this proxy"):
            proxy.drop(wire.id)


# --- defective servers ---


class Script:
    """A server that accepts one connection and passes it to a function."""

    def __init__(self, serve: Callable[[socket.socket], object]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._serve = serve
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.hosts = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def _run(self) -> None:
        connection, _ = self._listening.accept()
        with closing(connection):
            stream = connection.makefile("rb")
            stream.read(struct.unpack(">i", stream.read(4))[0])
            connection.sendall(frame(ConnectResponse(30_000, -5, bytes(16), False).encode()))
            self._serve(connection)
            stream.close()

    def close(self) -> None:
        """Wait until the function returns."""
        self._thread.join(DEADLINE_S)
        self._listening.close()


def reply(xid: int, error: int) -> bytes:
    """Return a reply without a body."""
    return frame(r.ReplyHeader(xid, 7, error).encode())


async def test_requests_for_unavailable_server_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "MAX_FRAME", 1000)

    async def never() -> None:
        await asyncio.Event().wait()

    client = ClientConnection()
    waiting = FrameQueue(
        Interceptor(lambda *later: None, float),
        client,
        lambda: None,
        lambda queue: Upstream(queue, lambda server: asyncio.create_task(never()), int),
        max_frame=1000,
    )
    for size in range(0, 1000, 100):
        waiting.receive_data(frame(b"x" * 96))
        assert not waiting.closing, size
    waiting.receive_data(frame(b"x" * 96))
    assert waiting.closing


def test_replies_are_matched_by_xid() -> None:
    create = frame(r.RequestHeader(1, OpCode.CREATE).encode() + creating("/a").encode())
    exists = frame(r.RequestHeader(2, OpCode.EXISTS).encode() + r.ExistsRequest("/b", False).encode())

    def serve(connection: socket.socket) -> None:
        connection.recv(len(create + exists), socket.MSG_WAITALL)
        connection.sendall(reply(2, 0) + reply(1, -110))
        connection.recv(1)

    with closing(Script(serve)) as script, Proxy(script.hosts) as proxy:
        with Wire(proxy).welcomed() as wire:  # type: ignore[arg-type]
            wire.link.sendall(create + exists)
            assert [r.ReplyHeader.decode(payload).xid for payload in wire.payloads(2)] == [2, 1]
            assert {op.path: op.error for op in proxy.ops(2)} == {"/a": -110, "/b": 0}
            assert str(proxy.ops(1)[0]).startswith("0xfffffffffffffffb ")
            proxy.drop(0xFFFFFFFFFFFFFFFB)


def test_unanswered_request_of_lost_server_is_recorded() -> None:
    with closing(Script(lambda connection: connection.recv(1000))) as script, Proxy(script.hosts) as proxy:
        with Wire(proxy).welcomed() as wire:  # type: ignore[arg-type]
            wire.send(OpCode.CREATE, creating("/a"))
            assert wire.ended()
        [op] = [op for op in proxy.ops() if op.op == "create"]
        assert (op.path, op.error) == ("/a", None)


def test_unanswered_request_is_not_idle() -> None:
    release = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        release.wait(DEADLINE_S)
        connection.sendall(reply(1, 0))
        connection.recv(1)

    with closing(Script(serve)) as script, Proxy(script.hosts) as proxy, Wire(proxy).welcomed() as wire:  # type: ignore[arg-type]
        wire.send(OpCode.CREATE, creating("/a"))
        with pytest.raises(TimeoutError, match="create /a waits because of its server"):
            proxy.wait_for_idle(timeout=0.2)
        release.set()
        assert wire.reply() == 0


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", frame(b"\0"), reply(99, 0)])
def test_garbage_from_server_closes_connection(data: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.recv(1)

    with closing(Script(serve)) as script, Proxy(script.hosts) as proxy, Wire(proxy) as wire:  # type: ignore[arg-type]
        while wire.link.recv(1000):
            pass


def test_invalid_host_name_closes_connection() -> None:
    with Proxy("a" * 70 + ".example:2181") as proxy, Wire(proxy) as wire:  # type: ignore[arg-type]
        assert wire.ended()


@contextmanager
def answering_nobody() -> Iterator[str]:
    """Yield the address of a server whose backlog is full: a connection to it neither succeeds nor fails."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_end_of_block_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    with answering_nobody() as hosts:
        async with Proxy(hosts) as proxy:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            await proxy.until(lambda: proxy._tasks)
    writer.close()
    await writer.wait_closed()
    assert asyncio.all_tasks() == before
