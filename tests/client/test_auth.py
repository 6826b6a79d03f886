"""Authentication: credentials and SASL logins precede all pending requests, on every connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from support.apache import ApacheZooKeeper
from support.simulation import Connect, eventually, make_client, simulate

from zoolet.client import AuthFailedError, Client, ConnectionLossError, NoAuthError, State
from zoolet.protocol.acl import CREATOR_ALL_ACL
from zoolet.testing import Server, Simulation, delay, error, hold, lose_reply

LOGIN_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule required"


# --- credentials ---


async def test_authenticated_client_can_read_protected_node(hosts: str, zk: Client, connect: Connect) -> None:
    stranger = await connect(hosts)
    await zk.add_auth("digest", b"bob:secret")
    await zk.create("/mine", b"v", acl=CREATOR_ALL_ACL)

    with pytest.raises(NoAuthError):
        await stranger.get("/mine")
    await stranger.add_auth("digest", b"bob:secret")

    assert (await stranger.get("/mine"))[0] == b"v"


async def test_credentials_can_be_given_as_option(hosts: str, connect: Connect) -> None:
    zk = await connect(hosts, auth=(("digest", b"bob:secret"), ("digest", b"eve:other")))

    users = {one.user for one in await zk.who_am_i() if one.scheme == "digest"}

    assert users == {"bob", "eve"}


async def test_credential_is_sent_before_waiting_calls_on_reconnect(server: Server, connect: Connect) -> None:
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


async def test_reconnect_sends_credentials_then_watches_then_calls(server: Server, connect: Connect) -> None:
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


async def test_client_is_connected_only_after_reply_to_credentials(server: Server) -> None:
    zk = Client(server.hosts, auth=(("digest", b"bob:secret"),))
    with server.fault(hold(), "auth") as fault:
        starting = asyncio.create_task(zk.start())
        await server.until(lambda: fault.hits)
        assert zk.state is State.CONNECTING
        assert not starting.done()

        fault.release()
        await starting

    assert zk.state is State.CONNECTED
    await zk.aclose()


async def test_wrong_credential_fails_and_client_continues(hosts: str, zk: Client) -> None:
    with pytest.raises(AuthFailedError, match="nonsense"):
        await zk.add_auth("nonsense", b"x")

    await zk.add_auth("digest", b"bob:secret")
    assert "bob" in [one.user for one in await zk.who_am_i()]


async def test_wrong_initial_credential_fails_start(hosts: str) -> None:
    zk = Client(hosts, auth=(("nonsense", b"x"),))

    with pytest.raises(AuthFailedError, match="nonsense"):
        await zk.start()

    assert zk.state is State.CLOSED


async def test_credential_refused_on_reconnect_closes_client(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.add_auth("digest", b"bob:secret")
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)
    call = zk.get("/")

    with server.fault(error(AuthFailedError), "auth"):
        server.accept_connections()
        with pytest.raises(AuthFailedError):
            await call
    with pytest.raises(AuthFailedError):
        await zk.wait_for(State.CONNECTED)
    with pytest.raises(AuthFailedError):
        zk.get("/")


async def test_credential_given_offline_is_sent_on_connect(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)
    proving = zk.add_auth("digest", b"bob:secret")
    server.accept_connections()

    await proving

    assert "bob" in [one.user for one in await zk.who_am_i()]


async def test_credential_with_lost_reply_is_sent_again(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)

    with server.fault(lose_reply(), "auth", times=1, strict=True):
        await zk.add_auth("digest", b"bob:secret")

    assert "bob" in [one.user for one in await zk.who_am_i()]


async def test_add_auth_waits_at_most_for_operation_timeout(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)

    with pytest.raises(ConnectionLossError):
        async with asyncio.timeout(0.1):
            await zk.with_operation_timeout(0).add_auth("digest", b"bob:secret")


# --- logins ---


@pytest.fixture
def jaas(tmp_path: Path) -> str:
    """A JAAS file with one user."""
    path = tmp_path / "jaas.conf"
    path.write_text(f'Server {{ {LOGIN_MODULE} user_bob="sec\\"ret"; }};\n', encoding="utf-8")
    return str(path)


async def test_login_is_repeated_on_every_connection(jaas: str, connect: Connect) -> None:
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
async def test_refused_login_fails_start(jaas: str, login: tuple[str, str]) -> None:
    async with Server(config={"java.security.auth.login.config": jaas}) as server:
        zk = Client(server.hosts, login=login)

        with pytest.raises(AuthFailedError, match=login[0]):
            await zk.start()

        assert zk.state is State.CLOSED


@pytest.mark.slow
async def test_login_works_with_apache_server(tmp_path: Path, connect: Connect) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(f'Server {{ {LOGIN_MODULE} user_bob="secret"; }};\n', encoding="utf-8")
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


@pytest.mark.parametrize("during", ["auth", "ping"])
def test_credential_added_during_reconnect_is_sent(during: str) -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with make_client(server, auth=(("digest", b"a:b"),) if during == "auth" else ()) as zk:
            async with zk.watch_exists("/a"):
                with server.fault(delay(0.5), during, times=1, strict=True) as fault:
                    server.expire(zk) if during == "ping" else server.drop(zk)
                    await eventually(lambda: fault.hits)
                    await asyncio.wait_for(zk.add_auth("digest", b"x:y"), 5)
            assert {one.user for one in await zk.who_am_i()} >= {"x"}

    simulate(main)


def test_error_does_not_reveal_credentials_given_as_scheme() -> None:
    with pytest.raises(ValueError, match="the scheme in auth= must not contain a colon") as caught:
        Client("localhost", auth=(("digest:bob:secret", b""),))

    assert "secret" not in str(caught.value)
