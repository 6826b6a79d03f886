"""The client for threads: the same surface as the asyncio client's, from any thread, usable after an interruption."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from zoolet.client import (
    BadVersionError,
    ClosedError,
    ConnectionLossError,
    EventType,
    NodeExistsError,
    NoNodeError,
    State,
    serializers,
)
from zoolet.client import Client as AsyncClient
from zoolet.client.aio.watcher import Watcher
from zoolet.client.blocking import Client
from zoolet.client.recipes import Lock
from zoolet.client.wire.transaction import Transaction
from zoolet.server import Server
from zoolet.server.testing import hold, lose_reply

DEADLINE_S: Final = 10.0  # only ever reached on failure
FOR_RECIPES: Final = {
    "deliver_to",
    "for_recipe",
    "send",
    "add_listener",
    "shared",
    "fail",
    "flush",
    "spawn",
    "new_uuid",
    "rng",
    "wait_results",
}
"""What is public so that recipes can be written with the asyncio client; nobody writes them with this one."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in a thread of its own."""
    with Server() as running:
        yield running


@pytest.fixture
def zk(server: Server) -> Iterator[Client]:
    """A connected client."""
    with Client(server.hosts) as client:
        yield client


# --- the surface ---


def public(of: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(of) if not name.startswith("_")}


def parameters(of: Any) -> dict[str, tuple[Any, Any]]:
    """Return name, kind and default of each parameter."""
    found = inspect.signature(of).parameters.values()
    return {one.name: (one.kind, one.default) for one in found if one.name != "self"}


def test_everything_of_the_asyncio_client_is_here_that_is_not_for_recipes() -> None:
    assert set(public(AsyncClient)) - FOR_RECIPES - {"aclose"} <= set(public(Client))
    assert not (FOR_RECIPES | {"aclose"}) & set(public(Client))


def test_a_lock_of_the_client_for_threads_flags_its_loss(server: Server, zk: Client) -> None:
    with zk.lock("/l") as lease:
        server.expire(zk)
        assert lease.lost.wait(timeout=DEADLINE_S)
    with pytest.raises(TypeError, match="tmeout"):
        zk.lock("/l", tmeout=1)


def test_lock_and_the_client_for_threads_have_the_parameters_of_the_classes() -> None:
    recipe = parameters(Lock)
    del recipe["client"]

    assert parameters(AsyncClient.lock) == recipe
    assert parameters(Client) == parameters(AsyncClient)


def test_an_operation_of_a_client_for_threads_ends_after_its_timeout(server: Server, zk: Client) -> None:
    for call in (lambda: zk.get("/", timeout=0.01), lambda: zk.create("/a", ephemeral=True, timeout=0.01)):
        with server.fault(hold(), client=zk) as fault, pytest.raises(TimeoutError):
            call()
        assert fault.hits


def test_transactions_and_watches_have_the_same_methods(zk: Client) -> None:
    transaction, watch = zk.transaction(), zk.watch("/a")

    assert not [name for name in public(Transaction) if name not in FOR_RECIPES and not hasattr(transaction, name)]
    assert not [name for name in public(Watcher) if name not in FOR_RECIPES and not hasattr(watch, name)]
    for name in ("check", "create", "set", "delete"):
        assert parameters(getattr(transaction, name)) == parameters(getattr(Transaction, name))


# --- operations ---


def test_operations_give_what_the_asyncio_client_s_give(zk: Client) -> None:
    assert zk.create("/a", b"1") == "/a"
    assert zk.create("/a/s-", sequential=True, ephemeral=True) == "/a/s-0000000000"
    assert zk.create_and_stat("/a/b")[1] == zk.exists("/a/b")
    assert zk.exists("/nowhere") is None
    assert zk.set("/a", b"2", 0).version == 1
    assert zk.get("/a")[0] == b"2"
    assert sorted(zk.children("/a")) == ["b", "s-0000000000"]
    assert zk.children_and_stat("/a")[1].numChildren == 2
    assert zk.count_below("/a") == 2
    assert zk.ephemerals() == ["/a/s-0000000000"]
    assert zk.update("/a", lambda old: old + b"!")[0] == b"2!"
    assert zk.multi_read(("children", "/a/b")) == [[]]
    assert zk.get_acl("/a")[1].aversion == 0
    assert zk.set_acl("/a", zk.get_acl("/a")[0]).aversion == 1
    assert zk.sync() is None
    assert zk.who_am_i()
    assert zk.ensure_path("/p/q") is None
    assert zk.add_auth("digest", b"bob:secret") is None
    assert isinstance(zk.get_config()[0], bytes)
    assert zk.delete("/a", recursive=True) is None
    assert zk.check_watches("/a") is False


