"""Engines and daemons with repeatable random numbers."""

from __future__ import annotations

from random import Random
from typing import Any

from zoolet.server.admin.four_letter_commands import four_letter_commands
from zoolet.server.app import assemble, new_engine
from zoolet.server.config import ServerConfig
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import Journal
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.core.settings import EngineSettings
from zoolet.server.net.clock import Clock, RealClock
from zoolet.server.net.connections import Connections
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.gc import GcTuner
from zoolet.server.net.turns import TURN


def make_engine(
    settings: EngineSettings | None = None,
    *,
    now: int = 0,
    monotonic_ms: int = 0,
    rng: Random | None = None,
    **options: Any,
) -> Engine:
    """Return an engine. By default, *now* is the seed of its random numbers."""
    return Engine(settings, now=now, monotonic_ms=monotonic_ms, rng=rng or Random(now), **options)


def make_daemon(
    engine: Engine,
    clock: Clock,
    *,
    max_per_host: int = 60,
    max_connections: int = 0,
    turn: float = TURN,
    backlog: int = 128,
    gc_tuner: GcTuner | None = None,
) -> Daemon:
    """Return a daemon for an engine in the running event loop. It answers every four-letter command."""
    commands = four_letter_commands(["*"])
    connections = Connections(
        engine,
        clock,
        lambda client, resume: ServerConnection(engine, client, commands),
        max_per_host=max_per_host,
        max_connections=max_connections,
        turn=turn,
    )
    return Daemon(connections, backlog=backlog, gc_tuner=gc_tuner)


def assemble_daemon(config: ServerConfig, clock: Clock | None = None) -> Daemon:
    """Return a daemon as the command line assembles it, but with repeatable randomness and zxids."""
    clock = clock or RealClock()
    return assemble(config, new_engine(config, clock, Random(0), initial_zxid=0), clock=clock)


def attach_journal(engine: Engine) -> Journal:
    """Attach a journal to an engine in place of a log, and return the journal."""
    journal = Journal(engine.zxid)
    engine.use_journal(journal)
    return journal
