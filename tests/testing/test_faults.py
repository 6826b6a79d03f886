"""Fault rules: matching requests, counters, and the end of rules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError as KazooBadVersionError
from kazoo.exceptions import NoNodeError as KazooNoNodeError
from kazoo.exceptions import SystemZookeeperError
from support.waiting import DEADLINE_S
from support.wire import Wire, creating

from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.operations import OpCode
from zoolet.testing import (
    Server,
    delay,
    drop_request,
    error,
    hold,
)

NO_NODE: Final = -101
Dial = Callable[..., KazooClient]


# --- matching requests ---


def test_op_name_covers_all_its_op_codes(server: Server, client: KazooClient) -> None:
    with server.fault(delay(0), "create") as fault:
        client.create("/a")
        client.create("/b", include_data=True)
        client.add_auth("digest", "u:p")
        client.transaction().commit()
        client.get("/a")
    with server.fault(delay(0), "getChildren") as reads:
        client.get_children("/")
        client.get_children("/", include_data=True)

    assert (fault.hits, reads.hits) == (2, 2)


@pytest.mark.parametrize("op", ["getData", "get_data", "GETDATA", "get", OpCode.GET_DATA, int(OpCode.GET_DATA)])
def test_fault_matches_all_spellings_of_operation(server: Server, client: KazooClient, op: Any) -> None:
    with server.fault(error(ErrorCode.SYSTEM_ERROR), op) as fault:
        with pytest.raises(SystemZookeeperError):
            client.get("/")
        client.exists("/")

    assert (fault.hits, fault.seen) == (1, 1)


def test_fault_with_op_code_matches_only_this_op_code(server: Server, client: KazooClient) -> None:
    with server.fault(delay(0), OpCode.CREATE) as plain, server.fault(delay(0), 15) as second:
        client.create("/a")
        client.create("/b", include_data=True)

    assert (plain.hits, second.hits) == (1, 1)


@pytest.mark.parametrize(
    ("glob", "hit"),
    [
        ("/a", {"/a"}),
        ("/a*", {"/a", "/a/b", "/ab", "/a/b/c"}),
        ("/a/*", {"/a/b", "/a/b/c"}),
        ("*", {"/a", "/a/b", "/ab", "/a/b/c", "/"}),
        ("/*/c", {"/a/b/c"}),
        ("/a?", {"/ab"}),
        ("/[a-c]b", {"/ab"}),
        ("/A", set()),
    ],
)
def test_path_of_fault_is_a_glob(server: Server, wire: Wire, glob: str, hit: set[str]) -> None:
    with server.fault(error(ErrorCode.SYSTEM_ERROR), path=glob):
        found = {path for path in ("/", "/a", "/a/b", "/ab", "/a/b/c") if wire.exists(path) == -1}

    assert found == hit


def test_rule_with_path_ignores_requests_without_path(server: Server, wire: Wire) -> None:
    with server.fault(error(ErrorCode.SYSTEM_ERROR), path="*") as fault:
        assert wire.ask(OpCode.PING) == 0

    assert (fault.hits, fault.seen) == (0, 0)


def test_fault_matches_only_its_client(server: Server, kazoo: Dial) -> None:
    victim, other = kazoo(server), kazoo(server)

    for who in (victim, victim.client_id[0]):
        with server.fault(error(NO_NODE), client=who) as fault:
            with pytest.raises(KazooNoNodeError):
                victim.get("/")
            other.get("/")
        assert fault.hits == 1


def test_fault_matches_client_that_connects_later(server: Server, kazoo: Dial) -> None:
    victim, other = kazoo(server, start=False), kazoo(server)

    with server.fault(error(NO_NODE), "getData", client=victim) as fault:
        victim.start(DEADLINE_S)
        with pytest.raises(KazooNoNodeError):
            victim.get("/")
        other.get("/")

    assert fault.hits == 1


def test_client_all_matches_every_session(server: Server, kazoo: Dial) -> None:
    clients = kazoo(server), kazoo(server)

    with server.fault(delay(0), "getData", client="all") as fault:
        for client in clients:
            client.get("/")

    assert fault.hits == 2


@pytest.mark.parametrize(
    ("rule", "hit"),
    [
        ({}, "xxxxxx"),
        ({"nth": 1}, "x....."),
        ({"nth": 3}, "..x..."),
        ({"nth": {2, 5}}, ".x..x."),
        ({"nth": [6, 1]}, "x....x"),
        ({"nth": range(2, 5)}, ".xxx.."),
        ({"nth": 7}, "......"),
        ({"times": 2}, "xx...."),
        ({"nth": {2, 3, 4}, "times": 2}, ".xx..."),
        ({"probability": 0}, "......"),
        ({"probability": 1}, "xxxxxx"),
        ({"probability": 1.0, "nth": 4}, "...x.."),
    ],
    ids=str,
)
def test_fault_rule_counts_hits_and_matching_requests(
    server: Server, wire: Wire, rule: dict[str, Any], hit: str
) -> None:
    with server.fault(error(ErrorCode.SYSTEM_ERROR), "exists", **rule) as fault:
        found = "".join("x" if code == -1 else "." for code in wire.answers(6))

    assert found == hit
    assert (fault.hits, fault.seen) == (hit.count("x"), 6)


def test_nth_counts_only_matching_requests(server: Server, wire: Wire) -> None:
    with server.fault(error(ErrorCode.SYSTEM_ERROR), "exists", "/", nth=2):
        wire.ask(OpCode.PING)
        wire.exists("/other")
        assert [wire.exists(), wire.exists(), wire.exists()] == [0, -1, 0]


def hits_by_probability(seed: int, *, company: bool = False) -> str:
    """Return which of 64 requests a rule with probability 0.5 hits; *company* adds a second random rule."""
    with Server(seed=seed) as server, Wire(server).welcomed() as wire, ExitStack() as faults:
        faults.enter_context(server.fault(error(ErrorCode.SYSTEM_ERROR), "exists", probability=0.5))
        if company:
            faults.enter_context(server.fault(delay(0), probability=0.5))
        return "".join("x" if code == -1 else "." for code in wire.answers(64))


def test_fault_with_same_seed_hits_same_requests() -> None:
    assert hits_by_probability(5) == hits_by_probability(5)


def test_additional_fault_does_not_change_hits_of_first() -> None:
    assert hits_by_probability(5) == hits_by_probability(5, company=True)


def test_faults_with_different_seeds_hit_different_requests() -> None:
    stories = {hits_by_probability(seed) for seed in range(5)}

    assert len(stories) == 5
    assert all(16 < story.count("x") < 48 for story in stories)


def test_probabilities_of_two_rules_are_independent(server: Server, wire: Wire) -> None:
    with (
        server.fault(delay(0), "exists", probability=0.5) as one,
        server.fault(delay(0), "exists", probability=0.5) as two,
    ):
        pairs = []
        for _ in range(64):
            before = one.hits, two.hits
            wire.exists()
            pairs.append((one.hits - before[0], two.hits - before[1]))

    assert set(pairs) == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_transaction_matches_by_any_of_its_paths(server: Server, client: KazooClient) -> None:
    def commit() -> list[Any]:
        transaction = client.transaction()
        transaction.create("/x")
        transaction.create("/y/z")
        transaction.check("/", -1)
        found: list[Any] = transaction.commit()
        return found

    for path in ("/x", "/y/*", "/"):
        with server.fault(error(KazooBadVersionError), "multi", path) as fault:
            with pytest.raises(KazooBadVersionError):
                commit()
            assert (fault.hits, fault.seen) == (1, 1)
    with server.fault(error(KazooBadVersionError), path="/z") as fault:
        commit()
    assert (fault.hits, fault.seen) == (0, 0)


def test_transaction_matches_multi_but_not_its_parts(server: Server, client: KazooClient) -> None:
    with server.fault(drop_request(), "create") as parts, server.fault(delay(0), "multi") as whole:
        transaction = client.transaction()
        transaction.create("/x")
        assert transaction.commit() == ["/x"]

    assert (parts.hits, whole.hits) == (0, 1)


# --- the end of a rule ---


def test_fault_applies_until_end_of_block(server: Server, wire: Wire) -> None:
    with server.fault(error(NO_NODE), "exists") as fault:
        assert wire.answers(2) == [NO_NODE, NO_NODE]
    assert wire.answers(2) == [0, 0]

    assert (fault.hits, fault.seen) == (2, 2)


def test_fault_applies_from_call_until_its_end(server: Server, wire: Wire) -> None:
    fault = server.fault(error(NO_NODE), "exists")
    assert wire.exists() == NO_NODE
    fault.end()
    fault.end()

    assert wire.exists() == 0


def test_error_in_block_removes_fault(server: Server, wire: Wire) -> None:
    with pytest.raises(ZeroDivisionError), server.fault(error(NO_NODE), "exists"):
        _ = 1 / 0

    assert wire.exists() == 0


def test_held_requests_continue_after_block(server: Server, wire: Wire) -> None:
    with server.fault(hold(), "create") as fault:
        wire.send(OpCode.CREATE, creating("/a"))
        server.wait_for(lambda: fault.hits == 1)

    assert wire.reply() == 0
    assert set(server.tree()) == {"/a"}


def test_held_request_of_departed_client_is_not_done(server: Server) -> None:
    with server.fault(hold(), "create") as fault:
        with Wire(server).welcomed() as leaver:
            leaver.send(OpCode.CREATE, creating("/a"))
            server.wait_for(lambda: fault.hits == 1)
        server.wait_for(lambda: not server.sessions()[leaver.id].connected)
    with Wire(server).welcomed() as other:
        assert other.exists() == 0

    assert dict(server.tree()) == {}


def test_reset_removes_all_rules(server: Server, wires: ExitStack) -> None:
    with server.fault(error(NO_NODE)):
        server.reset()
        after = wires.enter_context(Wire(server)).welcomed()
        assert after.exists() == 0


def test_strict_fault_without_hit_raises(server: Server, wire: Wire) -> None:
    with server.fault(delay(0), "exists", strict=True):
        wire.exists()

    with pytest.raises(AssertionError, match="getData"), server.fault(delay(0), "getData", strict=True):
        wire.exists()


def test_strict_rule_hides_no_error_of_block(server: Server) -> None:
    with pytest.raises(ZeroDivisionError), server.fault(delay(0), strict=True):
        _ = 1 / 0


def test_repr_describes_fault(server: Server) -> None:
    with server.fault(error(NO_NODE), "create", "/a*", nth=2) as fault:
        text = repr(fault)

    assert all(part in text for part in ("create", "/a*", "2", "error(NO_NODE)"))


# --- invalid input ---


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"op": "nonsense"}, "nonsense"),
        ({"op": ""}, "''"),
        ({"op": 999}, "999"),
        ({"op": 3.5}, "3.5"),
        ({"op": True}, "True"),
        ({"path": "a"}, "'a'"),
        ({"path": ""}, "''"),
        ({"path": 3}, "3"),
        ({"client": "bob"}, "bob"),
        ({"client": 1.5}, "1.5"),
        ({"nth": 0}, "0"),
        ({"nth": -1}, "-1"),
        ({"nth": []}, r"\[\]"),
        ({"nth": [0]}, "0"),
        ({"nth": "1"}, "'1'"),
        ({"probability": -0.1}, "-0.1"),
        ({"probability": 1.1}, "1.1"),
        ({"probability": float("nan")}, "nan"),
        ({"times": -1}, "-1"),
        ({"action": None}, "None"),
        ({"action": "hold"}, "hold"),
        pytest.param({"action": hold}, "hold", id="the function hold"),  # its address differs between processes
        ({"nth": 1.5}, "1.5"),
        ({"nth": True}, "True"),
        ({"probability": "x"}, "x"),
        ({"times": "x"}, "x"),
        ({"times": 1.5}, "1.5"),
        ({"times": 0}, "times must be 1 or more, not 0"),
        ({"times": True}, "times must be 1 or more, not True"),
    ],
    ids=str,
)
def test_error_names_invalid_argument_of_fault(server: Server, rule: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        server.fault(**{"action": delay(0), **rule})


def test_rule_with_bad_arguments_is_not_added(server: Server, wire: Wire) -> None:
    with pytest.raises(ValueError):
        server.fault(error(NO_NODE), "exists", nth=0)

    assert wire.exists() == 0
