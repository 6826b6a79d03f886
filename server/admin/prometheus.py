"""The figures in the text format of Prometheus, as ZooKeeper's provider writes them.

Source: PrometheusMetricsProvider; simpleclient's TextFormat.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from zoolet.server.admin.figures import Figures, figures, open_files
from zoolet.server.admin.java import double
from zoolet.server.admin.observed import Observed
from zoolet.server.core.metrics import Summary

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_STARTED: Final = time.time() - time.process_time()
_MEDIAN: Final = (0.5,)
_ADVANCED: Final = (0.5, 0.9, 0.99)


def text(observed: Observed, names: Collection[str] = ()) -> str:
    """Return all series, or those of some names: what ``/metrics`` answers."""
    now = figures(observed)
    lines: list[str] = []
    for name, kind, samples in _series(now):
        if not names or name in names:
            lines += [f"# HELP {name} {name}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n" if lines else ""


def _series(now: Figures) -> Iterator[tuple[str, str, list[str]]]:
    for name, value in now.gauges.items():
        yield name, "gauge", [f"{name} {double(value)}"]
    for name, count in now.counters.items():
        yield name, "counter", [f"{name} {double(count)}"]
    for kind, sets in (("gauge", now.gauge_sets), ("counter", now.sets)):
        for name, numbers in sets.items():
            yield name, kind, [f"{name}{{key={_quoted(key)},}} {double(number)}" for key, number in numbers.items()]
    for name, summary in now.basic.items():
        yield name, "summary", _summary(name, summary, _MEDIAN)
    for name, summary in now.advanced.items():
        yield name, "summary", _summary(name, summary, _ADVANCED)
    by_name: dict[str, list[str]] = {}
    for (name, label), summaries in now.samples.items():
        for shown, summary in summaries.items():
            lines = _summary(f"{name}_by_{label}", summary, _ADVANCED, f"{label}={_quoted(shown)},")
            by_name.setdefault(f"{name}_by_{label}", []).extend(lines)
    for name, samples in by_name.items():
        yield name, "summary", samples
    for name, (kind, value) in process().items():
        yield name, kind, [f"{name} {double(value)}"]


def _summary(name: str, summary: Summary, parts: tuple[float, ...], label: str = "") -> list[str]:
    lines = [f'{name}{{{label}quantile="{part}",}} {double(summary.quantile(part))}' for part in parts]
    shown = f"{{{label}}}" if label else ""
    return [*lines, f"{name}_count{shown} {double(summary.count)}", f"{name}_sum{shown} {double(summary.total)}"]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') + '"'


def process() -> dict[str, tuple[str, float]]:
    """Return the figures of this process, by the names that Prometheus clients share."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    found: dict[str, tuple[str, float]] = {
        "process_cpu_seconds_total": ("counter", used.ru_utime + used.ru_stime),
        "process_start_time_seconds": ("gauge", _STARTED),
        "process_open_fds": ("gauge", open_files()),
        "process_max_fds": ("gauge", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    }
    try:
        pages = Path("/proc/self/statm").read_text().split()
    except OSError:  # not Linux
        resident = float(used.ru_maxrss)
    else:
        resident = int(pages[1]) * os.sysconf("SC_PAGE_SIZE")
        found["process_virtual_memory_bytes"] = "gauge", int(pages[0]) * os.sysconf("SC_PAGE_SIZE")
    found["process_resident_memory_bytes"] = "gauge", resident
    found["jvm_memory_bytes_used"] = "gauge", resident  # what boards for ZooKeeper ask for
    return found
