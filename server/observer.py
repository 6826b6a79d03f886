"""An observer of an ensemble of ZooKeeper servers: a replica that serves reads, to clients and in this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from random import SystemRandom
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple

from ..protocol.acl import AclList
from ..protocol.addresses import host_and_port, parse_server_addresses
from ..protocol.records import Stat
from .admin.observed import ObserverFacts
from .app import assemble
from .config import ServerConfig
from .core.settings import EngineSettings
from .learner.errors import LearnerError, ObserverRefusedError
from .learner.replica import LearnerMetrics, ReplicaEngine
from .net.clock import Clock, RealClock
from .net.daemon import Daemon
from .net.gc import GcTuner
from .net.leader_link import Address, LeaderLink

__all__ = ["Observer", "ObserverRefusedError", "ReplicaNode"]
_log = logging.getLogger("zoolet.server")
DEFAULT_SID: Final = 100
"""The default number of an observer. Members usually have small numbers."""
SIDS: Final = range(1, 128)
"""The numbers that an observer can have, because its number is the top byte of session ids."""


@dataclass(frozen=True, slots=True)
class ObservedEnsemble:
    """An ensemble to observe.

    Args:
        addresses: The quorum addresses of all members: host and port.
        sid: The number of this observer, which must differ from the numbers of all members.
    """

    addresses: tuple[Address, ...]
    sid: int = DEFAULT_SID

    @classmethod
    def parse(cls, hosts: str, sid: int | None = None) -> ObservedEnsemble:
        """Parse the quorum addresses of an ensemble, which are separated by commas.

        Raises:
            ValueError: An address or the number is not valid.
        """
        number = DEFAULT_SID if sid is None else sid
        if number not in SIDS:
            raise ValueError(f"sid must be a whole number from {SIDS.start} to {SIDS.stop - 1}, not {number!r}")
        return cls(parse_server_addresses(hosts), number)


def assemble_observer(
    ensemble: ObservedEnsemble, config: ServerConfig, *, clock: Clock, gc_tuner: GcTuner | None = None
) -> tuple[Daemon, LeaderLink]:
    """Return a new observer for the running event loop, and the link to its ensemble.

    The observer listens after :meth:`Daemon.start`, and follows the leader in :meth:`LeaderLink.run`.

    Args:
        ensemble: The ensemble.
        config: The configuration of the server.
        clock: The source of time.
        gc_tuner: Tunes the garbage collector, if the server owns the process.
    """
    # A client that has seen a higher zxid was connected to a member that is ahead. Its session must stay alive.
    settings = EngineSettings(**{**vars(config.settings), "expire_clients_ahead": False})
    now, monotonic_ms = clock.read()
    rng = SystemRandom()
    replica = ReplicaEngine(settings, now=now, monotonic_ms=monotonic_ms, sid=ensemble.sid, rng=rng, log=_log.warning)
    daemon = assemble(config, replica, clock=clock, gc_tuner=gc_tuner)
    link = LeaderLink(replica, ensemble.addresses, ensemble.sid, daemon.connections)
    daemon.observed.observing = ObserverFacts(lambda: link.problem, lambda: figures(replica.learning, link))
    return daemon, link


def figures(metrics: LearnerMetrics, link: LeaderLink) -> dict[str, float]:
    """Return the metrics of an observer by name."""
    return {
        "zoolet_observer_following": int(link.caught_up.is_set()),
        "zoolet_observer_lag_transactions": metrics.lag,
        "zoolet_observer_lag_seconds": metrics.behind_ms / 1000,
        "zoolet_observer_connections": metrics.connections,
        "zoolet_observer_snapshots": metrics.snapshots,
        "zoolet_observer_diffs": metrics.diffs,
        "zoolet_observer_transactions": metrics.transactions,
        "zoolet_observer_digests_compared": metrics.digests_compared,
        "zoolet_observer_digest_mismatches": metrics.digest_mismatches,
    }


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("the observer has stopped: %s", error, exc_info=error)


class ReplicaNode(NamedTuple):
    """A node of a replica.

    Args:
        data: The data of the node; None if it is null.
        acl: The ACL list of the node.
        stat: The Stat of the node.
    """

    data: bytes | None
    acl: AclList
    stat: Stat


class Observer:
    """A replica of an ensemble in this process, as an asynchronous context manager.

    The observer only reads: it sends no requests to the ensemble, and its clients cannot write.

    ::

        async with Observer("zk1:2888,zk2:2888,zk3:2888") as replica:
            await replica.caught_up()
            print(replica.tree()["/config"].data)

    Args:
        ensemble: The quorum addresses of all members, separated by commas.
        sid: Number of this observer, from 1 to 127. No member and no other observer may have it.
        host: Address to listen on for clients.
        port: Port for clients; 0 picks a free port.

    Raises:
        ValueError: An address or the number is not valid.
    """

    def __init__(self, ensemble: str, *, sid: int = DEFAULT_SID, host: str = "127.0.0.1", port: int = 0) -> None:
        self._ensemble = ObservedEnsemble.parse(ensemble, sid)
        self._host = host
        self._port = port
        self._daemon: Daemon | None = None
        self._link: LeaderLink
        self._task: asyncio.Task[None]

    async def __aenter__(self) -> Observer:
        self._daemon, self._link = assemble_observer(self._ensemble, ServerConfig(port=self._port), clock=RealClock())
        await self._daemon.start(self._host, self._port)
        self._task = asyncio.create_task(self._link.run())
        self._task.add_done_callback(_log_failure)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        await self._running.stop()

    @property
    def _running(self) -> Daemon:
        if self._daemon is None:
            raise RuntimeError("the observer is not running; use it in an async with block")
        return self._daemon

    @property
    def _replica(self) -> ReplicaEngine:
        engine = self._running.engine
        assert isinstance(engine, ReplicaEngine)
        return engine

    @property
    def port(self) -> int:
        """The port for clients."""
        return self._running.port

    @property
    def hosts(self) -> str:
        """The address for clients, which have to accept a read-only server."""
        return host_and_port(self._host, self.port)

    @property
    def leader(self) -> str:
        """The quorum address of the leader; empty while no leader is followed."""
        return self._replica.learning.leader if self._link.caught_up.is_set() else ""

    @property
    def lag(self) -> int:
        """Number of transactions that the leader had proposed and the replica did not contain yet, at the last ping."""
        return self._replica.learning.lag

    async def caught_up(self, timeout: float | None = None) -> None:
        """Wait until the replica follows a leader.

        Args:
            timeout: Maximum time in seconds; None for no limit.

        Raises:
            TimeoutError: No leader was found in time. The message names the problem of each member.
            ObserverRefusedError: The observer cannot take part in the ensemble.
            RuntimeError: The observer is not running.
        """
        self._replica  # noqa: B018 - raises an error outside the block
        waiting = asyncio.create_task(self._link.caught_up.wait())
        try:
            await asyncio.wait((waiting, self._task), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done():
            self._task.result()
        if not self._link.caught_up.is_set():
            raise TimeoutError(self._link.problem)

    def tree(self, path: str = "/") -> Mapping[str, ReplicaNode]:
        """Return a copy of the node at *path* and of all nodes below it, by path.

        While no leader is followed, the copy shows the last known state, which may be stale.

        Raises:
            NoNodeError: The node does not exist.
            LearnerError: The replica is incomplete: it has not caught up yet, or is receiving a new snapshot.
            RuntimeError: The observer is not running.
        """
        replica = self._replica
        if not replica.is_complete:
            raise LearnerError(f"the replica is not complete yet: {self._link.problem}")
        nodes = {}
        for each, node in replica.tree.walk(path):
            nodes[each] = ReplicaNode(node.data, replica.acls.list(node.acl), Stat.decode(node.stat()))
        return MappingProxyType(nodes)
