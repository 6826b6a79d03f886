"""The console of a test server or cluster, beside its control API."""

from __future__ import annotations

from typing import Final

from zoolet.server.admin.http import HttpError, Request, Response
from zoolet.server.console.attach import EngineConsole
from zoolet.server.console.pages import ConsolePages
from zoolet.server.console.source import Answer
from zoolet.server.testing.cluster.cluster import Cluster
from zoolet.server.testing.cluster.member import Member
from zoolet.server.testing.control.cluster_commands import members_of
from zoolet.server.testing.server import Server

HISTORY: Final = 10_000
"""The transactions that are kept for it."""


class ServerConsole:
    """The console of a server that runs in this event loop.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._console = EngineConsole(server.daemon, history=HISTORY, name=server.hosts, kind="test")
        self._pages = self._console.pages(None, True)  # the token is in the path

    async def answer(self, request: Request, path: str) -> Response | None:
        """Answer a request, as :meth:`ConsolePages.answer`."""
        return await self._pages.answer(request, path)

    def stop(self) -> None:
        """Stop sampling."""
        self._console.stop()


class ClusterConsole:
    """The consoles of the members of a cluster: a request names one with ``member=``, by default the one that leads.

    Members have no history: what they apply was decided by the leader. Nor can one be changed, but by the control API.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._consoles: dict[int, tuple[EngineConsole, ConsolePages]] = {}
        for member in cluster:
            self._console_of(member)

    async def answer(self, request: Request, path: str) -> Response | None:
        """Answer a request, as :meth:`ConsolePages.answer`.

        Raises:
            HttpError: There is no such member, or the request is refused.
        """
        member = self._named(dict(request.parameters()).get("member"))
        return await self._console_of(member).answer(request, path)

    def _named(self, text: str | None) -> Member:
        members = list(self._cluster)
        if text is None:
            return self._cluster.leader or members[0]
        if not text.isdecimal() or len(text) > 4 or int(text) >= len(members):
            raise HttpError(404, f"there is no member {text[:20]}; there are {len(members)}, counted from 0")
        return members[int(text)]

    def _console_of(self, member: Member) -> ConsolePages:
        if member.number not in self._consoles:
            console = EngineConsole(
                member.daemon, history=0, name=member.address, kind="test", cluster=lambda: self._shown(member)
            )
            self._consoles[member.number] = console, console.pages(None, True)
        return self._consoles[member.number][1]

    def _shown(self, member: Member) -> Answer:
        return {"members": members_of(self._cluster), "member": member.index}

    def stop(self) -> None:
        """Stop sampling."""
        for console, _ in self._consoles.values():
            console.stop()


def console_of(server: Server) -> ServerConsole | ClusterConsole:
    """Return the console of a server or a cluster that runs in this event loop."""
    return ClusterConsole(server) if isinstance(server, Cluster) else ServerConsole(server)
