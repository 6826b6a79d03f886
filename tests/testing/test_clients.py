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

NOBODY: Final = 0x1234
VERBS: Final[dict[str, Callable[[Server, Any], None]]] = {
    "expire": Server.expire,
    "drop": Server.drop,
    "pause": Server.pause,
    "resume": Server.resume,
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("who", ["bob", "ALL", "", None, 1.5, True, b"all", [1], {}, object], ids=repr)
def test_invalid_client_argument_is_named(server: Server, verb: str, who: object) -> None:
    with pytest.raises(ValueError) as failure:
        VERBS[verb](server, who)

    assert repr(who) in str(failure.value)


@pytest.mark.parametrize("verb", VERBS)
def test_unknown_session_id_raises_lookup_error(server: Server, verb: str) -> None:
    with pytest.raises(LookupError, match=f"{NOBODY}|{NOBODY:#x}"):
        VERBS[verb](server, NOBODY)


@pytest.mark.parametrize("verb", VERBS)
def test_client_without_session_raises_lookup_error(server: Server, verb: str) -> None:
    client = KazooClient(server.hosts)

    with pytest.raises(LookupError):
        VERBS[verb](server, client)

    client.close()


@pytest.mark.parametrize("verb", VERBS)
def test_client_of_other_server_raises_lookup_error(verb: str, kazoo: Callable[..., KazooClient]) -> None:
    with Server() as one, Server() as two:
        client = kazoo(one)
        with pytest.raises(LookupError):
            VERBS[verb](two, client)
        assert one.sessions()[client.client_id[0]].connected
        client.stop()


@pytest.mark.parametrize("verb", VERBS)
def test_all_without_sessions_does_nothing(server: Server, verb: str) -> None:
    VERBS[verb](server, "all")

    assert dict(server.sessions()) == {}


def test_expired_id_is_unknown(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.expire(victim.id)

    with pytest.raises(LookupError):
        server.expire(victim.id)
    with pytest.raises(LookupError):
        server.drop(victim.id)


def test_negative_id_is_accepted_as_id(server: Server) -> None:
    with pytest.raises(LookupError):
        server.expire(-5)


def test_session_id_stands_for_itself() -> None:
    assert clients.session_id_of(NOBODY) == NOBODY


def test_session_id_of_client_is_found(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)

    assert [clients.session_id_of(client)] == list(server.sessions())


def test_client_without_session_has_default_id(server: Server) -> None:
    client = KazooClient(server.hosts)

    assert clients.session_id_of(client, 0) == 0
    with pytest.raises(LookupError, match="no session now"):
        clients.session_id_of(client)

    client.close()


async def test_session_id_of_zoolet_client_is_found() -> None:
    async with Server() as server, Client(server.hosts) as client:
        assert [clients.session_id_of(client)] == list(server.sessions())
