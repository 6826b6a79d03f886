"""Calls of a signal handler while the thread that it interrupts holds a lock of the standard library."""

from __future__ import annotations

import io
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Final

import pytest
from support.waiting import DEADLINE_S

from zoolet.client.blocking import Client, log, loop_thread, recipes
from zoolet.testing import Server


@pytest.fixture
def handler() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """A function that calls its argument, as a signal handler would while the main thread holds a lock."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # starts the thread now, because starting a thread takes a lock
        yield lambda function: pool.submit(function).result(DEADLINE_S)


@pytest.fixture
def stream() -> Iterator[logging.StreamHandler[io.StringIO]]:
    """A log handler of the client's logger."""
    handler, logger = logging.StreamHandler(io.StringIO()), logging.getLogger("zoolet.client")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(level)
    logger.removeHandler(handler)


def logged_states(stream: logging.StreamHandler[io.StringIO]) -> list[str]:
    """Return the logged states."""
    return [line.split(" is ")[1].split(":")[0] for line in stream.stream.getvalue().splitlines()]


def test_loop_does_not_wait_for_log_handler(
    server: Server, handler: Callable[..., Any], stream: logging.StreamHandler[io.StringIO]
) -> None:
    with Client(server.hosts) as zk:
        assert stream.lock is not None
        with stream.lock:
            server.drop("all")
            handler(lambda: zk.exists("/"))
            assert logged_states(stream) == ["connected"]
        server.wait_for(lambda: logged_states(stream) == ["connected", "suspended", "connected"])


def test_close_does_not_wait_for_log_handler(
    server: Server, handler: Callable[..., Any], stream: logging.StreamHandler[io.StringIO]
) -> None:
    zk = Client(server.hosts)
    zk.start()
    assert stream.lock is not None
    with stream.lock:
        handler(zk.close)
    server.wait_for(lambda: logged_states(stream) == ["connected", "closed"])


def test_loop_log_record_is_written_before_client_call_returns(
    server: Server, stream: logging.StreamHandler[io.StringIO]
) -> None:
    with Client(server.hosts):
        assert logged_states(stream) == ["connected"]
    assert logged_states(stream) == ["connected", "closed"]


class FailingHandler(logging.Handler):
    """A log handler that fails for each record but the first."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def handle(self, record: logging.LogRecord) -> bool:
        """Handle a record, without a lock."""
        self.records.append(record)
        if len(self.records) > 1:
            raise ValueError("no disk")
        return True


class KeepingHandler(logging.Handler):
    """A log handler that stores the records in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Append a record to the list."""
        self.records.append(record)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The client's logger, for records of all levels. Its handlers and filters are restored afterwards."""
    logger = logging.getLogger("zoolet.client")
    handlers, filters, level = list(logger.handlers), list(logger.filters), logger.level
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers[:], logger.filters[:] = handlers, filters
    logger.setLevel(level)


async def log_in_loop(*texts: str) -> None:
    """Log in the client's event loop."""
    for text in texts:
        logging.getLogger("zoolet.client").warning(text)


def test_loop_continues_after_log_handler_raises(
    server: Server, zk: Client, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = FailingHandler()
    logger.addHandler(failing)
    zk.use(lambda _: log_in_loop("one", "two", "three"))

    server.wait_for(lambda: len(failing.records) == 3)
    server.wait_for(lambda: "no disk" in capsys.readouterr().err)
    assert zk.exists("/") is not None


def test_logger_filter_applies_to_records_of_loop(
    zk: Client, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    logger.addFilter(lambda record: "secret" not in record.getMessage())
    zk.use(lambda _: log_in_loop("a secret", "a text"))

    assert [record.getMessage() for record in caplog.records if record.funcName == "log_in_loop"] == ["a text"]


def test_backlog_of_blocked_log_handler_is_bounded(
    server: Server, zk: Client, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MAX_WAITING_RECORDS", 3)
    handler = KeepingHandler()
    logger.addHandler(handler)
    assert handler.lock is not None
    with handler.lock:
        zk.use(lambda _: log_in_loop(*map(str, range(10))), timeout=DEADLINE_S)

    server.wait_for(lambda: len(handler.records) == 5)
    texts = [record.getMessage() for record in handler.records]
    assert texts[0] == "0"
    assert texts[1] == "6 records of the client were not logged, because the log handlers are slow"


def test_event_loop_writes_log_itself_if_no_thread_can_start(
    zk: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(log.loop_record_filter, "writer", None)
    monkeypatch.setattr(log._thread, "start_new_thread", refuse)  # type: ignore[attr-defined]
    zk.use(lambda _: log_in_loop("text"))
    assert "text" in caplog.text


def test_forked_child_starts_its_own_log_writer_thread(
    zk: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    zk.use(lambda _: log_in_loop("one"))
    writer = log.loop_record_filter.writer
    assert writer is not None
    monkeypatch.setattr(writer, "pid", 0)  # as if this were a forked child
    zk.use(lambda _: log_in_loop("two"))
    assert log.loop_record_filter.writer is not writer
    assert "two" in caplog.text


def test_warning_reaches_stderr_without_log_handlers(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("zoolet.client")
    logger.propagate = False
    try:
        with Client(server.hosts) as zk:
            server.drop("all")
            zk.exists("/")
    finally:
        logger.propagate = True
    assert "is suspended" in capsys.readouterr().err


THREADS_LOCK: Final[AbstractContextManager[object]] = threading._active_limbo_lock  # type: ignore[attr-defined]


def test_client_close_does_not_wait_for_threading_module_lock(server: Server, handler: Callable[..., Any]) -> None:
    zk = Client(server.hosts)
    zk.start()
    with THREADS_LOCK:
        handler(zk.close)
        assert not server.sessions()
    server.wait_for(lambda: "zoolet-client" not in [thread.name for thread in threading.enumerate()])


def test_client_start_limits_wait_for_threading_module_lock(
    server: Server, handler: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_thread, "START_TIMEOUT", 0.02)
    zk = Client(server.hosts)
    with THREADS_LOCK, pytest.raises(RuntimeError, match=r"this Client did not start within 0\.02 s"):
        handler(zk.start)
    server.wait_for(lambda: "zoolet-client" not in [thread.name for thread in threading.enumerate()])


def test_name_lookup_does_not_wait_for_threading_module_lock(
    server: Server, handler: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *args, **options: real("127.0.0.1", *args, **options))
    with Client(f"zk.example:{server.port}") as zk, THREADS_LOCK:
        server.drop("all")
        assert handler(lambda: zk.exists("/")) is not None


def test_event_loop_does_not_wait_for_start_of_handler_thread(server: Server, handler: Callable[..., Any]) -> None:
    led = threading.Event()

    def lead() -> None:
        led.set()
        raise ValueError("enough")

    with Client(server.hosts) as zk, ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with THREADS_LOCK:
            leading = pool.submit(recipes.Election(zk, "/leader").run, lead)
            server.wait_for(lambda: bool(server.tree().get("/leader")))
            handler(lambda: zk.exists("/"))
            assert not led.is_set()
        with pytest.raises(ValueError, match="enough"):
            leading.result(DEADLINE_S)


def test_call_fails_if_handler_thread_cannot_start(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Client(server.hosts) as zk:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            recipes.Election(zk, "/leader").run(lambda: None)
