"""Scripts about failover, read-only members, local sessions and voting members; see :mod:`support.scripts`."""

from __future__ import annotations

import time

from support.script_client import ScriptClient
from support.scripts import EPHEMERAL, LAG_S, LOCAL, PLAIN, READ_ONLY, RECONFIG, in_group
from support.worlds import World

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode

# --- failover ---


@in_group(PLAIN)
def the_leader_is_killed(w: World) -> list[object]:
    leader, first, second = w.roles()
    client, other = w.client(), w.client()
    client.connect(w.port(first))
    other.connect(w.port(leader))
    seen: list[object] = [
        client.create("/a", b"1"),
        client.create("/e", b"", EPHEMERAL),
        other.create("/o", b"", EPHEMERAL),
    ]
    before = client.zxid
    w.kill(leader)
    seen += [client.is_closed(), other.is_closed(), other.connect(w.port(leader))]
    w.wait_for_modes("follower", "leader", among=[first, second])
    seen += [client.connect_patiently(w.port(first)), client.get("/a"), client.exists("/e"), client.zxid - before < 3]
    seen += [client.set("/a", b"2"), (client.zxid >> 32) - (before >> 32), client.zxid & 0xFFFFFFFF]
    seen += [other.connect_patiently(w.port(second)), other.sync(), other.exists("/o"), other.get("/a")]
    w.start(leader)
    w.roles()
    return [*seen, other.connect_patiently(w.port(leader)), other.get("/a"), w.mode(leader)]


@in_group(PLAIN)
def a_follower_is_killed(w: World) -> list[object]:
    leader, first, second = w.roles()
    mine, other = w.client(), w.client()
    mine.connect(w.port(first))
    other.connect(w.port(second))
    seen: list[object] = [mine.create("/e", b"", EPHEMERAL)]
    w.kill(first)
    seen += [mine.is_closed(), other.set("/none", b""), other.create("/a", b"1"), other.connected]
    seen += [mine.connect_patiently(w.port(leader)), mine.exists("/e")]
    w.start(first)
    w.roles()
    return [*seen, mine.connect_patiently(w.port(first)), mine.get("/a"), mine.set("/a", b"2")]


@in_group(PLAIN)
def ephemerals_of_a_killed_members_client_live_until_it_expires(w: World) -> list[object]:
    _, first, second = w.roles()
    gone, watcher = w.client(), w.client()
    gone.connect(w.port(first), timeout_ms=1500)
    watcher.connect(w.port(second))
    seen: list[object] = [gone.create("/e", b"", EPHEMERAL), watcher.sync(), watcher.exists("/e", watch=True)]
    w.kill(first)
    seen += [watcher.exists("/e"), watcher.wait_for_events(1), watcher.exists("/e")]
    return [*seen, gone.connect_patiently(w.port(second))]


@in_group(PLAIN)
def without_a_quorum_nobody_serves(w: World) -> list[object]:
    leader, first, second = w.roles()
    client = w.client()
    client.connect(w.port(leader))
    client.create("/a", b"1")
    w.kill(first)
    w.kill(second)
    seen: list[object] = [client.is_closed(), w.mode(leader)]
    w.wait(lambda: client.connect(w.port(leader)) == "closed")
    w.start(first)
    return [*seen, client.connect_patiently(w.port(leader)), client.get("/a"), client.set("/a", b"2")]


@in_group(PLAIN)
def a_watch_is_set_again_after_a_failover(w: World) -> list[object]:
    leader, first, second = w.roles()
    watcher, writer = w.client(), w.client()
    watcher.connect(w.port(first))
    watcher.create("/a", b"1")
    seen: list[object] = [
        watcher.get("/a", watch=True),
        watcher.exists("/b", watch=True),
        watcher.children("/", watch=True),
    ]
    w.kill(leader)
    watcher.is_closed()
    seen.append(watcher.connect_patiently(w.port(second)))
    seen.append(watcher.call(OpCode.SET_WATCHES, r.SetWatches(watcher.zxid, ["/a"], ["/b"], ["/"]))[0])
    writer.connect_patiently(w.port(first))
    seen += [writer.set("/a", b"2"), watcher.wait_for_events(1)]
    return [*seen, writer.create("/b"), watcher.wait_for_events(3)]


