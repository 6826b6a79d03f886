"""The blocking client: the same interface as the asyncio client, usable from any thread and after an interruption."""

from __future__ import annotations

import ast
import inspect
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.child import call_in_child
from support.rows import for_each
from support.waiting import DEADLINE_S, repeat_until_fast

from zoolet.client import (
    BadVersionError,
    ClosedError,
    ConnectionLossError,
    EventType,
    NodeExistsError,
    NoNodeError,
    State,
    blocking,
    serializers,
)
from zoolet.client import Client as AsyncClient
from zoolet.client.aio.watcher import Watcher
from zoolet.client.blocking import Client
from zoolet.client.recipes import Lock
from zoolet.client.wire.transaction import Transaction
from zoolet.testing import Server, hold, lose_reply

# --- names and parameters ---


def public_names(of: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(of) if not name.startswith("_")}


def parameters(of: Any) -> dict[str, tuple[Any, Any]]:
    """Return the name, kind and default of each parameter."""
    found = inspect.signature(of).parameters.values()
    return {one.name: (one.kind, one.default) for one in found if one.name != "self"}


def test_blocking_client_has_all_asyncio_names() -> None:
    assert set(public_names(AsyncClient)) - set(public_names(Client)) == {"aclose"}


def test_lock_method_has_parameters_of_lock_class() -> None:
    recipe = parameters(Lock)
    del recipe["client"]

    assert parameters(AsyncClient.lock) == recipe
    assert parameters(Client) == parameters(AsyncClient)


def stub_methods() -> Iterator[tuple[type, ast.FunctionDef]]:
    """Yield the class and the method for each method of the stubs, which are generated from the asyncio signatures."""
    for module, home in (("client", blocking), ("recipes", blocking.recipes)):
        for of in ast.parse(Path(blocking.__file__).with_name(f"{module}.pyi").read_text()).body:
            for method in getattr(of, "body", []):
                if isinstance(method, ast.FunctionDef) and method.name not in ("__init__", "__exit__"):
                    yield getattr(home, of.name), method  # type: ignore[attr-defined]


@for_each("row", stub_methods(), ids=lambda row: f"{row[0].__name__}.{row[1].name}")
def test_methods_of_stubs_exist_with_same_parameters(row: tuple[type, ast.FunctionDef]) -> None:
    of, method = row
    is_property = any(ast.unparse(decorator) == "property" for decorator in method.decorator_list)

    member = inspect.getattr_static(of, method.name)

    assert isinstance(member, property) == is_property
    if not is_property:
        args = [*method.args.args, method.args.vararg, *method.args.kwonlyargs, method.args.kwarg]
        assert list(inspect.signature(member).parameters) == [one.arg for one in args if one is not None]


def test_operation_of_client_for_threads_times_out(server: Server, zk: Client) -> None:
    for call in (lambda: zk.get("/", timeout=0.01), lambda: zk.create("/a", ephemeral=True, timeout=0.01)):
        with server.fault(hold(), client=zk) as fault, pytest.raises(TimeoutError):
            call()
        assert fault.hits


def test_transactions_and_watches_have_same_methods(zk: Client) -> None:
    transaction, watch = zk.transaction(), zk.watch("/a")

    assert not [name for name in public_names(Transaction) if not hasattr(transaction, name)]
    assert not [name for name in public_names(Watcher) if not hasattr(watch, name)]
    for name in ("check", "create", "set", "delete"):
        assert parameters(getattr(transaction, name)) == parameters(getattr(Transaction, name))


# --- operations ---


def test_operations_return_same_results_as_asyncio(zk: Client) -> None:
    assert zk.create("/a", b"1") == "/a"
    assert zk.create_and_stat("/a/b")[1] == zk.exists("/a/b")
    assert zk.exists("/nowhere") is None
    assert zk.set("/a", b"2", 0).version == 1
    assert zk.update("/a", lambda old: old + b"!")[0] == b"2!"
    assert zk.multi_read(("children", "/a/b")) == [[]]
    assert zk.sync() is None
    assert zk.delete("/a", recursive=True) is None
    assert zk.check_watches("/a") is False


def test_state_and_session_are_readable(server: Server) -> None:
    zk = Client(server.hosts, timeout=7.0)
    assert (zk.state, zk.session_id) == (State.CONNECTING, 0)

    with zk:
        assert zk.state is State.CONNECTED
        assert zk.wait_for(State.CONNECTED, timeout=DEADLINE_S) is State.CONNECTED
        assert zk.session_timeout == 7.0
        assert 6.0 < zk.valid_for() <= 7.0
        assert list(server.sessions()) == [zk.session_id]
        assert zk.last_zxid >= 0
        assert repr(zk) == f"<blocking <zoolet Client {server.hosts} connected>>"
    assert zk.state is State.CLOSED


def test_calls_raise_same_errors_as_asyncio(zk: Client) -> None:
    zk.create("/a")

    with pytest.raises(NodeExistsError) as caught:
        zk.create("/a")
    assert caught.value.path == "/a"
    with pytest.raises(NoNodeError):
        zk.get("/nowhere")
    with pytest.raises(BadVersionError):
        zk.set("/a", b"", 7)
    with pytest.raises(ValueError, match="must start with /"):
        zk.get("a")
    with pytest.raises(TypeError):
        zk.create("/b", "text")


def test_client_accepts_options_of_asyncio_client(server: Server) -> None:
    with Client(server.hosts, 5.0, serializer=serializers.json, operation_timeout=1.0) as zk:
        zk.create("/a", [1, 2])
        assert zk.get("/a")[0] == [1, 2]
    with pytest.raises(ValueError, match="timeout"):
        Client(server.hosts, -1)
    with pytest.raises(TypeError):
        Client(server.hosts, nonsense=1)


