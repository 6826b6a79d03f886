"""Counters: failed logins, logins of the super user, refused requests; and summaries of numbers."""

from __future__ import annotations

from math import ceil, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.calls import connected, engine_with, mntr, multi, setting
from support.engine import make_engine
from support.logins import SUPER, USERS, sasl
from support.peer import Peer

from zoolet.server.admin.four_letter_commands import four_letter_commands
from zoolet.server.core.metrics import LIMITS, MAX_NAMESPACES, WINDOW_MS, Metrics, Summary
from zoolet.server.core.settings import EngineSettings

# --- refusals ---


def test_mntr_has_counter_for_each_limit() -> None:
    figures = mntr(engine_with())

    assert {name for name in figures if name.startswith("zk_zoolet_refused_")} == {
        f"zk_zoolet_refused_{limit}" for limit in LIMITS
    }
    assert {figures["zk_zoolet_stalls"], figures["zk_zoolet_stalled_ms"], figures["zk_zoolet_refused_watches"]} == {"0"}


def test_reset_of_metrics_clears_refusals() -> None:
    engine = engine_with(max_multi_operations=1)
    peer = connected(engine)
    peer.create("/a")
    multi(peer, setting("/a"), setting("/a"))
    assert mntr(engine)["zk_zoolet_refused_multi_operations"] == "1"

    Peer(engine, four_letter_commands=four_letter_commands(["*"])).feed(b"srst")

    assert mntr(engine)["zk_zoolet_refused_multi_operations"] == "0"


# --- logins ---


def test_failed_login_is_counted() -> None:
    engine = make_engine()

    connected(engine).auth("nonsense", b"x")
    connected(engine).auth("nonsense", b"x")

    assert mntr(engine)["zk_auth_failed_count"] == "2"


def test_failed_sasl_login_is_counted() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS))

    sasl(connected(engine), "bob", "wrong")

    assert mntr(engine)["zk_auth_failed_count"] == "1"


def test_tolerated_failed_sasl_login_is_counted() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS, allow_failed_sasl=True))

    sasl(connected(engine), "bob", "wrong")

    assert mntr(engine)["zk_auth_failed_count"] == "1"


def test_successful_login_is_not_counted_as_failed() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS))
    peer = connected(engine)

    peer.auth("digest", b"a:b")
    sasl(peer, "bob", "secret")

    assert mntr(engine)["zk_auth_failed_count"] == "0"


def test_super_logins_are_counted() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS, super_users=frozenset({"bob"}), super_digest=SUPER))

    connected(engine).auth("digest", b"super:pw")
    sasl(connected(engine), "bob", "secret")

    assert mntr(engine)["zk_zoolet_super_logins"] == "2"


# --- summaries ---


def observed(*values: float) -> Summary:
    """Return a summary of these numbers."""
    summary = Summary()
    summary.rotate(1_000)
    for value in values:
        summary.observe(value)
    return summary


def test_summary_has_count_sum_and_extremes() -> None:
    summary = observed(3.0, 1.0, 2.5)

    assert (summary.count, summary.total, summary.least, summary.most) == (3, 6.5, 1.0, 3.0)
    assert summary.average() == 2.1667


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_quantile_is_exact_to_six_percent(values: list[float], part: float) -> None:
    exact = sorted(values)[ceil(part * len(values)) - 1]

    assert observed(*values).quantile(part) == pytest.approx(exact, rel=0.0625, abs=0.001)


def test_small_quantile_is_exact_to_six_percent() -> None:
    for thousandths in range(200):
        value = thousandths / 1000
        assert observed(0.0, value, 1000.0).quantile(0.5) == pytest.approx(value, rel=0.063, abs=1e-9)


def test_quantile_without_values_is_nan() -> None:
    assert isnan(Summary().quantile(0.5))


def test_quantile_forgets_values_older_than_window() -> None:
    summary = observed(100.0)
    summary.rotate(1_000 + WINDOW_MS)
    summary.observe(1.0)
    assert summary.quantile(0.99) == pytest.approx(100, rel=0.0625)

    summary.rotate(1_000 + 2 * WINDOW_MS)

    assert summary.quantile(0.99) == pytest.approx(1, rel=0.0625)
    summary.rotate(1_000 + 9 * WINDOW_MS)
    assert isnan(summary.quantile(0.5))
    assert summary.count == 2


def test_quantile_since_mark_forgets_older_values() -> None:
    summary = observed(100.0, 100.0)
    mark = summary.mark()
    assert isnan(summary.quantile(0.99, mark))
    summary.observe(1.0)

    assert summary.quantile(0.99, mark) == pytest.approx(1, rel=0.0625)
    assert summary.quantile(0.99) == pytest.approx(100, rel=0.0625)
    summary.rotate(1_000 + WINDOW_MS)
    summary.observe(3.0)
    assert summary.quantile(0.5, mark) == pytest.approx(1, rel=0.0625)
    assert summary.quantile(0.99, mark) == pytest.approx(3, rel=0.0625)
    assert summary.quantile(0.99, summary.mark()) != summary.quantile(0.99)
    summary.rotate(1_000 + 9 * WINDOW_MS)
    assert isnan(summary.quantile(0.5, mark))


def test_quota_namespaces_are_bounded() -> None:
    metrics = Metrics()
    for number in range(2 * MAX_NAMESPACES):
        metrics.count_exceeded_quota(f"/{number}/a")

    assert len(metrics.quota_exceeded) == MAX_NAMESPACES + 1
    assert metrics.quota_exceeded["others"] == MAX_NAMESPACES
