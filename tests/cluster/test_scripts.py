"""A Cluster does what three servers of Apache ZooKeeper do, in the same order: see :mod:`cluster.scripts`.

What those did, both releases the same, is in ``golden.json``; ``make clusters`` compares with them again, and
``ZOOLET_GOLDEN=write`` writes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from cluster import failover_scripts
from cluster.scripts import LOCAL, PLAIN, READ_ONLY, RECONFIG, Script
from cluster.worlds import Apache, Ours, World
from support.apache import ALL_RELEASES
from support.effort import effort

assert failover_scripts  # it adds to the groups
GOLDEN: Final = Path(__file__).with_name("golden.json")
LOCAL_CONFIG: Final = {"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}
GROUPS: Final[Mapping[str, tuple[list[Script], dict[str, str]]]] = {
    "plain": (PLAIN, {}),
    "local": (LOCAL, {**LOCAL_CONFIG, "readonlymode.enabled": "true"}),
    "read-only": (READ_ONLY, {"readonlymode.enabled": "true"}),
    "reconfig": (RECONFIG, {"reconfigEnabled": "true", "skipACL": "yes"}),
}
ALL: Final = [(group, script) for group, (scripts, _) in GROUPS.items() for script in scripts]


RELEASES: Final = [("3.9", *row) for row in ALL] + [("3.8", *row) for row in ALL[:: effort(5, 1)]]
"""A short run tries some scripts only as 3.8, which does the same."""


def golden() -> dict[str, list[object]]:
    """Return what three servers did, by script."""
    read: dict[str, list[object]] = json.loads(GOLDEN.read_text())
    return read


def run(script: Script, world: World) -> object:
    """Run a script; return what happened, as JSON has it."""
    return json.loads(json.dumps(script(world), default=repr))


@pytest.mark.parametrize(
    ("release", "group", "script"), RELEASES, ids=[f"{row[2].__name__}-{row[0]}" for row in RELEASES]
)
def test_a_cluster_does_what_three_servers_did(release: str, group: str, script: Script) -> None:
    with Ours(release, GROUPS[group][1]) as world:
        assert run(script, world) == golden()[script.__name__]


@pytest.fixture(scope="module")
def apache(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, World]]:
    """Three real servers, for the scripts of a group."""
    release, group = request.param
    with Apache(release, GROUPS[group][1]) as world:
        yield release, group, world


@pytest.mark.skipif(not os.environ.get("ZOOLET_CLUSTERS"), reason="takes six minutes: `make clusters`")
@pytest.mark.parametrize("apache", [(release, group) for release in ALL_RELEASES for group in GROUPS], indirect=True)
def test_three_servers_do_what_they_did(apache: tuple[str, str, World]) -> None:
    _, group, world = apache
    happened = {}
    for script in GROUPS[group][0]:
        world.recover()
        happened[script.__name__] = run(script, world)
    if os.environ.get("ZOOLET_GOLDEN") == "write":
        before = golden() if GOLDEN.exists() else {}
        GOLDEN.write_text(json.dumps({**before, **happened}, indent=1) + "\n")
    assert happened == {name: golden()[name] for name in happened}