@in_group(PLAIN)
def what_was_missed_is_sent_when_watches_are_set_again(w: World) -> list[object]:
    _, first, second = w.roles()
    watcher, writer = w.client(), w.client()
    watcher.connect(w.port(first))
    watcher.create("/a", b"1")
    watcher.create("/gone")
    seen: list[object] = [
        watcher.get("/a", watch=True),
        watcher.exists("/gone", watch=True),
        watcher.exists("/b", watch=True),
    ]
    zxid = watcher.zxid
    w.kill(first)
    watcher.is_closed()
    writer.connect_patiently(w.port(second))
    seen += [writer.set("/a", b"2"), writer.delete("/gone"), writer.create("/b")]
    seen += [watcher.connect_patiently(w.port(second)), watcher.events]
    seen.append(watcher.call(OpCode.SET_WATCHES, r.SetWatches(zxid, ["/a", "/gone"], ["/b"], []))[0])
    return [*seen, sorted(watcher.wait_for_events(3))]


@in_group(PLAIN)
def a_watch_at_a_lagging_member_fires_when_that_applies(w: World) -> list[object]:
    leader, first, _ = w.roles()
    watcher, writer = w.client(), w.client()
    writer.connect(w.port(leader))
    watcher.connect(w.port(first))
    writer.create("/a", b"1")
    seen: list[object] = [watcher.sync(), watcher.get("/a", watch=True)]
    w.lag(first, LAG_S)
    began = time.monotonic()
    seen += [writer.set("/a", b"2"), watcher.get("/a"), list(watcher.events)]
    return [*seen, watcher.wait_for_events(1), time.monotonic() - began > LAG_S * 0.8, watcher.get("/a")]


@in_group(PLAIN)
def an_event_comes_before_the_data_that_it_announces(w: World) -> list[object]:
    leader, first, _ = w.roles()
    watcher, writer = w.client(), w.client()
    writer.connect(w.port(leader))
    watcher.connect(w.port(first))
    writer.create("/a", b"1")
    watcher.sync()
    watcher.get("/a", watch=True)
    w.lag(first, LAG_S)
    writer.set("/a", b"2")
    watcher.send(OpCode.SYNC, r.SyncRequest("/a"))
    watcher.send(OpCode.GET_DATA, r.GetDataRequest("/a", False))
    first_answer = watcher.answer()[0]
    events = list(watcher.events)
    return [first_answer, events, r.GetDataResponse.decode(watcher.answer()[1]).data]


@in_group(PLAIN)
def a_follower_is_cut_off(w: World) -> list[object]:
    leader, first, second = w.roles()
    mine, other = w.client(), w.client()
    mine.connect(w.port(first), timeout_ms=30_000)
    other.connect(w.port(second))
    mine.create("/a", b"1")
    w.partition([first], [leader, second])
    seen: list[object] = [mine.is_closed(), other.set("/a", b"2"), mine.connect(w.port(first)), w.mode(first)]
    seen += [mine.connect_patiently(w.port(second)), mine.get("/a")]
    w.partition([0, 1, 2])
    w.roles()
    return [*seen, mine.connect_patiently(w.port(first)), mine.get("/a"), w.mode(leader)]


