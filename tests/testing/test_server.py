"""An embedded server in all kinds of code, its configuration, and its errors when it is not running."""

from __future__ import annotations

import asyncio
import pickle
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from support.embedded import CALLS, ask, create_node_with_kazoo, open_session, ruok, ruok_in_loop
from support.logins import USERS
from support.waiting import DEADLINE_S
from support.wire import Wire

from zoolet.client import Client
from zoolet.protocol import records as r
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.operations import OpCode
from zoolet.protocol.sasl import answer
from zoolet.server.core.state import MAX_ZXID
from zoolet.testing import Cluster, Server
from zoolet.testing import error as fail

# --- kinds of code that use a server ---


def test_blocking_code_gets_accepting_server() -> None:
    with Server() as server:
        assert server.hosts == f"127.0.0.1:{server.port}"
        assert ruok(server.port) == b"imok"
        assert create_node_with_kazoo(server.hosts) == "/made-0000000000"
        assert set(server.tree()) == {"/made-0000000000"}


async def test_asyncio_code_gets_server_in_its_loop() -> None:
    threads = threading.active_count()

    async with Server() as server:
        assert threading.active_count() == threads
        assert await ruok_in_loop(server.port) == b"imok"
        assert await asyncio.to_thread(create_node_with_kazoo, server.hosts) == "/made-0000000000"
        assert set(server.tree()) == {"/made-0000000000"}


def test_server_runs_on_uvloop() -> None:
    async def main() -> bytes:
        async with Server() as server:
            return await ruok_in_loop(server.port)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == b"imok"


async def test_asyncio_code_may_use_server_in_thread() -> None:
    with Server() as server:
        server.populate({"/a": "x"})
        assert await ruok_in_loop(server.port) == b"imok"
        assert server.wait_for(lambda: "/a" in server.tree()) is True


async def test_threads_may_use_server_of_a_loop() -> None:
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


def test_server_is_stopped_by_other_thread() -> None:
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


def test_two_servers_are_independent() -> None:
    with Server() as one, Server() as two:
        one.populate({"/one": "1"})
        two.populate({"/two": "2"})
        with open_session(one.port):
            assert (len(one.sessions()), len(two.sessions())) == (1, 0)
        assert (set(one.tree()), set(two.tree())) == ({"/one"}, {"/two"})
        assert one.port != two.port
        two.stop()
        assert ruok(one.port) == b"imok"


async def test_two_servers_share_a_loop() -> None:
    async with Server() as one, Server() as two:
        one.populate({"/one": "1"})
        assert (set(one.tree()), set(two.tree())) == ({"/one"}, set())
        assert await ruok_in_loop(one.port) == await ruok_in_loop(two.port) == b"imok"


def test_error_in_block_propagates_and_server_stops() -> None:
    server = Server()

    with pytest.raises(ZeroDivisionError), server:
        _ = 1 / 0

    assert "stopped" in repr(server)


async def test_error_in_async_block_stops_server() -> None:
    server = Server()

    with pytest.raises(ZeroDivisionError):
        async with server:
            _ = 1 / 0

    assert "stopped" in repr(server)


def test_server_restarts_with_fresh_state() -> None:
    server = Server()
    with server:
        server.populate({"/a": "x"})
    with server:
        assert ruok(server.port) == b"imok"
        assert dict(server.tree()) == {}


def test_read_only_server_disconnects_clients() -> None:
    with Server() as server, open_session(server.port) as link:
        server.set_read_only(True)
        assert link.recv(1) == b""
        assert ask(server.port, b"isro") == b"ro"
        server.set_read_only(False)
        assert ask(server.port, b"isro") == b"rw"
        assert create_node_with_kazoo(server.hosts) == "/made-0000000000"


def test_server_is_running_from_start_to_stop() -> None:
    server = Server()
    before = server.running
    with server:
        assert server.running

    assert (before, server.running) == (False, False)


async def test_server_in_loop_is_running_from_start_to_stop() -> None:
    server = Server()
    async with server:
        assert server.running

    assert not server.running


