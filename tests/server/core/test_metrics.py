"""Metrics: counters of refusals and logins, and summaries with quantiles."""

from __future__ import annotations

from math import ceil, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.calls import connect_peer, engine_with_settings, mntr, multi, set_op
from support.engine import make_engine
from support.logins import SUPER, USERS, complete_sasl
from support.peer import Peer

from zoolet.server.admin.four_letter_commands import four_letter_commands
from zoolet.server.core.metrics import HALF_WINDOW_MS, LIMITS, MAX_NAMESPACES, Metrics, Summary
from zoolet.server.core.settings import EngineSettings

# --- refusals ---


def test_mntr_has_counter_for_each_limit() -> None:
    figures = mntr(engine_with_settings())

    assert {name for name in figures if name.startswith("zk_zoolet_refused_")} == {
        f"zk_zoolet_refused_{limit}" for limit in LIMITS
    }
    assert {figures["zk_zoolet_stalls"], figures["zk_zoolet_stalled_ms"], figures["zk_zoolet_refused_watches"]} == {"0"}


def test_srst_resets_refusal_counters() -> None:
    engine = engine_with_settings(max_multi_operations=1)
    peer = connect_peer(engine)
    peer.create("/a")
    multi(peer, set_op("/a"), set_op("/a"))
    assert mntr(engine)["zk_zoolet_refused_multi_operations"] == "1"

    Peer(engine, four_letter_commands=four_letter_commands(["*"])).feed(b"srst")

    assert mntr(engine)["zk_zoolet_refused_multi_operations"] == "0"


# --- logins ---


def test_failed_login_is_counted() -> None:
    engine = make_engine()

    connect_peer(engine).auth("nonsense", b"x")
    connect_peer(engine).auth("nonsense", b"x")

    assert mntr(engine)["zk_auth_failed_count"] == "2"


def test_failed_sasl_login_is_counted() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS))

    complete_sasl(connect_peer(engine), "bob", "wrong")

    assert mntr(engine)["zk_auth_failed_count"] == "1"


def test_tolerated_failed_sasl_login_is_counted() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS, allow_failed_sasl=True))

    complete_sasl(connect_peer(engine), "bob", "wrong")

    assert mntr(engine)["zk_auth_failed_count"] == "1"


def test_successful_login_is_not_counted_as_failed() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS))
    peer = connect_peer(engine)

    peer.auth("digest", b"a:b")
    complete_sasl(peer, "bob", "secret")

    assert mntr(engine)["zk_auth_failed_count"] == "0"


def test_super_logins_are_counted() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS, super_users=frozenset({"bob"}), super_digest=SUPER))

    connect_peer(engine).auth("digest", b"super:pw")
    complete_sasl(connect_peer(engine), "bob", "secret")

    assert mntr(engine)["zk_zoolet_super_logins"] == "2"


# --- summaries ---


def make_summary(*values: float) -> Summary:
    """Return a summary of these numbers."""
    summary = Summary()
    summary.rotate(1_000)
    for value in values:
        summary.observe(value)
    return summary


def test_summary_has_count_sum_and_extremes() -> None:
    summary = make_summary(3.0, 1.0, 2.5)

    assert (summary.count, summary.total, summary.least, summary.most) == (3, 6.5, 1.0, 3.0)
    assert summary.average() == 2.1667


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_quantile_is_exact_to_six_percent(values: list[float], part: float) -> None:
    exact = sorted(values)[ceil(part * len(values)) - 1]

    assert make_summary(*values).quantile(part) == pytest.approx(exact, rel=0.0625, abs=0.001)


def test_small_quantile_is_exact_to_six_percent() -> None:
    for thousandths in range(200):
        value = thousandths / 1000
        assert make_summary(0.0, value, 1000.0).quantile(0.5) == pytest.approx(value, rel=0.063, abs=1e-9)


def test_quantile_without_values_is_nan() -> None:
    assert isnan(Summary().quantile(0.5))


def test_quantile_forgets_values_older_than_window() -> None:
    summary = make_summary(100.0)
    summary.rotate(1_000 + HALF_WINDOW_MS)
    summary.observe(1.0)
    assert summary.quantile(0.99) == pytest.approx(100, rel=0.0625)

    summary.rotate(1_000 + 2 * HALF_WINDOW_MS)

    assert summary.quantile(0.99) == pytest.approx(1, rel=0.0625)
    summary.rotate(1_000 + 9 * HALF_WINDOW_MS)
    assert isnan(summary.quantile(0.5))
    assert summary.count == 2


def test_quantile_since_mark_ignores_older_values() -> None:
    summary = make_summary(100.0, 100.0)
    mark = summary.mark()
    assert isnan(summary.quantile(0.99, mark))
    summary.observe(1.0)

    assert summary.quantile(0.99, mark) == pytest.approx(1, rel=0.0625)
    assert summary.quantile(0.99) == pytest.approx(100, rel=0.0625)
    summary.rotate(1_000 + HALF_WINDOW_MS)
    summary.observe(3.0)
    assert summary.quantile(0.5, mark) == pytest.approx(1, rel=0.0625)
    assert summary.quantile(0.99, mark) == pytest.approx(3, rel=0.0625)
    assert summary.quantile(0.99, summary.mark()) != summary.quantile(0.99)
    summary.rotate(1_000 + 9 * HALF_WINDOW_MS)
    assert isnan(summary.quantile(0.5, mark))


def test_metrics_of_quota_namespaces_are_bounded() -> None:
    metrics = Metrics()
    for number in range(2 * MAX_NAMESPACES):
        metrics.count_exceeded_quota(f"/{number}/a")

    assert len(metrics.quota_exceeded) == MAX_NAMESPACES + 1
    assert metrics.quota_exceeded["others"] == MAX_NAMESPACES
