"""How an embedded server starts and stops: in a thread or in the running loop, a thousand times, beside another, across
a fork; and what it says when it does not run.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop
from kazoo.client import KazooClient

from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.server import Server
from zoolet.server.testing import hold

DEADLINE_S: Final = 10.0  # only ever reached on failure
AT_ONCE_S: Final = 1.0  # far less than any patience in the code, far more than a call takes
CYCLES: Final = 1000
HELLO: Final = frame(ConnectRequest(timeout_ms=30_000).encode())

CALLS: Final[dict[str, Callable[[Server], object]]] = {
    "port": lambda server: server.port,
    "hosts": lambda server: server.hosts,
    "expire": lambda server: server.expire("all"),
    "drop": lambda server: server.drop("all"),
    "pause": lambda server: server.pause("all"),
    "resume": lambda server: server.resume("all"),
    "expire an id": lambda server: server.expire(1),
    "drop an id": lambda server: server.drop(1),
    "pause an id": lambda server: server.pause(1),
    "resume an id": lambda server: server.resume(1),
    "refuse_connections": lambda server: server.refuse_connections(),
    "accept_connections": lambda server: server.accept_connections(),
    "advance": lambda server: server.advance(1),
    "fault": lambda server: server.fault(action=hold()),
    "populate": lambda server: server.populate({"/a": "x"}),
    "reset": lambda server: server.reset(),
    "tree": lambda server: server.tree(),
    "sessions": lambda server: server.sessions(),
    "watches": lambda server: server.watches(),
    "ops": lambda server: server.ops(),
    "wait_for": lambda server: server.wait_for(lambda: True),
}


# --- what the tests say it with ---


def descriptors() -> int:
    """Count this process's open descriptors."""
    return len(os.listdir("/proc/self/fd"))


def ruok(port: int) -> bytes:
    """Ask a server whether it serves."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as link:
        link.sendall(b"ruok")
        return link.recv(4)


async def ruok_from_here(port: int) -> bytes:
    """Ask a server in this loop whether it serves."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"ruok")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@contextmanager
def session(port: int) -> Iterator[socket.socket]:
    """Open a session, and its socket."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as link:
        link.sendall(HELLO)
        answer = link.recv(4096)
        assert ConnectResponse.decode(answer[4:]).session_id
        yield link


def visit(hosts: str) -> str:
    """Make a node with kazoo."""
    client = KazooClient(hosts, timeout=30)
    client.start(DEADLINE_S)
    try:
        path: str = client.create("/made-", b"x", sequence=True)
        return path
    finally:
        client.stop()
        client.close()


def fork() -> int:
    """Fork; a child that hangs dies by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 and later say what this test is about
        child = os.fork()
    if child == 0:
        signal.alarm(int(DEADLINE_S))
    return child


def in_python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )


def error_of(do: Callable[[], object]) -> str:
    """Do something that fails; give the error as text."""
    try:
        do()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


class Child:
    """The child's side of a fork, as JSON that comes over a pipe; the child lives until :meth:`release_nowait`."""

    def __init__(self) -> None:
        self.said, self.tell = os.pipe()
        self.waits, self.free = os.pipe()
        self.pid = -1

    def report(self, facts: dict[str, Any]) -> None:
        """Tell the parent."""
        os.write(self.tell, json.dumps(facts).encode() + b"\n")

    def live_on(self) -> None:
        """Wait for the parent's word, and end without a trace."""
        os.close(self.free)
        os.read(self.waits, 1)
        os._exit(0)

    def hear(self) -> dict[str, Any]:
        """In the parent: wait for the next report."""
        os.close(self.tell)
        with os.fdopen(self.said) as lines:
            facts: dict[str, Any] = json.loads(lines.readline() or '{"the child": "said nothing"}')
        return facts

    def let_go(self) -> int:
        """In the parent: end the child; give its exit code."""
        os.close(self.free)
        os.close(self.waits)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


# --- from all kinds of code ---


def test_blocking_code_gets_a_server_that_accepts() -> None:
    with Server() as server:
        assert server.hosts == f"127.0.0.1:{server.port}"
        assert ruok(server.port) == b"imok"
        assert visit(server.hosts) == "/made-0000000000"
        assert set(server.tree()) == {"/made-0000000000"}


async def test_asyncio_code_gets_a_server_in_its_own_loop() -> None:
    threads = threading.active_count()

    async with Server() as server:
        assert threading.active_count() == threads
        assert await ruok_from_here(server.port) == b"imok"
        assert await asyncio.to_thread(visit, server.hosts) == "/made-0000000000"
        assert set(server.tree()) == {"/made-0000000000"}