def test_transaction_commits_at_end_of_block(zk: Client) -> None:
    with zk.transaction() as t:
        t.create("/a", b"1")
        t.set("/a", b"2")
    assert t.results[0] == "/a"
    assert zk.get("/a")[0] == b"2"

    t = zk.transaction()
    t.delete("/a", 9)
    with pytest.raises(BadVersionError):
        t.commit()

    def fail() -> None:
        with zk.transaction() as t:
            t.delete("/a")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert zk.exists("/a") is not None


def test_retry_calls_again_after_a_lost_connection(server: Server, zk: Client) -> None:
    with server.fault(lose_reply(), "create", times=1), pytest.raises(NodeExistsError):
        zk.retry(lambda: zk.create("/a"))


# --- watches ---


def test_events_are_iterated_until_end_of_block(server: Server, zk: Client) -> None:
    found = []
    with zk.watch("/", recursive=True) as events:
        zk.create("/a")
        zk.set("/a", b"1")
        for event in events:
            found.append((event.type, event.path))
            if len(found) == 2:
                break
        assert server.watches()

    assert found == [(EventType.NODE_CREATED, "/a"), (EventType.NODE_DATA_CHANGED, "/a")]
    assert not server.watches()


def test_one_shot_watch_iterates_one_event(zk: Client) -> None:
    zk.create("/a", b"1")
    with zk.watch_data("/a") as watch, zk.watch_children("/") as children, zk.watch_exists("/b") as missing:
        assert watch.initial[0] == b"1"
        assert sorted(children.initial) == ["a", "zookeeper"]
        assert missing.initial is None
        zk.set("/a", b"2")
        zk.create("/b")

        assert [event.path for event in watch] == ["/a"]
        assert children.next().path == "/"
        assert missing.next().type is EventType.NODE_CREATED


def test_wait_for_event_raises_timeout_error_after_timeout(zk: Client) -> None:
    with zk.watch("/a") as events:
        with pytest.raises(TimeoutError):
            events.next(timeout=0.01)
        zk.create("/a")

        assert events.next(timeout=DEADLINE_S).path == "/a"


def test_end_of_block_wakes_thread_waiting_for_events(server: Server) -> None:
    zk = Client(server.hosts)
    zk.start()
    events = zk.watch("/a").__enter__()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(events.next)
        zk.create("/a")
        assert waiting.result(DEADLINE_S).path == "/a"

        waiting = pool.submit(events.next)
        zk.close()
        with pytest.raises(ClosedError):
            waiting.result(DEADLINE_S)


def test_watch_block_exits_after_client_closed(server: Server) -> None:
    zk = Client(server.hosts)
    zk.start()

    with zk.watch("/a"):
        zk.close()

    assert zk.state is State.CLOSED


# --- threads ---


def test_many_threads_share_one_client(zk: Client) -> None:
    zk.create("/n", b"0")

    def add(_: int) -> None:
        for _ in range(5):
            zk.update("/n", lambda old: b"%d" % (int(old) + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))

    assert zk.get("/n")[0] == b"40"


def test_waiting_thread_does_not_block_others(server: Server, zk: Client) -> None:
    with ThreadPoolExecutor(1) as pool, zk.watch("/a") as events:
        waiting = pool.submit(events.next)

        assert zk.create("/b") == "/b"
        assert not waiting.done()
        zk.create("/a")
        waiting.result(DEADLINE_S)


def test_call_in_event_loop_thread_is_refused(zk: Client) -> None:
    zk.create("/a")

    with pytest.raises(RuntimeError, match="wait forever"):
        zk.update("/a", lambda old: zk.get("/a")[0])
    assert zk.get("/a")[1].version == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_client_continues_after_interrupted_call(server: Server, zk: Client, error: type[BaseException]) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with server.fault(hold(), "getData") as fault:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(error):
                zk.get("/")
            assert fault.hits == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert zk.get("/")[0] == b""
    assert zk.statistics().in_flight == 0


# --- starting, closing and forking ---


def test_close_stops_session_and_thread(server: Server) -> None:
    zk = Client(server.hosts)
    zk.start()
    threads = threading.active_count()
    zk.create("/here", ephemeral=True)

    zk.close()
    zk.close()

    assert threading.active_count() == threads - 1
    assert not server.sessions()
    with pytest.raises(ClosedError):
        zk.get("/")
    with pytest.raises(RuntimeError, match="has already been started"):
        zk.start()


def test_error_of_unstarted_client_suggests_with_statement(server: Server) -> None:
    zk = Client(server.hosts)

    with pytest.raises(RuntimeError, match="with Client"):
        zk.get("/")
    zk.close()


def test_failed_start_leaves_no_thread() -> None:
    with Server() as gone:
        hosts = gone.hosts
    before = threading.active_count()

    with pytest.raises(ConnectionLossError):
        Client(hosts, timeout=0.05).start()

    assert threading.active_count() == before


def test_error_in_block_closes_client(server: Server) -> None:
    def fail() -> None:
        with Client(server.hosts):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not server.sessions()


def test_client_in_forked_child_raises(server: Server, zk: Client) -> None:
    def report() -> str:
        with pytest.raises(RuntimeError) as refused:
            zk.get("/")
        return str(refused.value)

    reported = call_in_child(report)

    assert zk.get("/") is not None
    assert "belongs to the parent of this forked process" in reported


def test_client_starts_and_stops_within_milliseconds(server: Server) -> None:
    took: list[float] = []
    for _ in repeat_until_fast(took, 0.1):
        began = time.monotonic()
        with Client(server.hosts) as zk:
            zk.exists("/")
        took.append(time.monotonic() - began)

    assert min(took) < 0.1
