"""The table of routes: which row answers, and which requests are refused before their body is received."""

from __future__ import annotations

import asyncio

import pytest
from support.http import answer

from zoolet.server.admin.http import HttpError, HttpRequest, Response, Route, Router, Token, is_loopback, no_page

HOST = {"host": "localhost"}


def row(path: str, name: str, methods: tuple[str, ...] = ()) -> Route:
    """Return a row that answers with its name."""

    async def answered(request: HttpRequest) -> Response:
        return Response(f"{name} {request.trusted}".encode())

    return Route(methods, path, answered)


ROUTER = Router(
    [row("/", "root"), row("/a", "first"), row("/a", "second"), row("/a/*", "below"), row("/a/b/*", "further")],
    no_page(""),
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "root"),
        ("/a", "first"),
        ("/a/", "first"),
        ("/a/x", "below"),
        ("/a/x/y", "below"),
        ("/a/b", "below"),
        ("/a/b/c", "further"),
    ],
)
def test_most_specific_matching_route_answers(path: str, name: str) -> None:
    assert asyncio.run(answer(ROUTER, HttpRequest("GET", path, HOST))).body == f"{name} False".encode()


@pytest.mark.parametrize("path", ["/ab", "/b", "*", "//a", "/b" * 8000])
def test_unknown_paths_return_404(path: str) -> None:
    with pytest.raises(HttpError) as caught:
        ROUTER.find_route(HttpRequest("GET", path, HOST))

    assert caught.value.status == 404


def test_guard_of_route_decides_trust() -> None:
    token = Token("secret", is_open=True)
    router = Router([row("/a", "row")._replace(guard=token.reads)], no_page(""))
    bearer = {"authorization": "Bearer secret"}

    assert [
        asyncio.run(answer(router, HttpRequest("GET", "/a", {**HOST, **headers}))).body for headers in ({}, bearer)
    ] == [b"row False", b"row True"]


def test_method_is_checked_before_token() -> None:
    guarded = row("/a", "row", ("POST",))._replace(guard=Token("secret").required)
    router = Router([guarded], no_page(""))

    refusals = []
    for method in ("GET", "POST"):
        with pytest.raises(HttpError) as caught:
            router.find_route(HttpRequest(method, "/a", HOST))
        refusals.append((caught.value.status, *caught.value.headers))

    assert refusals == [(405, ("Allow", "POST")), (401, ("WWW-Authenticate", "Bearer"))]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "127.example.org", "127.0.0.1,10.0.0.1", "", None)),
    ],
)
def test_loopback_address_is_recognised(host: str | None, expected: bool) -> None:
    assert is_loopback(host) == expected
