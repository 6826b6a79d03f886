"""The arguments that name clients: clients, session ids, and errors for unknown ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from support.wire import Wire

from zoolet.client import Client
from zoolet.testing import Server
from zoolet.testing.run import clients

UNKNOWN_SESSION_ID: Final = 0x1234
CALLS_BY_NAME: Final[dict[str, Callable[[Server, Any], None]]] = {
    "expire": Server.expire,
    "drop": Server.drop,
    "pause": Server.pause,
    "resume": Server.resume,
}


@pytest.mark.parametrize("verb", CALLS_BY_NAME)
@pytest.mark.parametrize("who", ["bob", "ALL", "", None, 1.5, True, b"all", [1], {}, object], ids=repr)
def test_error_names_invalid_client_argument(server: Server, verb: str, who: object) -> None:
    with pytest.raises(ValueError) as failure:
        CALLS_BY_NAME[verb](server, who)

    assert repr(who) in str(failure.value)


@pytest.mark.parametrize("verb", CALLS_BY_NAME)
def test_unknown_session_id_raises_lookup_error(server: Server, verb: str) -> None:
    with pytest.raises(LookupError, match=f"{UNKNOWN_SESSION_ID}|{UNKNOWN_SESSION_ID:#x}"):
        CALLS_BY_NAME[verb](server, UNKNOWN_SESSION_ID)


@pytest.mark.parametrize("verb", CALLS_BY_NAME)
def test_client_without_session_raises_lookup_error(server: Server, verb: str) -> None:
    client = KazooClient(server.hosts)

    with pytest.raises(LookupError):
        CALLS_BY_NAME[verb](server, client)

    client.close()


@pytest.mark.parametrize("verb", CALLS_BY_NAME)
def test_client_of_second_server_raises_lookup_error(verb: str, kazoo: Callable[..., KazooClient]) -> None:
    with Server() as one, Server() as two:
        client = kazoo(one)
        with pytest.raises(LookupError):
            CALLS_BY_NAME[verb](two, client)
        assert one.sessions()[client.client_id[0]].connected
        client.stop()


@pytest.mark.parametrize("verb", CALLS_BY_NAME)
def test_client_all_is_accepted_without_sessions(server: Server, verb: str) -> None:
    CALLS_BY_NAME[verb](server, "all")

    assert dict(server.sessions()) == {}


def test_id_of_expired_session_raises_lookup_error(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.expire(victim.id)

    with pytest.raises(LookupError):
        server.expire(victim.id)
    with pytest.raises(LookupError):
        server.drop(victim.id)


def test_negative_session_id_is_valid_argument(server: Server) -> None:
    with pytest.raises(LookupError):
        server.expire(-5)


def test_session_id_of_returns_given_id() -> None:
    assert clients.session_id_of(UNKNOWN_SESSION_ID) == UNKNOWN_SESSION_ID


def test_session_id_of_client_is_found(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)

    assert [clients.session_id_of(client)] == list(server.sessions())


def test_session_id_of_client_without_session_is_default(server: Server) -> None:
    client = KazooClient(server.hosts)

    assert clients.session_id_of(client, 0) == 0
    with pytest.raises(LookupError, match="no session now"):
        clients.session_id_of(client)

    client.close()


async def test_session_id_of_zoolet_client_is_found() -> None:
    async with Server() as server, Client(server.hosts) as client:
        assert [clients.session_id_of(client)] == list(server.sessions())
