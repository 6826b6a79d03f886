"""The same bytes to zoolet and to a real ZooKeeper, 3.8.0 and 3.9.4: no difference that a client could see.

``ZOOLET_DIFFERENTIAL_STEPS`` sets how many steps are done with each seed (default 4,000 with release 3.8, 2,000 with
3.9). ``ZOOLET_DIFFERENTIAL_FRESH=1`` adds a seed that nobody has tried: `make differential`, for a search that may find
something does not belong into every run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from differential.pair import MAX_TIMEOUT, MIN_TIMEOUT, SUPER, Pair, Request, Step
from differential.strategies import CONNECTIONS, SHORTEST, steps
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from support.oracle import RELEASES, Oracle

from zoolet.protocol import records as r
from zoolet.protocol.acl import digest_id
from zoolet.protocol.opcodes import OpCode
from zoolet.server.core.tree import RESERVED

STEPS = {"3.8": 4000, "3.9": 2000}
if chosen := os.environ.get("ZOOLET_DIFFERENTIAL_STEPS"):
    STEPS = dict.fromkeys(RELEASES, int(chosen))
FRESH = os.environ.get("ZOOLET_DIFFERENTIAL_FRESH") == "1"
SEEDS = [1, 2, random.SystemRandom().randrange(2**32)] if FRESH else [1, 2]
PROGRESS_EVERY = 2000  # steps
pytestmark = pytest.mark.slow


class Lockstep:
    """A pair that is made anew after a difference, for the two sides are out of step then.

    Args:
        release: Which real server is compared with.
    """

    def __init__(self, release: str) -> None:
        self.release = release
        self.oracle: Oracle | None = None
        self.pair: Pair | None = None
        self._before = 0

    @property
    def done(self) -> int:
        """How many steps there have been."""
        return self._before + (self.pair.steps if self.pair else 0)

    def start(self) -> Pair:
        if self.pair is None:
            self.oracle = Oracle(
                self.release,
                config={
                    "minSessionTimeout": str(MIN_TIMEOUT),
                    "maxSessionTimeout": str(MAX_TIMEOUT),
                },  # nothing expires by itself
                properties={
                    "zookeeper.DigestAuthenticationProvider.superDigest": digest_id(SUPER.encode()),
                    "znode.container.checkIntervalMs": "3600000",
                },
            ).__enter__()
            self.pair = Pair(self.oracle, CONNECTIONS)
        return self.pair

    def stop(self) -> None:
        if self.pair is not None and self.oracle is not None:
            self._before += self.pair.steps
            self.pair.close()
            self.oracle.__exit__(None, None, None)
        self.pair = self.oracle = None


@pytest.fixture(scope="module", params=RELEASES)
def lockstep(request: pytest.FixtureRequest) -> Iterator[Lockstep]:
    made = Lockstep(request.param)
    yield made
    made.stop()


def compare(lockstep: Lockstep, script: list[Step]) -> None:
    """Do the steps, then clear the tree, on both sides."""
    pair = lockstep.start()
    try:
        for step in script:
            real, ours = pair.do(step)
            assert ours == real, step
        for step in clearing(pair):
            real, ours = pair.do(step)
            assert ours == real, ("while clearing", step)
    except BaseException:
        lockstep.stop()
        raise


def clearing(pair: Pair) -> Iterator[Step]:
    """Close all sessions, then delete what is left as the super user, children first."""
    for who in range(CONNECTIONS):
        yield Request(who, OpCode.CLOSE_SESSION, b"")
    yield Request(0, OpCode.AUTH, r.AuthPacket(0, "digest", b"super:secret").encode(), -4)
    for path, _ in reversed(list(pair.engine.tree.walk())):
        if path not in RESERVED:
            yield Request(0, OpCode.DELETE, r.DeleteRequest(path, -1).encode())
    yield Request(0, OpCode.CLOSE_SESSION, b"")


def run(lockstep: Lockstep, seed: int, enough: int) -> None:
    lockstep.stop()
    before = lockstep.done
    said = before

    @settings(
        max_examples=enough // SHORTEST + 1,  # so many are enough even if all are short
        deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), print_blob=False, report_multiple_bugs=False,
    )  # fmt: skip
    @with_seed(seed)
    @given(steps)
    def examples(script: list[Step]) -> None:
        nonlocal said
        if lockstep.done - before >= enough:
            return
        compare(lockstep, script)
        if lockstep.done - said >= PROGRESS_EVERY:
            said = lockstep.done
            print(f"release {lockstep.release}, seed {seed}: {said - before:,} of {enough:,} steps", flush=True)

    examples()
    lockstep.stop()
    print(f"release {lockstep.release}, seed {seed}: {lockstep.done - before:,} steps, no difference", flush=True)
    assert lockstep.done - before >= enough


@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_show_no_difference(lockstep: Lockstep, seed: int) -> None:
    run(lockstep, seed, STEPS[lockstep.release])
