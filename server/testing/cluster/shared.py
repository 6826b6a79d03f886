"""The state that all members of a cluster share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from zoolet.server.config import Config
from zoolet.server.core.engine import Engine
from zoolet.server.testing.cluster.ensemble import Ensemble
from zoolet.server.testing.cluster.gateway import Gateway
from zoolet.server.testing.cluster.interceptor import ClusterInterceptor
from zoolet.server.testing.run import clients
from zoolet.server.testing.signatures import Who
from zoolet.server.testing.state.clock import SkewedClock


@dataclass
class Shared:
    """The state that all members share; the ensemble and the interceptor are made at each start.

    Args:
        seed: The seed of all randomness.
        clock: The clock.
        config: The configuration.
        key: The key of the session passwords.
        local_sessions: Whether sessions are known to one member only.
        upgrades_sessions: Whether such a session becomes one of the ensemble with its first ephemeral node.
        call: Calls a function in the cluster's loop.

    Attributes:
        ensemble: The log, and who leads.
        interceptor: The faults and recordings of all members.
    """

    seed: int
    clock: SkewedClock
    config: Config
    key: bytes
    local_sessions: bool
    upgrades_sessions: bool
    call: Callable[[Callable[[], Any]], Any]

    def __post_init__(self) -> None:
        self._ensemble: Ensemble | None = None
        self.interceptor: ClusterInterceptor

    @property
    def ensemble(self) -> Ensemble:
        """The log, and who leads.

        Raises:
            RuntimeError: The cluster has not been started.
        """
        if self._ensemble is None:
            raise RuntimeError("this Cluster is not started; use it as 'with Cluster() as cluster:'")
        return self._ensemble

    def begin(self, ensemble: Ensemble) -> None:
        """Use an ensemble from now on."""
        self._ensemble = ensemble

    def engines(self) -> list[Engine]:
        """Return the engine that prepares, and those of all members."""
        return [self.ensemble.leading, *(each.engine for each in self.ensemble.replicas.values())]

    def writer(self) -> Engine:
        """Return the engine that prepares, at the present time.

        Raises:
            RuntimeError: There is no leader, or it reaches no quorum.
        """
        if self.ensemble.leader is None:
            raise RuntimeError(f"the cluster has no leader: {self.who_is_who()}; start() members or heal() the network")
        if not self.ensemble.voting.has_quorum(self.ensemble.leader):
            raise RuntimeError("the leader reaches no quorum, so a change would wait; heal() the network")
        self.ensemble.leading.set_time(*self.clock.read())
        return self.ensemble.leading

    def who_is_who(self) -> str:
        """Return what each member is, in one line."""
        replicas = self.ensemble.replicas.values()
        return ", ".join(f"member {index} is {each.status.value}" for index, each in enumerate(replicas))

    def expire(self, who: Who, engine: Engine, gateways: Iterable[Gateway]) -> None:
        """Expire sessions, be they of the ensemble or known to one member only.

        Args:
            who: Whose.
            engine: The one whose sessions are meant.
            gateways: Those of the members.

        Raises:
            LookupError: There is no such session.
            RuntimeError: There is no leader.
        """
        named = who if clients.is_all(who) else clients.session_id_of(who)
        was_local = any([gateway.expire(named) for gateway in gateways])
        if was_local and not clients.is_all(who):
            return
        for session in clients.sessions_of(engine, who):
            self.writer()
            self.ensemble.expire(session.id)
            self.interceptor.paused.pop(session.id, None)
            self.interceptor.recheck()
