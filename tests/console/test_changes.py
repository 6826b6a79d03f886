"""The console over HTTP, without a socket: changes, permissions, locks, and limits of requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.calls import connect_peer
from support.console import BEARER, Console, b64

from zoolet.console import local_locks
from zoolet.console.pages import MAX_STREAMS
from zoolet.protocol.acl import ACL, Id
from zoolet.server.core.journal import Journal

# --- changes and their permissions ---


async def test_console_creates_sets_and_deletes_with_given_versions() -> None:
    console = Console()
    tree = console.engine.tree

    await console.change("create", path="/a", base64=b64(b"1"))
    await console.change("set", path="/a", base64=b64(b"2"), version=0)
    stale = json.dumps({"path": "/a", "base64": "", "version": 0}).encode()
    error = await console.refusal("/console/api/change/set", "POST", stale, **BEARER)

    assert tree.find("/a").data == b"2"
    assert error.status == 409
    assert "/a" in str(error)
    await console.change("set_acl", path="/a", acl=["world:anyone:r"], version=0)
    await console.change("delete", path="/a", version=1)
    assert tree.get("/a") is None
    entries = (await console.facts("history?path=/a"))["entries"]
    assert [entry["kind"] for entry in entries] == ["delete", "set ACL", "set", "create"]
    assert {entry["why"] for entry in entries} == {"in the console"}


async def test_console_changes_obey_same_limits_as_client_writes() -> None:
    console = Console()
    connect_peer(console.engine).create("/p", b"")
    connect_peer(console.engine).create("/p/c", b"")
    body = json.dumps({"path": "/p", "version": 0}).encode()

    assert (await console.refusal("/console/api/change/delete", "POST", body, **BEARER)).status == 409
    console.engine.refuse_writes("the disk is full", frozen=False)
    body = json.dumps({"path": "/q", "base64": ""}).encode()
    assert (await console.refusal("/console/api/change/create", "POST", body, **BEARER)).status == 409
    assert console.engine.tree.get("/q") is None


async def test_failed_console_change_leaves_no_gap_in_transaction_log() -> None:
    console = Console()
    connect_peer(console.engine).create("/a", b"")
    journal = Journal(console.engine.zxid)
    console.engine.use_journal(journal)
    stale = json.dumps({"path": "/a", "base64": "", "version": 7}).encode()

    await console.refusal("/console/api/change/set", "POST", stale, **BEARER)
    await console.change("set", path="/a", base64="", version=0)

    failed, done = (entry[2] for entry in journal.entries)
    assert (failed, done) == (console.engine.zxid - 1, console.engine.zxid)


async def test_sessions_are_expired_and_disconnected() -> None:
    console = Console()
    first, second = connect_peer(console.engine), connect_peer(console.engine)
    first.create("/first", b"", 1)
    second.create("/second", b"", 1)
    one, two = map(hex, console.engine.sessions.alive)

    await console.change("drop", session=two)
    await console.change("expire", session=one)

    assert console.engine.tree.get("/first") is None
    assert console.engine.tree.get("/second") is not None
    assert not console.engine.connections
    again = json.dumps({"session": one}).encode()
    assert (await console.refusal("/console/api/change/expire", "POST", again, **BEARER)).status == 409


async def test_changes_in_console_fire_watches_of_clients() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/a", b"")
    peer.get("/a", watch=True)

    await console.change("set", path="/a", base64=b64(b"new"), version=0)

    assert peer.receive()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"path": 5}',
        b'{"path": "a"}',
        b'{"path": "/a", "base64": "%%"}',
        b'{"path": "/a", "base64": 7}',
        b'{"path": "/a", "version": "x"}',
        b'{"path": "/a", "mode": "EPHEMERAL"}',
        b"[" * 100_000,
        b"\xff",
    ],
)
async def test_console_refuses_invalid_arguments_without_change(body: bytes) -> None:
    console = Console()

    assert (await console.refusal("/console/api/change/create", "POST", body, **BEARER)).status == 400
    assert console.engine.tree.size == 4


@pytest.mark.parametrize("acl", [[], ["x"], ["world:anyone:q"], 5, None])
async def test_console_refuses_invalid_acl(acl: object) -> None:
    console = Console()
    connect_peer(console.engine).create("/a", b"")
    body = json.dumps({"path": "/a", "acl": acl, "version": 0}).encode()

    assert (await console.refusal("/console/api/change/set_acl", "POST", body, **BEARER)).status in (400, 409)
    assert console.engine.tree.find("/a").acl == 0


async def test_console_shows_password_hash_of_acl_only_with_token() -> None:
    console = Console()
    connect_peer(console.engine).create("/a", b"", acl=(ACL(31, Id("digest", "bob:C1u6Ye/aBVB1C=")),))

    assert (await console.facts("node?path=/a"))["acl"][0]["id"] == "bob"
    assert (await console.facts("node?path=/a", **BEARER))["acl"][0]["id"] == "bob:C1u6Ye/aBVB1C="


async def test_console_shows_lock_data_without_token_only_if_public() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/l", b"")
    secret = (ACL(31, Id("ip", "127.0.0.1")),)
    peer.create("/l/9c7e980a02c6499346ac9bf4e550501a__lock__", b"secret", 3, acl=secret)

    shown, trusted = await console.facts("locks"), await console.facts("locks", **BEARER)

    assert [line["holders"][0]["data"] for answer in (shown, trusted) for line in answer["shared"]] == ["", "secret"]


async def test_session_is_not_expired_while_log_is_blocked() -> None:
    console = Console()
    connect_peer(console.engine).create("/e", b"", 1)
    (session,) = map(hex, console.engine.sessions.alive)
    console.engine.refuse_writes("the disk is full", frozen=True)

    body = json.dumps({"session": session}).encode()
    error = await console.refusal("/console/api/change/expire", "POST", body, **BEARER)

    assert error.status == 409
    assert "the disk is full" in str(error)
    assert console.engine.tree.get("/e") is not None


async def test_concurrent_requests_for_locks_share_one_walk() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    for number in range(3000):
        peer.create(f"/n{number}", b"")
    looks: list[bool] = []
    look = console.source._read_locks

    async def counted(*, trusted: bool) -> Any:
        looks.append(trusted)
        return await look(trusted=trusted)

    console.source._read_locks = counted  # type: ignore[method-assign]
    await asyncio.gather(*[console.facts("locks") for _ in range(20)])

    assert looks == [False]


async def test_locks_below_crowded_node_are_still_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_locks, "MAX_LOCK_CHILDREN", 10)
    console = Console()
    peer = connect_peer(console.engine)
    for path in ("/l", "/l/n-", "/l/n-/lock"):
        peer.create(path, b"")
    peer.create("/l/n-/lock/9c7e980a02c6499346ac9bf4e550501a__lock__", b"", 3)
    for _ in range(11):
        peer.create("/l/9c7e980a02c6499346ac9bf4e550501a__lock__", b"", 3)

    locks = await console.facts("locks")

    assert ([each["path"] for each in locks["shared"]], locks["left_out"]) == (["/l/n-/lock"], 1)


async def test_token_allows_additional_event_streams() -> None:
    console = Console()
    streams = [(await console.ask("/console/api/events")).stream for _ in range(MAX_STREAMS)]

    assert (await console.refusal("/console/api/search?name=x")).status == 503
    trusted = (await console.ask("/console/api/events", **BEARER)).stream
    for stream in (*streams, trusted):
        assert stream is not None
        await stream.aclose()


async def test_long_glob_is_refused() -> None:
    assert (await Console().refusal("/console/api/search?name=" + "%3F" * 201)).status == 400


@pytest.mark.parametrize("version", ["5", 1.5, True, 1 << 31, -2, None])
async def test_console_refuses_version_that_is_not_a_number(version: object) -> None:
    console = Console()
    connect_peer(console.engine).create("/a", b"")
    body = json.dumps({"path": "/a", "base64": "", "version": version}).encode()

    assert (await console.refusal("/console/api/change/set", "POST", body, **BEARER)).status == 400


async def test_console_shows_lock_as_held_since_end_of_predecessor() -> None:
    console = Console()
    first, second = connect_peer(console.engine), connect_peer(console.engine)
    first.create("/l", b"")
    name = "/l/9c7e980a02c6499346ac9bf4e550501a__lock__"
    ahead = first.create(name, b"first", 3)
    second.create(name, b"second", 3)
    later = second.create(name, b"third", 3)
    console.engine.set_time(console.engine.now + 5000, console.engine.monotonic_ms + 5000)
    first.delete(ahead)
    console.engine.set_time(console.engine.now + 5000, console.engine.monotonic_ms + 5000)
    second.delete(later)  # the end of a contender behind the holder does not change this time

    (line,) = (await console.facts("locks"))["shared"]

    (holder,) = line["holders"]
    assert (holder["data"], holder["held_since"] - holder["since"]) == ("second", 5.0)