def test_uvloop_will_do() -> None:
    async def main() -> bytes:
        async with Server() as server:
            return await ruok_from_here(server.port)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == b"imok"


async def test_asyncio_code_may_have_one_in_a_thread() -> None:
    with Server() as server:
        server.populate({"/a": "x"})
        assert await ruok_from_here(server.port) == b"imok"
        assert server.wait_for(lambda: "/a" in server.tree()) is True


async def test_other_threads_may_use_a_server_of_a_loop() -> None:
    async with Server() as server:
        await asyncio.to_thread(server.populate, {"/a": "x"})
        assert set(await asyncio.to_thread(server.tree)) == {"/a"}
        assert await asyncio.to_thread(server.wait_for, lambda: "/a" in server.tree()) is True


def test_many_threads_may_use_one_server() -> None:
    with Server() as server:
        threads = [threading.Thread(target=server.populate, args=({f"/n{i}": str(i)},)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)

        assert {path: node.data for path, node in server.tree().items()} == {
            f"/n{i}": str(i).encode() for i in range(20)
        }


def test_the_thread_that_stops_need_not_be_the_one_that_started() -> None:
    server = Server()
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join(DEADLINE_S)
    assert ruok(server.port) == b"imok"

    stopper = threading.Thread(target=server.stop)
    stopper.start()
    stopper.join(DEADLINE_S)

    assert not stopper.is_alive()
    with pytest.raises(RuntimeError, match="stopped"):
        _ = server.port


def test_two_servers_know_nothing_of_each_other() -> None:
    with Server() as one, Server() as two:
        one.populate({"/one": "1"})
        two.populate({"/two": "2"})
        with session(one.port):
            assert (len(one.sessions()), len(two.sessions())) == (1, 0)
        assert (set(one.tree()), set(two.tree())) == ({"/one"}, {"/two"})
        assert one.port != two.port
        two.stop()
        assert ruok(one.port) == b"imok"


async def test_two_servers_share_a_loop() -> None:
    async with Server() as one, Server() as two:
        one.populate({"/one": "1"})
        assert (set(one.tree()), set(two.tree())) == ({"/one"}, set())
        assert await ruok_from_here(one.port) == await ruok_from_here(two.port) == b"imok"


def test_an_error_in_the_block_goes_through_and_the_server_stops() -> None:
    server = Server()

    with pytest.raises(ZeroDivisionError), server:
        _ = 1 / 0

    assert "stopped" in repr(server)


async def test_an_error_in_an_async_block_goes_through_and_the_server_stops() -> None:
    server = Server()

    with pytest.raises(ZeroDivisionError):
        async with server:
            _ = 1 / 0

    assert "stopped" in repr(server)


def test_a_server_may_run_again_with_fresh_state() -> None:
    server = Server()
    with server:
        server.populate({"/a": "x"})
    with server:
        assert ruok(server.port) == b"imok"
        assert dict(server.tree()) == {}


def test_repr_says_where_it_listens() -> None:
    server = Server()
    before = repr(server)
    with server:
        assert server.hosts in repr(server)

    assert "not started" in before
    assert "stopped" in repr(server)


def test_the_contract_s_admin_url_is_there() -> None:
    with Server() as server:
        assert server.admin_url is None or str(server.admin_url).startswith("http://")  # type: ignore[attr-defined]


# --- starting and stopping ---


def test_a_port_that_is_taken_is_an_os_error() -> None:
    with Server() as first:
        second = Server(port=first.port)
        threads, open_before = threading.active_count(), descriptors()
        with pytest.raises(OSError, match=str(first.port)):
            second.start()

        assert (threading.active_count(), descriptors()) == (threads, open_before)
        assert ruok(first.port) == b"imok"
        second.stop()


async def test_a_port_that_is_taken_is_an_os_error_in_a_loop_too() -> None:
    async with Server() as first:
        tasks, open_before = len(asyncio.all_tasks()), descriptors()
        with pytest.raises(OSError, match=str(first.port)):
            async with Server(port=first.port):
                pass

        assert (len(asyncio.all_tasks()), descriptors()) == (tasks, open_before)
        assert await ruok_from_here(first.port) == b"imok"


def test_a_server_that_could_not_listen_may_try_again() -> None:
    with Server() as first:
        port = first.port
        second = Server(port=port)
        with pytest.raises(OSError):
            second.start()
    with second:
        assert second.port == port
        assert ruok(port) == b"imok"


def test_a_chosen_port_is_free_again_at_once() -> None:
    with Server() as first:
        port = first.port
        with session(port):
            pass
    for _ in range(5):
        with Server(port=port) as again, session(port):
            assert again.port == port


def test_starting_twice_is_an_error_that_names_the_address() -> None:
    with Server() as server:
        with pytest.raises(RuntimeError, match=re.escape(server.hosts)):
            server.start()
        assert ruok(server.port) == b"imok"


async def test_starting_twice_is_an_error_in_a_loop_too() -> None:
    async with Server() as server:
        with pytest.raises(RuntimeError, match=re.escape(server.hosts)):
            async with server:
                pass
        assert await ruok_from_here(server.port) == b"imok"


def test_stopping_twice_is_nothing() -> None:
    server = Server()
    server.stop()
    with server:
        server.stop()
        server.stop()


def test_clients_are_cut_off_by_a_stop() -> None:
    with Server() as server, session(server.port) as link:
        server.stop()
        assert link.recv(1) == b""


async def test_a_stop_in_a_loop_leaves_no_task() -> None:
    tasks = asyncio.all_tasks()

    async with Server() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HELLO)
        assert await reader.read(10)
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()

    assert asyncio.all_tasks() == tasks


