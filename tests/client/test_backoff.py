"""Back-off: the delays between tries, and ``Client.retry``, which makes use of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from zoolet.client import Backoff, Client, ConnectionLossError, NoNodeError

# --- retry ---


async def test_retry_tries_again_as_often_as_it_may_and_only_after_a_lost_connection(embedded: Client) -> None:
    from zoolet.client import Backoff

    tries: list[int] = []

    async def lose() -> None:
        tries.append(1)
        raise ConnectionLossError

    async def fail() -> None:
        tries.append(1)
        raise NoNodeError

    with pytest.raises(ConnectionLossError):
        await embedded.retry(lose, Backoff(first=0, tries=3))
    assert len(tries) == 3
    with pytest.raises(NoNodeError):
        await embedded.retry(fail)
    assert len(tries) == 4


async def test_retry_gives_what_the_last_try_gave(embedded: Client) -> None:
    from zoolet.client import Backoff

    outcomes: list[Any] = [ConnectionLossError(), ConnectionLossError(), "done"]

    async def do() -> str:
        if isinstance(outcomes[0], Exception):
            raise outcomes.pop(0)
        return str(outcomes[0])

    assert await embedded.retry(do, Backoff(first=0)) == "done"


# --- delays ---


def test_delays_grow_by_the_factor_up_to_the_longest() -> None:
    delays = Backoff(first=1.0, factor=3.0, longest=10.0, jitter=0.0).delays(Random(1))

    assert [next(delays) for _ in range(5)] == [1.0, 3.0, 9.0, 10.0, 10.0]


def test_jitter_shortens_and_lengthens_a_delay_by_its_part() -> None:
    rng = Random(1)
    found = [next(Backoff(first=1.0, jitter=0.4).delays(rng)) for _ in range(1000)]

    assert 0.6 <= min(found) < 0.65
    assert 1.35 < max(found) <= 1.4


def test_there_is_a_delay_between_tries_and_none_behind_the_last() -> None:
    assert len(list(Backoff(tries=1).delays(Random(1)))) == 0
    assert len(list(Backoff(tries=5).delays(Random(1)))) == 4


def test_no_delay_exceeds_the_longest() -> None:
    assert next(Backoff(first=9.0, longest=1.0, jitter=0.0).delays(Random(1))) == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"first": -1},
        {"factor": 0.5},
        {"longest": -1},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"tries": 0},
        {"first": float("nan")},
    ],
    ids=str,
)
def test_a_back_off_that_is_invalid_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Backoff(**options)  # type: ignore[arg-type]