def test_how_it_stands_can_be_asked(server: Server) -> None:
    zk = Client(server.hosts, timeout=7.0)
    assert (zk.state, zk.session_id) == (State.CONNECTING, 0)

    with zk:
        assert zk.state is State.CONNECTED
        assert zk.wait_for(State.CONNECTED, timeout=1) is State.CONNECTED
        assert zk.session_timeout == 7.0
        assert 6.0 < zk.valid_for() <= 7.0
        assert list(server.sessions()) == [zk.session_id]
        assert zk.last_zxid >= 0
        assert repr(zk) == f"<blocking <zoolet Client {server.hosts} connected>>"
    assert zk.state is State.CLOSED


def test_errors_are_the_same_and_come_out_of_the_call(zk: Client) -> None:
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


def test_options_are_the_asyncio_client_s(server: Server) -> None:
    with Client(server.hosts, 5.0, serializer=serializers.json, operation_timeout=1.0) as zk:
        zk.create("/a", [1, 2])
        assert zk.get("/a")[0] == [1, 2]
    with pytest.raises(ValueError, match="timeout"):
        Client(server.hosts, -1)
    with pytest.raises(TypeError):
        Client(server.hosts, nonsense=1)


def test_a_transaction_commits_at_the_end_of_its_block(zk: Client) -> None:
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


def test_events_are_iterated_in_a_block_and_the_server_forgets_the_watch_at_its_end(server: Server, zk: Client) -> None:
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


def test_a_watch_that_fires_once_ends_its_iteration(zk: Client) -> None:
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


def test_waiting_for_an_event_can_have_an_end(zk: Client) -> None:
    with zk.watch("/a") as events:
        with pytest.raises(TimeoutError):
            events.next(timeout=0.01)
        zk.create("/a")

        assert events.next(timeout=DEADLINE_S).path == "/a"


def test_another_thread_may_wait_for_events_and_is_notified_of_the_end(server: Server) -> None:
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


def test_a_block_of_a_watch_can_be_left_after_the_client_was_closed(server: Server) -> None:
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


def test_a_thread_that_waits_holds_up_no_other(server: Server, zk: Client) -> None:
    with ThreadPoolExecutor(1) as pool, zk.watch("/a") as events:
        waiting = pool.submit(events.next)

        assert zk.create("/b") == "/b"
        assert not waiting.done()
        zk.create("/a")
        waiting.result(DEADLINE_S)


def test_a_call_in_the_client_s_own_thread_is_refused_instead_of_waiting_forever(zk: Client) -> None:
    zk.create("/a")

    with pytest.raises(RuntimeError, match="wait forever"):
        zk.update("/a", lambda old: zk.get("/a")[0])
    assert zk.get("/a")[1].version == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_a_call_that_is_interrupted_is_cancelled_and_the_client_goes_on(
    server: Server, zk: Client, error: type[BaseException]
) -> None:
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


# --- the end ---


def test_closing_ends_the_session_and_the_thread(server: Server) -> None:
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
    with pytest.raises(RuntimeError, match="started before"):
        zk.start()


def test_a_client_that_was_not_started_says_how_to_use_it(server: Server) -> None:
    zk = Client(server.hosts)

    with pytest.raises(RuntimeError, match="with Client"):
        zk.get("/")
    zk.close()


def test_a_client_that_reaches_nobody_leaves_no_thread() -> None:
    with Server() as gone:
        hosts = gone.hosts
    before = threading.active_count()

    with pytest.raises(ConnectionLossError):
        Client(hosts, timeout=0.05).start()

    assert threading.active_count() == before


def test_an_error_in_the_block_closes_too(server: Server) -> None:
    def fail() -> None:
        with Client(server.hosts):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not server.sessions()


def test_a_forked_child_is_informed_that_the_client_is_not_its_own(server: Server, zk: Client) -> None:
    hear, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0.5)  # a child that hangs dies
        try:
            zk.get("/")
        except RuntimeError as error:
            os.write(tell, str(error).encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(hear) as lines:
        reported = lines.read()
    os.waitpid(child, 0)

    assert zk.get("/") is not None
    assert "belongs to the process" in reported


def test_it_starts_and_stops_in_milliseconds(server: Server) -> None:
    began = time.monotonic()

    for _ in range(10):
        with Client(server.hosts) as zk:
            zk.exists("/")

    assert time.monotonic() - began < 2.0