def test_server_failing_to_listen_is_not_running() -> None:
    with Server() as first:
        second = Server(port=first.port)
        with pytest.raises(OSError):
            second.start()

    assert not second.running
    assert "could not listen" in repr(second)


def test_repr_shows_address() -> None:
    server = Server()
    before = repr(server)
    with server:
        assert server.hosts in repr(server)

    assert "not started" in before
    assert "stopped" in repr(server)


def test_only_server_with_admin_has_admin_url() -> None:
    with Server() as plain, Server(admin=True) as server:
        assert plain.admin_url is None
        assert str(server.admin_url).startswith("http://127.0.0.1:")


# --- servers that are not running or cannot run ---


@pytest.mark.parametrize("name", CALLS)
def test_call_of_unstarted_server_raises(name: str) -> None:
    with pytest.raises(RuntimeError, match="not started"):
        CALLS[name](Server(clock="manual"))


@pytest.mark.parametrize("name", CALLS)
def test_call_of_stopped_server_raises(name: str) -> None:
    server = Server(clock="manual")
    with server:
        pass

    with pytest.raises(RuntimeError, match="stopped"):
        CALLS[name](server)


def test_snapshot_of_unstarted_server_raises() -> None:
    with pytest.raises(RuntimeError, match="not started"):
        Server().snapshot()


def test_snapshots_of_stopped_server_raise() -> None:
    server = Server()
    with server:
        kept = server.snapshot()

    with pytest.raises(RuntimeError, match="stopped"):
        server.snapshot()
    with pytest.raises(RuntimeError, match="stopped"):
        server.restore(kept)


