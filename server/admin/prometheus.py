"""The metrics in the text format of Prometheus: the series of ZooKeeper's provider, and a description of each series.

Source: PrometheusMetricsProvider, TextFormat of simpleclient.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from ..core.metrics import Summary
from . import descriptors
from .figures import MetricValues, figures
from .java import double
from .lock_counts import Count, LockCounts
from .metric_help import SLOW_METRICS, help_of
from .observed import MonitoredServer

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_START_TIME: Final = time.time() - time.process_time()
_MEDIAN: Final = (0.5,)
_ADVANCED_QUANTILES: Final = (0.5, 0.9, 0.99)


async def text(observed: MonitoredServer, names: Collection[str] = ()) -> str:
    """Return the text of ``/metrics``.

    Args:
        observed: The view of the server.
        names: The names of the series to return; empty for all.
    """
    found = list(_series(figures(observed)))
    if not names or not SLOW_METRICS.keys().isdisjoint(names):
        found += [series async for series in _slow_series(observed)]
    lines: list[str] = []
    for name, kind, samples in found:
        if not names or name in names:
            lines += [f"# HELP {name} {help_of(name)}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n" if lines else ""


async def _slow_series(observed: MonitoredServer) -> AsyncIterator[tuple[str, str, list[str]]]:
    """Yield the series in :data:`SLOW_METRICS`. The locks are counted first, unless their counts are recent."""
    if observed.locks is None:
        observed.locks = LockCounts()
    await observed.locks.refresh(observed.engine)
    counts, deadlocks = observed.locks.latest
    now = observed.engine.now
    reads: dict[str, Callable[[Count], float]] = {
        "zoolet_locks": lambda count: count.locks,
        "zoolet_lock_waiters": lambda count: count.waiters,
        "zoolet_lock_longest_wait_seconds": lambda count: max(now - count.since, 0) / 1000,  # 0 if no client waits
    }
    for name, read in reads.items():
        labels = [f'{name}{{naming="{naming}",kind="{kind}",}}' for naming, kind in counts]
        yield (
            name,
            "gauge",
            [f"{label} {double(read(count))}" for label, count in zip(labels, counts.values(), strict=True)],
        )
    yield "zoolet_deadlocks", "gauge", [f"zoolet_deadlocks {double(deadlocks)}"]
    with contextlib.suppress(OSError):  # if the directory was removed, the series is omitted
        if (disk := await observed.disk()) is not None:
            yield "zoolet_disk_free_bytes", "gauge", [f"zoolet_disk_free_bytes {double(disk[0])}"]


def _series(now: MetricValues) -> Iterator[tuple[str, str, list[str]]]:
    for name, value in now.gauges.items():
        yield name, "gauge", [f"{name} {double(value)}"]
    for name, count in now.counters.items():
        yield name, "counter", [f"{name} {double(count)}"]
    for kind, sets in (("gauge", now.gauge_sets), ("counter", now.counter_sets)):
        for name, numbers in sets.items():
            yield name, kind, [f"{name}{{key={_quote(key)},}} {double(number)}" for key, number in numbers.items()]
    for name, summary in now.basic.items():
        yield name, "summary", _summary(name, summary, _MEDIAN)
    for name, summary in now.advanced.items():
        yield name, "summary", _summary(name, summary, _ADVANCED_QUANTILES)
    by_name: dict[str, list[str]] = {}
    for (name, label), summaries in now.samples.items():
        for shown, summary in summaries.items():
            lines = _summary(f"{name}_by_{label}", summary, _ADVANCED_QUANTILES, f"{label}={_quote(shown)},")
            by_name.setdefault(f"{name}_by_{label}", []).extend(lines)
    for name, samples in by_name.items():
        yield name, "summary", samples
    for name, (kind, value) in process_metrics().items():
        yield name, kind, [f"{name} {double(value)}"]


def _summary(name: str, summary: Summary, parts: tuple[float, ...], label: str = "") -> list[str]:
    lines = [f'{name}{{{label}quantile="{part}",}} {double(summary.quantile(part))}' for part in parts]
    shown = f"{{{label}}}" if label else ""
    return [*lines, f"{name}_count{shown} {double(summary.count)}", f"{name}_sum{shown} {double(summary.total)}"]


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') + '"'


def process_metrics() -> dict[str, tuple[str, float]]:
    """Return the metrics of this process, with the standard names of Prometheus clients."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    found: dict[str, tuple[str, float]] = {
        "process_cpu_seconds_total": ("counter", used.ru_utime + used.ru_stime),
        "process_start_time_seconds": ("gauge", _START_TIME),
        "process_open_fds": ("gauge", descriptors.in_use()),
        "process_max_fds": ("gauge", descriptors.limit()),
    }
    try:
        pages = Path("/proc/self/statm").read_text().split()
    except OSError:  # only Linux has this file
        resident = float(used.ru_maxrss)
    else:
        resident = int(pages[1]) * os.sysconf("SC_PAGE_SIZE")
        found["process_virtual_memory_bytes"] = "gauge", int(pages[0]) * os.sysconf("SC_PAGE_SIZE")
    found["process_resident_memory_bytes"] = "gauge", resident
    found["jvm_memory_bytes_used"] = "gauge", resident  # dashboards for ZooKeeper read this metric
    return found
