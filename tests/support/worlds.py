"""One interface to three members for scripts: an ensemble of Apache ZooKeeper, or a Cluster."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from support.ensemble import Ensemble
from support.script_client import ScriptClient
from support.waiting import DEADLINE_S, PROMPT_S, wait_until

from zoolet.testing import Cluster

READY_LIMIT_S: Final = 2 * DEADLINE_S  # a member looks for a leader at intervals of up to a minute


class World(ABC):
    """Three members, numbered from 0.

    Attributes:
        clients: The clients of the current script.
    """

    def __init__(self) -> None:
        self.clients: list[ScriptClient] = []

    @abstractmethod
    def port(self, member: int) -> int:
        """Return the port of a member."""

    @abstractmethod
    def kill(self, member: int) -> None:
        """Kill a member."""

    @abstractmethod
    def start(self, member: int) -> None:
        """Restart a member without waiting."""

    @abstractmethod
    def partition(self, *groups: Collection[int]) -> None:
        """Divide the network between members."""

    @abstractmethod
    def lag(self, member: int, seconds: float) -> None:
        """Delay all data that a member receives from its leader."""

    @abstractmethod
    def __enter__(self) -> Self:
        """Start the members, and wait until they serve."""

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the members."""

    def client(self) -> ScriptClient:
        """Return a client that is not connected yet."""
        self.clients.append(ScriptClient())
        return self.clients[-1]

    def mode(self, member: int) -> str:
        """Return a member's mode as ``srvr`` reports it, or an empty string if the member does not serve."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port(member)), timeout=PROMPT_S) as link:
            link.sendall(b"srvr")
            text = b""
            while piece := link.recv(4096):
                text += piece
            return text.partition(b"Mode: ")[2].split(b"\n")[0].decode()
        return ""

    def wait_for_modes(self, *wanted: str, among: Collection[int] = (0, 1, 2)) -> None:
        """Wait until the members *among* have the modes *wanted*, in any order."""
        self.wait(lambda: sorted(self.mode(member) for member in among) == sorted(wanted))

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        wait_until(condition, lambda: [self.mode(member) for member in range(3)], READY_LIMIT_S)

    def roles(self) -> tuple[int, int, int]:
        """Wait until all three members serve. Return the leader and the two followers."""
        self.wait_for_modes("leader", "follower", "follower")
        leader = next(member for member in range(3) if self.mode(member) == "leader")
        first, second = (member for member in range(3) if member != leader)
        return leader, first, second

    def drop_clients(self) -> None:
        """Close the connections of all clients."""
        for client in self.clients:
            client.drop()
        self.clients.clear()

    def recover(self) -> None:
        """Undo a script's changes of the members, and remove the script's clients and nodes."""
        self.partition(range(3))
        for member in range(3):
            self.lag(member, 0.0)
            self.start(member)
        self.roles()
        self.drop_clients()
        cleaner = ScriptClient()
        assert cleaner.connect_patiently(self.port(0)) == "new"
        for _ in range(4):
            for name in cleaner.children("/").split():
                _delete_below(cleaner, f"/{name}")
        cleaner.sync()
        cleaner.close()
        cleaner.drop()


def _delete_below(client: ScriptClient, path: str) -> None:
    if path == "/zookeeper":
        return
    names = client.children(path)
    for name in names.split() if names != "NO_NODE" else ():
        _delete_below(client, f"{path}/{name}")
    client.delete(path)


class ApacheMembers(World):
    """Three servers of Apache ZooKeeper.

    Args:
        release: Their release.
        config: Lines of their configuration.
    """

    def __init__(self, release: str, config: Mapping[str, str]) -> None:
        super().__init__()
        config = dict(config)
        read_only = config.pop("readonlymode.enabled", "false")
        self._ensemble = Ensemble(
            release,
            config,
            linked="reconfigEnabled" not in config,  # reconfig makes members exchange their real addresses
            properties={"readonlymode.enabled": read_only},
        )
        self._up = {0, 1, 2}

    def port(self, member: int) -> int:
        return self._ensemble.members[member].port

    def kill(self, member: int) -> None:
        if self._ensemble.links is not None:
            self._ensemble.links.set_down(member, True)
        self._ensemble.members[member].kill()
        self._up.discard(member)

    def start(self, member: int) -> None:
        if member not in self._up:
            self._up.add(member)
            self._ensemble.members[member].start()
            if self._ensemble.links is not None:
                self._ensemble.links.set_down(member, False)

    def partition(self, *groups: Collection[int]) -> None:
        if self._ensemble.links is not None:
            self._ensemble.links.partition(*map(list, groups))

    def lag(self, member: int, seconds: float) -> None:
        if self._ensemble.links is not None:
            self._ensemble.links.lag(member, seconds)

    def __enter__(self) -> Self:
        self._ensemble.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop_clients()
        self._ensemble.__exit__(kind, error, trace)


class ZooletMembers(World):
    """Three members of a zoolet Cluster.

    Args:
        release: The release whose behaviour it imitates.
        config: Its configuration.
    """

    def __init__(self, release: str, config: Mapping[str, str]) -> None:
        super().__init__()
        lines = {"tickTime": "200", "minSessionTimeout": "400", "maxSessionTimeout": "60000", **config}
        self.cluster = Cluster(3, compat="3.8" if release == "3.8" else "3.9", config=lines)

    def port(self, member: int) -> int:
        return self.cluster[member].port

    def kill(self, member: int) -> None:
        self.cluster[member].kill()

    def start(self, member: int) -> None:
        self.cluster[member].start()

    def partition(self, *groups: Collection[int]) -> None:
        self.cluster.partition(*groups)

    def lag(self, member: int, seconds: float) -> None:
        self.cluster.lag(member, seconds)

    def __enter__(self) -> Self:
        self.cluster.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop_clients()
        self.cluster.stop()
