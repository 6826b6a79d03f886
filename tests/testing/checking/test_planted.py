"""Each rule of the checker finds a planted violation in a history, and reports it with a minimal set of requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Final

import pytest
from support import histories as h
from support.effort import effort
from support.histories import answered_request, make_stat
from support.rates import detection_rates

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.testing.checking import clients, families, nodes, stats, watches
from zoolet.testing.checking.checker import RULES, check
from zoolet.testing.checking.facts import Facts
from zoolet.testing.checking.violation import Violation
from zoolet.testing.frames.requests import CONNECT, Entry, RecordedRequest

Rule = Callable[[Facts], Iterator[Violation]]
SIZE = 1500
READS = (OpCode.GET_DATA, OpCode.EXISTS, OpCode.GET_CHILDREN)


@pytest.fixture(scope="module")
def honest() -> list[Entry]:
    """A history of four clients."""
    return h.record_history(1, SIZE)


def test_history_of_server_is_accepted(honest: list[Entry]) -> None:
    assert len(honest) >= SIZE
    assert check(honest) is None


def test_long_history_is_checked_in_five_seconds() -> None:
    entries = h.record_history(2, 10_000)
    began = time.process_time()
    assert check(entries) is None
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize("seed", range(effort(5, 100)))
def test_histories_of_any_seed_are_accepted(seed: int) -> None:
    assert check(h.record_history(100 + seed, 400, clients=2 + seed % 5)) is None


# --- planted violations: each changes one or two answers, like a server with one defect ---


def goes_back(entries: list[Entry], rng: Random) -> None:
    """A read is answered with a zxid lower than the last one seen on its connection."""
    place = rng.choice(h.request_places(entries, *READS))
    entries[place] = h.with_zxid(entries[place], _seen_before(entries, place) - 1)


def _seen_before(entries: list[Entry], place: int) -> int:
    connection = entries[place].connection
    return max(
        (
            h.reply_zxid(e)
            for e in entries[:place]
            if isinstance(e, RecordedRequest) and e.connection == connection and e.opcode != CONNECT
        ),
        default=h.reply_zxid(entries[place]),
    )


def is_behind_its_client(entries: list[Entry], rng: Random) -> None:
    """A server accepts a client that has seen a higher zxid than the server."""
    place = rng.choice([p for p, e in enumerate(entries) if isinstance(e, RecordedRequest) and e.opcode == CONNECT])
    entry = h.request_at(entries, place)
    asked = ConnectRequest.decode(entry.body)
    ahead = ConnectRequest(entry.zxid + 10_000, asked.timeout_ms, asked.session_id, asked.password, asked.read_only)
    entries[place] = entry._replace(body=ahead.encode())


def answers_out_of_order(entries: list[Entry], rng: Random) -> None:
    """A write gets a lower zxid than an earlier write of the same client."""
    places = h.request_places(entries, OpCode.SET_DATA)
    pairs = [(p, q) for p, q in pairwise(places) if entries[p].connection == entries[q].connection]
    before, place = rng.choice(pairs)
    entries[place] = h.with_zxid(entries[place], h.reply_zxid(entries[before]) - 1)


def gives_a_zxid_twice(entries: list[Entry], rng: Random) -> None:
    """Writes of two clients have the same zxid."""
    place = rng.choice(h.request_places(entries, OpCode.CREATE)[5:])
    other = next(
        p
        for p in range(place - 1, 0, -1)
        if p in h.request_places(entries, OpCode.CREATE, OpCode.SET_DATA)
        and entries[p].connection != entries[place].connection
    )
    entries[place] = h.with_zxid(entries[place], h.reply_zxid(entries[other]))


def serves_a_closed_session(entries: list[Entry], rng: Random) -> None:
    """A session is still used after the answer that closed it."""
    place = rng.choice(h.request_places(entries, OpCode.CLOSE_SESSION)[:-1])
    later = next(
        p
        for p in h.request_places(entries, *READS)
        if p > place and h.reply_zxid(entries[p]) > h.reply_zxid(entries[place])
    )
    gone = entries[place]
    entries[later] = h.request_at(entries, later)._replace(session=gone.session, connection=gone.connection)


def keeps_an_ephemeral(entries: list[Entry], rng: Random) -> None:
    """A read shows an ephemeral node whose owner has closed its session."""
    closed = {entries[p].session: h.reply_zxid(entries[p]) for p in h.request_places(entries, OpCode.CLOSE_SESSION)}
    for place in h.request_places(entries, OpCode.EXISTS):
        answer = h.reply_record(entries[place], r.StatResponse)
        gone = [s for s, z in closed.items() if answer.stat.czxid < z <= h.reply_zxid(entries[place])]
        if gone and not answer.stat.ephemeralOwner:
            entries[place] = h.with_stat(entries[place], r.StatResponse, ephemeralOwner=gone[0])
            return
    raise AssertionError("no place for it")


def loses_an_ephemeral(entries: list[Entry], rng: Random) -> None:
    """An ephemeral node is missing although its session is alive."""
    for place in h.request_places(entries, OpCode.EXISTS):
        if h.reply_record(entries[place], r.StatResponse).stat.ephemeralOwner and _is_known(entries, place):
            entries[place] = h.with_error(entries[place], ErrorCode.NO_NODE)
            return
    raise AssertionError("no place for it")


def _is_known(entries: list[Entry], place: int) -> bool:
    """Return whether the history contains the last change of the node that is read."""
    facts = Facts.read(entries)
    path, at = h.request_path(entries[place]), h.reply_zxid(entries[place])
    changes = [c for c in facts.changes if c.path == path and c.zxid <= at and c.kind != "check"]
    return bool(changes) and facts.zxids.are_complete(changes[-1].zxid, at)


def misses_a_write(entries: list[Entry], rng: Random) -> None:
    """A read shows the node before the last write of another client."""
    for place in rng.sample(places := h.request_places(entries, OpCode.GET_DATA), len(places)):
        stat = h.reply_record(entries[place], r.GetDataResponse).stat
        if stat.version > 1 and _is_known(entries, place):
            entries[place] = h.with_stat(
                entries[place], r.GetDataResponse, mzxid=stat.mzxid - 1, version=stat.version - 1
            )
            return
    raise AssertionError("no place for it")


def misses_a_part(entries: list[Entry], rng: Random) -> None:
    """A read shows a node without the change of a transaction."""
    multis = {h.reply_zxid(entries[p]) for p in h.request_places(entries, OpCode.MULTI)}
    for place in h.request_places(entries, OpCode.EXISTS):
        stat = h.reply_record(entries[place], r.StatResponse).stat
        if stat.mzxid in multis:
            entries[place] = h.with_stat(entries[place], r.StatResponse, mzxid=stat.mzxid - 1, version=stat.version - 1)
            return
    raise AssertionError("no place for it")


def misses_a_delete(entries: list[Entry], rng: Random) -> None:
    """A read shows a deleted node."""
    facts = Facts.read(entries)
    for change in facts.changes:
        if change.kind != "delete" or change.entry.opcode != OpCode.DELETE:
            continue
        for place in h.request_places(entries, OpCode.EXISTS):
            if h.reply_zxid(entries[place]) == change.zxid:
                body = r.ExistsRequest(change.path, False).encode()
                entries[place] = h.with_stat(
                    h.request_at(entries, place)._replace(body=body),
                    r.StatResponse,
                    czxid=change.zxid - 2,
                    mzxid=change.zxid - 2,
                    ephemeralOwner=0,
                )
                return
    raise AssertionError("no place for it")


def loses_a_node(entries: list[Entry], rng: Random) -> None:
    """A created node is missing."""
    for place in rng.sample(places := h.request_places(entries, OpCode.GET_DATA), len(places)):
        if _is_known(entries, place):
            entries[place] = h.with_error(entries[place], ErrorCode.NO_NODE)
            return
    raise AssertionError("no place for it")


def shows_other_data(entries: list[Entry], rng: Random) -> None:
    """A read shows data that was never written."""
    for place in rng.sample(places := h.request_places(entries, OpCode.GET_DATA), len(places)):
        if _is_known(entries, place):
            answer = h.reply_record(entries[place], r.GetDataResponse)
            entries[place] = h.with_answer(entries[place], r.GetDataResponse(b"never", answer.stat))
            return
    raise AssertionError("no place for it")


def shows_a_later_write(entries: list[Entry], rng: Random) -> None:
    """A read shows a write that never happened."""
    for place in rng.sample(places := h.request_places(entries, OpCode.EXISTS), len(places)):
        stat = h.reply_record(entries[place], r.StatResponse).stat
        if stat.mzxid < h.reply_zxid(entries[place]) - 1 and _is_known(entries, place):
            entries[place] = h.with_stat(entries[place], r.StatResponse, mzxid=stat.mzxid + 1, version=stat.version + 1)
            return
    raise AssertionError("no place for it")


def shows_the_future(entries: list[Entry], rng: Random) -> None:
    """A read shows a write with a zxid after its own."""
    place = rng.choice(h.request_places(entries, OpCode.EXISTS))
    entries[place] = h.with_stat(entries[place], r.StatResponse, mzxid=h.reply_zxid(entries[place]) + 1)


def loses_an_update(entries: list[Entry], rng: Random) -> None:
    """Two conditional writes with the same version succeed."""
    facts = Facts.read(entries)
    for before, change in pairwise(facts.changes):
        if change.kind == "set" and before.kind == "set" and change.path == before.path and change.stat is not None:
            place = entries.index(change.entry)
            if h.request_at(entries, place).opcode == OpCode.SET_DATA:
                entries[place] = h.with_stat(entries[place], r.StatResponse, version=change.stat.version - 1)
                return
    raise AssertionError("no place for it")


def ignores_a_version(entries: list[Entry], rng: Random) -> None:
    """A conditional write is applied to a node with a different version."""
    for place in h.request_places(entries, OpCode.SET_DATA):
        request = r.SetDataRequest.decode(h.request_at(entries, place).body)
        if request.version >= 0:
            body = r.SetDataRequest(request.path, request.data, request.version + 5).encode()
            entries[place] = h.request_at(entries, place)._replace(body=body)
            return
    raise AssertionError("no place for it")


def refuses_the_right_version(entries: list[Entry], rng: Random) -> None:
    """A write with the correct version is refused, and so are writes that depend on it."""
    for place in h.request_places(entries, OpCode.SET_DATA):
        request = r.SetDataRequest.decode(h.request_at(entries, place).body)
        facts = Facts.read(entries[:place])
        changes = [c for c in facts.changes if c.path == request.path]
        if request.version >= 0 and changes and changes[-1].version == request.version:
            if facts.zxids.are_complete(changes[-1].zxid, h.reply_zxid(entries[place]) - 1):
                entries[place] = h.with_error(entries[place], ErrorCode.BAD_VERSION)
                del entries[place + 1 :]
                return
    raise AssertionError("no place for it")


def creates_twice(entries: list[Entry], rng: Random) -> None:
    """A create of an existing node succeeds."""
    facts = Facts.read(entries)
    for before, change in pairwise(facts.changes):
        if before.kind == "set" and change.kind == "set" and change.zxid == before.zxid + 1:
            if change.entry.opcode == OpCode.SET_DATA:
                place = entries.index(change.entry)
                body = r.CreateRequest(before.path, b"", (), CreateMode.PERSISTENT).encode()
                made = h.with_answer(change.entry, r.CreateResponse(before.path))
                entries[place] = made._replace(opcode=int(OpCode.CREATE), body=body)
                del entries[place + 1 :]
                return
    raise AssertionError("no place for it")


def applies_half_a_failure(entries: list[Entry], rng: Random) -> None:
    """A failed transaction has set a node."""
    facts = Facts.read(entries)
    failed = {number for number, entry in facts.failed.items() if entry.opcode == OpCode.MULTI}
    for place in h.request_places(entries, OpCode.EXISTS):
        stat = h.reply_record(entries[place], r.StatResponse).stat
        between = [number for number in failed if stat.mzxid < number <= h.reply_zxid(entries[place])]
        if between:
            entries[place] = h.with_stat(entries[place], r.StatResponse, mzxid=between[0], version=stat.version + 1)
            return
    raise AssertionError("no place for it")


def numbers_twice(entries: list[Entry], rng: Random) -> None:
    """Two nodes get the same sequence number."""
    _renumber(entries, lambda before: before)


def numbers_backwards(entries: list[Entry], rng: Random) -> None:
    """A sequence number is lower than the previous one."""
    _renumber(entries, lambda before: before - 1)


def _renumber(entries: list[Entry], number: Callable[[int], int]) -> None:
    facts = Facts.read(entries)
    made = [c for c in facts.changes if c.path.startswith("/q/n-") and c.entry.opcode == OpCode.CREATE]
    for before, change in pairwise(made):
        if facts.zxids.are_complete(before.zxid, change.zxid) and int(before.path[-10:]) > 0:
            path = f"{change.path[:-10]}{number(int(before.path[-10:])):010}"
            place = entries.index(change.entry)
            entries[place] = h.with_answer(change.entry, r.CreateResponse(path))
            return
    raise AssertionError("no place for it")


def lists_too_few(entries: list[Entry], rng: Random) -> None:
    """A list misses a child."""
    _relist(entries, lambda names, gone: names[1:], needs_gone=False)


def lists_too_many(entries: list[Entry], rng: Random) -> None:
    """A list contains a deleted child."""
    _relist(entries, lambda names, gone: [*names, gone], needs_gone=True)


def _relist(entries: list[Entry], change_names: Callable[[list[str], str], list[str]], *, needs_gone: bool) -> None:
    facts = Facts.read(entries)
    for place in h.request_places(entries, OpCode.GET_CHILDREN):
        at, path = h.reply_zxid(entries[place]), h.request_path(entries[place])
        names = h.reply_record(entries[place], r.GetChildrenResponse).children
        since = facts.zxids.complete_since(at)
        family = [c for c in facts.changes if since <= c.zxid <= at and c.path.rpartition("/")[0] == path.rstrip("/")]
        last = {c.path.rpartition("/")[2]: c for c in family if c.kind in ("create", "delete")}
        gone = [name for name, c in last.items() if c.kind == "delete" and name not in names]
        made = [name for name, c in last.items() if c.kind == "create" and name in names]
        if gone if needs_gone else made:
            first = [*made, *(name for name in names if name not in made)]
            changed = change_names(first, gone[0] if gone else "")
            entries[place] = h.with_answer(entries[place], r.GetChildrenResponse(changed))
            return
    raise AssertionError("no place for it")


def loses_an_event(entries: list[Entry], rng: Random) -> None:
    """A client's answer includes a watched change, but the client has not received its event."""
    for place, entry in enumerate(entries):
        if h.is_event(entry):
            shorter = entries[:place] + entries[place + 1 :]
            if check(shorter) is not None:
                entries[:] = shorter
                return
    raise AssertionError("no place for it")


