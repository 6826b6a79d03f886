"""Engines without sockets, and their peers."""

from __future__ import annotations

import pytest
from support.calls import NOW, connect_peer
from support.engine import make_engine
from support.log import Log
from support.peer import Peer
from support.private_nodes import connect_stranger

from zoolet.server.core.compat import V3_8
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings


@pytest.fixture
def engine() -> Engine:
    """A fresh server whose clock does not start at 0, so a time of 0 is a missing time."""
    return make_engine(now=NOW)


@pytest.fixture
def peer(engine: Engine) -> Peer:
    """A client with a session."""
    return connect_peer(engine)


@pytest.fixture
def other(engine: Engine, peer: Peer) -> Peer:
    """A second client of the same server."""
    return connect_peer(engine)


@pytest.fixture
def private(engine: Engine) -> Peer:
    """An unauthenticated peer; ``/private`` (with ``/private/child``) belongs to another user."""
    return connect_stranger(engine)


@pytest.fixture
def old() -> Peer:
    """A client of a server that answers like 3.8."""
    return connect_peer(make_engine(EngineSettings(compat=V3_8), now=NOW))


@pytest.fixture
def new() -> Peer:
    """A client of a server that answers like 3.9."""
    return connect_peer(make_engine(now=NOW))


@pytest.fixture
def log() -> Log:
    """The log lines for the operator."""
    return Log()
