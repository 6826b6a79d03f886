"""Enforced quotas: a script on zoolet and on a real ZooKeeper shows no difference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from differential.pair import MAX_TIMEOUT, MIN_TIMEOUT, Pair
from differential.script import Operation, create, delete, multi_of, read, request_on, write
from support.apache import RELEASES, ApacheZooKeeper

pytestmark = pytest.mark.slow
LIMITS = "/zookeeper/quota/a/zookeeper_limits"
STATS = "/zookeeper/quota/a/zookeeper_stats"


@pytest.fixture(scope="module", params=RELEASES)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    timeouts = {"minSessionTimeout": str(MIN_TIMEOUT), "maxSessionTimeout": str(MAX_TIMEOUT)}
    with ApacheZooKeeper(request.param, config=timeouts, properties={"zookeeper.enforceQuota": "true"}) as apache:
        made = Pair(apache, 1, enforce_quota=True)
        yield made
        made.close()


SCRIPT: list[Operation] = [
    create("/a", b"1"),
    create("/a/b", b"22"),
    create("/zookeeper/quota/a"),
    create(LIMITS, b"count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=4"),
    create(STATS, b"whatever"),
    read(STATS),
    create("/a/c", b"333"),
    read(STATS),
    create("/a/d", b"4444"),  # exactly both limits
    read(STATS),
    create("/a/e"),  # one node too many
    write("/a/d", b"55555"),  # one byte too many
    write("/a/d", b"55555", 7),  # also the wrong version: the quota is checked first
    write("/a/d", b"4"),
    read(STATS),
    delete("/a/c"),
    read(STATS),
    multi_of(create("/a/f", b"1"), create("/a/g", b"2"), create("/a/h", b"3")),  # a transaction may exceed the limit
    read(STATS),
    multi_of(delete("/a/f"), create("/none/x")),  # fails: nothing is counted
    read(STATS),
    write(LIMITS, b"count=1,bytes=1"),  # soft limits, which refuse no write
    create("/a/i", b"x" * 50),
    read(STATS),
    write(LIMITS, b"nonsense"),
    create("/a/j"),
    write(LIMITS, b""),
    create("/a/k"),
    read(STATS),
    delete(LIMITS),
    create("/a/l"),
    read(STATS),
]


@pytest.mark.parametrize(("number", "step"), list(enumerate(SCRIPT)))
def test_step_of_quota_script_shows_no_difference(pair: Pair, number: int, step: Operation) -> None:
    real, ours = pair.do(request_on(0, step))

    assert ours == real, number
