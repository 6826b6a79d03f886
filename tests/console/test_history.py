"""The history of recent transactions: the author and cause of each, and limits for the memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from support.calls import connect_peer, create, create_op, create_ttl, delete_op, engine_with_settings, multi, set_op
from support.peer import Peer

from zoolet.console.wanted import HistoryFilter
from zoolet.protocol.operations import OpCode
from zoolet.server.admin import history as module
from zoolet.server.admin.history import HistoryEntry, NodeChange, TransactionHistory
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import Journal
from zoolet.server.storage import txnlog


def engine_with_history(limit: int = 1000, **settings: Any) -> tuple[Engine, TransactionHistory]:
    """Return an engine, and the transaction history that records it."""
    engine = engine_with_settings(**settings)
    return engine, TransactionHistory(engine, limit)


def find_entries(
    history: TransactionHistory, path: str | None = None, session_id: int | None = None, before: int = 0
) -> list[HistoryEntry]:
    """Return the entries of a node or session, the latest first."""
    list(history.catch_up_in_steps())
    entries = [entry for entry in history.entries(path or "", before) if entry is not None]
    return [entry for entry in entries if HistoryFilter(path or "", session_id=session_id).matches(entry)]


def kinds_of_entries(history: TransactionHistory, path: str) -> list[str]:
    """Return the kinds of the entries of a node, the oldest first."""
    return [entry.kind for entry in find_entries(history, path)][::-1]


def test_history_entry_of_change_has_session_and_size() -> None:
    engine, history = engine_with_history()
    peer = connect_peer(engine)
    peer.create("/a", b"12")
    peer.set("/a", b"345")
    peer.delete("/a")

    deleted, changed, created = find_entries(history, "/a")

    assert created.changes == (NodeChange("create", "/a", 2),)
    assert changed.changes == (NodeChange("set", "/a", 3),)
    assert deleted.changes == (NodeChange("delete", "/a", None),)
    assert created.session_id == deleted.session_id == next(iter(engine.sessions.alive))
    assert created.address.startswith("127.0.0.1")
    assert created.zxid < changed.zxid < deleted.zxid == engine.zxid


def test_multi_is_one_history_entry_for_all_its_nodes() -> None:
    engine, history = engine_with_history()
    peer = connect_peer(engine)
    multi(peer, create_op("/a"), create_op("/b"), set_op("/a"), delete_op("/b"))

    (entry,) = find_entries(history, "/b")

    assert entry.kind == "multi"
    assert entry.changes == (
        NodeChange("create", "/a", 0),
        NodeChange("create", "/b", 0),
        NodeChange("set", "/a", 3),
        NodeChange("delete", "/b", None),
    )
    assert not find_entries(history, "/c")


def test_ipv6_address_in_history_has_brackets() -> None:
    engine, history = engine_with_history()
    peer = connect_peer(engine, host="::1")
    peer.create("/a")

    addresses = {entry.address for entry in find_entries(history)}

    assert addresses == {"[::1]:40000"}


def test_history_of_expired_session_has_last_contact_of_client() -> None:
    engine, history = engine_with_history(exact_deadlines=True)
    peer = connect_peer(engine)
    peer.create("/e", b"", 1)
    (session,) = engine.sessions.alive.values()
    engine.set_time(engine.now + 99_000, engine.monotonic_ms + 99_000)
    engine.tick()

    entry = find_entries(history, "/e")[0]

    assert entry.kind == "expired"
    assert entry.changes == (NodeChange("delete", "/e"),)
    assert entry.why == f"last heard from 99.0 s before; session timeout {session.timeout_ms / 1000:.1f} s"
    assert entry.address.startswith("127.0.0.1")


def test_history_distinguishes_client_close_from_expiry() -> None:
    engine, history = engine_with_history(exact_deadlines=True)
    first = connect_peer(engine)
    first.create("/first", b"", 1)
    engine.set_time(engine.now + 99_000, engine.monotonic_ms + 99_000)
    engine.tick()
    second = connect_peer(engine)
    second.create("/second", b"", 1)
    second.close()

    assert kinds_of_entries(history, "/first") == ["create", "expired"]
    assert kinds_of_entries(history, "/second") == ["create", "closed"]


def test_session_has_opening_and_close_in_history() -> None:
    engine, history = engine_with_history()
    peer = connect_peer(engine)
    peer.create("/a", b"")
    (session,) = engine.sessions.alive
    peer.close()

    assert [entry.kind for entry in find_entries(history, session_id=session)] == ["closed", "create", "opened"]


@pytest.mark.parametrize("logged", [False, True])
def test_write_entry_keeps_address_after_session_is_resumed(logged: bool) -> None:
    engine = engine_with_settings()
    journal = Journal(engine.zxid, txnlog.decode)
    if logged:
        engine.use_journal(journal)
    history = TransactionHistory(engine, 100)
    peer = connect_peer(engine, host="10.0.0.7")
    assert peer.welcome is not None
    session, password = peer.welcome.session_id, peer.welcome.password
    for number in (8, 9):
        peer.create(f"/{number}", b"")
        peer = Peer(engine, f"10.0.0.{number}")
        peer.connect(40_000, session, password)
    peer.create("/10", b"")
    if journal.on_logged is not None:  # the log is slower than the clients
        journal.on_logged(txnlog.encode(journal.pop_all()))

    created = {entry.zxid: (entry.kind, entry.address) for entry in find_entries(history) if entry.kind == "create"}
    resumed = [entry.address for entry in find_entries(history) if entry.kind == "resumed"]

    assert [address.partition(":")[0] for _, address in created.values()] == ["10.0.0.9", "10.0.0.8", "10.0.0.7"]
    assert [address.partition(":")[0] for address in resumed] == ["10.0.0.9", "10.0.0.8"]


def test_history_explains_deletion_by_server() -> None:
    engine, history = engine_with_history(extended_types=True)
    create_ttl(connect_peer(engine), "/t", 5)
    engine.set_time(engine.now + 99, engine.monotonic_ms + 99)
    engine.reap()

    entry = find_entries(history, "/t")[0]

    assert (entry.kind, entry.session_id) == ("delete", 0)
    assert entry.why == "a container without children, or a node whose TTL expired"


def test_number_of_history_entries_is_limited() -> None:
    engine, history = engine_with_history(limit=3)
    peer = connect_peer(engine)
    for number in range(10):
        peer.create(f"/{number}", b"")

    assert [entry.changes[0].path for entry in find_entries(history)] == ["/9", "/8", "/7"]
    assert len(history) == 3


def test_large_history_entry_displaces_old_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 50_000)
    engine, history = engine_with_history()
    peer = connect_peer(engine)
    for number in range(30):
        peer.create(f"/{number}{'x' * 3000}", b"")
    few = len(history)
    for number in range(200):
        peer.create(f"/{number}{'e' * 1000}", b"", 1)
    peer.close()

    assert 10 < few < 16
    assert len(find_entries(history)[0].changes) == 200
    assert len(history) == 1  # the latest entry is kept, even if it is very large


def test_history_finds_each_node_of_large_transaction() -> None:
    engine, history = engine_with_history()
    peer = connect_peer(engine)
    for number in range(300):
        peer.create(f"/e{number}", b"", 1)
    peer.close()

    assert kinds_of_entries(history, "/e299") == ["create", "closed"]


def test_earlier_history_entries_are_found_by_number() -> None:
    engine, history = engine_with_history()
    peer = connect_peer(engine)
    for number in range(5):
        peer.create(f"/{number}", b"")
    last: HistoryEntry = find_entries(history)[0]

    assert find_entries(history, before=last.number)[0].changes[0].path == "/3"


def test_session_listener_set_before_history_still_gets_events() -> None:
    engine = engine_with_settings()
    heard: list[str] = []
    engine.on_session = lambda what, session, client: heard.append(what)
    history = TransactionHistory(engine, 10)
    connect_peer(engine)

    assert heard == ["opened"]
    assert len(history) == 1


def test_logged_entries_are_kept_after_write() -> None:
    engine = engine_with_settings()
    journal = Journal(engine.zxid, txnlog.decode)
    engine.use_journal(journal)
    history = TransactionHistory(engine, 10)
    peer = connect_peer(engine)
    peer.create("/a", b"")
    create(peer, "/a")  # fails, because the node exists, but uses a zxid

    (session,) = engine.sessions.alive.values()
    engine.expire(session)
    list(history.catch_up_in_steps())  # the history reads nothing before the transactions are logged

    assert not len(history)
    written = journal.pop_all()
    assert [entry[4] for entry in written] == [OpCode.CREATE_SESSION, OpCode.CREATE, -1, OpCode.CLOSE_SESSION]
    assert not len(history)
    assert journal.on_logged is not None
    journal.on_logged(txnlog.encode(written))
    assert [entry.kind for entry in find_entries(history)] == ["expired", "create", "opened"]
    assert find_entries(history)[0].why.startswith("expired early, on request; last heard from 0.0 s before")


def test_history_releases_data_of_nodes_after_reading_it() -> None:
    engine, history = engine_with_history()
    connect_peer(engine).create("/a", b"some data")
    before = repr(vars(history))

    list(history.catch_up_in_steps())

    assert "some data" in before
    assert "some data" not in repr(vars(history))


def test_large_requests_are_kept_as_transactions() -> None:
    engine, history = engine_with_history()
    peer = connect_peer(engine)
    kept = []
    for size in (2 * module.MAX_RAW_BYTES // 1000, 0, -1_000_000):  # a negative size imitates a reset of the counters
        for number in range(10):
            peer.create(f"/{size}-{number}", b"")
        engine.metrics.bytes_received += 10 * size
        history.limit_memory()
        kept.append({len(each) for each in history._raw[-1].raw})

    assert kept == [{6}, {5}, {6}]  # entries with 6 fields are transactions, entries with 5 are requests


def test_number_of_unread_history_batches_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, history = engine_with_history(limit=30)
    peer = connect_peer(engine)
    for number in range(100):
        peer.create(f"/{number}", b"")
        create(peer, f"/{number}")  # fails, because the node exists
        engine.metrics.bytes_received += 100
        history.limit_memory()
    many = len(history._raw)
    monkeypatch.setattr(module, "MAX_BYTES", 900)
    history._discard()

    assert (many, len(history._raw)) == (30, 9)
    # The limit keeps only one, because an entry is larger than its request.
    assert [entry.parts[0][1] for entry in history.entries()] == ["/99"]


def test_failed_multi_is_not_in_history() -> None:
    engine, history = engine_with_history()
    multi(connect_peer(engine), create_op("/a"), delete_op("/nowhere"))

    assert [entry.kind for entry in find_entries(history)] == ["opened"]


@pytest.mark.parametrize("with_a_log", [False, True])
def test_discarded_transactions_count_as_writes_of_their_session(with_a_log: bool) -> None:
    engine = engine_with_settings()
    journal = Journal(engine.zxid, txnlog.decode, txnlog.sessions)
    if with_a_log:
        engine.use_journal(journal)
    history = TransactionHistory(engine, 10)
    first, second = connect_peer(engine), connect_peer(engine)

    def tidy() -> None:
        if journal.on_logged is not None:
            journal.on_logged(txnlog.encode(journal.pop_all()))
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
    kinds = [entry.kind for entry in find_entries(history)]

    written = history.writes.total(engine.now)
    assert kinds == ["set"] * 10
    assert written == {first.welcome.session_id: 2 * module.MAX_READ + 10, second.welcome.session_id: module.MAX_READ}


def test_deletions_are_kept_until_a_server_is_too_busy() -> None:
    engine, history = engine_with_history(limit=10)
    peer = connect_peer(engine)
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


def test_history_reads_burst_after_quiet_hours_in_parts() -> None:
    engine, history = engine_with_history(limit=1000)
    peer = connect_peer(engine)
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
    list(history.catch_up_in_steps())
    assert len(history) == 1000
    # 950 writes follow, so the last 50 deletions are still among the 1,000 recent entries.
    assert len(history.lasting) == 900 - 50


def test_history_keeps_only_addresses_of_open_sessions() -> None:
    engine, history = engine_with_history(limit=100)
    lasting = [connect_peer(engine) for _ in range(50)]
    for _ in range(1000):
        connect_peer(engine).close()

    assert {peer.welcome.session_id for peer in lasting} <= history._addresses.keys()
    assert len(history._addresses) <= 150


def test_history_keeps_all_entries_in_new_epoch() -> None:
    engine, history = engine_with_history(limit=100)
    peer = connect_peer(engine)
    for number in range(10):
        peer.create(f"/{number}", b"")
    history.limit_memory()
    engine.zxid = 5 << 32
    for number in range(10, 13):
        peer.create(f"/{number}", b"")
        history.limit_memory()

    assert [entry.kind for entry in find_entries(history)] == ["create"] * 13 + ["opened"]


def test_new_epoch_does_not_inflate_write_counts() -> None:
    engine, history = engine_with_history(limit=10)
    peer = connect_peer(engine)
    for number in range(2 * module.MAX_READ):
        peer.create(f"/{number}", b"")
    engine.zxid = 5 << 32
    history.limit_memory()
    for _ in range(20):
        peer.set("/", b"")
    history.limit_memory()
    list(history.catch_up_in_steps())

    assert history.writes.total(engine.now)[peer.welcome.session_id] < 3 * module.MAX_READ


def test_large_transactions_are_released_in_parts() -> None:
    engine, history = engine_with_history(limit=10_000)
    peer = connect_peer(engine)
    peer.create("/a", b"")
    for _ in range(2 * module.MAX_PARSED):
        peer.set("/a", bytes(2_000))
        engine.metrics.bytes_received += 2_000
    history.limit_memory()

    unread = [each for each in history._raw[0].raw if len(each) == 5]
    assert 0 < len(unread) < 2 * module.MAX_PARSED
    assert history._raw_bytes > 2_000 * len(unread)
    assert len(find_entries(history)) == 2 * module.MAX_PARSED + 2


def test_large_writes_do_not_displace_entries_of_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, history = engine_with_history(limit=10_000)
    peer = connect_peer(engine)
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

    assert {f"/{number}" for number in range(50)} <= {
        entry.parts[0][1] for entry in find_entries(history) if entry.parts
    }


def test_creates_with_large_paths_do_not_displace_delete_entry() -> None:
    engine, history = engine_with_history(limit=100)
    peer = connect_peer(engine)
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


def test_abandoned_reading_of_history_can_be_resumed() -> None:
    engine, history = engine_with_history(limit=10_000)
    peer = connect_peer(engine)
    for number in range(300):
        peer.create(f"/{number}", b"")
        engine.metrics.bytes_received += 40
    reading = history.catch_up_in_steps()
    next(reading)
    before = history._raw_bytes, history._number
    reading.close()

    assert before[0] > 0
    assert 0 < before[1] < 300
    assert [entry.parts[0][1] for entry in find_entries(history) if entry.parts] == [
        f"/{n}" for n in reversed(range(300))
    ]
    assert (history._raw_bytes, history._raw_count) == (0, 0)


def test_one_history_read_creates_limited_number_of_entries() -> None:
    engine, history = engine_with_history(limit=10_000)
    peer = connect_peer(engine)
    for number in range(2 * module.CATCH_UP_TRANSACTIONS):
        peer.create(f"/{number}", b"")

    history.oldest()

    assert 0 < history._number <= module.CATCH_UP_TRANSACTIONS
    assert len(list(history.catch_up_in_steps())) > 2
    assert len(find_entries(history)) == 2 * module.CATCH_UP_TRANSACTIONS + 1


def test_history_discards_deletions_with_very_long_paths() -> None:
    engine, history = engine_with_history(limit=1)
    peer = connect_peer(engine)
    for path in ("/" + "é" * 1_000, "/" + "é" * 999):
        peer.create(path, b"")
        peer.delete(path)
        peer.set("/", b"")
        list(history.catch_up_in_steps())

    rows = [row for row in history.lasting.entries() if row]
    assert [len(row[5][0][1]) for row in rows] == [1_000]