@in_group(PLAIN)
def the_leader_is_cut_off(w: World) -> list[object]:
    leader, first, second = w.roles()
    mine, other = w.client(), w.client()
    mine.connect(w.port(leader), timeout_ms=30_000)
    other.connect(w.port(first), timeout_ms=30_000)
    seen: list[object] = [mine.create("/a", b"1"), mine.create("/e", b"", EPHEMERAL)]
    w.partition([leader], [first, second])
    w.wait_for_modes("follower", "leader", among=[first, second])
    seen += [mine.is_closed(), other.connect_patiently(w.port(first)), other.set("/a", b"2"), other.exists("/e")]
    seen += [
        mine.connect(w.port(leader)),
        mine.connect_patiently(w.port(second)),
        mine.exists("/e"),
        mine.sync(),
        mine.get("/a"),
    ]
    w.partition([0, 1, 2])
    w.roles()
    return [*seen, w.mode(leader), mine.connect_patiently(w.port(leader)), mine.get("/a")]


@in_group(PLAIN)
def all_are_cut_off_from_each_other(w: World) -> list[object]:
    leader, first, second = w.roles()
    client = w.client()
    client.connect(w.port(first), timeout_ms=30_000)
    client.create("/e", b"", EPHEMERAL)
    w.partition([0], [1], [2])
    seen: list[object] = [client.is_closed()]
    w.wait_for_modes("", "", "")
    seen += [client.connect(w.port(member)) for member in (leader, first, second)]
    w.partition([0, 1, 2])
    w.roles()
    return [*seen, client.connect_patiently(w.port(second)), client.exists("/e"), client.create("/a")]


@in_group(PLAIN)
def each_member_is_restarted_in_turn(w: World) -> list[object]:
    leader, first, second = w.roles()
    client = w.client()
    client.connect(w.port(first), timeout_ms=60_000)
    seen: list[object] = [client.create("/a", b"0"), client.create("/e", b"", EPHEMERAL)]
    for number, member in enumerate((first, second, leader)):
        w.kill(member)
        rest = [other for other in range(3) if other != member]
        w.wait_for_modes("follower", "leader", among=rest)
        seen += [
            client.connect_patiently(w.port(rest[0])),
            client.exists("/e"),
            client.set("/a", b"%d" % number, number),
        ]
        w.start(member)
        w.roles()
    return [*seen, client.connect_patiently(w.port(leader)), client.get("/a")]


@in_group(PLAIN)
def epochs_and_counts_of_zxids(w: World) -> list[object]:
    leader, first, second = w.roles()
    client = w.client()
    client.connect(w.port(first), timeout_ms=30_000)
    client.create("/a")
    before = client.zxid
    w.kill(leader)
    client.is_closed()
    w.wait_for_modes("follower", "leader", among=[first, second])
    seen: list[object] = [client.connect_patiently(w.port(first)), client.exists("/a"), client.zxid == before]
    seen += [client.connect_patiently(w.port(second)), client.exists("/a")]  # this member leads
    seen += [client.zxid == ((before >> 32) + 1) << 32, client.connect(w.port(first)), client.connect(w.port(second))]
    seen += [client.set("/a", b"1"), client.set("/none", b"1"), client.zxid & 0xFFFFFFFF]
    return [*seen, client.set("/a", b"1"), client.zxid & 0xFFFFFFFF, client.connect_patiently(w.port(first))]


@in_group(PLAIN)
def a_session_lives_through_two_failovers(w: World) -> list[object]:
    client = w.client()
    leader, first, _ = w.roles()
    client.connect(w.port(first), timeout_ms=60_000)
    seen: list[object] = [client.create("/e", b"", EPHEMERAL)]
    for _ in range(2):
        leader, first, second = w.roles()
        w.kill(leader)
        w.wait_for_modes("follower", "leader", among=[first, second])
        seen += [client.connect_patiently(w.port(second)), client.exists("/e")]
        w.start(leader)
        w.roles()
    return [*seen, client.close()]


# --- read-only members, local sessions ---