def sends_an_event_to_nobody(entries: list[Entry], rng: Random) -> None:
    """An event is sent to a client without a watch."""
    place = next(p for p, e in enumerate(entries) if h.is_event(e))
    stranger = next(e for e in entries if e.session != entries[place].session)
    entries.insert(place, entries[place]._replace(connection=stranger.connection, session=stranger.session))


PLANTS: Final[list[tuple[h.Plant, Rule]]] = [
    (goes_back, clients.find_backward_states),
    (is_behind_its_client, clients.find_backward_states),
    (answers_out_of_order, clients.find_reordered_writes),
    (gives_a_zxid_twice, clients.find_shared_zxids),
    (serves_a_closed_session, clients.find_answers_to_closed_sessions),
    (keeps_an_ephemeral, clients.find_ephemerals_of_closed_sessions),
    (loses_an_ephemeral, nodes.find_contradictory_nodes),
    (misses_a_write, nodes.find_contradictory_nodes),
    (misses_a_part, nodes.find_contradictory_nodes),
    (misses_a_delete, nodes.find_contradictory_nodes),
    (loses_a_node, nodes.find_contradictory_nodes),
    (shows_other_data, nodes.find_contradictory_nodes),
    (shows_a_later_write, nodes.find_contradictory_nodes),
    (shows_the_future, nodes.find_contradictory_nodes),
    (loses_an_update, nodes.find_lost_versions),
    (ignores_a_version, nodes.find_contradictory_nodes),
    (refuses_the_right_version, nodes.find_contradictory_nodes),
    (creates_twice, nodes.find_contradictory_nodes),
    (applies_half_a_failure, nodes.find_effects_of_failed_writes),
    (numbers_twice, families.find_repeated_sequences),
    (numbers_backwards, families.find_repeated_sequences),
    (lists_too_few, families.find_contradictory_lists),
    (lists_too_many, families.find_contradictory_lists),
    (loses_an_event, watches.find_wrong_events),
    (sends_an_event_to_nobody, watches.find_wrong_events),
]