@pytest.mark.slow
def test_a_thousand_servers_in_threads_leave_nothing() -> None:
    with Server() as server:
        ruok(server.port)
    gc.collect()
    before = descriptors(), threading.active_count()

    for cycle in range(CYCLES):
        with Server() as server:
            if cycle % 10 == 0:
                with session(server.port):
                    server.stop()

    assert (descriptors(), threading.active_count()) == before


@pytest.mark.slow
async def test_a_thousand_servers_in_one_loop_leave_nothing() -> None:
    async with Server():
        pass
    gc.collect()
    before = descriptors(), threading.active_count(), len(asyncio.all_tasks())

    for cycle in range(CYCLES):
        async with Server() as server:
            if cycle % 10 == 0:
                assert await ruok_from_here(server.port) == b"imok"

    assert (descriptors(), threading.active_count(), len(asyncio.all_tasks())) == before


def test_a_server_that_has_stopped_is_freed() -> None:
    def servers() -> int:
        gc.collect()
        return sum(isinstance(one, Server) for one in gc.get_objects())

    before = servers()
    for _ in range(5):
        with Server() as server, session(server.port):
            pass
    del server

    assert servers() == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blocking", "asyncio", "never stopped"])
def test_the_interpreter_s_checks_find_nothing(kind: str) -> None:
    code = {
        "blocking": """
            import socket
            with Server() as server, socket.create_connection(("127.0.0.1", server.port)) as link:
                link.sendall(b"ruok")
                print(link.recv(4).decode())
        """,
        "asyncio": """
            import asyncio
            async def main():
                async with Server() as server:
                    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                    writer.write(b"ruok")
                    print((await reader.read()).decode())
                    writer.close()
                    await writer.wait_closed()
            asyncio.run(main())
        """,
        "never stopped": """
            server = Server()
            server.start()
            print("imok")
        """,
    }[kind]
    lines = "from zoolet.server import Server\n" + "\n".join(line[12:] for line in code.splitlines())

    done = in_python(lines, "-W", "error::ResourceWarning", "-X", "dev")

    assert (done.returncode, done.stdout, done.stderr) == (0, "imok\n", "")


# --- forks ---


def test_a_forked_child_is_a_client_like_any_other() -> None:
    pipes = Child()
    with Server() as server:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                pipes.report({"answer": ruok(server.port).decode(), "made": visit(f"127.0.0.1:{server.port}")})
            finally:
                pipes.live_on()
        facts = pipes.hear()
        tree = set(server.tree())
        assert pipes.let_go() == 0

    assert facts == {"answer": "imok", "made": "/made-0000000000"}
    assert tree == {"/made-0000000000"}


def test_a_forked_child_knows_the_address() -> None:
    pipes = Child()
    with Server() as server:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                pipes.report({"hosts": server.hosts, "port": server.port})
            finally:
                pipes.live_on()
        facts = pipes.hear()
        assert pipes.let_go() == 0
        assert facts == {"hosts": server.hosts, "port": server.port}


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("port", "hosts")])
def test_a_forked_child_is_told_at_once_whose_server_it_is(name: str) -> None:
    pipes = Child()
    with Server(clock="manual") as server:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                began = time.monotonic()
                error = error_of(lambda: CALLS[name](server))
                pipes.report({"error": error, "took": time.monotonic() - began})
            finally:
                pipes.live_on()
        facts = pipes.hear()
        assert pipes.let_go() == 0

    assert re.match(rf"RuntimeError: .*\b{os.getpid()}\b", facts["error"])
    assert facts["took"] < AT_ONCE_S


def test_a_child_that_leaves_the_block_disturbs_nobody() -> None:
    parent = os.getpid()
    pipes = Child()
    try:
        with Server() as server, session(server.port) as link:
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
    assert pipes.let_go() == 0

    assert facts["took"] < AT_ONCE_S