@in_group(READ_ONLY)
def a_read_only_member_without_local_sessions_serves_nobody(w: World) -> list[object]:
    _, first, second = w.roles()
    client, other = w.client(), w.client()
    client.connect(w.port(first), timeout_ms=60_000)
    client.create("/a", b"1")
    w.partition([first], [member for member in range(3) if member != first])
    w.wait(lambda: w.mode(first) == "read-only")
    seen: list[object] = [client.connect(w.port(first)), client.connect(w.port(first), read_only=True)]
    seen += [other.connect(w.port(first)), other.connect(w.port(first), read_only=True)]
    return [*seen, client.connect_patiently(w.port(second)), client.get("/a")]


@in_group(LOCAL)
def a_minority_is_read_only(w: World) -> list[object]:
    leader, first, second = w.roles()
    writer, reader, stubborn = w.client(), w.client(), w.client()
    writer.connect(w.port(leader), timeout_ms=60_000)
    writer.create("/a", b"1")
    writer.sync()
    time.sleep(0.3)
    w.partition([first], [leader, second])
    w.wait(lambda: w.mode(first) == "read-only")
    seen: list[object] = [stubborn.connect(w.port(first)), reader.connect(w.port(first), read_only=True)]
    seen += [reader.get("/a"), reader.exists("/a", watch=True), reader.set("/a", b"x"), reader.create("/b")]
    seen += [reader.sync(), reader.delete("/a"), reader.ping(), reader.create("/e", b"", EPHEMERAL)]
    seen += [writer.set("/a", b"2"), reader.get("/a"), reader.connected]
    session = reader.session
    seen += [reader.connect(w.port(first), read_only=True), reader.close(), session.session_id != 0]
    reader.connect(w.port(first), read_only=True)
    w.partition([0, 1, 2])
    w.roles()
    seen += [reader.is_closed(), reader.connect_patiently(w.port(first), read_only=True)]
    seen += [reader.connect_patiently(w.port(first), read_only=True), reader.get("/a"), reader.set("/a", b"3")]
    return seen


@in_group(LOCAL)
def a_local_session_is_known_to_its_member_only(w: World) -> list[object]:
    _, first, second = w.roles()
    client, other = w.client(), w.client()
    seen: list[object] = [client.connect(w.port(first))]
    before = client.zxid
    seen += [client.create("/a", b"1"), client.zxid & 0xFFFFFFFF > before]
    other.session = client.session
    seen += [other.connect(w.port(second)), client.get("/a"), client.connect(w.port(first)), client.get("/a")]
    return [*seen, client.close()]


@in_group(LOCAL)
def a_local_session_with_an_ephemeral_node_is_upgraded(w: World) -> list[object]:
    _, first, second = w.roles()
    client, other = w.client(), w.client()
    client.connect(w.port(first))
    client.create("/a")
    before = client.zxid
    seen: list[object] = [client.create("/e", b"", EPHEMERAL), client.zxid - before]
    other.session, other.zxid = client.session, client.zxid
    seen += [other.connect_patiently(w.port(second)), other.exists("/e"), other.set("/a", b"1"), client.set("/a", b"2")]
    return [*seen, other.close()]


@in_group(LOCAL)
def a_local_session_takes_no_zxid(w: World) -> list[object]:
    _, first, second = w.roles()
    writer = w.client()
    writer.connect(w.port(second))
    writer.create("/a")
    before = writer.zxid
    for _ in range(3):
        client = w.client()
        client.connect(w.port(first))
        client.close()
    writer.set("/a", b"")
    return [writer.zxid - before]


@in_group(LOCAL)
def a_local_session_ends_with_its_members_leader(w: World) -> list[object]:
    leader, first, second = w.roles()
    client = w.client()
    client.connect(w.port(first), timeout_ms=30_000)
    seen: list[object] = [client.create("/a", b"1")]
    w.kill(leader)
    seen.append(client.is_closed())
    w.wait_for_modes("follower", "leader", among=[first, second])
    return [*seen, client.connect_patiently(w.port(first)), client.connect_patiently(w.port(first)), client.get("/a")]


# --- reconfig ---


