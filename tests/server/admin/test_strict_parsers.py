"""/metrics for parsers that accept each family of metrics only once, as in OpenMetrics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Final

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
from support.calls import connect_peer, engine_with_settings

from zoolet.protocol.quotas import LIMITS, STATS
from zoolet.server.admin import prometheus
from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.core.metrics import Summary

NAMESPACE: Final = 'a"\\é {}'
"""A namespace with characters that a label must escape."""
LOCK: Final = "9c7e980a02c6499346ac9bf4e550501a__lock__"


def metrics_page() -> str:
    """Return the page of a server with a quota, a lock and samples."""
    engine = engine_with_settings()
    peer = connect_peer(engine)
    for path in (f"/{NAMESPACE}", f"/zookeeper/quota/{NAMESPACE}", "/l"):
        peer.create(path, b"")
    for name in (LIMITS, STATS):
        peer.create(f"/zookeeper/quota/{NAMESPACE}{name}", b"count=5,bytes=5")
    peer.create(f"/l/{LOCK}", b"", 3)
    observed = MonitoredServer(engine)
    observed.samples = {"path": {f"/{NAMESPACE}": Summary()}, "operation": {"getData": Summary()}}
    return asyncio.run(prometheus.text(observed))


def openmetrics_lines(page: str) -> Iterator[str]:
    """Yield the lines of a page in the syntax of OpenMetrics, where the samples of counters end in ``_total``."""
    counters = set(re.findall(r"^# TYPE (\S+) counter$", page, re.MULTILINE))
    for line in page.splitlines():
        start, name, rest = re.fullmatch(r"(# [A-Z]+ )?(\w+)(.*)", line).groups()  # type: ignore[union-attr]
        if name in counters:
            name = name.removesuffix("_total") + "_total" * (start is None)
        yield f"{start or ''}{name}{rest.replace(',}', '}')}\n"
    yield "# EOF\n"


def test_metric_families_are_unique() -> None:
    names = [family.name for family in parser.text_string_to_metric_families(metrics_page())]

    assert len(names) == len(set(names)) > 150


def test_metric_families_are_unique_in_openmetrics() -> None:
    families = list(openmetrics.text_string_to_metric_families("".join(openmetrics_lines(metrics_page()))))

    quotas = next(each for each in families if each.name == "quota_count_limit_per_namespace")
    assert [sample.labels for sample in quotas.samples] == [{"key": NAMESPACE}]
