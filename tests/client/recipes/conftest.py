"""Servers for tests of recipes, in addition to the simulated server: the embedded server and Apache's server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.apache import ApacheZooKeeper

from zoolet.testing import Server


@pytest.fixture(scope="session")
def apache_hosts() -> Iterator[str]:
    """The address of one Apache server for the whole run."""
    with ApacheZooKeeper(config={"tickTime": "100"}) as apache:
        yield apache.hosts


@pytest.fixture(params=["zoolet", "apache"])
def any_hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of each server in turn."""
    if request.param == "apache":
        yield request.getfixturevalue("apache_hosts")
    else:
        with Server() as server:
            yield server.hosts