async def test_a_child_of_a_loop_is_told_at_once_whose_server_it_is() -> None:
    pipes = Child()
    async with Server() as server:
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                pipes.report({"error": error_of(server.tree)})
            finally:
                pipes.live_on()
        facts = pipes.hear()
        assert await ruok_from_here(server.port) == b"imok"
        assert pipes.let_go() == 0

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
async def test_a_child_of_a_loop_that_leaves_the_block_disturbs_nobody(clients: int) -> None:
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
                assert await ruok_from_here(server.port) == b"imok"
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

    assert pipes.let_go() == 0
    assert facts["took"] < AT_ONCE_S


def test_the_port_is_free_once_the_parent_stopped_though_the_child_lives() -> None:
    pipes = Child()
    with Server() as server, session(server.port) as link:
        port = server.port
        pipes.pid = fork()
        if pipes.pid == 0:
            try:
                pipes.report({})
            finally:
                pipes.live_on()
        assert pipes.hear() == {}
        server.stop()

        assert link.recv(1) == b""  # the child keeps no connection open either
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        with Server(port=port) as again:
            assert ruok(again.port) == b"imok"
        assert pipes.let_go() == 0


def test_a_forked_child_may_have_a_server_of_its_own() -> None:
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
        assert pipes.let_go() == 0

    assert facts == {"answer": "imok", "tree": ["/own"]}


def test_a_server_made_and_not_started_runs_in_the_child() -> None:
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
    assert pipes.let_go() == 0

    assert facts == {"answer": "imok"}


# --- what does not run, or cannot ---


@pytest.mark.parametrize("name", CALLS)
def test_a_server_that_was_not_started_says_so_at_once(name: str) -> None:
    began = time.monotonic()

    with pytest.raises(RuntimeError, match="not started"):
        CALLS[name](Server(clock="manual"))

    assert time.monotonic() - began < AT_ONCE_S


@pytest.mark.parametrize("name", CALLS)
def test_a_server_that_has_stopped_says_so_at_once(name: str) -> None:
    server = Server(clock="manual")
    with server:
        pass
    began = time.monotonic()

    with pytest.raises(RuntimeError, match="stopped"):
        CALLS[name](server)

    assert time.monotonic() - began < AT_ONCE_S


def test_a_snapshot_of_a_server_that_was_not_started_says_so() -> None:
    with pytest.raises(RuntimeError, match="not started"):
        Server().snapshot()


def test_snapshots_of_a_server_that_has_stopped_say_so() -> None:
    server = Server()
    with server:
        kept = server.snapshot()

    with pytest.raises(RuntimeError, match="stopped"):
        server.snapshot()
    with pytest.raises(RuntimeError, match="stopped"):
        server.restore(kept)


async def test_a_server_of_a_loop_that_has_stopped_says_so_at_once() -> None:
    async with Server() as server:
        pass

    with pytest.raises(RuntimeError, match="stopped"):
        server.tree()
    with pytest.raises(RuntimeError, match="stopped"):
        await server.wait_for(lambda: True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"clock": "sun"}, "sun"),
        ({"clock": None}, "None"),
        ({"data_dir": "/tmp"}, "data_dir"),
        ({"config": {"tickTime": "x"}}, "tickTime"),
        ({"config": {"tickTime": 0}}, "tickTime"),
    ],
)
def test_arguments_that_make_no_sense_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Server(**arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"port": -1}, "-1"),
        ({"port": 65536}, "65536"),
        ({"port": "x"}, "x"),
        ({"port": None}, "None"),
        ({"host": None}, "None"),
        ({"host": 3}, "3"),
        ({"seed": "x"}, "x"),
        ({"seed": 1.5}, "1.5"),
        ({"config": 3}, "3"),
        ({"config": {3: 4}}, "3"),
    ],
)
def test_more_arguments_that_make_no_sense_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Server(**arguments)


def test_a_config_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises((ValueError, OSError), match=r"missing\.cfg"):
        Server(config=tmp_path / "missing.cfg")


def test_a_zoo_cfg_is_read(tmp_path: Path) -> None:
    path = tmp_path / "zoo.cfg"
    path.write_text("tickTime=100\nminSessionTimeout=5000\nmaxSessionTimeout=6000\n")

    with Server(config=path) as server, session(server.port):
        (found,) = server.sessions().values()

    assert found.timeout == 6.0


def test_config_may_be_a_dict() -> None:
    with Server(config={"maxSessionTimeout": 7000}) as server, session(server.port):
        (found,) = server.sessions().values()

    assert found.timeout == 7.0
