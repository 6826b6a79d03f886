"""Requests to a table of routes, without a socket."""

from __future__ import annotations

from zoolet.server.admin.http import HttpRequest, Response, Router


async def answer(router: Router, request: HttpRequest) -> Response:
    """Find the route of a request whose body is complete, and return its answer.

    Raises:
        HttpError: The request is refused.
    """
    route, below = router.find_route(request)
    with route.hold():
        return await route.answer(below)
