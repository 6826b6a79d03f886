"""An embedded server across a fork: it belongs to the parent, and a child that leaves the block does not disturb it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import socket
import time
import warnings
from typing import Any

import pytest
from support.apache import free_port
from support.embedded import CALLS, HELLO, create_node_with_kazoo, error_text, open_session, ruok, ruok_in_loop
from support.waiting import DEADLINE_S, PROMPT_S

from zoolet.protocol.framing import frame
from zoolet.testing import Server


def fork() -> int:
    """Fork. An alarm kills a child that hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn about exactly this
        child = os.fork()
    if child == 0:
        signal.alarm(int(DEADLINE_S))
    return child


class Child:
    """A forked child that reports JSON over a pipe, and lives until :meth:`end_child`."""

    def __init__(self) -> None:
        self.reports, self.report_end = os.pipe()
        self.waits, self.free = os.pipe()
        self.pid = -1

    def report(self, facts: dict[str, Any]) -> None:
        """Send a report to the parent. Call this in the child."""
        os.write(self.report_end, json.dumps(facts).encode() + b"\n")

    def live_on(self) -> None:
        """Wait for the parent's signal, and exit without cleanup. Call this in the child."""
        os.close(self.free)
        os.read(self.waits, 1)
        os._exit(0)

    def hear(self) -> dict[str, Any]:
        """Wait for the child's next report, and return it. Call this in the parent."""
        os.close(self.report_end)
        with os.fdopen(self.reports) as lines:
            facts: dict[str, Any] = json.loads(lines.readline() or '{"the child": "reported nothing"}')
        return facts

    def end_child(self) -> int:
        """Stop the child, and return its exit code. Call this in the parent."""
        os.close(self.free)
        os.close(self.waits)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_forked_child_is_ordinary_client() -> None:
    pipes = Child()
    with Server() as server:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                pipes.report(
                    {"answer": ruok(server.port).decode(), "made": create_node_with_kazoo(f"127.0.0.1:{server.port}")}
                )
            finally:
                pipes.live_on()
        facts = pipes.hear()
        tree = set(server.tree())
        assert pipes.end_child() == 0

    assert facts == {"answer": "imok", "made": "/made-0000000000"}
    assert tree == {"/made-0000000000"}


def test_forked_child_knows_address() -> None:
    pipes = Child()
    with Server() as server:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                pipes.report({"hosts": server.hosts, "port": server.port})
            finally:
                pipes.live_on()
        facts = pipes.hear()
        assert pipes.end_child() == 0
        assert facts == {"hosts": server.hosts, "port": server.port}


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("port", "hosts")])
def test_call_in_forked_child_raises(name: str) -> None:
    pipes = Child()
    with Server(clock="manual") as server:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                pipes.report({"error": error_text(lambda: CALLS[name](server))})
            finally:
                pipes.live_on()
        facts = pipes.hear()
        assert pipes.end_child() == 0

    assert re.match(rf"RuntimeError: .*\b{os.getpid()}\b", facts["error"])


def test_child_that_leaves_server_block_does_not_disturb_parent() -> None:
    parent = os.getpid()
    pipes = Child()
    try:
        with Server() as server, open_session(server.port) as link:
            pipes.pid = fork()
            if pipes.pid == 0:
                began = time.monotonic()
                link.detach()
            else:
                facts = pipes.hear()
                assert ruok(server.port) == b"imok"
                link.sendall(frame(b"\xff\xff\xff\xfe\x00\x00\x00\x0b"))  # a ping
                assert link.recv(100)[4:8] == b"\xff\xff\xff\xfe"
        if pipes.pid == 0:
            took = time.monotonic() - began
            del server
            gc.collect()
            pipes.report({"took": took})
            pipes.live_on()
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert pipes.end_child() == 0

    assert facts["took"] < PROMPT_S


async def test_call_in_child_forked_in_event_loop_raises() -> None:
    pipes = Child()
    async with Server() as server:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                pipes.report({"error": error_text(server.tree)})
            finally:
                pipes.live_on()
        facts = pipes.hear()
        assert await ruok_in_loop(server.port) == b"imok"
        assert pipes.end_child() == 0

    assert re.match(rf"RuntimeError: .*\b{os.getpid()}\b", facts["error"])


@pytest.mark.parametrize(
    "clients",
    [
        0,
        pytest.param(
            1,
        ),
    ],
)
async def test_child_forked_in_event_loop_does_not_disturb_parent(clients: int) -> None:
    parent = os.getpid()
    pipes = Child()
    writers = []
    try:
        async with Server() as server:
            for _ in range(clients):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writers.append(writer)
                writer.write(HELLO)
                assert await reader.read(100)
            pipes.pid = fork()
            if pipes.pid == 0:
                began = time.monotonic()
            else:
                facts = await asyncio.to_thread(pipes.hear)
                assert await ruok_in_loop(server.port) == b"imok"
                assert len(server.sessions()) == clients
        if pipes.pid == 0:
            pipes.report({"took": time.monotonic() - began})
            pipes.live_on()
    finally:
        if os.getpid() != parent:
            os._exit(1)
    for writer in writers:
        writer.close()
        await writer.wait_closed()

    assert pipes.end_child() == 0
    assert facts["took"] < PROMPT_S


def test_living_forked_child_does_not_keep_port_in_use() -> None:
    pipes, port = Child(), free_port()
    with Server(port=port) as server, open_session(port) as link:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                pipes.report({})
            finally:
                pipes.live_on()
        assert pipes.hear() == {}
        server.stop()

        assert link.recv(1) == b""  # the child does not keep the connection open
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        with Server(port=port) as again:
            assert ruok(again.port) == b"imok"
        assert pipes.end_child() == 0


def test_forked_child_may_have_its_own_server() -> None:
    pipes = Child()
    with Server() as server:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                with Server() as own:
                    own.populate({"/own": "x"})
                    pipes.report({"answer": ruok(own.port).decode(), "tree": list(own.tree())})
            finally:
                pipes.live_on()
        facts = pipes.hear()
        assert dict(server.tree()) == {}
        assert pipes.end_child() == 0

    assert facts == {"answer": "imok", "tree": ["/own"]}


def test_server_created_before_fork_starts_in_child() -> None:
    server = Server()
    pipes = Child()
    pipes.pid = fork()
    if pipes.pid == 0:
        try:
            with server:
                pipes.report({"answer": ruok(server.port).decode()})
        finally:
            pipes.live_on()
    facts = pipes.hear()
    assert pipes.end_child() == 0

    assert facts == {"answer": "imok"}
