"""A Cluster behaves like three servers of Apache ZooKeeper, in the same order: see :mod:`support.scripts`.

The results of those servers, which are the same for both releases, are in ``golden.json``. ``make clusters`` compares
with real servers again, and ``ZOOLET_GOLDEN=write`` writes the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from support import failover_scripts
from support.apache import ALL_RELEASES
from support.effort import effort
from support.scripts import LOCAL, PLAIN, READ_ONLY, RECONFIG, Script
from support.worlds import ApacheMembers, World, ZooletMembers

assert failover_scripts  # importing it adds scripts to the groups
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
"""A short run tries only some scripts with 3.8, which has the same results."""


def golden() -> dict[str, list[object]]:
    """Return the results of three real servers, by script."""
    read: dict[str, list[object]] = json.loads(GOLDEN.read_text())
    return read


def run(script: Script, world: World) -> object:
    """Run a script; return its result as decoded JSON."""
    return json.loads(json.dumps(script(world), default=repr))


@pytest.mark.parametrize(
    ("release", "group", "script"), RELEASES, ids=[f"{row[2].__name__}-{row[0]}" for row in RELEASES]
)
def test_cluster_behaves_like_three_servers(release: str, group: str, script: Script) -> None:
    with ZooletMembers(release, GROUPS[group][1]) as world:
        assert run(script, world) == golden()[script.__name__]


@pytest.fixture(scope="module")
def apache(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, World]]:
    """Three real servers, for the scripts of a group."""
    release, group = request.param
    with ApacheMembers(release, GROUPS[group][1]) as world:
        yield release, group, world


@pytest.mark.skipif(not os.environ.get("ZOOLET_CLUSTERS"), reason="takes six minutes: `make clusters`")
@pytest.mark.parametrize("apache", [(release, group) for release in ALL_RELEASES for group in GROUPS], indirect=True)
def test_three_servers_behave_as_recorded(apache: tuple[str, str, World]) -> None:
    _, group, world = apache
    happened = {}
    for script in GROUPS[group][0]:
        world.recover()
        happened[script.__name__] = run(script, world)
    if os.environ.get("ZOOLET_GOLDEN") == "write":
        before = golden() if GOLDEN.exists() else {}
        GOLDEN.write_text(json.dumps({**before, **happened}, indent=1) + "\n")
    assert happened == {name: golden()[name] for name in happened}
