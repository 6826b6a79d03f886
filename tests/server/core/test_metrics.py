"""What is counted: logins that fail, logins of the super user, and requests that are refused."""

from __future__ import annotations

from support.calls import connected, engine_with, mntr, multi, setting
from support.engine import make_engine
from support.logins import SUPER, USERS, sasl
from support.peer import Peer

from zoolet.server.admin.four_letter import four_letter_commands
from zoolet.server.core.metrics import LIMITS
from zoolet.server.core.settings import Settings

# --- refusals ---


def test_monitoring_sees_each_limit() -> None:
    figures = mntr(engine_with())

    assert {name for name in figures if name.startswith("zk_zoolet_refused_")} == {
        f"zk_zoolet_refused_{limit}" for limit in LIMITS
    }
    assert {figures["zk_zoolet_stalls"], figures["zk_zoolet_stalled_ms"], figures["zk_zoolet_refused_watches"]} == {"0"}


def test_a_reset_of_the_figures_sets_the_refusals_back() -> None:
    engine = engine_with(max_multi_operations=1)
    peer = connected(engine)
    peer.create("/a")
    multi(peer, setting("/a"), setting("/a"))
    assert mntr(engine)["zk_zoolet_refused_multi_operations"] == "1"

    Peer(engine, four_letter_commands=four_letter_commands(["*"])).feed(b"srst")

    assert mntr(engine)["zk_zoolet_refused_multi_operations"] == "0"


# --- logins ---


def test_a_failed_login_is_counted() -> None:
    engine = make_engine()

    connected(engine).auth("nonsense", b"x")
    connected(engine).auth("nonsense", b"x")

    assert mntr(engine)["zk_auth_failed_count"] == "2"


def test_a_failed_sasl_login_is_counted() -> None:
    engine = make_engine(Settings(sasl_users=USERS))

    sasl(connected(engine), "bob", "wrong")

    assert mntr(engine)["zk_auth_failed_count"] == "1"


def test_a_failed_sasl_login_that_is_let_pass_is_counted() -> None:
    engine = make_engine(Settings(sasl_users=USERS, allow_failed_sasl=True))

    sasl(connected(engine), "bob", "wrong")

    assert mntr(engine)["zk_auth_failed_count"] == "1"


def test_a_login_that_succeeds_is_not_counted_as_failed() -> None:
    engine = make_engine(Settings(sasl_users=USERS))
    peer = connected(engine)

    peer.auth("digest", b"a:b")
    sasl(peer, "bob", "secret")

    assert mntr(engine)["zk_auth_failed_count"] == "0"


def test_super_logins_are_counted() -> None:
    engine = make_engine(Settings(sasl_users=USERS, super_users=frozenset({"bob"}), super_digest=SUPER))

    connected(engine).auth("digest", b"super:pw")
    sasl(connected(engine), "bob", "secret")

    assert mntr(engine)["zk_zoolet_super_logins"] == "2"
