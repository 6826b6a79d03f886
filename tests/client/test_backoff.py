"""Back-off: the delays between attempts, and ``Client.retry``, which uses them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from zoolet.client import Backoff, Client, ConnectionLossError, NoNodeError, blocking
from zoolet.testing import Server

# --- retry ---


async def test_retry_repeats_only_connection_loss_up_to_given_tries(embedded: Client) -> None:
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


async def test_retry_returns_result_of_last_try(embedded: Client) -> None:
    from zoolet.client import Backoff

    outcomes: list[Any] = [ConnectionLossError(), ConnectionLossError(), "done"]

    async def do() -> str:
        if isinstance(outcomes[0], Exception):
            raise outcomes.pop(0)
        return str(outcomes[0])

    assert await embedded.retry(do, Backoff(first=0)) == "done"


# --- delays ---


def test_backoff_delays_grow_by_factor_up_to_longest() -> None:
    delays = Backoff(first=1.0, factor=3.0, longest=10.0, jitter=0.0).delays(Random(1))

    assert [next(delays) for _ in range(5)] == [1.0, 3.0, 9.0, 10.0, 10.0]


def test_jitter_varies_delay_by_given_fraction() -> None:
    rng = Random(1)
    found = [next(Backoff(first=1.0, jitter=0.4).delays(rng)) for _ in range(1000)]

    assert 0.6 <= min(found) < 0.65
    assert 1.35 < max(found) <= 1.4


def test_backoff_has_one_delay_less_than_tries() -> None:
    assert len(list(Backoff(tries=1).delays(Random(1)))) == 0
    assert len(list(Backoff(tries=5).delays(Random(1)))) == 4


def test_no_backoff_delay_exceeds_its_longest() -> None:
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
def test_invalid_backoff_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Backoff(**options)  # type: ignore[arg-type]


async def test_error_of_retry_without_function_shows_correct_form(embedded: Client) -> None:
    call = embedded.get("/")
    example = r"for example: zk.retry\(lambda: zk.get\(path\)\)$"

    with pytest.raises(TypeError, match=f"^do must be a function, not <RequestCall .*; {example}"):
        await embedded.retry(call)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=rf"^backoff must be a zoolet.client.Backoff, not '/'; pass a function first, {example}"
    ):
        await embedded.retry(embedded.get, "/")  # type: ignore[arg-type]
    await call


def test_blocking_retry_of_non_callable_raises(zoolet: Server) -> None:
    with (
        blocking.Client(zoolet.hosts) as zk,
        pytest.raises(TypeError, match=r"^do must be a function, not .{60}; for example"),
    ):
        zk.retry(zk.get("/"))  # type: ignore[arg-type]
