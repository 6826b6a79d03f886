"""An engine's warnings for the operator: each kind at most once in ten seconds, and no line that a client can forge."""

from __future__ import annotations

import pytest
from support.calls import connect_peer
from support.engine import make_engine
from support.log import Log
from support.logins import SUPER, USERS, complete_sasl, start_sasl

from zoolet.protocol import records as r
from zoolet.protocol.codec import put_bytes
from zoolet.protocol.operations import OpCode
from zoolet.server.core.settings import EngineSettings
from zoolet.server.core.warnings import PAUSE_MS, Warnings

# --- lines of one kind ---


def test_each_warning_is_logged_once_in_ten_seconds(log: Log) -> None:
    warnings = Warnings(log)

    for kind in ("a", "b", "a", "b", "a"):
        warnings.warn(kind, "%s happened", kind)

    assert log == ["a happened", "b happened"]


def test_next_warning_names_number_of_suppressed_ones(log: Log) -> None:
    now = 0
    warnings = Warnings(log, lambda: now)
    for _ in range(4):
        warnings.warn("a", "%s", "it")
    now += PAUSE_MS

    warnings.warn("a", "%s", "it")

    assert log == ["it", "it (3 more like this were not logged)"]


def test_repeated_warning_is_suppressed_until_pause_is_over(log: Log) -> None:
    now = 0
    warnings = Warnings(log, lambda: now)
    warnings.warn("a", "it")
    now += PAUSE_MS - 1

    warnings.warn("a", "it")

    assert log == ["it"]


def test_warning_before_first_tick_suppresses_next_one(log: Log) -> None:
    engine = make_engine(monotonic_ms=5_000_000, log=log)
    engine.warnings.warn("a", "it")

    engine.set_time(500, 5_000_500)
    engine.warnings.warn("a", "it")

    assert log == ["it"]


def test_warning_kinds_beyond_thousand_take_no_memory(log: Log) -> None:
    warnings = Warnings(log)

    for number in range(5_000):
        warnings.warn(f"kind {number}", "it")

    assert len(warnings._last) <= 1_000


def test_expired_warning_kinds_no_longer_count_toward_limit(log: Log) -> None:
    now = 0
    warnings = Warnings(log, lambda: now)
    for number in range(500):
        warnings.warn(f"old {number}", "it")
    now += 5_000
    for number in range(499):
        warnings.warn(f"recent {number}", "it")
    now += PAUSE_MS - 5_000

    for number in range(20):
        warnings.warn(f"new {number}", "%d", number)
        warnings.warn(f"recent {number}", "too early")

    assert log[999:] == [str(number) for number in range(20)]


def test_warning_kinds_beyond_thousand_do_not_fill_log(log: Log) -> None:
    warnings = Warnings(log)

    for number in range(6_000):
        warnings.warn(f"kind {number % 2_000}", "it")

    assert len(log) <= 2_000


def test_warnings_without_log_keep_no_state() -> None:
    warnings = Warnings()

    warnings.warn("a", "%s", "it")

    assert warnings._last == {}


# --- logins ---


def test_super_login_is_logged_with_host_and_scheme() -> None:
    log = Log()
    engine = make_engine(EngineSettings(super_digest=SUPER), log=log)

    connect_peer(engine, host="127.0.0.9").auth("digest", b"super:pw")

    assert log == ["127.0.0.9:40000 logged in as the super user with scheme digest"]


def test_password_of_super_user_is_not_logged() -> None:
    log = Log()
    engine = make_engine(EngineSettings(super_digest=SUPER), log=log)

    connect_peer(engine).auth("digest", b"super:pw")

    assert not [line for line in log if "pw" in line or SUPER.split(":")[1] in line]


def test_failed_logins_of_one_host_are_one_line() -> None:
    log = Log()
    engine = make_engine(log=log)
    engine.set_time(0, 1)
    connect_peer(engine).auth("nonsense", b"x")
    engine.set_time(0, 10_000)
    connect_peer(engine).auth("nonsense", b"x")
    connect_peer(engine).auth("nonsense", b"x")

    engine.set_time(0, 10_001)
    connect_peer(engine).auth("nonsense", b"x")

    assert len(log) == 2
    assert log[1].endswith("(2 more like this were not logged)")


