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
from differential.script import add_watch, children, create, exists, read, remove_watches, request_on, write
from support import embedded
from support.apache import RELEASES
from support.peer import Peer

from zoolet.server.admin.descriptors import raise_limit
from zoolet.server.admin.four_letter_commands import four_letter_commands

pytestmark = pytest.mark.slow
STATE_METRICS = (
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
TREE: list[Step] = [
    request_on(0, create("/a", b"1")),
    request_on(1, create("/b", b"xyz", 1)),
    request_on(1, create("/a/c", b"", 2)),
]
SET: list[Step] = [
    request_on(0, read("/a", True)),
    request_on(1, exists("/none", True)),
    request_on(1, children("/a", True)),
]
FIRED_STEPS: list[Step] = [
    *SET,
    request_on(2, write("/a", b"2")),
    request_on(2, create("/none")),
    request_on(2, create("/a/d")),
]
PERSISTENT_STEPS: list[Step] = [
    *FIRED_STEPS,
    request_on(2, add_watch("/a", 0)),
    request_on(2, add_watch("/b", 1)),
    request_on(2, read("/a", True)),
]
REMOVED_STEPS: list[Step] = [
    *PERSISTENT_STEPS,
    request_on(2, remove_watches("/a", 3)),
    request_on(2, remove_watches("/b", 3)),
]
ONE_REMOVED_STEPS: list[Step] = [
    request_on(0, read("/", True)),
    request_on(0, read("/a", True)),
    request_on(0, remove_watches("/a", 3)),
]
SCRIPTS: dict[str, list[Step]] = {
    "nothing": [],
    "tree": TREE,
    "set": [*TREE, *SET],
    "fired": [*TREE, *FIRED_STEPS],
    "staying": [*TREE, *PERSISTENT_STEPS],
    "removed": [*TREE, *REMOVED_STEPS],
    "one removed": [*TREE, *ONE_REMOVED_STEPS],
    "gone": [*TREE, *FIRED_STEPS, Drop(0)],
}


def run_script(release: str, name: str) -> Iterator[Pair]:
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
    yield from run_script(*request.param)


@pytest.fixture(scope="module", params=RELEASES)
def fresh(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both sides in their initial state."""
    yield from run_script(request.param, "nothing")


def ask_real(pair: Pair, word: bytes) -> str:
    """Send a command to the real ZooKeeper, and return the answer."""
    return embedded.ask(pair.apache.port, word).decode()


def ask(pair: Pair, word: bytes) -> str:
    """Send a command to zoolet on a new connection, and return the answer."""
    return Peer(pair.engine, four_letter_commands=four_letter_commands("*")).feed(word).decode()


def parse_watchers(answer: str) -> dict[str, set[str]]:
    """Parse an answer to wchc or wchp: each unindented line with the indented lines below it."""
    assert answer.endswith("\n")
    entries = re.split(r"\n(?!\t)", answer.rstrip("\n"))
    return {head: set(below) for head, *below in (entry.split("\n") for entry in entries)}


def parse_mntr(answer: str) -> dict[str, str]:
    """Parse an answer to mntr."""
    return {name: value for name, _, value in (line.partition("\t") for line in answer.splitlines())}


def parse_keys(answer: str) -> list[str]:
    """Return the keys in an answer to conf or envi, in order."""
    return [line.partition("=")[0] for line in answer.splitlines()]


def shape(answer: str) -> str:
    """Blank everything in an answer to srvr except the state that both sides share."""
    answer = re.sub(r"(?m)^(Zookeeper version: ).*", r"\1", answer)
    return re.sub(r"(?m)^((?:Latency min/avg/max|Received|Sent|Connections): ).*", r"\1", answer)


def test_wchs_answer_equals_that_of_real_server(pair: Pair) -> None:
    assert ask(pair, b"wchs") == ask_real(pair, b"wchs")


@pytest.mark.parametrize("word", [b"wchc", b"wchp"])
def test_wchc_and_wchp_list_watches_like_real_server(pair: Pair, word: bytes) -> None:
    assert parse_watchers(ask(pair, word)) == parse_watchers(ask_real(pair, word))


@pytest.fixture
def raised_limit() -> Iterator[None]:
    """Raise the limit of open files as ``zoolet serve`` does, because the JVM also raises its limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_limit()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("raised_limit")
def test_mntr_reports_state_like_real_server(pair: Pair) -> None:
    ours, real = parse_mntr(ask(pair, b"mntr")), parse_mntr(ask_real(pair, b"mntr"))

    assert {name: ours.get(name) for name in STATE_METRICS} == {name: real.get(name) for name in STATE_METRICS}


def test_mntr_has_metrics_of_real_server(fresh: Pair) -> None:
    ours = {name for name in parse_mntr(ask(fresh, b"mntr")) if "zoolet_" not in name}

    assert ours == {name for name in parse_mntr(ask_real(fresh, b"mntr")) if "_per_namespace" not in name}


def test_srvr_has_lines_of_real_server(pair: Pair) -> None:
    assert shape(ask(pair, b"srvr")) == shape(ask_real(pair, b"srvr"))


@pytest.mark.parametrize("word", [b"conf", b"envi"])
def test_keys_of_conf_and_envi_equal_those_of_real_server(fresh: Pair, word: bytes) -> None:
    assert parse_keys(ask(fresh, word)) == parse_keys(ask_real(fresh, word))


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
def test_four_letter_answer_has_bytes_of_real_server(fresh: Pair, word: bytes) -> None:
    assert ask(fresh, word) == ask_real(fresh, word)


def test_trace_mask_is_returned_as_by_real_server(fresh: Pair) -> None:
    mask = b"stmk\0\0\0\0\0\0\0\x07"
    ask_real(fresh, mask)
    ask(fresh, mask)

    assert ask(fresh, b"gtmk") == ask_real(fresh, b"gtmk") == "7"
