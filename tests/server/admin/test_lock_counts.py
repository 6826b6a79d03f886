"""The counts of locks for the metrics. Their agreement with the list of locks is tested in tests/console."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from time import thread_time

import pytest
from support.engine import make_engine

from zoolet.server.admin import prometheus
from zoolet.server.admin.lock_counts import LockCounts
from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.core.engine import Engine

HEX = "9c7e980a02c6499346ac9bf4e550501a"
STRETCH = 0.015
"""Limit for the CPU time between two turns of other callbacks, in seconds; 2 ms on an idle machine."""


def add_ephemerals(engine: Engine, folder: str, *names: str, owner: int = 1, now: int = 0) -> None:
    """Create ephemeral nodes of one session, and their parent."""
    tree = engine.tree
    if tree.get(folder) is None:
        tree.create(folder, folder[1:], tree.parent_of(folder), b"", 0, 0, 1, 0)
    for name in names:
        engine.zxid += 1
        tree.create(f"{folder}/{name}", name, tree.find(folder), b"", 0, owner, engine.zxid, now)


async def read_metric_series(engine: Engine, name: str = "zoolet_locks", **options: object) -> dict[str, float]:
    """Return the nonzero series of a metric by their labels."""
    text = await prometheus.text(MonitoredServer(engine, **options), [name])  # type: ignore[arg-type]
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.M)
    return {labels: float(value) for labels, value in found if float(value)}


@pytest.mark.parametrize(
    ("naming", "kind", "names"),
    [
        ("kazoo", "lock", [f"{HEX}__lock__0000000001"]),
        ("kazoo", "rwlock", [f"{HEX}__rlock__0000000001"]),
        ("curator", "lock", ["_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-0000000001"]),
        ("curator", "rwlock", ["_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-__WRIT__0000000001"]),
        ("curator", "election", ["_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-latch-0000000001"]),
        ("zoolet", "lock", ["job", "job-1b4e28ba-2fa1-41d2-883f-0016d3cca427"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_lock_is_counted_by_naming_and_kind(naming: str, kind: str, names: list[str]) -> None:
    engine = make_engine()
    add_ephemerals(engine, "/a", *names)

    assert await read_metric_series(engine) == {f'naming="{naming}",kind="{kind}",': 1}
    assert await read_metric_series(engine, "zoolet_lock_waiters") == {}


async def test_nodes_without_lock_contenders_are_not_counted() -> None:
    engine = make_engine()
    add_ephemerals(engine, "/party", f"{HEX}__party__", "member-0000000001", f"{HEX}")
    add_ephemerals(engine, "/persistent", f"{HEX}__lock__0000000001", owner=0)
    add_ephemerals(engine, "/taken", "job", "job-1b4e28ba-2fa1-41d2-883f-0016d3cca427")

    assert await read_metric_series(engine) == {}


async def test_readers_ahead_of_writers_hold_and_others_wait() -> None:
    engine = make_engine(now=60_000)
    kinds = [("rlock", 2147483646), ("rlock", 2147483647), ("lock", -2147483648), ("rlock", -2147483647)]
    for number, (kind, sequence) in enumerate(kinds):
        add_ephemerals(engine, "/a", f"{HEX}__{kind}__{sequence:010d}", now=1_000 * number)

    label = 'naming="kazoo",kind="rwlock",'
    assert await read_metric_series(engine, "zoolet_lock_waiters") == {label: 2}
    assert await read_metric_series(engine, "zoolet_lock_longest_wait_seconds") == {label: 58.0}


async def test_waiters_for_full_semaphore_are_counted() -> None:
    engine = make_engine()
    add_ephemerals(engine, "/pool", HEX)
    add_ephemerals(engine, "/pool-__lock__", f"{HEX}__lock__0000000001", f"{HEX}__lock__0000000002")

    label = 'naming="kazoo",kind="semaphore",'
    assert await read_metric_series(engine) == {label: 1}
    assert await read_metric_series(engine, "zoolet_lock_waiters") == {label: 2}


@pytest.mark.parametrize("owner", [2, 3], ids=["circle", "chain"])
async def test_deadlocks_are_counted(owner: int) -> None:
    engine = make_engine()
    for path, holder, waiter in (("/a", 1, 2), ("/b", owner, 1)):
        add_ephemerals(engine, path, f"{HEX}__lock__0000000001", owner=holder)
        add_ephemerals(engine, path, f"{HEX}__lock__0000000002", owner=waiter)

    assert await read_metric_series(engine, "zoolet_deadlocks") == ({"": 1} if owner == 2 else {})


async def test_lock_count_is_cached_for_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.5, 0.5, 5.4, 5.6, 5.6, 5.6])
    monkeypatch.setattr("zoolet.server.admin.lock_counts.monotonic", lambda: next(times))
    engine, counts, found = make_engine(), LockCounts(), []

    for number in range(3):
        await counts.refresh(engine)
        found.append(counts.latest.by_label["kazoo", "lock"].locks)
        add_ephemerals(engine, f"/{number}", f"{HEX}__lock__0000000001")

    assert found == [0, 0, 2]


async def test_counting_locks_does_not_block_event_loop() -> None:
    engine = make_engine()
    for number in range(1_000):
        names = [f"{HEX}__lock__{place:010d}" for place in range(20)]
        for place, name in enumerate(names):
            add_ephemerals(engine, f"/{number}", name, owner=1 + (number + place) % 40)

    longest = []
    for _ in range(3):
        task, stretches = asyncio.ensure_future(LockCounts().refresh(engine)), [0.0]
        while not task.done():
            started = thread_time()
            await asyncio.sleep(0)
            stretches.append(thread_time() - started)
        longest.append(max(stretches))

    assert min(longest) < STRETCH


async def test_free_disk_bytes_are_shown_only_for_data_directory(tmp_path: Path) -> None:
    assert await read_metric_series(make_engine(), "zoolet_disk_free_bytes") == {}
    assert (await read_metric_series(make_engine(), "zoolet_disk_free_bytes", data_dir=str(tmp_path)))[""] > 0
    assert await read_metric_series(make_engine(), "zoolet_disk_free_bytes", data_dir=str(tmp_path / "removed")) == {}
