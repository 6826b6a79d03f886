"""The history of recent transactions: the author and cause of each, and limits for the memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from support.calls import connected, create, create_ttl, creating, deleting, engine_with, multi, setting
from support.peer import Peer

from zoolet.console.wanted import HistoryFilter
from zoolet.protocol.operations import OpCode
from zoolet.server.admin import history as module
from zoolet.server.admin.history import HistoryEntry, NodeChange, TransactionHistory
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import Journal
from zoolet.server.storage import txnlog


def heard(limit: int = 1000, **settings: Any) -> tuple[Engine, TransactionHistory]:
    """Return an engine and its history."""
    engine = engine_with(**settings)
    return engine, TransactionHistory(engine, limit)


def found(
    history: TransactionHistory, path: str | None = None, session_id: int | None = None, before: int = 0
) -> list[HistoryEntry]:
    """Return the entries of a node or session, the latest first."""
    list(history.digesting())
    entries = [entry for entry in history.entries(path or "", before) if entry is not None]
    return [entry for entry in entries if HistoryFilter(path or "", session_id=session_id).matches(entry)]


def kinds_of_entries(history: TransactionHistory, path: str) -> list[str]:
    """Return the kinds of the entries of a node, the oldest first."""
    return [entry.kind for entry in found(history, path)][::-1]


def test_change_is_kept_with_session_and_size() -> None:
    engine, history = heard()
    peer = connected(engine)
    peer.create("/a", b"12")
    peer.set("/a", b"345")
    peer.delete("/a")

    deleted, changed, created = found(history, "/a")

    assert created.changes == (NodeChange("create", "/a", 2),)
    assert changed.changes == (NodeChange("set", "/a", 3),)
    assert deleted.changes == (NodeChange("delete", "/a", None),)
    assert created.session_id == deleted.session_id == next(iter(engine.sessions.alive))
    assert created.address.startswith("127.0.0.1")
    assert created.zxid < changed.zxid < deleted.zxid == engine.zxid


def test_multi_is_one_entry_for_each_of_its_nodes() -> None:
    engine, history = heard()
    peer = connected(engine)
    multi(peer, creating("/a"), creating("/b"), setting("/a"), deleting("/b"))

    (entry,) = found(history, "/b")

    assert entry.kind == "multi"
    assert entry.changes == (
        NodeChange("create", "/a", 0),
        NodeChange("create", "/b", 0),
        NodeChange("set", "/a", 3),
        NodeChange("delete", "/b", None),
    )
    assert not found(history, "/c")


def test_ipv6_address_has_brackets() -> None:
    engine, history = heard()
    peer = connected(engine, host="::1")
    peer.create("/a")

    addresses = {entry.address for entry in found(history)}

    assert addresses == {"[::1]:40000"}


def test_expiry_shows_last_contact_of_client() -> None:
    engine, history = heard(exact_deadlines=True)
    peer = connected(engine)
    peer.create("/e", b"", 1)
    (session,) = engine.sessions.alive.values()
    engine.set_time(engine.now + 99_000, engine.monotonic_ms + 99_000)
    engine.tick()

    entry = found(history, "/e")[0]

    assert entry.kind == "expired"
    assert entry.changes == (NodeChange("delete", "/e"),)
    assert entry.why == f"last heard from 99.0 s before; session timeout {session.timeout_ms / 1000:.1f} s"
    assert entry.address.startswith("127.0.0.1")


def test_client_close_differs_from_expiry() -> None:
    engine, history = heard(exact_deadlines=True)
    first = connected(engine)
    first.create("/first", b"", 1)
    engine.set_time(engine.now + 99_000, engine.monotonic_ms + 99_000)
    engine.tick()
    second = connected(engine)
    second.create("/second", b"", 1)
    second.close()

    assert kinds_of_entries(history, "/first") == ["create", "expired"]
    assert kinds_of_entries(history, "/second") == ["create", "closed"]


def test_session_has_opening_and_close_in_history() -> None:
    engine, history = heard()
    peer = connected(engine)
    peer.create("/a", b"")
    (session,) = engine.sessions.alive
    peer.close()

    assert [entry.kind for entry in found(history, session_id=session)] == ["closed", "create", "opened"]


@pytest.mark.parametrize("logged", [False, True])
def test_write_keeps_address_after_resumption(logged: bool) -> None:
    engine = engine_with()
    journal = Journal(engine.zxid, txnlog.decode)
    if logged:
        engine.use_journal(journal)
    history = TransactionHistory(engine, 100)
    peer = connected(engine, host="10.0.0.7")
    assert peer.welcome is not None
    session, password = peer.welcome.session_id, peer.welcome.password
    for number in (8, 9):
        peer.create(f"/{number}", b"")
        peer = Peer(engine, f"10.0.0.{number}")
        peer.connect(40_000, session, password)
    peer.create("/10", b"")
    if journal.heard is not None:  # the log is slower than the clients
        journal.heard(txnlog.encode(journal.pop_all()))

    created = {entry.zxid: (entry.kind, entry.address) for entry in found(history) if entry.kind == "create"}
    resumed = [entry.address for entry in found(history) if entry.kind == "resumed"]

    assert [address.partition(":")[0] for _, address in created.values()] == ["10.0.0.9", "10.0.0.8", "10.0.0.7"]
    assert [address.partition(":")[0] for address in resumed] == ["10.0.0.9", "10.0.0.8"]


def test_deletion_by_server_names_server() -> None:
    engine, history = heard(extended_types=True)
    create_ttl(connected(engine), "/t", 5)
    engine.set_time(engine.now + 99, engine.monotonic_ms + 99)
    engine.reap()

    entry = found(history, "/t")[0]

    assert (entry.kind, entry.session_id) == ("delete", 0)
    assert entry.why == "a container without children, or a node whose TTL expired"


def test_entries_are_limited() -> None:
    engine, history = heard(limit=3)
    peer = connected(engine)
    for number in range(10):
        peer.create(f"/{number}", b"")

    assert [entry.changes[0].path for entry in found(history)] == ["/9", "/8", "/7"]
    assert len(history) == 3


def test_old_entries_make_room_for_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 50_000)
    engine, history = heard()
    peer = connected(engine)
    for number in range(30):
        peer.create(f"/{number}{'x' * 3000}", b"")
    few = len(history)
    for number in range(200):
        peer.create(f"/{number}{'e' * 1000}", b"", 1)
    peer.close()

    assert 10 < few < 16
    assert len(found(history)[0].changes) == 200
    assert len(history) == 1  # one is kept, even a very large one


def test_each_node_of_a_large_transaction_is_found() -> None:
    engine, history = heard()
    peer = connected(engine)
    for number in range(300):
        peer.create(f"/e{number}", b"", 1)
    peer.close()

    assert kinds_of_entries(history, "/e299") == ["create", "closed"]


def test_earlier_entries_are_found_by_number() -> None:
    engine, history = heard()
    peer = connected(engine)
    for number in range(5):
        peer.create(f"/{number}", b"")
    last: HistoryEntry = found(history)[0]

    assert found(history, before=last.number)[0].changes[0].path == "/3"


def test_earlier_listener_still_gets_events() -> None:
    engine = engine_with()
    heard: list[str] = []
    engine.on_session = lambda what, session, client: heard.append(what)
    history = TransactionHistory(engine, 10)
    connected(engine)

    assert heard == ["opened"]
    assert len(history) == 1


def test_logged_entries_are_kept_after_write() -> None:
    engine = engine_with()
    journal = Journal(engine.zxid, txnlog.decode)
    engine.use_journal(journal)
    history = TransactionHistory(engine, 10)
    peer = connected(engine)
    peer.create("/a", b"")
    create(peer, "/a")  # fails, but uses a zxid

    (session,) = engine.sessions.alive.values()
    engine.expire(session)
    list(history.digesting())  # before it is logged

    assert not len(history)
    written = journal.pop_all()
    assert [entry[4] for entry in written] == [OpCode.CREATE_SESSION, OpCode.CREATE, -1, OpCode.CLOSE_SESSION]
    assert not len(history)
    assert journal.heard is not None
    journal.heard(txnlog.encode(written))
    assert [entry.kind for entry in found(history)] == ["expired", "create", "opened"]
    assert found(history)[0].why.startswith("expired early, on request; last heard from 0.0 s before")


def test_data_is_released() -> None:
    engine, history = heard()
    connected(engine).create("/a", b"some data")
    before = repr(vars(history))

    list(history.digesting())

    assert "some data" in before
    assert "some data" not in repr(vars(history))


def test_requests_with_much_data_are_read_early() -> None:
    engine, history = heard()
    peer = connected(engine)
    kept = []
    for size in (2 * module.MAX_RAW // 1000, 0, -1_000_000):  # a negative one is a reset of the counters
        for number in range(10):
            peer.create(f"/{size}-{number}", b"")
        engine.metrics.bytes_received += 10 * size
        history.limit_memory()
        kept.append({len(each) for each in history._raw[-1].heard})

    assert kept == [{6}, {5}, {6}]  # transactions, requests, transactions


def test_undigested_requests_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, history = heard(limit=30)
    peer = connected(engine)
    for number in range(100):
        peer.create(f"/{number}", b"")
        create(peer, f"/{number}")  # fails
        engine.metrics.bytes_received += 100
        history.limit_memory()
    many = len(history._raw)
    monkeypatch.setattr(module, "MAX_BYTES", 900)
    history._discard()

    assert (many, len(history._raw)) == (30, 9)
    assert [entry.parts[0][1] for entry in history.entries()] == ["/99"]  # an entry is larger than its request


def test_failed_multi_is_not_in_history() -> None:
    engine, history = heard()
    multi(connected(engine), creating("/a"), deleting("/nowhere"))

    assert [entry.kind for entry in found(history)] == ["opened"]


@pytest.mark.parametrize("with_a_log", [False, True])
def test_discarded_transactions_are_counted_by_session(with_a_log: bool) -> None:
    engine = engine_with()
    journal = Journal(engine.zxid, txnlog.decode, txnlog.sessions)
    if with_a_log:
        engine.use_journal(journal)
    history = TransactionHistory(engine, 10)
    first, second = connected(engine), connected(engine)

    def tidy() -> None:
        if journal.heard is not None:
            journal.heard(txnlog.encode(journal.pop_all()))
        history.limit_memory()

    tidy()
    for number in range(2 * module.MAX_READ):
        first.create(f"/{number}", b"")
        if number % 2:
            second.set(f"/{number}", b"")
            second.get(f"/{number}")
    tidy()
    for _ in range(10):
        first.set("/", b"")
    tidy()
    kinds = [entry.kind for entry in found(history)]

    written = history.writes.total(engine.now)
    assert kinds == ["set"] * 10
    assert written == {first.welcome.session_id: 2 * module.MAX_READ + 10, second.welcome.session_id: module.MAX_READ}


def test_deletions_are_kept_until_a_server_is_too_busy() -> None:
    engine, history = heard(limit=10)
    peer = connected(engine)
    for number in range(4 * module.MAX_READ):
        peer.create(f"/n{number}", b"")
    history.limit_memory()
    for number in range(module.MAX_READ):
        peer.delete(f"/n{number}")
    history.limit_memory()
    for _ in range(20):
        peer.set("/", b"")
    history.limit_memory()

    assert len(history) == 10
    assert len(history.lasting) == module.MAX_READ


def test_burst_after_quiet_hours_is_read_in_parts() -> None:
    engine, history = heard(limit=1000)
    peer = connected(engine)
    for number in range(100):
        for each in range(10):
            peer.create(f"/n{number}-{each}", b"")
        history.limit_memory()
    for number in range(90):
        for each in range(10):
            peer.delete(f"/n{number}-{each}")
        history.limit_memory()
    for _ in range(950):
        peer.set("/", b"")

    seen = []
    for _ in range(5):
        seen.append(history._number)
        history.limit_memory()

    assert max(later - before for before, later in pairwise(seen)) <= module.MAX_READ
    list(history.digesting())
    assert len(history) == 1000
    assert len(history.lasting) == 900 - 50  # the last 50 deletions are among the 1,000


def test_only_addresses_of_open_sessions_are_kept() -> None:
    engine, history = heard(limit=100)
    lasting = [connected(engine) for _ in range(50)]
    for _ in range(1000):
        connected(engine).close()

    assert {peer.welcome.session_id for peer in lasting} <= history._addresses.keys()
    assert len(history._addresses) <= 150


def test_new_epoch_displaces_no_entry() -> None:
    engine, history = heard(limit=100)
    peer = connected(engine)
    for number in range(10):
        peer.create(f"/{number}", b"")
    history.limit_memory()
    engine.zxid = 5 << 32
    for number in range(10, 13):
        peer.create(f"/{number}", b"")
        history.limit_memory()

    assert [entry.kind for entry in found(history)] == ["create"] * 13 + ["opened"]


def test_new_epoch_does_not_inflate_write_counts() -> None:
    engine, history = heard(limit=10)
    peer = connected(engine)
    for number in range(2 * module.MAX_READ):
        peer.create(f"/{number}", b"")
    engine.zxid = 5 << 32
    history.limit_memory()
    for _ in range(20):
        peer.set("/", b"")
    history.limit_memory()
    list(history.digesting())

    assert history.writes.total(engine.now)[peer.welcome.session_id] < 3 * module.MAX_READ


def test_large_transactions_are_released_in_parts() -> None:
    engine, history = heard(limit=10_000)
    peer = connected(engine)
    peer.create("/a", b"")
    for _ in range(2 * module.MAX_PARSED):
        peer.set("/a", bytes(2_000))
        engine.metrics.bytes_received += 2_000
    history.limit_memory()

    unread = [each for each in history._raw[0].heard if len(each) == 5]
    assert 0 < len(unread) < 2 * module.MAX_PARSED
    assert history._raw_bytes > 2_000 * len(unread)
    assert len(found(history)) == 2 * module.MAX_PARSED + 2


def test_large_writes_do_not_displace_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, history = heard(limit=10_000)
    peer = connected(engine)
    for number in range(50):
        peer.create(f"/{number}", b"")
        peer.delete(f"/{number}")
    history.limit_memory()
    monkeypatch.setattr(module, "MAX_BYTES", 1_000_000)
    for _ in range(20):
        peer.create("/big", bytes(100_000))
        peer.delete("/big")
        engine.metrics.bytes_received += 100_000
        history.limit_memory()

    assert {f"/{number}" for number in range(50)} <= {entry.parts[0][1] for entry in found(history) if entry.parts}


def test_large_paths_do_not_hide_delete() -> None:
    engine, history = heard(limit=100)
    peer = connected(engine)
    peer.create("/mine", b"")
    peer.delete("/mine")
    for number in range(3):
        peer.create(f"/{number}{'x' * 900_000}", b"")
        engine.metrics.bytes_received += 900_000
    history.limit_memory()
    for _ in range(10):
        for _ in range(60):
            peer.set("/", b"")
        history.limit_memory()

    assert [row[5][0][1] for row in history.lasting.entries() if row] == ["/mine"]


def test_abandoned_reading_continues_and_counts_memory() -> None:
    engine, history = heard(limit=10_000)
    peer = connected(engine)
    for number in range(300):
        peer.create(f"/{number}", b"")
        engine.metrics.bytes_received += 40
    reading = history.digesting()
    next(reading)
    before = history._raw_bytes, history._number
    reading.close()

    assert before[0] > 0
    assert 0 < before[1] < 300
    assert [entry.parts[0][1] for entry in found(history) if entry.parts] == [f"/{n}" for n in reversed(range(300))]
    assert (history._raw_bytes, history._raw_count) == (0, 0)


def test_one_read_builds_limited_entries() -> None:
    engine, history = heard(limit=10_000)
    peer = connected(engine)
    for number in range(2 * module.MAX_CAUGHT_UP):
        peer.create(f"/{number}", b"")

    history.oldest()

    assert 0 < history._number <= module.MAX_CAUGHT_UP
    assert len(list(history.digesting())) > 2
    assert len(found(history)) == 2 * module.MAX_CAUGHT_UP + 1


def test_very_long_paths_are_not_kept_for_long() -> None:
    engine, history = heard(limit=1)
    peer = connected(engine)
    for path in ("/" + "é" * 1_000, "/" + "é" * 999):
        peer.create(path, b"")
        peer.delete(path)
        peer.set("/", b"")
        list(history.digesting())

    rows = [row for row in history.lasting.entries() if row]
    assert [len(row[5][0][1]) for row in rows] == [1_000]
