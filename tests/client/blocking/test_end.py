"""The end of a blocking client: at interpreter exit, without resources, and after Ctrl-C."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from support.child import call_in_child
from support.waiting import DEADLINE_S, PROMPT_S

from zoolet.client import ClosedError, ConnectionLossError, State, blocking
from zoolet.client.aio.fork import FORKED_MESSAGE
from zoolet.client.blocking import loop_thread
from zoolet.client.recipes import LockLostError
from zoolet.testing import Server

# --- the end of the interpreter, and machines without resources ---

AT_EXIT_PROGRAM: Final = """
import os, sys
from zoolet.client import ClosedError, blocking
from zoolet.client.blocking.recipes import Lock, NodeCache

class Holder:
    def __init__(self, hosts):
        self.zk = blocking.Client(hosts)
        self.zk.start()
        self.lease = Lock(self.zk, "/lock").acquire()
        self.cache = NodeCache(self.zk, "/").__enter__()

    def __del__(self, write=os.write, closed=ClosedError):
        try:
            HOW(self)
            write(1, b"done")
        except closed:
            write(1, b"closed")

holder = Holder(sys.argv[1])  # deleted with this module, after the handlers of atexit
"""


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("self.zk.close()", "done"),
        ("self.lease.release()", "closed"),
        ("self.cache.__exit__(None, None, None)", "done"),
        ("self.zk.get('/')", "closed"),
    ],
)
@pytest.mark.parametrize("away", [False, True], ids=["with server", "without server"])
def test_client_used_at_interpreter_exit_does_not_hang(server: Server, how: str, expected: str, away: bool) -> None:
    program = AT_EXIT_PROGRAM.replace("HOW(self)", how)
    if away:
        program += "print('ready', flush=True)\nsys.stdin.readline()\n"

    with subprocess.Popen(
        [sys.executable, "-c", program, server.hosts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            if away:
                assert process.stdout.readline() == "ready\n"
                server.refuse_connections()
                server.drop("all")
            output, _ = process.communicate("\n", timeout=DEADLINE_S)
        finally:
            process.kill()

    assert (output, process.returncode) == (expected, 0)
    assert away or not server.sessions()


NO_DESCRIPTORS_PROGRAM: Final = """
import os, resource, sys
from zoolet.client import blocking
client = blocking.Client(sys.argv[1])
left = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
while True:
    try:
        taken.append(os.dup(0))
    except OSError:
        break
for _ in range(left):
    os.close(taken.pop())
try:
    client.start()
except OSError as error:
    os.write(1, os.strerror(error.errno).encode())
"""


@pytest.mark.parametrize("left", [0, 1, 2])
def test_start_without_file_descriptors_raises(server: Server, left: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTORS_PROGRAM, server.hosts, str(left)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert done.stdout == "Too many open files"
    assert "Exception in thread" not in done.stderr


# --- interrupts ---


@pytest.fixture
def interrupt() -> Iterator[Callable[[], object]]:
    """A function that raises KeyboardInterrupt in the main thread after 0.1 s, like Ctrl-C."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("state", [State.SUSPENDED, State.LOST])
def test_ctrl_c_ends_block_soon_while_server_is_unreachable(
    server: Server, state: State, interrupt: Callable[[], object]
) -> None:
    def leave(zk: blocking.Client) -> None:
        with blocking.recipes.Party(zk, "/party", b"me", stop_timeout=DEADLINE_S):
            server.refuse_connections()
            server.drop("all")
            zk.wait_for(state)
            interrupt()

    with blocking.Client(server.hosts, timeout=1.0) as zk:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            leave(zk)
        assert time.monotonic() - began < 2 * PROMPT_S


@pytest.mark.parametrize("kind", [blocking.recipes.NodeCache, blocking.recipes.PersistentEphemeral])
def test_ctrl_c_ends_entry_to_block(server: Server, kind: Any, interrupt: Callable[[], object]) -> None:
    with blocking.Client(server.hosts) as zk:
        block = kind(zk, "/node")
        server.refuse_connections()
        server.drop("all")
        interrupt()

        with pytest.raises(KeyboardInterrupt):
            block.__enter__()

        server.accept_connections()
        assert zk.children("/") == ["zookeeper"]


def test_operation_timeout_limits_entry_to_offline_cache_block(server: Server) -> None:
    with blocking.Client(server.hosts) as zk:
        server.refuse_connections()
        server.drop("all")
        cache = blocking.recipes.NodeCache(zk.with_operation_timeout(0.05), "/node")

        with pytest.raises(ConnectionLossError, match=r"no connection within 0\.05 s"):
            cache.__enter__()


