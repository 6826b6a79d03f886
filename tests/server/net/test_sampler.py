"""The sampler: the sampled batches, the meaning of their times, and the limit for path prefixes."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from support.calls import connected, engine_with

from zoolet.protocol.errors import NoNodeError
from zoolet.server.net.sampler import EVERY, MAX_PATHS, OTHERS, Sampler


def test_sampler_takes_one_batch_in_many() -> None:
    sampler = Sampler(engine_with(), Random(1))
    gaps = [sampler.next() for _ in range(2_000)]

    assert min(gaps) == 1
    assert max(gaps) == 2 * EVERY - 1
    assert abs(sum(gaps) / len(gaps) - EVERY) < 3


def test_sampled_time_stands_for_earlier_requests() -> None:
    engine = engine_with()
    peer = connected(engine)
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
    engine = engine_with()
    sampler = Sampler(engine)
    sampler.begin()
    engine.set_read_only(True)
    table = engine.dispatch

    sampler.end(1.0)

    assert engine.dispatch is table


def test_path_prefixes_have_two_parts_and_are_limited() -> None:
    engine = engine_with()
    peer = connected(engine)
    sampler = Sampler(engine)
    sampler.begin()
    for number in range(MAX_PATHS + 5):
        with suppress(NoNodeError):
            peer.exists(f"/app/{number}/below/this")
    sampler.end(1.0)

    paths = sampler.by_label["path"]
    assert paths["/app/0"].count == 1
    assert paths[OTHERS].count == 5
    assert len(paths) == MAX_PATHS + 1
