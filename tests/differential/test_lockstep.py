"""The same bytes to zoolet and to a real ZooKeeper, 3.8.0 and 3.9.4, cause no difference that a client could see.

``ZOOLET_DIFFERENTIAL_STEPS`` sets the number of steps per seed (default 600 with release 3.8, 400 with 3.9; 2,500 and
1,200 in a full run). ``ZOOLET_DIFFERENTIAL_FRESH=1`` adds a new random seed, as `make differential` does: a search that
may find something new does not belong in every run. ``ZOOLET_DIFFERENTIAL_SEED`` sets a single seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from differential.lockstep import Lockstep
from differential.pair import Step
from differential.strategies import MIN_STEPS, quota_steps, steps
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis.strategies import SearchStrategy
from support.apache import RELEASES
from support.effort import effort

STEPS = {"3.8": effort(600, 2500), "3.9": effort(400, 1200)}
if chosen := os.environ.get("ZOOLET_DIFFERENTIAL_STEPS"):
    STEPS = dict.fromkeys(RELEASES, int(chosen))
ADDS_RANDOM_SEED = os.environ.get("ZOOLET_DIFFERENTIAL_FRESH") == "1"
SEEDS = [1, 2, random.SystemRandom().randrange(2**32)] if ADDS_RANDOM_SEED else [1, 2]
if only := os.environ.get("ZOOLET_DIFFERENTIAL_SEED"):
    SEEDS = [int(only)]
PROGRESS_STEPS = 2000  # steps between two lines of progress
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=RELEASES)
def lockstep(request: pytest.FixtureRequest) -> Iterator[Lockstep]:
    made = Lockstep(request.param)
    yield made
    made.stop()


@pytest.fixture(scope="module", params=RELEASES)
def enforcing(request: pytest.FixtureRequest) -> Iterator[Lockstep]:
    """A pair that refuses writes that exceed a quota."""
    made = Lockstep(request.param, enforce_quota=True)
    yield made
    made.stop()


def run(lockstep: Lockstep, scripts: SearchStrategy[list[Step]], seed: int, enough: int) -> None:
    lockstep.stop()
    before = lockstep.done
    reported = before

    @settings(
        max_examples=enough // MIN_STEPS + 1,  # this many are enough even if all are short
        deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), print_blob=False, report_multiple_bugs=False,
    )  # fmt: skip
    @with_seed(seed)
    @given(scripts)
    def examples(script: list[Step]) -> None:
        nonlocal reported
        if lockstep.done - before >= enough:
            return
        lockstep.compare(script)
        if lockstep.done - reported >= PROGRESS_STEPS:
            reported = lockstep.done
            print(f"release {lockstep.release}, seed {seed}: {reported - before:,} of {enough:,} steps", flush=True)

    examples()
    lockstep.stop()
    print(f"release {lockstep.release}, seed {seed}: {lockstep.done - before:,} steps, no difference", flush=True)
    assert lockstep.done - before >= enough


@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_in_lockstep_show_no_difference(lockstep: Lockstep, seed: int) -> None:
    run(lockstep, steps(lockstep.release), seed, STEPS[lockstep.release])


@pytest.mark.parametrize("seed", SEEDS)
def test_random_quota_steps_show_no_difference(enforcing: Lockstep, seed: int) -> None:
    run(enforcing, quota_steps(enforcing.release), seed, STEPS[enforcing.release] // 4)
