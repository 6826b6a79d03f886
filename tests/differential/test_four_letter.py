"""Four-letter commands to zoolet and to a real ZooKeeper in the same state return the same answers.

Legitimate differences are normalised: versions, times, sizes of files, numbers of packets, numbers of connections
(earlier ones may still be open), and the order of lines where the real server defines none.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator

import pytest
from differential.lockstep import Lockstep
from differential.pair import Drop, Pair, Step
from differential.script import add_watch, by, children, create, exists, read, remove_watches, write
from support import embedded
from support.apache import RELEASES
from support.peer import Peer

from zoolet.server.admin.descriptors import raise_limit
from zoolet.server.admin.four_letter_commands import four_letter_commands

pytestmark = pytest.mark.slow
STATE = (
    "zk_server_state",
    "zk_outstanding_requests",
    "zk_znode_count",
    "zk_watch_count",
    "zk_ephemerals_count",
    "zk_approximate_data_size",
    "zk_global_sessions",
    "zk_local_sessions",
    "zk_connection_drop_probability",
    "zk_max_file_descriptor_count",
)
"""Metrics in mntr about the state that both sides share."""
TREE: list[Step] = [by(0, create("/a", b"1")), by(1, create("/b", b"xyz", 1)), by(1, create("/a/c", b"", 2))]
SET: list[Step] = [by(0, read("/a", True)), by(1, exists("/none", True)), by(1, children("/a", True))]
FIRED: list[Step] = [*SET, by(2, write("/a", b"2")), by(2, create("/none")), by(2, create("/a/d"))]
STAYING: list[Step] = [*FIRED, by(2, add_watch("/a", 0)), by(2, add_watch("/b", 1)), by(2, read("/a", True))]
REMOVED: list[Step] = [*STAYING, by(2, remove_watches("/a", 3)), by(2, remove_watches("/b", 3))]
ONE_REMOVED: list[Step] = [by(0, read("/", True)), by(0, read("/a", True)), by(0, remove_watches("/a", 3))]
SCRIPTS: dict[str, list[Step]] = {
    "nothing": [],
    "tree": TREE,
    "set": [*TREE, *SET],
    "fired": [*TREE, *FIRED],
    "staying": [*TREE, *STAYING],
    "removed": [*TREE, *REMOVED],
    "one removed": [*TREE, *ONE_REMOVED],
    "gone": [*TREE, *FIRED, Drop(0)],
}


def prepared(release: str, name: str) -> Iterator[Pair]:
    lockstep = Lockstep(release)
    pair = lockstep.start()
    try:
        for step in SCRIPTS[name]:
            real, ours = pair.do(step)
            assert ours == real, step
        yield pair
    finally:
        lockstep.stop()


@pytest.fixture(scope="module", params=[(release, name) for release in RELEASES for name in SCRIPTS], ids="-".join)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both sides after one of the scripts."""
    yield from prepared(*request.param)


@pytest.fixture(scope="module", params=RELEASES)
def fresh(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both sides in their initial state."""
    yield from prepared(request.param, "nothing")


def ask_real(pair: Pair, word: bytes) -> str:
    """Send a command to ZooKeeper; return the answer."""
    return embedded.ask(pair.apache.port, word).decode()


def ask(pair: Pair, word: bytes) -> str:
    """Send a command to zoolet on a new connection; return the answer."""
    return Peer(pair.engine, four_letter_commands=four_letter_commands("*")).feed(word).decode()


def watchers(answer: str) -> dict[str, set[str]]:
    """Parse an answer to wchc or wchp: each unindented line with the indented lines below it."""
    assert answer.endswith("\n")
    entries = re.split(r"\n(?!\t)", answer.rstrip("\n"))
    return {head: set(below) for head, *below in (entry.split("\n") for entry in entries)}


def figures(answer: str) -> dict[str, str]:
    """Parse an answer to mntr."""
    return {name: value for name, _, value in (line.partition("\t") for line in answer.splitlines())}


def keys(answer: str) -> list[str]:
    """Return the keys in an answer to conf or envi, in order."""
    return [line.partition("=")[0] for line in answer.splitlines()]


def shape(answer: str) -> str:
    """Blank everything in an answer to srvr except the state that both sides share."""
    answer = re.sub(r"(?m)^(Zookeeper version: ).*", r"\1", answer)
    return re.sub(r"(?m)^((?:Latency min/avg/max|Received|Sent|Connections): ).*", r"\1", answer)


def test_wchs_is_identical(pair: Pair) -> None:
    assert ask(pair, b"wchs") == ask_real(pair, b"wchs")


@pytest.mark.parametrize("word", [b"wchc", b"wchp"])
def test_wchc_and_wchp_list_same_watches(pair: Pair, word: bytes) -> None:
    assert watchers(ask(pair, word)) == watchers(ask_real(pair, word))


@pytest.fixture
def raised_limit() -> Iterator[None]:
    """Raise the limit of open files like ``zoolet serve``; the JVM raises its own."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_limit()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("raised_limit")
def test_mntr_reports_same_state(pair: Pair) -> None:
    ours, real = figures(ask(pair, b"mntr")), figures(ask_real(pair, b"mntr"))

    assert {name: ours.get(name) for name in STATE} == {name: real.get(name) for name in STATE}


def test_mntr_has_same_metrics(fresh: Pair) -> None:
    ours = {name for name in figures(ask(fresh, b"mntr")) if "zoolet_" not in name}

    assert ours == {name for name in figures(ask_real(fresh, b"mntr")) if "_per_namespace" not in name}


def test_srvr_has_same_lines(pair: Pair) -> None:
    assert shape(ask(pair, b"srvr")) == shape(ask_real(pair, b"srvr"))


@pytest.mark.parametrize("word", [b"conf", b"envi"])
def test_keys_and_order_are_equal(fresh: Pair, word: bytes) -> None:
    assert keys(ask(fresh, word)) == keys(ask_real(fresh, word))


@pytest.mark.parametrize(
    "word",
    [
        b"ruok",
        b"isro",
        b"gtmk",
        b"gtmk\n",
        b"hash",
        b"crst",
        b"srst",
        b"stmk",
        b"stmk\0\0\0",
        b"stmk\xff\xff\xff\xff\xff\xff\xff\xff",
        b"stmk\0\0\0\0\0\0\x01\x32",
        b"\xff\xf4\xff\xfd",
    ],
)
def test_answer_has_same_bytes(fresh: Pair, word: bytes) -> None:
    assert ask(fresh, word) == ask_real(fresh, word)


def test_trace_mask_is_kept(fresh: Pair) -> None:
    mask = b"stmk\0\0\0\0\0\0\0\x07"
    ask_real(fresh, mask)
    ask(fresh, mask)

    assert ask(fresh, b"gtmk") == ask_real(fresh, b"gtmk") == "7"
