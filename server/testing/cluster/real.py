"""A real ensemble with the calls of a cluster, as far as a client and a proxy in front of each server can do them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NoReturn

from zoolet.server.net.daemon import Daemon
from zoolet.server.testing.cluster.cluster import Cluster
from zoolet.server.testing.cluster.interceptor import ClusterInterceptor, MemberInterceptor
from zoolet.server.testing.cluster.member import Member
from zoolet.server.testing.cluster.whole import Daemons
from zoolet.server.testing.proxy import Proxy
from zoolet.server.testing.real import RealServer, UnsupportedError
from zoolet.server.testing.run import clients

ANSWERS_S: Final = 5.0
"""Seconds that a server may take to say what it is."""


class RealMember(Proxy):
    """One server of a real ensemble, and the proxy in front of it, which its cluster makes.

    Faults, pauses and recordings are those of a :class:`~zoolet.server.testing.Proxy`, of this member's clients.

    Args:
        whole: Returns the faults and recordings of all members.
        server: The server: ``host:port``.
        index: Its place in the cluster, from 0.
        seed: The seed of all randomness.
    """

    def __init__(self, whole: Callable[[], ClusterInterceptor], server: str, index: int, seed: int) -> None:
        super().__init__(server, seed=seed)
        self._whole = whole
        self.index = index
        self._runner.at_once = True

    def __getattr__(self, name: str) -> NoReturn:
        raise _unknown(self, name, Member)

    def _assemble(self) -> Daemon:
        daemon = super()._assemble()
        self._intercept(MemberInterceptor(self._whole()))
        return daemon

    @property
    def daemon(self) -> Daemon:
        """The daemon that listens; for its cluster."""
        return self._runner.daemon

    @property
    def address(self) -> str:
        """The proxy's ``host:port``."""
        return self._runner.hosts

    @property
    def status(self) -> str:
        """The state by the server's word, as that of a cluster's member; ``looking`` if it does not serve, ``down`` if
        it does not answer, or was stopped here.
        """
        if self._down:
            return "down"
        try:
            with socket.create_connection(self._addresses[0], timeout=ANSWERS_S) as connection:
                connection.sendall(b"srvr")
                text = b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
        except OSError:
            return "down"
        return next((line.split()[-1] for line in text.splitlines() if line.startswith("Mode: ")), "looking")

    @property
    def is_leader(self) -> bool:
        """Whether the server says that it leads."""
        return self.status == "leader"

    def stop(self) -> None:
        """Refuse and disconnect this member's clients, which is what they see of a follower that stops. The server goes
        on.

        Raises:
            UnsupportedError: It leads: no other is elected at the wish of a client.
        """
        if self.is_leader:
            raise UnsupportedError("stop() of the leader needs embedded members; these are real")

        def halt() -> None:
            self._set_refusing(down=True)
            clients.drop(self._runner.daemon, set(), everybody=True)

        self._runner.call(halt)

    kill = stop

    def start(self) -> None:
        """Accept this member's clients again."""
        self._runner.call(lambda: self._set_refusing(down=False))

    async def open(self) -> None:
        """Begin to listen; for its cluster."""
        await self._runner.open()

    async def close(self) -> None:
        """Stop for good; for its cluster."""
        await self._runner.close()


class RealCluster(RealServer):
    """A real ensemble, with a proxy in front of each server: ``with RealCluster("zk1:2181,zk2:2181") as cluster:``.

    ``cluster[i]`` is a :class:`RealMember`. Faults of the cluster apply to the clients of all members; what changes or
    shows the tree is done with a client. Nobody can make real servers elect, part or lag from outside: the calls for
    that raise an UnsupportedError.

    Args:
        servers: The servers: ``host:port`` joined with commas.
        seed: The seed of all randomness; by default a random one.
        failures: As for :class:`RealServer`.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(self, servers: str, *, seed: int | None = None, failures: list[str] | None = None) -> None:
        super().__init__(servers, seed=seed, failures=failures)
        self._members = [
            RealMember(self._whole, server, index, self.seed + index + 1)
            for index, server in enumerate(servers.split(","))
        ]

    def __getattr__(self, name: str) -> NoReturn:
        raise _unknown(self, name, Cluster)

    def _whole(self) -> ClusterInterceptor:
        assert isinstance(self._interceptor, ClusterInterceptor)
        return self._interceptor

    def _assemble(self) -> Daemon:
        loop = asyncio.get_running_loop()
        self._intercept(ClusterInterceptor(loop.call_later, time.time))
        members = self._members
        return Daemons(lambda: members, lambda: members[0].daemon.engine, self._open_members)  # type: ignore[return-value] # it has what a runner needs of one

    async def _open_members(self) -> None:
        for member in self:
            await member.open()

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._members)

    def __getitem__(self, index: int) -> RealMember:
        """Return a member, counted from 0."""
        return self._members[index]

    def __iter__(self) -> Iterator[RealMember]:
        """Iterate over the members."""
        return iter(self._members)

    @property
    def hosts(self) -> str:
        """The connection string for clients, with all members."""
        return ",".join(member.address for member in self)

    @property
    def leader(self) -> RealMember | None:
        """The member that says that it leads; None for none."""
        return next((member for member in self if member.is_leader), None)

    @property
    def followers(self) -> list[RealMember]:
        """The members that say that they follow."""
        return [member for member in self if member.status == "follower"]

    def heal(self) -> None:
        """End faults and pauses, and accept connections at every member."""
        super().heal()
        for member in self:
            member.heal()

    def drop(self, who: object) -> None:
        """Close the connections of sessions, at whichever member they are."""

        def drop() -> None:
            ids = self._sessions_of(who)
            for member in self:
                clients.drop(member.daemon, ids, everybody=who == "all")

        self._runner.call(drop)

    def _refuse_connections(self) -> None:
        for member in self:
            member.refuse_connections()

    def _accept_connections(self) -> None:
        for member in self:
            member.accept_connections()


def _unknown(asked: object, name: str, double: type) -> Exception:
    """Return the error for an attribute that only the embedded one has, or that none has."""
    with suppress(AttributeError):
        if not name.startswith("_") and getattr(double, name) is not None:
            return UnsupportedError(f"{name} needs embedded members; these are real")
    return AttributeError(f"{type(asked).__name__} has no attribute {name!r}")