def _voters(client: ScriptClient) -> list[str]:
    text = client.get("/zookeeper/config")
    lines = [line for line in text.splitlines() if line.startswith("server.")]
    return [line.split("=")[0] + " " + line.split(";")[0].rsplit(":", 1)[-1] for line in lines]


def _line(client: ScriptClient, member: int, port: int) -> str:
    """Return the line of a member, with its address for clients."""
    lines = client.get("/zookeeper/config").splitlines()
    return next(line for line in lines if line.startswith(f"server.{member + 1}=")).partition(";")[0] + (
        f";127.0.0.1:{port}"
    )


def reconfig(client: ScriptClient, *, joining: str | None = None, leaving: str | None = None, version: int = -1) -> str:
    """Change the members; return ``OK`` or the error."""
    request = r.ReconfigRequest(joining, leaving, None, version)
    return client.call(OpCode.RECONFIG, request)[0]


@in_group(RECONFIG)
def the_configuration_names_all_members(w: World) -> list[object]:
    roles = w.roles()
    seen: list[object] = []
    for member in roles:
        client = w.client()
        client.connect(w.port(member))
        seen += [client.sync(), _voters(client)]
    return seen


@in_group(RECONFIG)
def a_follower_is_removed_and_comes_back(w: World) -> list[object]:
    leader, first, second = w.roles()
    client, other = w.client(), w.client()
    client.connect(w.port(leader), timeout_ms=30_000)
    line = _line(client, first, w.port(first))
    seen: list[object] = [other.connect(w.port(second)), other.get("/zookeeper/config", watch=True) != ""]
    seen += [reconfig(client, leaving=str(first + 1)), len(_voters(client)), other.wait_for_events(1)]
    seen += [client.create("/a"), reconfig(client, leaving="7"), reconfig(client, joining="nonsense")]
    seen += [reconfig(client, version=12345), reconfig(client, joining=line), len(_voters(client))]
    return seen


@in_group(RECONFIG)
def a_removed_leader_hands_over_and_follows(w: World) -> list[object]:
    seen: list[object] = []
    for sender in range(3):  # the leader, then each follower
        members = w.roles()
        leader, first, second = members
        clients = [w.client() for _ in members]
        for client, member in zip(clients, members, strict=True):
            client.connect(w.port(member), timeout_ms=30_000)
            client.get("/zookeeper/config", watch=True)
        line, epoch = _line(clients[0], leader, w.port(leader)), clients[sender].zxid >> 32
        seen.append(reconfig(clients[sender], leaving=str(leader + 1)))
        seen += [(client.is_closed(), client.events) for client in clients]
        w.wait_for_modes("leader", "follower", "follower")
        seen += [w.mode(leader), min(first, second) == next(each for each in range(3) if w.mode(each) == "leader")]
        seen += [client.connect_patiently(w.port(member)) for client, member in zip(clients, members, strict=True)]
        seen += [clients[0].create("/a", flags=3) != "", (clients[0].zxid >> 32) - epoch, len(_voters(clients[0]))]
        seen += [reconfig(clients[1], leaving=str(first + 1)), reconfig(clients[0], joining=line)]
        seen += [client.is_closed(0.2) for client in clients]
    return seen


@in_group(RECONFIG)
def wrong_reconfigs_are_refused(w: World) -> list[object]:
    client = w.client()
    client.connect(w.port(w.roles()[0]))
    stat = r.GetDataResponse.decode(client.call(OpCode.GET_DATA, r.GetDataRequest("/zookeeper/config", False))[1]).stat
    seen: list[object] = [stat.version, stat.mzxid > 0]
    for line in ("nonsense", "server.9=x", "server.4=127.0.0.1:1:2", ""):
        before = client.zxid
        seen.append((reconfig(client, joining=line), client.zxid - before))
    return seen + [reconfig(client, leaving=number) for number in ("x", "9", "", "1,2")]
