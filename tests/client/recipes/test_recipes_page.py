"""docs/recipes.md: every example runs unchanged, on zoolet and on Apache ZooKeeper."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support.apache import ApacheZooKeeper

from zoolet.client.blocking import Client
from zoolet.testing import Server

PAGE: Final = Path(__file__).parents[3] / "docs" / "recipes.md"
ADDRESS: Final = "127.0.0.1:2181"
NUMBER_OF_USES: Final = 22


def page_examples() -> dict[str, str]:
    """Return the example of each section."""
    return dict(re.findall(r"^## ([^\n]*)\n.*?```python\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def zoolet_hosts() -> Iterator[str]:
    """The address of an embedded server."""
    with Server() as server:
        yield server.hosts


@pytest.fixture(scope="module")
def apache_hosts_here() -> Iterator[str]:
    """The address of an Apache server."""
    with ApacheZooKeeper(config={"tickTime": "200"}) as apache:
        yield apache.hosts


def test_recipes_page_has_example_of_each_classical_use() -> None:
    *headings, last = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)

    assert last == "Failures"
    assert list(page_examples()) == headings
    assert len(headings) == NUMBER_OF_USES


@pytest.mark.parametrize("server", ["zoolet_hosts", "apache_hosts_here"], ids=["zoolet", "apache"])
@pytest.mark.parametrize("use", page_examples())
def test_example_of_recipes_page_runs(use: str, server: str, request: pytest.FixtureRequest) -> None:
    hosts = f"{request.getfixturevalue(server)}/{uuid.uuid4().hex}"
    with Client(hosts) as zk:
        zk.ensure_path("/")

    exec(compile(page_examples()[use].replace(ADDRESS, hosts), f"{PAGE}: {use}", "exec"), {"__name__": "__main__"})
