"""Requests to a table of routes, without a socket."""

from __future__ import annotations

from zoolet.server.admin.http import HttpRequest, Response, Router


async def answer(router: Router, request: HttpRequest) -> Response:
    """Answer a request, including its body.

    Raises:
        HttpError: The request is refused.
    """
    route, below = router.route_of(request)
    with route.hold():
        return await route.answer(below)
