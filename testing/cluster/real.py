"""The interface of a cluster for a real ensemble, using a client and a proxy in front of each server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from ...client.four_letters import srvr_facts
from ...server.net.daemon import Daemon
from ..frames.interceptor import Interceptor
from ..proxy import Proxy
from ..real import RealServer, UnsupportedError, missing_attribute
from ..run import clients
from ..state.real_time import REAL
from .cluster import Cluster
from .member import Member

EMBEDDED_REQUIREMENT: Final = "embedded members; this is a real ensemble"
"""The requirement of most methods of a cluster, for messages."""
STATUS_TIMEOUT_S: Final = 5.0
"""Timeout in seconds for a server to report its state."""


class RealMember(Proxy):
    """One server of a real ensemble and the proxy in front of it, created by a :class:`RealCluster`.

    Faults, pauses and recordings work as in a :class:`~zoolet.testing.Proxy`, for this member's clients.

    Args:
        cluster: The cluster.
        server: The server, as ``host:port``.
        index: The member's index in the cluster, starting at 0.
        seed: The seed of all randomness.
    """

    def __init__(self, cluster: RealCluster, server: str, index: int, seed: int) -> None:
        super().__init__(server, seed=seed)
        self._cluster = cluster
        self.index = index
        self._runner.without_waiting = True

    def __getattr__(self, name: str) -> NoReturn:
        raise missing_attribute(self, name, Member, EMBEDDED_REQUIREMENT)

    def _assemble(self) -> Daemon | None:
        daemon = super()._assemble()
        above = self._cluster.interceptor
        self._intercept(Interceptor(above.call_later, above.now, above))
        return daemon

    @property
    def daemon(self) -> Daemon:
        """The daemon that listens. For internal use by the cluster."""
        return self._runner.daemon

    @property
    def address(self) -> str:
        """The proxy's ``host:port``."""
        return self._runner.hosts

    @property
    def status(self) -> str:
        """The state that the server reports, as in :attr:`Member.status`: ``looking`` if the server is not serving,
        ``down`` if it does not answer or :meth:`stop` was called.
        """
        if self._down:
            return "down"
        try:
            with socket.create_connection(self._addresses[0], timeout=STATUS_TIMEOUT_S) as connection:
                connection.sendall(b"srvr")
                text = b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
        except OSError:
            return "down"
        return srvr_facts(text)["Mode"] or "looking"

    @property
    def is_leader(self) -> bool:
        """Whether the server reports that it is the leader."""
        return self.status == "leader"

    def stop(self) -> None:
        """Refuse and disconnect this member's clients, as a stopped follower would. The server itself keeps running.

        Raises:
            UnsupportedError: The member is the leader, or the other members are not a quorum. A client can neither make
                real servers elect a new leader nor make them lose their quorum.
        """
        if self.is_leader:
            raise UnsupportedError(f"stop() of the leader needs {EMBEDDED_REQUIREMENT}")
        others = sum(member is not self and member.status != "down" for member in self._cluster)
        if others <= len(self._cluster) // 2:
            raise UnsupportedError(f"stop() that loses the quorum needs {EMBEDDED_REQUIREMENT}")

        def halt() -> None:
            self._set_refusing(down=True)
            clients.drop(self._runner.daemon, set(), all_connections=True)

        self._runner.call(halt)

    kill = stop

    def start(self) -> None:
        """Accept this member's clients again."""
        self._runner.call(lambda: self._set_refusing(down=False))

    async def open(self) -> None:
        """Start to listen. For internal use by the cluster."""
        await self._runner.open()

    async def close(self) -> None:
        """Stop the proxy permanently. For internal use by the cluster."""
        await self._runner.close()


class RealCluster(RealServer):
    """A real ensemble, with a proxy in front of each server: ``with RealCluster("zk1:2181,zk2:2181") as cluster:``.

    ``cluster[i]`` is a :class:`RealMember`. Faults of the cluster apply to the clients of all members. Methods that
    read or change the tree use a client. Elections, partitions and lags of real servers cannot be forced from outside,
    so methods that need them raise UnsupportedError.

    Args:
        servers: Comma-separated servers, each ``host:port``.
        seed: The seed of all randomness, by default a random seed.
        failures: As for :class:`RealServer`.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(self, servers: str, *, seed: int | None = None, failures: list[str] | None = None) -> None:
        super().__init__(servers, seed=seed, failures=failures)
        self._members = [
            RealMember(self, server, index, self.seed + index + 1) for index, server in enumerate(servers.split(","))
        ]
        self._runner.after_start, self._runner.before_stop = self._open, self._close

    def __getattr__(self, name: str) -> NoReturn:
        raise missing_attribute(self, name, Cluster, EMBEDDED_REQUIREMENT)

    @property
    def interceptor(self) -> Interceptor:
        """The faults and recordings of all members."""
        return self._interceptor

    def _assemble(self) -> None:
        loop = asyncio.get_running_loop()
        self._intercept(Interceptor(loop.call_later, lambda: REAL.now_ms() / 1000))

    def _daemons(self) -> list[Daemon]:
        return [member.daemon for member in self]

    async def _open(self) -> None:
        for member in self:
            await member.open()

    async def _close(self) -> None:
        for member in self:
            await member.close()

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._members)

    def __getitem__(self, index: int) -> RealMember:
        """Return a member by index, starting at 0."""
        return self._members[index]

    def __iter__(self) -> Iterator[RealMember]:
        """Iterate over the members."""
        return iter(self._members)

    @property
    def hosts(self) -> str:
        """The connection string for clients, listing all members."""
        return ",".join(member.address for member in self)

    @property
    def leader(self) -> RealMember | None:
        """The member that reports that it is the leader, or None if no member does."""
        return next((member for member in self if member.is_leader), None)

    @property
    def followers(self) -> list[RealMember]:
        """The members that report that they are followers."""
        return [member for member in self if member.status == "follower"]

    def heal(self) -> None:
        """End faults and pauses, and accept connections at every member."""
        super().heal()
        for member in self:
            member.heal()

    def _apply_refusing(self, on: bool) -> None:
        for member in self:
            (member.refuse_connections if on else member.accept_connections)()


def make_stand_in(
    hosts: str, options: Mapping[str, Any], *, members: int | None = None, failures: list[str] | None = None
) -> RealServer:
    """Return real servers to use instead of an embedded server or cluster.

    Args:
        hosts: Comma-separated servers, each ``host:port``.
        options: The arguments of the embedded server or cluster.
        members: Number of members of the cluster, or None for a single server.
        failures: As for :class:`RealServer`.

    Raises:
        UnsupportedError: An option needs the embedded server, or there are fewer hosts than members.
    """
    plain: tuple[object, ...] = (None, False, "real", {}, 0)
    # The proxy uses the seed. The release is ignored: a real server has its own, and the plugin always passes one.
    needed = [name for name, value in options.items() if value not in plain and name not in ("seed", "compat")]
    if needed:
        raise UnsupportedError(f"only the embedded server supports {', '.join(needed)}")
    if members is None:
        return RealServer(hosts, seed=options.get("seed"), failures=failures)
    if members > (given := len(hosts.split(","))):
        raise UnsupportedError(f"a cluster of {members} members needs {members} hosts; found {given}: {hosts}")
    return RealCluster(hosts, seed=options.get("seed"), failures=failures)
