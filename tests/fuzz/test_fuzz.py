"""Short runs of each fuzzer with fixed seeds, and tests that the fuzzers find and reproduce a planted defect."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz import clientside, engines, frames, inprocess, sockets
from fuzz.world import World

from zoolet.protocol.operations import OpCode
from zoolet.server.core.acls import Acls
from zoolet.server.core.expiry import Expiry
from zoolet.server.core.node import Node
from zoolet.server.core.quota import Quota
from zoolet.server.core.tree import Tree
from zoolet.server.core.watches import Watches

FRAMES = 2_000
SEED = 20260101


@pytest.fixture(scope="module")
def run() -> inprocess.Run:
    return inprocess.Run(SEED, 4_000)


# --- the server's core ---


@pytest.mark.parametrize("epoch", range(len(engines.VARIANTS)))
def test_random_frames_cause_no_error_or_wrong_index(run: inprocess.Run, epoch: int) -> None:
    found = inprocess.run_actions(World(epoch), run.script(epoch), FRAMES, every=500)

    assert found is None


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("epoch", [0, 3])
def test_answers_are_independent_of_splitting_of_input(run: inprocess.Run, epoch: int, pieces: int) -> None:
    _, found = inprocess.run_in_pieces(epoch, list(islice(run.script(epoch), 300)), pieces)

    assert found is None


def test_request_before_disconnect_renews_session() -> None:
    engine = engines.engine_for(0)
    connection = engines.connection_to(engine, "127.0.0.1")
    engines.receive(connection, frames.HELLO)  # a session timeout of 10 s
    engine.set_time(engines.START_MS, 9_000)

    engines.receive(connection, frames.request_frame(1, OpCode.WHO_AM_I, b"") + frames.request_frame(2, 99, b""))
    engine.set_time(engines.START_MS, 15_000)
    engine.tick()

    assert len(engine.sessions.alive) == 1


def test_most_random_frames_reach_handlers(run: inprocess.Run) -> None:
    world = World(0)

    inprocess.run_actions(world, run.script(0), FRAMES)

    answered = sum(world.codes.values())
    assert answered > 0.95 * FRAMES
    assert world.codes[0] > 0.25 * answered


def nothing(*arguments: Any) -> None:
    return None


def keeps_the_stat(tree: Tree, path: str, parent: Node, *others: Any) -> Node:
    """Create a node without clearing the Stat of its parent."""
    kept = parent.encoding
    node = CREATE(tree, path, parent, *others)
    parent.encoding = kept
    return node


def keeps_the_names(tree: Tree, path: str, parent: Node, *others: Any) -> Node:
    """Create a node without adding its name to the cached list of its parent."""
    node = CREATE(tree, path, parent, *others)
    if parent.children is not None and parent.children.encoding is not None:
        parent.children.added.clear()
    return node


CREATE = Tree.create
PLANTED: list[tuple[type[Any], str, Callable[..., Any]]] = [
    (Watches, "forget", nothing),
    (Watches, "roll_back", nothing),
    (Acls, "release", nothing),
    (Acls, "release_all", nothing),
    (Expiry, "remove", nothing),
    (Tree, "create", keeps_the_stat),
    (Tree, "create", keeps_the_names),
    (Quota, "roll_back", nothing),
]


@pytest.mark.parametrize(
    ("kind", "name", "planted"), PLANTED, ids=lambda each: each if isinstance(each, str) else each.__name__
)
def test_fuzzer_finds_planted_defect(
    run: inprocess.Run, monkeypatch: pytest.MonkeyPatch, kind: type[Any], name: str, planted: Callable[..., Any]
) -> None:
    monkeypatch.setattr(kind, name, planted)

    assert any(inprocess.run_actions(World(epoch), run.script(epoch), FRAMES, every=500) for epoch in range(3))


def test_finding_of_fuzzer_is_minimized_and_reproduced(run: inprocess.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watches, "forget", nothing)
    found = inprocess.run_actions(World(0), run.script(0), FRAMES)
    assert found is not None

    small = inprocess.minimise(0, run.actions(0, found.action), found.where)
    again = inprocess.replay_actions(*inprocess.decode_actions(inprocess.encode_actions(0, small)))

    assert len(small) <= 4
    assert again is not None
    assert again.where == found.where


# --- the cost of long requests ---


def measure_cost(make: Callable[[int], bytes], size: int) -> float:
    """Measure the cost of a request on a fresh server, in seconds of CPU."""
    engine = engines.engine_for(0)
    engine.settings.sasl_users = frames.SASL_USERS
    engine.settings.reconfig_enabled = True
    connection = engines.connection_to(engine, "127.0.0.1")
    engines.receive(connection, frames.HELLO)
    engines.receive(connection, frames.request_frame(1, OpCode.SASL, bytes(4)))  # the server will check the next token
    whole = make(size)
    gc.disable()  # the garbage of other tests must not count
    try:
        began = time.thread_time()
        engines.receive(connection, whole)
        return time.thread_time() - began
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("name", frames.HEAVY_REQUESTS)
def test_cost_of_long_request_is_at_most_microsecond_per_byte(name: str) -> None:
    make = frames.HEAVY_REQUESTS[name]

    for size in (4_000, 32_000, 256_000):  # ascending, because a defect could make the longest take minutes
        assert measure_cost(make, size) < 0.02 + size * 1e-6, size


# --- the client ---


@pytest.mark.parametrize("epoch", range(6))
def test_session_raises_only_connection_broken(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    monkeypatch.setattr(clientside, "MAX_DEPTH", 100)  # deeper paths have a separate test
    seen, _, what = clientside.run_epoch(SEED, epoch, frames.make_pool(Random(SEED), 1_000), 600)

    assert what is None
    assert seen >= 600


def test_client_survives_deletion_of_deep_watched_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = clientside.BrokenServer(Random(1), frames.make_pool(Random(1), 100), 0)
    shell.session._become_ready(1.0)

    shell.session.receive(
        b"".join(clientside.encode_event(1, "/a" + "/x" * n) for n in range(1, clientside.MAX_DEPTH)), 1.0
    )
    shell.session.receive(clientside.encode_event(2, "/a/x"), 1.0)


# --- a daemon ---


@pytest.mark.slow
def test_daemon_withstands_fuzzing(tmp_path: Path) -> None:
    assert sockets.fuzz(SEED, 0.05) == 0
