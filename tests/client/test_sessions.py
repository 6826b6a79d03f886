"""Sessions: the states a client goes through, what becomes of calls meanwhile, who it proves to be, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import uvloop
from support.apache import ApacheZooKeeper
from support.daemon import DaemonProcess

from zoolet.client import (
    AuthFailedError,
    Backoff,
    Client,
    ClosedError,
    ConnectionLossError,
    NoAuthError,
    SessionExpiredError,
    State,
)
from zoolet.protocol.acl import CREATOR_ALL_ACL
from zoolet.protocol.errors import NotReadOnlyError
from zoolet.server import Server
from zoolet.server.testing import Simulation, drop_request, error, hold, lose_reply

Connect = Callable[..., Awaitable[Client]]

DEADLINE_S: Final = 10.0  # only ever reached on failure
MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule required"


async def until(states: AsyncIterator[State], *wanted: State) -> list[State]:
    """Take states up to one of these."""
    seen = []
    async with asyncio.timeout(DEADLINE_S):
        async for state in states:
            seen.append(state)
            if state in wanted:
                break
    return seen


def simulated(main: Callable[[Simulation, Server], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    """Run with a server in virtual time."""
    sim = Simulation(seed, limit=3600)

    async def run() -> None:
        async with sim.server() as server:
            await main(sim, server)

    sim.run(run())


def client_of(server: Server, timeout: float = 10.0, **options: Any) -> Client:
    """Return a client whose chance is always the same."""
    return Client(server.hosts, timeout, **{"rng": Random(5), **options})


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- states ---


async def test_a_dropped_connection_suspends_and_the_session_goes_on(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    session_id = zk.session_id
    states = zk.states()
    await zk.create("/here", ephemeral=True)

    server.drop(zk)
    seen = await until(states, State.SUSPENDED)
    seen += await until(states, State.CONNECTED)

    assert seen == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]
    assert zk.session_id == session_id
    assert await zk.ephemerals() == ["/here"]


async def test_an_expired_session_is_lost_and_followed_by_another(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    session_id = zk.session_id
    states = zk.states()
    await zk.create("/here", ephemeral=True)

    server.expire(zk)
    seen = await until(states, State.LOST)
    seen += await until(states, State.CONNECTED)

    assert seen == [State.CONNECTED, State.SUSPENDED, State.LOST, State.CONNECTED]
    assert zk.session_id not in (0, session_id)
    assert await zk.exists("/here") is None


def test_a_session_is_lost_when_no_server_is_reached_for_as_long_as_it_lasts() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with client_of(server) as zk:
            session_id = zk.session_id
            states = zk.states()
            server.refuse_connections()
            server.drop("all")
            began = sim.time()

            seen = []
            async for state in states:
                seen.append(state)
                if state is State.LOST:
                    break
            assert seen == [State.CONNECTED, State.SUSPENDED, State.LOST]
            assert 9.9 <= sim.time() - began <= 16.0  # the next attempt tells
            assert (zk.session_id, zk.valid_for()) == (0, 0.0)

            server.accept_connections()
            assert await zk.wait_for(State.CONNECTED) is State.CONNECTED
            assert zk.session_id not in (0, session_id)

    simulated(main)


async def test_closing_is_the_last_state(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    states = zk.states()

    await zk.aclose()

    assert [state async for state in states] == [State.CONNECTED, State.CLOSED]
    assert [state async for state in zk.states()] == [State.CLOSED]
    assert zk.state is State.CLOSED


async def test_no_state_is_left_out_however_late_somebody_looks(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    states = zk.states()
    for _ in range(3):
        live = zk.states()
        server.drop(zk)
        await until(live, State.SUSPENDED)
        await until(live, State.CONNECTED)
    await zk.aclose()

    seen = [state async for state in states]

    assert seen == [State.CONNECTED, *[State.SUSPENDED, State.CONNECTED] * 3, State.CLOSED]


async def test_waiting_for_a_state_that_will_never_be_says_why(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    waiting = asyncio.create_task(zk.wait_for(State.LOST))
    await asyncio.sleep(0)

    await zk.aclose()

    with pytest.raises(ClosedError):
        await waiting


async def test_a_client_that_reaches_nobody_says_whom_and_why_within_its_timeout() -> None:
    port = free_port()
    zk = Client(f"127.0.0.1:{port}", timeout=0.05, backoff=Backoff(first=0.01))

    with pytest.raises(ConnectionLossError, match=rf"no server within 0.05 s; the last: 127.0.0.1:{port}: .*{port}"):
        await zk.start()

    assert zk.state is State.CLOSED


async def test_its_repr_shows_where_it_is_and_how_it_stands(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)

    assert repr(zk) == f"<zoolet Client {server.hosts} connected>"


async def test_the_server_may_grant_another_timeout(connect: Connect) -> None:
    async with Server(config={"maxSessionTimeout": 3000}) as server:
        zk = await connect(server.hosts, timeout=60.0)

        assert zk.session_timeout == 3.0
        await zk.aclose()


# --- which server ---


async def test_dead_servers_are_passed_over(server: Server, connect: Connect) -> None:
    dead = ",".join(f"127.0.0.1:{free_port()}" for _ in range(3))

    zk = await connect(f"{dead},{server.hosts}")

    assert zk.state is State.CONNECTED


async def test_the_next_server_takes_over_when_one_goes_and_the_session_is_a_new_one(connect: Connect) -> None:
    async with Server() as first, Server() as second:
        zk = await connect(f"{first.hosts},{second.hosts}")
        mine, other = (first, second) if first.sessions() else (second, first)
        mine.refuse_connections()
        states = zk.states()

        mine.drop("all")
        await until(states, State.LOST)
        await until(states, State.CONNECTED)

        assert list(other.sessions()) == [zk.session_id]
        await zk.aclose()


async def test_names_are_resolved_at_every_attempt(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server() as first, Server() as second:
        loop, here, asked = asyncio.get_running_loop(), [first], []

        async def resolve(host: str, port: int, **options: Any) -> list[Any]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", here[0].port))]

        monkeypatch.setattr(loop, "getaddrinfo", resolve)
        zk = await connect("zk.example:2181")
        states = zk.states()
        here[0] = second
        first.refuse_connections()
        first.drop(zk)
        await until(states, State.LOST)
        await until(states, State.CONNECTED)

        assert set(asked) == {"zk.example"}
        assert list(second.sessions()) == [zk.session_id]
        await zk.aclose()


async def test_a_server_that_lost_everything_is_gone_on_with_in_a_new_session(connect: Connect) -> None:
    async with Server() as before:
        port = before.port
        zk = await connect(before.hosts, timeout=0.2)
        for number in range(5):
            await zk.create(f"/{number}")

    async with Server(port=port):
        states = zk.states()
        await until(states, State.LOST)
        async with asyncio.timeout(0.5):
            await zk.wait_for(State.CONNECTED)


async def test_a_back_off_with_a_last_try_does_not_end_the_client(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts, backoff=Backoff(first=0.001, longest=0.001, tries=2))
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)
    assert zk._connection is not None
    assert zk._connection._task is not None
    await asyncio.wait([zk._connection._task], timeout=0.05)

    server.accept_connections()
    async with asyncio.timeout(0.5):
        await zk.wait_for(State.CONNECTED)


# --- calls while there is no connection ---


async def test_a_call_without_patience_fails_at_once_and_has_not_happened(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)

    for call in (zk.with_operation_timeout(0).create("/a"), zk.with_operation_timeout(0).get("/a")):
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(
                ConnectionLossError, match="/a: there was no connection in time; it was not sent"
            ) as lost:
                await call
        assert lost.value.path == "/a"
        assert not lost.value.maybe_applied


def test_a_call_waits_for_a_connection_for_exactly_its_patience() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with client_of(server, operation_timeout=3.0) as zk:
            server.refuse_connections()
            server.drop("all")
            await zk.wait_for(State.SUSPENDED)
            began = sim.time()

            calls = {
                3.0: zk.set("/a", b""),
                1.0: zk.with_operation_timeout(1.0).set("/a", b""),
                2.0: zk.with_operation_timeout(2).get("/"),
            }
            for seconds, call in sorted(calls.items()):
                with pytest.raises(ConnectionLossError) as caught:
                    await call
                assert not caught.value.maybe_applied
                assert sim.time() - began == pytest.approx(seconds, abs=0.01)

    simulated(main)


async def test_calls_made_meanwhile_are_sent_in_order_once_there_is_a_connection(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)

    calls = [zk.create("/a", b"1"), zk.set("/a", b"2"), zk.get("/a")]
    server.accept_connections()
    made, stat, (value, read) = await asyncio.gather(*calls)

    assert (made, value, read) == ("/a", b"2", stat)


async def test_a_read_whose_reply_was_lost_is_sent_again(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a", b"v")
    reads: dict[str, Callable[[], Awaitable[Any]]] = {
        "getData": lambda: zk.get("/a"),
        "exists": lambda: zk.exists("/a"),
        "getChildren": lambda: zk.children("/"),
        "sync": lambda: zk.sync(),
        "multiRead": lambda: zk.multi_read(("get", "/a")),
        "getACL": lambda: zk.get_acl("/a"),
        "getAllChildrenNumber": lambda: zk.count_below("/"),
        "getEphemerals": lambda: zk.ephemerals(),
        "whoAmI": lambda: zk.who_am_i(),
        "checkWatches": lambda: zk.check_watches("/a"),
    }

    for op, read in reads.items():
        with server.fault(op, times=1, action=lose_reply(), strict=True) as fault:
            await read()
            assert fault.seen == 2, op


async def test_a_write_whose_reply_was_lost_may_have_happened_and_is_not_sent_again(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)
    await zk.create("/a")
    await zk.create("/b")
    writes: dict[str, Callable[[], Awaitable[Any]]] = {
        "create": lambda: zk.create("/c"),
        "setData": lambda: zk.set("/a", b"new"),
        "delete": lambda: zk.delete("/b"),
        "setACL": lambda: zk.set_acl("/a", CREATOR_ALL_ACL),
        "multi": lambda: _transaction(zk),
    }
    await zk.add_auth("digest", b"bob:secret")

    for op, write in writes.items():
        with server.fault(op, times=1, action=lose_reply(), strict=True) as fault:
            with pytest.raises(ConnectionLossError, match="the connection was lost") as caught:
                await write()
            await zk.sync()
            assert caught.value.maybe_applied
            assert fault.seen == 1, op

    assert sorted(server.tree()) == ["/a", "/c", "/t"]
    assert server.tree()["/a"].data == b"new"


async def _transaction(zk: Client) -> None:
    async with zk.transaction() as t:
        t.create("/t")


async def test_a_write_that_was_lost_on_its_way_has_not_happened_though_nobody_can_know(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)

    with server.fault("create", action=drop_request()), pytest.raises(ConnectionLossError) as caught:
        await zk.create("/a")

    assert caught.value.maybe_applied
    assert await zk.exists("/a") is None


async def test_calls_of_a_session_that_ended_say_so(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    states = zk.states()
    server.expire(zk)
    await until(states, State.SUSPENDED)

    call, read = zk.create("/a"), zk.get("/a")
    server.accept_connections()

    for one in (call, read):
        with pytest.raises(SessionExpiredError) as caught:
            await one
        assert caught.value.path == "/a"
    await zk.wait_for(State.CONNECTED)
    assert await zk.exists("/a") is None


async def test_a_client_with_another_patience_is_the_same_client(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    other = zk.with_operation_timeout(1.0)

    await other.create("/here", ephemeral=True)
    await zk.aclose()

    assert other.session_id == zk.session_id
    assert other.state is State.CLOSED
    with pytest.raises(ClosedError):
        other.get("/here")


async def test_a_client_with_another_patience_may_be_made_before_the_start(server: Server) -> None:
    zk = Client(server.hosts)
    other = zk.with_operation_timeout(1.0)

    async with zk:
        assert await other.exists("/") is not None


# --- the end ---


async def test_closing_ends_the_session_at_once(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/here", ephemeral=True)

    await zk.aclose()

    assert not server.sessions()
    assert not server.tree()


async def test_calls_before_the_end_are_answered_and_later_ones_refused(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    call = zk.create("/a")

    await zk.aclose()

    assert await call == "/a"
    for late in (lambda: zk.get("/a"), lambda: zk.create("/b"), lambda: zk.add_auth("digest", b"a:b")):
        with pytest.raises(ClosedError):
            late()


async def test_calls_that_wait_for_a_connection_end_with_the_client(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)
    calls = [zk.get("/a"), zk.create("/a"), zk.add_auth("digest", b"bob:secret")]

    await zk.aclose()

    for call in calls:
        with pytest.raises(ClosedError):
            await call


async def test_closing_twice_or_before_the_start_is_nothing(server: Server, connect: Connect) -> None:
    zk, never = await connect(server.hosts), Client(server.hosts)

    await asyncio.gather(zk.aclose(), zk.aclose())
    await zk.aclose()
    await never.aclose()

    assert never.state is State.CLOSED
    with pytest.raises(ClosedError):
        never.get("/")


def test_closing_takes_two_seconds_at_the_most_whatever_the_network_does() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        took = {}
        for how in ("connected", "stalled", "paused", "cut", "refused"):
            zk = client_of(server)
            await zk.start()
            if how == "stalled":
                sim.network.pause()
            elif how == "paused":
                server.pause(zk)
            elif how == "cut":
                sim.network.drop()
            elif how == "refused":
                server.refuse_connections()
                server.drop("all")
                await zk.wait_for(State.SUSPENDED)
            began = sim.time()
            await zk.aclose()
            took[how] = sim.time() - began
            sim.network.resume()
            server.accept_connections()

        assert took["connected"] < 0.1
        assert max(took.values()) <= 2.0

    simulated(main)


# --- time ---


def test_an_idle_session_lives_on_by_pings_alone() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with client_of(server, 6.0) as zk:
            session_id, states = zk.session_id, zk.states()
            asked = len(server.ops())

            await asyncio.sleep(600)

            assert zk.session_id == session_id
            assert server.sessions()[session_id].connected
            assert await anext(states) is State.CONNECTED
            assert not states._states  # type: ignore[attr-defined]
            assert {op.op for op in server.ops()[asked:]} == {"ping"}
            assert len(server.ops()) - asked == pytest.approx(600 / 2.0, rel=0.02)  # every third of the timeout

    simulated(main)


def test_a_busy_session_needs_no_pings() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with client_of(server, 6.0) as zk:
            for _ in range(100):
                await asyncio.sleep(1.0)
                await zk.exists("/")

            assert {op.op for op in server.ops()} == {"connect", "exists"}

    simulated(main)


def test_a_server_that_falls_silent_is_left_after_two_thirds_of_the_timeout() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with client_of(server, 6.0) as zk:
            states = zk.states()
            await zk.exists("/")
            began = sim.time()
            sim.network.pause()

            async for state in states:
                if state is State.SUSPENDED:
                    break
            assert sim.time() - began == pytest.approx(4.0, abs=0.05)
            sim.network.resume()
            await zk.wait_for(State.CONNECTED)

    simulated(main)


def test_what_is_told_of_the_session_s_life_is_never_too_long() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with client_of(server, 6.0) as zk:
            assert 5.9 < zk.valid_for() <= 6.0
            for step in range(300):
                if step == 100:
                    sim.network.pause()
                if step == 140:
                    sim.network.resume()
                if step == 200:
                    server.refuse_connections()
                    server.drop("all")
                await asyncio.sleep(0.1)
                views = server.sessions()
                if zk.valid_for() > 0:
                    assert zk.valid_for() <= views[zk.session_id].expires_in + 0.001
            server.accept_connections()

    simulated(main)


async def test_nothing_is_certain_before_the_start_and_after_the_end(server: Server, connect: Connect) -> None:
    assert Client(server.hosts).valid_for() == 0.0
    zk = await connect(server.hosts)
    assert zk.valid_for() > 9.0


# --- who it is ---


async def test_a_credential_is_proved_again_before_anything_that_waited(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.add_auth("digest", b"bob:secret")
    await zk.create("/mine", b"v", acl=CREATOR_ALL_ACL)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)
    call = zk.get("/mine")
    before = len(server.ops())
    server.accept_connections()

    assert (await call)[0] == b"v"
    assert [op.op for op in server.ops()[before:]] == ["connect", "auth", "getData"]


async def test_credentials_and_watches_come_in_order_before_what_waited(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts, auth=(("digest", b"a:1"), ("digest", b"b:2")))
    async with zk.watch("/a"):
        server.refuse_connections()
        server.drop(zk)
        await zk.wait_for(State.SUSPENDED)
        call = zk.exists("/a")
        before = len(server.ops())
        server.accept_connections()
        await call

        assert [op.op for op in server.ops()[before:]] == ["connect", "auth", "auth", "setWatches2", "exists"]


async def test_a_client_is_connected_only_when_its_credentials_were_accepted(server: Server) -> None:
    zk = Client(server.hosts, auth=(("digest", b"bob:secret"),))
    with server.fault("auth", action=hold()) as fault:
        starting = asyncio.create_task(zk.start())
        await server.wait_for(lambda: fault.hits)
        assert zk.state is State.CONNECTING
        assert not starting.done()

        fault.release()
        await starting

    assert zk.state is State.CONNECTED
    await zk.aclose()


async def test_a_wrong_credential_fails_and_the_client_goes_on_without_it(hosts: str, zk: Client) -> None:
    with pytest.raises(AuthFailedError, match="nonsense"):
        await zk.add_auth("nonsense", b"x")

    await zk.add_auth("digest", b"bob:secret")
    assert "bob" in [one.user for one in await zk.who_am_i()]


async def test_a_client_that_begins_with_a_wrong_credential_does_not_start(hosts: str) -> None:
    zk = Client(hosts, auth=(("nonsense", b"x"),))

    with pytest.raises(AuthFailedError, match="nonsense"):
        await zk.start()

    assert zk.state is State.CLOSED


async def test_a_credential_that_is_refused_later_closes_the_client_and_every_call_says_why(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)
    await zk.add_auth("digest", b"bob:secret")
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)
    call = zk.get("/")

    with server.fault("auth", action=error(AuthFailedError)):
        server.accept_connections()
        with pytest.raises(AuthFailedError):
            await call
    with pytest.raises(AuthFailedError):
        await zk.wait_for(State.CONNECTED)
    with pytest.raises(AuthFailedError):
        zk.get("/")


async def test_a_credential_given_while_disconnected_is_proved_once_there_is_a_connection(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)
    proving = zk.add_auth("digest", b"bob:secret")
    server.accept_connections()

    await proving

    assert "bob" in [one.user for one in await zk.who_am_i()]


async def test_a_credential_whose_reply_was_lost_is_proved_on_the_next_connection(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)

    with server.fault("auth", times=1, action=lose_reply(), strict=True):
        await zk.add_auth("digest", b"bob:secret")

    assert "bob" in [one.user for one in await zk.who_am_i()]


async def test_a_credential_waits_for_a_connection_no_longer_than_its_patience(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)

    with pytest.raises(ConnectionLossError):
        async with asyncio.timeout(0.1):
            await zk.with_operation_timeout(0).add_auth("digest", b"bob:secret")


@pytest.fixture
def jaas(tmp_path: Path) -> str:
    """A JAAS file with one user."""
    path = tmp_path / "jaas.conf"
    path.write_text(f'Server {{ {MODULE} user_bob="sec\\"ret"; }};\n', encoding="utf-8")
    return str(path)


async def test_a_login_is_proved_on_every_connection(jaas: str, connect: Connect) -> None:
    async with Server(config={"java.security.auth.login.config": jaas}) as server:
        zk = await connect(server.hosts, login=("bob", 'sec"ret'))
        first = [(one.scheme, one.user) for one in await zk.who_am_i()]
        await zk.create("/mine", b"v", acl=CREATOR_ALL_ACL)
        server.drop(zk)

        assert (await zk.get("/mine"))[0] == b"v"
        assert ("sasl", "bob") in first
        stranger = await connect(server.hosts)
        with pytest.raises(NoAuthError):
            await stranger.get("/mine")
        await zk.aclose()
        await stranger.aclose()


@pytest.mark.parametrize("login", [("bob", "wrong"), ("eve", 'sec"ret')], ids=["password", "user"])
async def test_a_login_that_is_refused_ends_the_start(jaas: str, login: tuple[str, str]) -> None:
    async with Server(config={"java.security.auth.login.config": jaas}) as server:
        zk = Client(server.hosts, login=login)

        with pytest.raises(AuthFailedError, match=login[0]):
            await zk.start()

        assert zk.state is State.CLOSED


@pytest.mark.slow
async def test_a_login_is_what_apache_s_server_takes(tmp_path: Path, connect: Connect) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(f'Server {{ {MODULE} user_bob="secret"; }};\n', encoding="utf-8")
    provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with ApacheZooKeeper(config=provider, properties={"java.security.auth.login.config": str(path)}) as apache:
        zk = await connect(apache.hosts, login=("bob", "secret"))
        await zk.create("/mine", b"v", acl=CREATOR_ALL_ACL)
        acl, _ = await zk.get_acl("/mine")

        assert [(entry.id.scheme, entry.id.id) for entry in acl] == [("sasl", "bob")]
        assert (await zk.get("/mine"))[0] == b"v"
        with pytest.raises(AuthFailedError):
            await connect(apache.hosts, login=("bob", "wrong"))
        await zk.aclose()


# --- read-only servers ---


def test_a_client_of_a_read_only_server_reads_there_and_looks_for_one_that_takes_writes() -> None:
    async def main(sim: Simulation, reader: Server) -> None:
        reader.populate({"/a": b"v"})
        reader._engine.set_read_only(True)
        port = 50_000
        zk = Client(f"{reader.hosts},sim:{port}", read_only=True, rng=Random(5))
        async with zk:
            states = zk.states()
            assert zk.state is State.READ_ONLY
            assert (await zk.get("/a"))[0] == b"v"
            with pytest.raises(NotReadOnlyError):
                await zk.set("/a", b"")

            async with sim.server(port) as writer:
                writer.populate(dict.fromkeys(("/1", "/2", "/3"), b""))  # it knows all that the other one knew
                began = sim.time()
                async for state in states:
                    if state is State.CONNECTED:
                        break
                assert sim.time() - began < 61.0
                assert await zk.create("/b") == "/b"
                assert list(writer.sessions()) == [zk.session_id]
                await zk.aclose()

    simulated(main)


def test_a_client_that_wants_to_write_does_not_stay_with_a_read_only_server() -> None:
    async def main(sim: Simulation, reader: Server) -> None:
        reader._engine.set_read_only(True)
        with pytest.raises(ConnectionLossError):
            await client_of(reader).start()

    simulated(main)


@pytest.mark.slow
async def test_a_daemon_that_turns_read_only_is_read_from_and_written_to_again_afterwards(connect: Connect) -> None:
    with DaemonProcess("-Dzookeeper.tickTime=100") as daemon:
        zk = await connect(daemon.hosts, timeout=2.0, read_only=True)
        await zk.create("/a", b"1")
        states = zk.states()

        daemon.process.send_signal(signal.SIGUSR1)
        await until(states, State.READ_ONLY)
        assert (await zk.get("/a"))[0] == b"1"
        with pytest.raises(NotReadOnlyError):
            await zk.set("/a", b"2")

        daemon.process.send_signal(signal.SIGUSR2)
        await until(states, State.CONNECTED)
        assert (await zk.set("/a", b"2")).version == 1
        await zk.aclose()


# --- forks, and loops ---


async def test_a_forked_child_is_told_that_the_client_is_not_its_own_and_leaves_the_parent_s_alone(
    server: Server, connect: Connect
) -> None:
    zk = await connect(server.hosts)
    session_id = zk.session_id
    await zk.create("/here", ephemeral=True)
    copy = zk.with_operation_timeout(1.0)
    hear, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 and later say what this test is about
        child = os.fork()
    if child == 0:
        signal.alarm(10)
        said = []
        for attempt in (lambda: zk.get("/"), lambda: copy.get("/"), lambda: zk.add_auth("digest", b"a:b")):
            try:
                attempt()
                said.append("nothing was raised")
            except BaseException as caught:
                said.append(f"{type(caught).__name__}: {caught}")
        try:
            zk.aclose().send(None)
        except StopIteration:
            said.append("closed")
        os.write(tell, json.dumps(said).encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(hear) as lines:
        *errors, closed = json.loads(lines.read())
    os.waitpid(child, 0)  # noqa: ASYNC222 - it has said all it had to say

    assert closed == "closed"
    assert len(errors) == 3
    assert all(text.startswith("RuntimeError: this Client belongs to the process") for text in errors)
    assert await zk.ephemerals() == ["/here"]
    assert zk.session_id == session_id


def test_the_client_runs_on_uvloop_too() -> None:
    async def main(server: Server) -> None:
        async with Client(server.hosts) as zk, zk.watch("/", recursive=True) as events:
            await zk.create("/a", b"v")
            assert (await events.next()).path == "/a"
            states = zk.states()
            server.drop(zk)
            await until(states, State.SUSPENDED)
            assert (await zk.get("/a"))[0] == b"v"

    with Server() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(server))
        assert not server.sessions()