@pytest.mark.parametrize(("plant", "rule"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
@pytest.mark.parametrize("seed", range(effort(1, 5)))
def test_planted_violation_has_minimal_explanation(honest: list[Entry], plant: h.Plant, rule: Rule, seed: int) -> None:
    entries = list(honest)
    plant(entries, Random(seed))

    found = check(entries)

    assert next(rule(Facts.read(entries)), None) is not None
    assert found is not None
    assert 1 <= len(found.entries) <= 3
    known = Facts.read(entries).zxids
    for left_out in found.entries:
        others = Facts.read([entry for entry in found.entries if entry is not left_out], known)
        assert not [other for each in RULES for other in each(others) if other.rule == found.rule]
    assert found.story.count("\n  ") == len(found.entries)


# --- handwritten histories that only one rule rejects ---


def opens(client: int, session: int, zxid: int) -> RecordedRequest:
    """Return a handshake that opens a session."""
    asked, answer = ConnectRequest(0, 6000, 0, bytes(16), False), ConnectResponse(6000, session, bytes(16))
    return RecordedRequest(client, session, CONNECT, asked.encode(), zxid, 0, (), "", 0.0, answer.encode())


def reads(client: int, zxid: int, mzxid: int, version: int, *, czxid: int = 1, pzxid: int = 1) -> RecordedRequest:
    """Return a read of /a that shows a node."""
    stat = r.Stat(czxid, mzxid, 0, 0, version, 0, 0, 0, 0, 0, pzxid)
    return answered_request(client, zxid, OpCode.EXISTS, r.ExistsRequest("/a", False), r.StatResponse(stat))


def misses(client: int, zxid: int) -> RecordedRequest:
    """Return a read of /a that fails with NO_NODE."""
    header = r.ReplyHeader(1, zxid, ErrorCode.NO_NODE).encode()
    found = answered_request(client, zxid, OpCode.EXISTS, r.ExistsRequest("/a", False))
    return found._replace(reply=header, error=int(ErrorCode.NO_NODE))


def writes(client: int, zxid: int, path: str, made: str | None = None, mode: int = 0) -> RecordedRequest:
    """Return a create."""
    request = r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, mode)
    return answered_request(client, zxid, OpCode.CREATE, request, r.CreateResponse(made or path))


def deletes(client: int, zxid: int, path: str) -> RecordedRequest:
    """Return a delete."""
    return answered_request(client, zxid, OpCode.DELETE, r.DeleteRequest(path, -1))


def sets(client: int, zxid: int, path: str, version: int) -> RecordedRequest:
    """Return a set whose answer has this version."""
    stat = r.StatResponse(make_stat(zxid, version))
    return answered_request(client, zxid, OpCode.SET_DATA, r.SetDataRequest(path, b"", -1), stat)


def lists(client: int, zxid: int, path: str, *names: str, count: int | None = None) -> RecordedRequest:
    """Return a list of children, optionally with a Stat that contains their count."""
    if count is None:
        answer = r.GetChildrenResponse(list(names))
        return answered_request(client, zxid, OpCode.GET_CHILDREN, r.GetChildrenRequest(path, False), answer)
    stat = r.Stat(1, 1, 0, 0, 0, 0, 0, 0, 0, count, 1)
    answer2 = r.GetChildren2Response(list(names), stat)
    return answered_request(client, zxid, OpCode.GET_CHILDREN2, r.GetChildrenRequest(path, False), answer2)


def shows(client: int, zxid: int, path: str, data: bytes, size: int, owner: int = 0, czxid: int = 1) -> RecordedRequest:
    """Return a read of data, with this size and owner in its Stat."""
    stat = r.Stat(czxid, czxid, 0, 0, 0, 0, 0, owner, size, 0, czxid)
    return answered_request(client, zxid, OpCode.GET_DATA, r.GetDataRequest(path, False), r.GetDataResponse(data, stat))


def stat(client: int, zxid: int = 30, **fields: int) -> RecordedRequest:
    """Return a read of /a that shows a Stat with these fields; by default everything happened at zxid 9."""
    names = ("czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "ephemeralOwner", "dataLength")
    values = {"czxid": 9, "mzxid": 9, "pzxid": 9, **fields}
    shown = r.Stat(*(values.get(name, 0) for name in (*names, "numChildren", "pzxid")))
    return answered_request(client, zxid, OpCode.EXISTS, r.ExistsRequest("/a", False), r.StatResponse(shown))


SET_AT_3: Final = r.ReplyHeader(1, 4, 0).encode() + r.StatResponse(make_stat(3, 1)).encode()
HANDWRITTEN_HISTORIES: Final[list[tuple[str, Rule, list[Entry]]]] = [
    ("an older node", clients.find_backward_reads, [reads(1, 20, 9, 2), reads(1, 30, 8, 1)]),
    ("older children", clients.find_backward_reads, [reads(1, 20, 5, 1, pzxid=9), reads(1, 30, 5, 1, pzxid=8)]),
    ("a node that was missing", clients.find_backward_reads, [misses(1, 20), reads(1, 30, 9, 1, czxid=5)]),
    ("writes of one client", clients.find_reordered_writes, [writes(1, 20, "/a"), writes(1, 19, "/b")]),
    ("one session", clients.find_shared_sessions, [opens(1, 7, 10), opens(2, 7, 11)]),
    ("a version of two writes", nodes.find_lost_versions, [reads(1, 20, 8, 3), reads(2, 30, 9, 3)]),
    ("two deletes", nodes.find_contradictory_nodes, [writes(1, 3, "/a"), deletes(1, 4, "/a"), deletes(2, 5, "/a")]),
    ("a version left out", nodes.find_contradictory_nodes, [writes(1, 3, "/a"), sets(1, 4, "/a", 2)]),
    (
        "a child of nobody",
        families.find_contradictory_lists,
        [writes(1, 3, "/a"), writes(1, 4, "/b"), lists(1, 4, "/a", "c")],
    ),
    ("a child twice", nodes.find_impossible_answers, [lists(1, 4, "/a", "b", "b")]),
    ("too few children", nodes.find_impossible_answers, [lists(1, 4, "/a", "b", count=2)]),
    ("data of another size", nodes.find_impossible_answers, [shows(1, 4, "/a", b"123", 4)]),
    ("another path", nodes.find_impossible_answers, [writes(1, 4, "/a", "/b")]),
    ("no number", nodes.find_impossible_answers, [writes(1, 4, "/a-", "/a-1", 2)]),
    ("another owner", nodes.find_impossible_answers, [writes(1, 4, "/a", mode=1), shows(2, 5, "/a", b"", 0, 2, 4)]),
    ("an owner", nodes.find_impossible_answers, [writes(1, 4, "/a"), shows(2, 5, "/a", b"", 0, 1, 4)]),
    ("a czxid of the future", stats.find_contradictory_stats, [stat(1, czxid=31, mzxid=30)]),
    ("a pzxid of the future", stats.find_contradictory_stats, [stat(1, pzxid=31)]),
    ("a change before the creation", stats.find_contradictory_stats, [stat(1, mzxid=8)]),
    ("a set of another zxid", stats.find_contradictory_stats, [sets(1, 4, "/a", 1)._replace(reply=SET_AT_3)]),
    ("another ctime", stats.find_contradictory_stats, [stat(1, ctime=1), stat(2, ctime=2)]),
    ("another mtime", stats.find_contradictory_stats, [stat(1, mtime=1), stat(2, mtime=2)]),
    ("another length", stats.find_contradictory_stats, [stat(1, dataLength=1), stat(2, dataLength=2)]),
    ("another number of children", stats.find_contradictory_stats, [stat(1, numChildren=1), stat(2, numChildren=2)]),
    ("another cversion", stats.find_contradictory_stats, [stat(1, cversion=1), stat(2, cversion=2)]),
    ("a cversion that goes back", stats.find_contradictory_stats, [stat(1, cversion=2), stat(2, pzxid=10, cversion=1)]),
    ("an aversion that goes back", stats.find_contradictory_stats, [stat(1, aversion=2), stat(2, 31, aversion=1)]),
    ("a version that goes back", nodes.find_lost_versions, [reads(1, 20, 8, 3), reads(2, 30, 9, 2)]),
]


def test_cversion_overflow_and_recreated_node_are_accepted() -> None:
    entries = [stat(1, cversion=2**31 - 1), stat(2, pzxid=10, cversion=-(2**31)), stat(3, czxid=20, mzxid=20, ctime=5)]

    assert check(entries) is None


@pytest.mark.parametrize(
    ("rule", "entries"), [row[1:] for row in HANDWRITTEN_HISTORIES], ids=[row[0] for row in HANDWRITTEN_HISTORIES]
)
def test_violation_is_found_only_by_its_rule(rule: Rule, entries: list[Entry]) -> None:
    finders = {each for each in RULES if next(each(Facts.read(entries)), None) is not None}

    assert rule in finders
    assert finders <= {rule, clients.find_backward_states}
    assert check(entries) is not None
    assert len(entries) == 1 or check(entries[:-1]) is None


def test_each_rule_has_violation_here_or_in_lock_tests() -> None:
    tried = {rule for _, rule in PLANTS} | {rule for _, rule, _ in HANDWRITTEN_HISTORIES}

    assert set(RULES) - tried == {families.find_shared_locks}


@pytest.mark.slow
def test_most_random_changes_are_found() -> None:
    shares = detection_rates(tries=12, seed=1)

    assert sum(shares.values()) / len(shares) > 0.6, shares
