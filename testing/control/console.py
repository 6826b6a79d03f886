"""The console of a test server or cluster, in addition to its control API."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from ...console.attach import EngineConsole
from ...server.admin.http import HttpError, HttpRequest, Response, Route, Token
from ...server.net.daemon import Daemon
from ..endpoint import ConsoleView, Endpoint

MAX_HISTORY_TRANSACTIONS: Final = 10_000
"""Maximum number of transactions that the console of a server keeps."""


class TestConsole:
    """The console of a server or cluster that runs in this event loop. The parameter ``member`` of a request selects
    a member, by default the leader.

    Members have no history, because they only apply the decisions of the leader. The console cannot change members.

    Args:
        endpoint: The server or cluster.
    """

    __test__ = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._consoles: dict[Daemon, tuple[EngineConsole, dict[str, Route]]] = {}
        for view in endpoint.console_views():
            self._view_routes(view)

    def routes(self) -> Iterator[Route]:
        """Yield the routes of the pages, which are the same for all members."""
        for path, route in self._view_routes(self._endpoint.console_views()[0]).items():
            yield route._replace(answer=partial(self._answer, path))

    async def _answer(self, path: str, request: HttpRequest) -> Response:
        return await self._view_routes(self._requested_view(request))[path].answer(request)

    def _requested_view(self, request: HttpRequest) -> ConsoleView:
        views = self._endpoint.console_views()
        text = None if views[0].members is None else dict(request.parameters()).get("member")
        if text is None:
            return next((view for view in views if view.is_first), views[0])
        if not text.isdecimal() or len(text) > 4 or int(text) >= len(views):
            raise HttpError(404, f"member must be an index from 0 to {len(views) - 1}, not {text[:20]!r}")
        return views[int(text)]

    def _view_routes(self, view: ConsoleView) -> dict[str, Route]:
        if view.daemon not in self._consoles:
            history = MAX_HISTORY_TRANSACTIONS if view.members is None else 0
            console = EngineConsole(view.daemon, history=history, name=view.name, kind="test", cluster=view.members)
            routes = console.routes(Token(None))  # the control API checks its own token, which is in the path
            self._consoles[view.daemon] = console, {route.path: route for route in routes}
        return self._consoles[view.daemon][1]

    def stop(self) -> None:
        """Stop sampling the metrics of the servers."""
        for console, _ in self._consoles.values():
            console.stop()