def test_thread_ends_despite_system_exit_in_task(server: Server) -> None:
    zk = blocking.Client(server.hosts)
    zk.start()
    tasks = []

    async def leave_task(client: Any) -> None:
        async def stubborn() -> None:
            try:
                await asyncio.sleep(DEADLINE_S)
            finally:
                raise SystemExit(1)

        tasks.append(asyncio.create_task(stubborn()))

    zk.use(leave_task)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(zk.use, lambda client: asyncio.Event().wait())
        server.wait_for(lambda: zk.loop_thread._calls)
        zk.close()
        assert isinstance(waiting.exception(DEADLINE_S), ClosedError)


def test_start_can_be_repeated_after_failure(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, zk = threading.active_count(), blocking.Client(server.hosts)

    def fail(runner: Any) -> Any:
        raise OSError("no descriptors")

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Runner, "get_loop", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="no descriptors"):
                zk.start()
    with zk:
        assert zk.children("/") == ["zookeeper"]
    server.wait_for(lambda: threading.active_count() == threads)


class HandlerError(RuntimeError):
    """An error of a signal handler, of the same type as Python's error when no thread can start."""


def test_runtime_error_of_handler_is_raised_unchanged(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, zk = threading.active_count(), blocking.Client(server.hosts)
    start = loop_thread._thread.start_new_thread

    def interrupted(*args: Any) -> Any:
        start(*args)

        def handle() -> None:
            raise HandlerError

        handle()

    monkeypatch.setattr(loop_thread._thread, "start_new_thread", interrupted)
    with pytest.raises(HandlerError):
        zk.start()
    monkeypatch.undo()
    server.wait_for(lambda: threading.active_count() == threads)


def test_interrupt_before_call_waits_shortens_exit_of_block(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with blocking.Client(server.hosts) as zk:
        result, calls = loop_thread.LoopThread._result, []

        def interrupted(thread: Any, call: Any) -> Any:
            calls.append(call)
            if len(calls) == 1:
                raise KeyboardInterrupt
            return result(thread, call)

        monkeypatch.setattr(loop_thread.LoopThread, "_result", interrupted)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            zk.loop_thread.run_to_completion(lambda: asyncio.sleep(DEADLINE_S))
        assert time.monotonic() - began < 2 * PROMPT_S


LATE_PROGRAM: Final = """
import atexit, os, sys
atexit.register(lambda: late.append(Late()))  # before the import: it is called after the client's own function
from zoolet.client import blocking

late = []

class Late:
    def __init__(self):
        self.zk = blocking.Client(sys.argv[1])
        self.zk.start()
        assert self.zk.exists("/") is not None

    def __del__(self, write=os.write):
        try:
            self.zk.get("/", timeout=1)
        except RuntimeError as error:
            write(1, str(error).encode())
        self.zk.close()
"""


def test_client_started_at_exit_does_not_hang(server: Server) -> None:
    program = [sys.executable, "-c", LATE_PROGRAM, server.hosts]
    done = subprocess.run(program, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    # Python 3.12.0 and 3.12.1 cannot start a thread at exit, so there the client reports that it is not running.
    assert re.match(
        "this Client (cannot be used, because the interpreter is shutting down|is not running)", done.stdout
    )
    assert done.returncode == 0


def test_finalizer_in_thread_of_loop_can_close(server: Server) -> None:
    zk = blocking.Client(server.hosts)
    zk.start()
    lease = zk.lock("/lock").acquire()

    async def close(_: Any) -> None:
        zk.close()

    zk.use(close)

    server.wait_for(lambda: not server.sessions())
    with pytest.raises(LockLostError, match="the client was closed"):
        lease.raise_if_lost()
    zk.close()


def test_unstarted_client_can_start_in_forked_child(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    zk = blocking.Client(server.hosts)
    monkeypatch.setattr(loop_thread.os, "getpid", lambda: 1)  # as if this were a forked child
    with pytest.raises(RuntimeError, match="this Client is not running"):
        zk.get("/")
    with zk:
        assert zk.exists("/") is not None
        monkeypatch.undo()  # as if a forked child had forked again
        with pytest.raises(RuntimeError, match=FORKED_MESSAGE):
            zk.get("/")
        monkeypatch.setattr(loop_thread.os, "getpid", lambda: 1)


def test_child_forked_during_start_does_not_hang(server: Server) -> None:
    zk = blocking.Client(server.hosts)
    zk.loop_thread.start()  # start() calls this first; the fork happens before the rest

    def report() -> str:
        with pytest.raises(RuntimeError) as refused:
            zk.get("/")
        zk.close()
        return f"{refused.value}; closed"

    reported = call_in_child(report)
    zk.loop_thread.stop()

    assert reported == f"{FORKED_MESSAGE}; closed"
