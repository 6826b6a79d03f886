"""The sampler: the sampled batches, the meaning of their times, and the limit for path prefixes."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from support.calls import connect_peer, engine_with_settings

from zoolet.protocol.errors import NoNodeError
from zoolet.server.net.sampler import BATCHES_PER_SAMPLE, MAX_PATH_PREFIXES, OTHERS, Sampler


def test_sampler_takes_random_batches_at_configured_rate() -> None:
    sampler = Sampler(engine_with_settings(), Random(1))
    gaps = [sampler.batches_until_next() for _ in range(2_000)]

    assert min(gaps) == 1
    assert max(gaps) == 2 * BATCHES_PER_SAMPLE - 1
    assert abs(sum(gaps) / len(gaps) - BATCHES_PER_SAMPLE) < 3


def test_sampled_time_counts_for_requests_since_last_sample() -> None:
    engine = engine_with_settings()
    peer = connect_peer(engine)
    sampler, table = Sampler(engine), engine.dispatch
    for number in range(3):
        peer.create(f"/{number}")
    sampler.begin()
    for _ in range(5):
        peer.get("/0")
    sampler.end(2.0)

    summaries = engine.metrics.summaries
    assert (summaries["updatelatency"].count, summaries["readlatency"].count) == (3, 5)
    assert sampler.by_label["operation"]["getData"].count == 5
    assert "create" not in sampler.by_label["operation"]
    assert engine.dispatch is table


def test_dispatch_table_replaced_during_sample_is_kept() -> None:
    engine = engine_with_settings()
    sampler = Sampler(engine)
    sampler.begin()
    engine.set_read_only(True)
    table = engine.dispatch

    sampler.end(1.0)

    assert engine.dispatch is table


def test_sampled_path_prefixes_have_two_parts_and_are_limited() -> None:
    engine = engine_with_settings()
    peer = connect_peer(engine)
    sampler = Sampler(engine)
    sampler.begin()
    for number in range(MAX_PATH_PREFIXES + 5):
        with suppress(NoNodeError):
            peer.exists(f"/app/{number}/below/this")
    sampler.end(1.0)

    paths = sampler.by_label["path"]
    assert paths["/app/0"].count == 1
    assert paths[OTHERS].count == 5
    assert len(paths) == MAX_PATH_PREFIXES + 1
