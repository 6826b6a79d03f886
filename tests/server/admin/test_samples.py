"""The samples for charts: the last minute, the last hour and the last day."""

from __future__ import annotations

from itertools import count

import pytest
from support.engine import make_engine

from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.admin.samples import COLUMNS, DAY_SAMPLES, HOUR_SAMPLES, SampleBuffer, Samples


def test_samples_of_day_are_maxima_per_minute() -> None:
    rows = SampleBuffer()
    for second in range(180):
        rows.add((float(second), float(second % 60), 5.0))

    assert list(rows.day) == [(59.0, 59.0, 5.0), (119.0, 59.0, 5.0), (179.0, 59.0, 5.0)]
    assert len(rows.hour) == 180


def test_samples_of_hour_and_day_are_bounded() -> None:
    rows = SampleBuffer()
    for minute in range(DAY_SAMPLES + 10):
        rows.add((minute * 60.0,))
    for second in range(HOUR_SAMPLES + 10):
        rows.add((DAY_SAMPLES * 100.0 + second,))

    assert (len(rows.hour), len(rows.day)) == (HOUR_SAMPLES, DAY_SAMPLES)


def test_slow_request_leaves_percentile_after_a_minute() -> None:
    engine = make_engine()
    samples = Samples(MonitoredServer(engine), now=map(float, count()).__next__)
    reads = engine.metrics.summaries["readlatency"]
    column = COLUMNS.index("read_ms")
    samples.add()
    reads.observe(50.0)
    values = [samples.add()[column] for _ in range(100)]

    assert values[0] == pytest.approx(50, rel=0.0625)
    assert 55 <= sum(value > 0 for value in values) <= 61
    assert values[-1] == 0.0
