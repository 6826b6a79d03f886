"""The places where servers run: on the sockets of this machine, or in the network of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...server.net.clock import Clock
from ...server.net.daemon import Daemon
from ...server.net.turns import TURN


@dataclass(frozen=True)
class Place:
    """A place where servers run.

    Args:
        turn: Maximum number of seconds to serve one connection before the next connection.
        refuse_connections: Function that refuses new connections to a daemon.
        accept_connections: Function that accepts connections to a daemon again.
        without_waiting: Whether a server can start to listen without waiting.
        clock: The clock of the place, or None for a separate clock per server.
        seed: Seed to repeat a run in this place, or None for a separate seed per server.
    """

    turn: float
    refuse_connections: Callable[[Daemon], None]
    accept_connections: Callable[[Daemon], None]
    without_waiting: bool = True
    clock: Clock | None = None
    seed: int | None = None


SOCKETS: Final = Place(TURN, Daemon.refuse_connections, Daemon.accept_connections)
"""The default place: the sockets of this machine."""
