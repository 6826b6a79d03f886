"""The start and stop of an embedded server, in a thread or in the running event loop: its port, and leftovers."""

from __future__ import annotations

import asyncio
import errno
import gc
import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Final

import pytest
from support.apache import free_port
from support.effort import effort
from support.embedded import HELLO, descriptors, error_text, open_session, ruok, ruok_in_loop
from support.waiting import DEADLINE_S

from zoolet.testing import Cluster, Server
from zoolet.testing.run import runner

CYCLES: Final = effort(300, 1000)


def in_python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new interpreter."""
    return subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_start_at_occupied_port_raises_os_error() -> None:
    with Server() as first:
        second = Server(port=first.port)
        threads, open_before = threading.active_count(), descriptors()
        with pytest.raises(OSError, match=str(first.port)):
            second.start()

        assert threading.active_count() == threads
        assert descriptors() <= open_before  # an earlier server may close descriptors a moment later
        assert ruok(first.port) == b"imok"
        second.stop()


async def test_start_at_occupied_port_raises_os_error_in_loop() -> None:
    async with Server() as first:
        tasks, open_before = len(asyncio.all_tasks()), descriptors()
        with pytest.raises(OSError, match=str(first.port)):
            async with Server(port=first.port):
                pass

        assert len(asyncio.all_tasks()) <= tasks  # a task of the first server may have ended since
        assert descriptors() <= open_before
        assert await ruok_in_loop(first.port) == b"imok"


def test_failed_loop_creation_is_raised_by_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(runner, "RealTimeLoop", no_loop)
    server, threads = Server(), threading.active_count()

    with pytest.raises(OSError, match="Too many open files"):
        server.start()

    assert threading.active_count() == threads
    assert "could not listen" in repr(server)


def test_error_in_server_thread_is_raised_in_caller(server: Server) -> None:
    with pytest.raises(LookupError):
        server.expire(1)

    assert dict(server.tree()) == {}


async def test_server_in_loop_is_not_stopped_by_stop() -> None:
    async with Server() as server:
        with pytest.raises(RuntimeError, match="async with"):
            server.stop()
        assert await ruok_in_loop(server.port) == b"imok"


async def test_call_of_server_in_blocked_loop_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CALL_TIMEOUT_SECONDS", 0.01)
    errors: list[str] = []

    async with Server() as server:
        caller = threading.Thread(target=lambda: errors.append(error_text(server.tree)))
        caller.start()
        caller.join()  # blocks the event loop

    assert errors == [
        "TimeoutError: the server's event loop was blocked for 0.01 s; is a blocking client running in it?"
    ]


def test_server_starts_after_failed_attempt() -> None:
    port = free_port()
    with Server(port=port):
        second = Server(port=port)
        with pytest.raises(OSError):
            second.start()
    with second:
        assert second.port == port
        assert ruok(port) == b"imok"


def test_chosen_port_is_reusable_immediately() -> None:
    port = free_port()
    with Server(port=port), open_session(port):
        pass
    for _ in range(5):
        with Server(port=port) as again, open_session(port):
            assert again.port == port


def test_second_start_raises_with_address() -> None:
    with Server() as server:
        with pytest.raises(RuntimeError, match=re.escape(server.hosts)):
            server.start()
        assert ruok(server.port) == b"imok"


async def test_second_start_in_loop_raises_with_address() -> None:
    async with Server() as server:
        with pytest.raises(RuntimeError, match=re.escape(server.hosts)):
            async with server:
                pass
        assert await ruok_in_loop(server.port) == b"imok"


def test_repeated_stop_of_server_is_harmless() -> None:
    server = Server()
    server.stop()
    with server:
        server.stop()
        server.stop()


def test_clients_are_disconnected_by_a_stop() -> None:
    with Server() as server, open_session(server.port) as link:
        server.stop()
        assert link.recv(1) == b""


async def test_stop_in_loop_leaves_no_task() -> None:
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
def test_many_servers_in_threads_leak_no_resources() -> None:
    with Server() as server:
        ruok(server.port)
    gc.collect()
    before = descriptors(), threading.active_count()

    for cycle in range(CYCLES):
        with Server() as server:
            if cycle % 10 == 0:
                with open_session(server.port):
                    server.stop()

    assert (descriptors(), threading.active_count()) == before


@pytest.mark.slow
async def test_many_servers_in_one_loop_leak_no_resources() -> None:
    async with Server():
        pass
    gc.collect()
    before = descriptors(), threading.active_count(), len(asyncio.all_tasks())

    for cycle in range(CYCLES):
        async with Server() as server:
            if cycle % 10 == 0:
                assert await ruok_in_loop(server.port) == b"imok"

    assert (descriptors(), threading.active_count(), len(asyncio.all_tasks())) == before


def test_stopped_server_is_freed() -> None:
    def servers() -> int:
        gc.collect()
        return sum(isinstance(one, Server) for one in gc.get_objects())

    before = servers()
    for _ in range(5):
        with Server() as server, open_session(server.port):
            pass
    del server

    assert servers() == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blocking", "asyncio", "never stopped"])
def test_strict_interpreter_gives_no_warning(kind: str) -> None:
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
    lines = "from zoolet.testing import Server\n" + "\n".join(line[12:] for line in code.splitlines())

    done = in_python(lines, "-W", "error::ResourceWarning", "-X", "dev")

    assert (done.returncode, done.stdout, done.stderr) == (0, "imok\n", "")


async def test_cancelled_start_leaves_no_socket() -> None:
    port = free_port()
    for steps in range(100):  # cancel one step later each time, until the start completes before the cancel
        starting = asyncio.create_task(Server(port=port).__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        try:
            server = await starting
        except asyncio.CancelledError:
            with socket.socket() as link:
                assert link.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
        else:
            break
    await server.__aexit__(None, None, None)
    assert steps > 1


async def test_cluster_with_occupied_port_leaves_no_socket() -> None:
    port = free_port()
    async with Server() as other:
        with pytest.raises(OSError, match="in use"):
            await Cluster(2, ports=[port, other.port]).__aenter__()
    with socket.socket() as link:
        assert link.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