async def test_stopped_server_of_loop_raises_immediately() -> None:
    async with Server() as server:
        pass

    with pytest.raises(RuntimeError, match="stopped"):
        server.tree()
    with pytest.raises(RuntimeError, match="stopped"):
        await server.until(lambda: True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"clock": "sun"}, "sun"),
        ({"clock": None}, "None"),
        ({"initial_data": "/nowhere"}, "initial_data"),
        ({"config": {"tickTime": "x"}}, "tickTime"),
        ({"config": {"tickTime": 0}}, "tickTime"),
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
        ({"compat": "3.7"}, "compat must be '3.8' or '3.9', not '3.7'"),
        ({"compat": 3.9}, "compat"),
        ({"initial_zxid": -1}, "initial_zxid"),
        ({"initial_zxid": MAX_ZXID + 1}, "initial_zxid"),
        ({"initial_zxid": "x"}, "initial_zxid"),
    ],
)
def test_error_names_invalid_arguments(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Server(**arguments)


@pytest.mark.parametrize("name", ["tls", "admin"])
@pytest.mark.parametrize("make", [Server, Cluster])
def test_tls_and_admin_flags_must_be_bools(make: type[Server], name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be True or False, not 'x'"):
        make(**{name: "x"})  # type: ignore[arg-type]


def test_read_only_mode_must_be_a_bool() -> None:
    with Server() as server, pytest.raises(TypeError, match="on must be True or False, not 'x'"):
        server.set_read_only("x")  # type: ignore[arg-type]


def test_error_names_missing_config_file(tmp_path: Path) -> None:
    with pytest.raises((ValueError, OSError), match=r"missing\.cfg"):
        Server(config=tmp_path / "missing.cfg")


def test_server_reads_zoo_cfg(tmp_path: Path) -> None:
    path = tmp_path / "zoo.cfg"
    path.write_text("tickTime=100\nminSessionTimeout=5000\nmaxSessionTimeout=6000\n")

    with Server(config=path) as server, open_session(server.port):
        (found,) = server.sessions().values()

    assert found.timeout == 6.0


def test_config_of_server_may_be_a_dict() -> None:
    with Server(config={"maxSessionTimeout": 7000}) as server, open_session(server.port):
        (found,) = server.sessions().values()

    assert found.timeout == 7.0


@pytest.mark.parametrize(("compat", "release"), [("3.8", "3.8.0"), ("3.9", "3.9.4"), (None, "3.9.4")])
def test_emulated_release_is_selectable(compat: str | None, release: str) -> None:
    with Server(compat=compat) as server:
        assert release in ask(server.port, b"srvr").decode()


def test_zxids_grow_when_server_restarts() -> None:
    server, last = Server(), 0
    for _ in range(20):  # some of these starts are in the same millisecond
        with server:
            assert server.zxid() > last
            server.populate({"/a": "x"})
            last = server.zxid()


@pytest.mark.parametrize("options", [{"seed": 7}, {"clock": "manual"}])
def test_zxids_of_repeatable_server_start_at_0(options: dict[str, Any]) -> None:
    with Server(**options) as server:
        assert server.zxid() == 0


def test_zxids_continue_from_initial_one() -> None:
    with Server(initial_zxid=0x100) as server:
        assert server.zxid() == 0x100
        server.populate({"/a": "x"})
        assert server.tree()["/a"].czxid == 0x101


# --- a shared event loop ---


async def test_blocked_loop_is_logged_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server, Client(server.hosts):
        server._runner.daemon.on_tick(1.5)

    assert "the server's event loop was blocked for 1.5 s; is a blocking client running in it?" in caplog.text


def test_client_of_different_loop_is_refused() -> None:
    with Server() as server, asyncio.Runner() as first:

        async def connect() -> Client:
            client = Client(server.hosts)
            await client.start()
            return client

        client = first.run(connect())
        for use in (lambda: client.get("/"), client.aclose):

            async def wrong(use: Callable[[], Any] = use) -> None:
                await use()

            with asyncio.Runner() as other, pytest.raises(RuntimeError, match="belongs to a different event loop;"):
                other.run(wrong())
        first.run(client.aclose())


@pytest.mark.parametrize(("password", "error"), [(USERS["bob"], 0), ("wrong", -115)])
def test_sasl_users_of_server_log_in(password: str, error: int) -> None:
    with Server(sasl_users=USERS) as server, Wire(server).welcomed() as wire:
        wire.send(OpCode.SASL, r.GetSASLRequest(b""))
        challenge = r.SetSASLResponse.decode(wire.payload()[16:]).token
        token, _ = answer(challenge or b"", "bob", password, "cnonce")
        wire.send(OpCode.SASL, r.GetSASLRequest(token))
        assert r.ReplyHeader.decode(wire.payload()).err == error


@pytest.mark.parametrize("users", [{"bob": 1}, ["bob"], "bob"])
def test_invalid_users_are_refused(users: Any) -> None:
    with pytest.raises(ValueError, match="sasl_users must be a dict of passwords by user name") as caught:
        Server(sasl_users=users)
    assert "bob" not in str(caught.value)  # the message must not contain the passwords


async def test_log_of_server_with_files_has_every_zxid(tmp_path: Path) -> None:
    server = Server(data_dir=tmp_path)
    folder = tmp_path / "version-2"
    for number in range(3):
        async with server:
            async with Client(server.hosts) as client:
                with server.fault(fail("OPERATION_TIMEOUT"), "create"), suppress(ZooKeeperError):
                    await client.create("/never")
                await client.create(f"/n{number}")
            server.reset()
            async with Client(server.hosts) as client:
                await client.create(f"/after{number}")
        for path in sorted(folder.glob("snapshot.*"), key=lambda path: int(path.suffix[1:], 16))[1:]:
            path.unlink()  # as if the server had been stopped before they were complete
    async with server:
        assert "/after2" in server.tree()


@pytest.mark.parametrize("make", [Server, Cluster])
def test_pickling_server_raises_with_advice(make: type[Server]) -> None:
    name = make.__name__
    message = f"a {name} cannot be copied or sent to another process; pass its address, {name.lower()}.hosts"
    with make() as server, pytest.raises(TypeError, match=re.escape(message)):
        pickle.dumps(server)
