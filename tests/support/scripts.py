"""Scripts that show how failures in an ensemble look to clients: each returns the outcomes, in order, as text.

Their texts leave out numbers that differ from run to run: session ids and durations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from support.script_client import ScriptClient
from support.worlds import World

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.operations import OpCode

Script = Callable[[World], list[object]]
LAG_S: Final = 0.4
LONG_LAG_S: Final = 1.0  # two writes that wait for each other take twice as long, even on a busy machine
EPHEMERAL: Final = int(CreateMode.EPHEMERAL)
PLAIN: Final[list[Script]] = []
"""Scripts that need no configuration."""
LOCAL: Final[list[Script]] = []
"""Scripts about local sessions and read-only members."""
READ_ONLY: Final[list[Script]] = []
"""Scripts about read-only members without local sessions."""
RECONFIG: Final[list[Script]] = []
"""Scripts that change which members vote."""


def in_group(group: list[Script]) -> Callable[[Script], Script]:
    """Add a script to a group."""

    def add(script: Script) -> Script:
        group.append(script)
        return script

    return add


# --- reads, writes, sync ---


@in_group(PLAIN)
def a_write_through_a_follower_is_seen_by_all(w: World) -> list[object]:
    leader, first, second = w.roles()
    one, two, three = w.client(), w.client(), w.client()
    seen: list[object] = [one.connect(w.port(first)), two.connect(w.port(second)), three.connect(w.port(leader))]
    seen += [one.create("/a", b"1"), two.sync(), two.get("/a"), three.sync(), three.get("/a")]
    return [*seen, one.zxid == two.zxid == three.zxid]


@in_group(PLAIN)
def a_lagging_follower_reads_the_past_until_it_syncs(w: World) -> list[object]:
    leader, first, _ = w.roles()
    writer, reader = w.client(), w.client()
    writer.connect(w.port(leader))
    reader.connect(w.port(first))
    seen: list[object] = [writer.create("/a", b"old"), reader.sync(), reader.get("/a")]
    w.lag(first, LAG_S)
    seen += [writer.set("/a", b"new"), reader.get("/a"), writer.get("/a")]
    began = time.monotonic()
    seen += [reader.sync(), time.monotonic() - began > LAG_S / 2, reader.get("/a")]
    return seen


@in_group(PLAIN)
def a_write_through_a_lagging_follower_is_answered_when_that_has_it(w: World) -> list[object]:
    _, first, second = w.roles()
    writer, reader = w.client(), w.client()
    writer.connect(w.port(first))
    reader.connect(w.port(second))
    w.lag(first, LAG_S)
    began = time.monotonic()
    writer.send(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0))
    time.sleep(LAG_S / 4)
    seen: list[object] = [reader.sync(), reader.exists("/a")]
    return [*seen, writer.answer()[0], time.monotonic() - began > LAG_S * 0.8, writer.exists("/a")]


@in_group(PLAIN)
def requests_behind_a_slow_write_wait_for_it(w: World) -> list[object]:
    _, first, _ = w.roles()
    client = w.client()
    client.connect(w.port(first))
    client.create("/a", b"1")
    w.lag(first, LONG_LAG_S)
    client.send(OpCode.SET_DATA, r.SetDataRequest("/a", b"2", -1))
    client.send(OpCode.GET_DATA, r.GetDataRequest("/a", False))
    client.send(OpCode.SET_DATA, r.SetDataRequest("/a", b"3", -1))
    client.send(OpCode.GET_DATA, r.GetDataRequest("/a", False))
    began = time.monotonic()
    answers = [client.answer() for _ in range(4)]
    data = [r.GetDataResponse.decode(body).data for error, body in answers[1::2]]
    return [[error for error, _ in answers], data, time.monotonic() - began < 2 * LONG_LAG_S]


@in_group(PLAIN)
def the_zxid_of_a_read_is_that_of_its_member(w: World) -> list[object]:
    leader, first, _ = w.roles()
    writer, reader = w.client(), w.client()
    writer.connect(w.port(leader))
    reader.connect(w.port(first))
    writer.create("/a")
    reader.sync()
    reader.exists("/a")
    seen: list[object] = [reader.zxid == writer.zxid]
    w.lag(first, LAG_S)
    before = reader.zxid
    writer.set("/a", b"1")
    seen += [reader.exists("/a"), reader.zxid == before, writer.zxid == before + 1]
    return [*seen, reader.sync(), reader.exists("/a"), reader.zxid == before + 1]


@in_group(PLAIN)
def errors_are_the_leaders(w: World) -> list[object]:
    _, first, second = w.roles()
    one, two = w.client(), w.client()
    one.connect(w.port(first))
    two.connect(w.port(second))
    w.lag(first, LAG_S)
    seen: list[object] = [two.create("/a", b"1"), one.exists("/a"), one.create("/a"), one.exists("/a")]
    return [*seen, two.set("/a", b"", 7), two.delete("/none"), two.set("/a", b"2", 0)]


@in_group(PLAIN)
def a_multi_through_a_follower_happens_as_a_whole(w: World) -> list[object]:
    _, first, second = w.roles()
    one, two = w.client(), w.client()
    one.connect(w.port(first))
    two.connect(w.port(second))
    good: list[tuple[OpCode, Record]] = [
        (OpCode.CREATE, r.CreateRequest("/a", b"1", OPEN_ACL_UNSAFE, 0)),
        (OpCode.SET_DATA, r.SetDataRequest("/a", b"2", 0)),
    ]
    bad: list[tuple[OpCode, Record]] = [
        (OpCode.SET_DATA, r.SetDataRequest("/a", b"3", -1)),
        (OpCode.DELETE, r.DeleteRequest("/none", -1)),
        (OpCode.CREATE, r.CreateRequest("/b", b"", OPEN_ACL_UNSAFE, 0)),
    ]
    seen: list[object] = []
    for operations in (good, bad):
        error, answer = one.call(OpCode.MULTI, wire.encode_operations(operations))
        results = [f"{type(each).__name__} {getattr(each, 'err', '')}" for _, each in wire.decode_results(answer)]
        seen += [error, results]
    return [*seen, two.sync(), two.get("/a"), two.exists("/b")]


@in_group(PLAIN)
def sequence_numbers_are_those_of_the_leader(w: World) -> list[object]:
    leader, first, second = w.roles()
    clients = [w.client() for _ in range(3)]
    for client, member in zip(clients, (leader, first, second), strict=True):
        client.connect(w.port(member))
    clients[0].create("/q")
    return [clients[number % 3].create("/q/n-", b"", 2) for number in range(6)]


# --- sessions ---


@in_group(PLAIN)
def a_session_moves_and_its_old_connection_is_closed_when_it_writes(w: World) -> list[object]:
    leader, first, second = w.roles()
    old, new = w.client(), w.client()
    seen: list[object] = [old.connect(w.port(first)), old.create("/a", b"1"), old.create("/e", b"", EPHEMERAL)]
    new.session, new.zxid = old.session, old.zxid
    seen += [new.connect_patiently(w.port(second)), old.get("/a"), old.ping(), old.set("/a", b"2"), old.connected]
    seen += [new.get("/a"), new.set("/a", b"3"), new.exists("/e")]
    new.connect_patiently(w.port(leader))
    return [*seen, new.set("/a", b"4")]


@in_group(PLAIN)
def the_leader_closes_the_connection_of_a_moved_session(w: World) -> list[object]:
    leader, first, second = w.roles()
    seen: list[object] = []
    for before, after in ((leader, first), (first, second), (first, leader)):
        for request in (
            ScriptClient.ping,
            ScriptClient.sync,
            lambda old: old.exists("/"),
            lambda old: old.delete("/no"),
        ):
            old, new, other = w.client(), w.client(), w.client()
            old.connect(w.port(before))
            other.connect(w.port(leader))
            new.session, new.zxid = old.session, old.zxid
            seen += [new.connect_patiently(w.port(after)), new.create("/a", flags=3) != ""]
            other.set("/", b"")
            zxid = other.zxid
            seen += [request(old), old.is_closed(0.2)]
            other.set("/", b"")
            seen.append(other.zxid - zxid)
    return seen


@in_group(PLAIN)
def a_member_that_is_behind_refuses_a_client_that_saw_more(w: World) -> list[object]:
    leader, first, _ = w.roles()
    client, other = w.client(), w.client()
    client.connect(w.port(leader))
    client.create("/a")
    client.sync()
    w.lag(first, LAG_S)
    client.set("/a", b"1")
    other.zxid = client.zxid
    seen: list[object] = [other.connect(w.port(first)), client.connect(w.port(first))]
    time.sleep(1.5 * LAG_S)
    return [*seen, client.connect_patiently(w.port(first)), client.get("/a")]


@in_group(PLAIN)
def a_client_from_the_future_is_refused_by_all(w: World) -> list[object]:
    roles = w.roles()
    client = w.client()
    client.zxid = 0x7000000000000000
    return [client.connect(w.port(member)) for member in roles]


@in_group(PLAIN)
def a_wrong_password_is_answered_that_the_session_expired(w: World) -> list[object]:
    _, first, second = w.roles()
    owner, thief = w.client(), w.client()
    seen: list[object] = [owner.connect(w.port(first)), owner.create("/e", b"", EPHEMERAL)]
    thief.session = owner.session._replace(password=bytes(16))
    seen += [thief.connect(w.port(second)), owner.connected, owner.exists("/e")]
    return seen


@in_group(PLAIN)
def a_session_that_nobody_hears_expires_everywhere(w: World) -> list[object]:
    _, first, second = w.roles()
    owner, watcher = w.client(), w.client()
    owner.connect(w.port(first), timeout_ms=600)
    watcher.connect(w.port(second))
    seen: list[object] = [owner.create("/e", b"", EPHEMERAL), watcher.sync(), watcher.exists("/e", watch=True)]
    seen += [watcher.wait_for_events(1), watcher.exists("/e"), owner.is_closed()]
    return [*seen, owner.connect(w.port(second))]


@in_group(PLAIN)
def pings_through_any_member_keep_a_session(w: World) -> list[object]:
    leader, first, second = w.roles()
    client, watcher = w.client(), w.client()
    watcher.connect(w.port(leader))
    client.connect(w.port(first), timeout_ms=1200)
    seen: list[object] = [client.create("/e", b"", EPHEMERAL)]
    for member in (first, second, leader):
        seen.append(client.connect_patiently(w.port(member), timeout_ms=1200))
        for _ in range(4):
            time.sleep(0.2)
            seen.append(client.ping())
    return [*seen, watcher.sync(), watcher.exists("/e")]


@in_group(PLAIN)
def closing_a_session_deletes_its_nodes_everywhere(w: World) -> list[object]:
    _leader, first, second = w.roles()
    owner, watcher = w.client(), w.client()
    owner.connect(w.port(first))
    watcher.connect(w.port(second))
    owner.create("/p")
    names = [owner.create(f"/p/{name}", b"", EPHEMERAL) for name in "abc"]
    seen: list[object] = [names, watcher.sync(), watcher.children("/p", watch=True), owner.close()]
    return [*seen, watcher.wait_for_events(1), watcher.children("/p")]


@in_group(PLAIN)
def the_same_member_closes_the_older_connection(w: World) -> list[object]:
    _, first, _ = w.roles()
    old, new = w.client(), w.client()
    seen: list[object] = [old.connect(w.port(first))]
    new.session = old.session
    return [*seen, new.connect(w.port(first)), old.is_closed(), new.create("/a")]
