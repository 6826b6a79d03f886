"""State shared by all members of a cluster."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...server.config import ServerConfig
from ...server.core.engine import Engine
from ..frames.interceptor import Interceptor
from ..run import clients
from ..signatures import Who
from ..state.clock import SkewedClock
from .ensemble import Ensemble
from .gateway import Gateway


@dataclass
class Shared:
    """State shared by all members. The ensemble and the interceptor are created at each start.

    Args:
        seed: The seed of all randomness.
        clock: The clock.
        config: The configuration.
        key: The key of the session passwords.
        local_sessions: Whether new sessions are local to one member.
        upgrades_sessions: Whether a local session becomes global when it creates its first ephemeral node.
        call: Calls a function in the cluster's loop.
        tls: The TLS context of every port, and the CA file that clients trust. Both are None for plain ports.

    Attributes:
        ensemble: The members' log and their leader.
        interceptor: The faults and recordings of all members.
    """

    seed: int
    clock: SkewedClock
    config: ServerConfig
    key: bytes
    local_sessions: bool
    upgrades_sessions: bool
    call: Callable[[Callable[[], Any]], Any]
    tls: tuple[ssl.SSLContext | None, str | None]

    def __post_init__(self) -> None:
        self._ensemble: Ensemble | None = None
        self.interceptor: Interceptor

    @property
    def ensemble(self) -> Ensemble:
        """The members' log and their leader.

        Raises:
            RuntimeError: The cluster has not been started.
        """
        if self._ensemble is None:
            raise RuntimeError("the Cluster is not started; use it as 'with Cluster() as cluster:'")
        return self._ensemble

    def use_ensemble(self, ensemble: Ensemble) -> None:
        """Use *ensemble* for the run that is starting."""
        self._ensemble = ensemble

    def engines(self) -> list[Engine]:
        """Return the preparing engine, followed by the members' engines."""
        return [self.ensemble.leading, *(each.engine for each in self.ensemble.replicas.values())]

    def writer(self) -> Engine:
        """Return the preparing engine, with its time updated.

        Raises:
            RuntimeError: The cluster has no leader, or the leader reaches no quorum.
        """
        if self.ensemble.leader is None:
            raise RuntimeError(self.no_leader_message())
        if not self.ensemble.voting.has_quorum(self.ensemble.leader):
            raise RuntimeError("the leader reaches no quorum and cannot commit a change; heal() the network")
        self.ensemble.leading.set_time(*self.clock.read())
        return self.ensemble.leading

    def no_leader_message(self) -> str:
        """Return the message for a cluster without a leader."""
        return f"the cluster has no leader: {self.member_statuses()}; start() members or heal() the network"

    def member_statuses(self) -> str:
        """Return the status of each member, in one line."""
        replicas = self.ensemble.replicas.values()
        return ", ".join(f"member {index} is {each.status.value}" for index, each in enumerate(replicas))

    def expire(self, who: Who, engine: Engine, gateways: Iterable[Gateway]) -> None:
        """Expire sessions, global or local.

        Args:
            who: A client, a session id, or ``"all"`` for all sessions.
            engine: The engine whose sessions are searched.
            gateways: The gateways of the members.

        Raises:
            LookupError: No session matches *who*.
            RuntimeError: The cluster has no leader, or the leader reaches no quorum.
        """
        named = who if clients.is_all(who) else clients.session_id_of(who)
        was_local = any([gateway.expire(named) for gateway in gateways])
        if was_local and not clients.is_all(who):
            return
        for session in clients.matching_sessions(engine, who):
            self.writer()
            self.ensemble.expire(session.id)
            self.interceptor.paused.pop(session.id, None)
            self.interceptor.recheck()