def test_each_host_with_failed_login_has_own_line() -> None:
    log = Log()
    engine = make_engine(log=log)

    connect_peer(engine, host="127.0.0.1").auth("nonsense", b"x")
    connect_peer(engine, host="127.0.0.2").auth("nonsense", b"x")

    assert [line.split(":")[0] for line in log] == ["failed login from 127.0.0.1", "failed login from 127.0.0.2"]


def test_each_kind_of_failed_login_has_own_line() -> None:
    log = Log()
    engine = make_engine(EngineSettings(sasl_users=USERS), log=log)

    connect_peer(engine).auth("nonsense", b"x")
    complete_sasl(connect_peer(engine), "bob", "wrong")

    assert len(log) == 2


def test_each_of_thousand_failing_hosts_has_own_line() -> None:
    log = Log()
    engine = make_engine(log=log)
    hosts = [f"2001:db8::{number:x}" for number in range(1_100)] * 2

    replies = [connect_peer(engine, host=host).auth("nonsense", b"x") for host in hosts]

    assert len(replies) == 2_200
    assert len(log) <= 1_100


# --- text that a client chose ---


HOSTILE = ["eve\n2026-01-01 INFO all is well", "eve\r\x1b[2Jx", "\u202egnp", "\x00", "\u2028x", "\x85x"]


@pytest.mark.parametrize("name", HOSTILE)
def test_user_name_cannot_write_log_lines(name: str) -> None:
    log = Log()
    engine = make_engine(EngineSettings(sasl_users=USERS), log=log)

    complete_sasl(connect_peer(engine), name, "x")

    assert len(log) == 1
    assert log[0].isprintable()


@pytest.mark.parametrize("name", HOSTILE)
def test_scheme_cannot_write_log_lines(name: str) -> None:
    log = Log()

    connect_peer(make_engine(log=log)).auth(name, b"x")

    assert len(log) == 1
    assert log[0].isprintable()


def test_long_scheme_is_cut_in_log() -> None:
    log = Log()

    connect_peer(make_engine(log=log)).auth("s" * 10_000, b"x")

    assert "s" * 60 in log[0]
    assert "s" * 65 not in log[0]


def test_long_user_name_is_cut_in_log() -> None:
    log = Log()

    complete_sasl(connect_peer(make_engine(EngineSettings(sasl_users=USERS), log=log)), "u" * 3_000, "x")

    assert "u" * 64 in log[0]
    assert "u" * 65 not in log[0]


@pytest.mark.parametrize("token", [b"n" * 2_000 + b"=1," + b"n" * 2_000 + b"=1"])
def test_long_directive_is_cut_in_log(token: bytes) -> None:
    log = Log()
    peer = connect_peer(make_engine(EngineSettings(sasl_users=USERS), log=log))
    start_sasl(peer)

    peer.send(OpCode.SASL, put_bytes(token))

    assert len(log) == 1
    assert len(log[0]) < 300


def test_path_of_watch_cannot_write_log_lines() -> None:
    log = Log()
    peer = connect_peer(make_engine(EngineSettings(max_watches_per_connection=1), log=log))
    paths: list[str | None] = ["/a\n2026-01-01 00:00:00 INFO zoolet.server: all is well", "/b"]

    peer.send(OpCode.SET_WATCHES2, r.SetWatches2(0, [], [], [], paths, []).encode(), xid=-8)

    assert len(log) == 1
    assert log[0].isprintable()


def test_path_of_watch_is_cut_in_log() -> None:
    log = Log()
    peer = connect_peer(make_engine(EngineSettings(max_watches_per_connection=1), log=log))

    peer.send(OpCode.SET_WATCHES2, r.SetWatches2(0, [], [], [], ["/" + "a" * 100_000], []).encode(), xid=-8)

    assert len(log) == 1
    assert len(log[0]) < 300


def quota_line(name: str) -> str:
    """Exceed the soft limit of a node; return the log line."""
    log = Log()
    peer = connect_peer(make_engine(EngineSettings(enforce_quota=True), log=log))
    peer.create(f"/{name}")
    peer.create(f"/zookeeper/quota/{name}")
    peer.create(f"/zookeeper/quota/{name}/zookeeper_stats")
    peer.create(f"/zookeeper/quota/{name}/zookeeper_limits", b"count=100,bytes=1")
    peer.set(f"/{name}", b"12")
    (line,) = log
    return line


def test_path_cannot_write_log_lines() -> None:
    assert quota_line("a\u2028b\u202ec").isprintable()


def test_long_path_is_cut_in_log() -> None:
    assert len(quota_line("a" * 100_000)) < 500
