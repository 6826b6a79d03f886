"""Engines without sockets, and the peers that talk to them."""

from __future__ import annotations

import pytest
from support.calls import NOW, connected
from support.engine import make_engine
from support.log import Log
from support.peer import Peer
from support.private_nodes import stranger

from zoolet.server.core.compat import V3_8
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import Settings


@pytest.fixture
def engine() -> Engine:
    """A fresh server; its clock says something, so that "time 0" means something."""
    return make_engine(now=NOW)


@pytest.fixture
def peer(engine: Engine) -> Peer:
    """A client with a session."""
    return connected(engine)


@pytest.fixture
def other(engine: Engine, peer: Peer) -> Peer:
    """A second client of the same server."""
    return connected(engine)


@pytest.fixture
def private(engine: Engine) -> Peer:
    """A peer that is nobody, where ``/private`` (with ``/private/child``) belongs to somebody else."""
    return stranger(engine)


@pytest.fixture
def old() -> Peer:
    """A client of a server that answers as 3.8 does."""
    return connected(make_engine(Settings(compat=V3_8), now=NOW))


@pytest.fixture
def new() -> Peer:
    """A client of a server that answers as 3.9 does."""
    return connected(make_engine(now=NOW))


@pytest.fixture
def log() -> Log:
    """What the operator reads."""
    return Log()
