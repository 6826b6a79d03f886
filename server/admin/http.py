"""HTTP requests and responses without I/O, with the routes of a server, its token, and its protection from browsers."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from ipaddress import ip_address
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl

LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
"""The local names of this machine."""
PRIVATE_SUFFIXES: Final = (
    ".svc",
    ".cluster.local",
    ".local",
    ".localdomain",
    ".internal",
    ".lan",
    ".home.arpa",
    ".test",
)
"""Suffixes of private names, in a cluster or a local network. No public web page can have such a name."""
MAX_QUERY_PARAMETERS: Final = 100
"""Maximum number of parameters in a query."""


CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of pages: they may only load files of this server, and contain no inline scripts."""
SECURITY_HEADERS: Final = (
    ("Content-Security-Policy", CSP),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cache-Control", "no-store"),
)
"""The headers of pages for browsers."""
GET: Final = ("GET",)
READS: Final = ("GET", "HEAD")
POST: Final = ("POST",)
WRONG_TOKEN: Final = "wrong token; use the admin token that the server prints when it starts"
TOKEN_HEADER: Final = "x-zoolet-token"
"""The header with the token for browsers, whose header Authorization may be for a reverse proxy."""
BEARER: Final = ("WWW-Authenticate", "Bearer")
"""The header of a response that requests the token."""


class HttpError(Exception):
    """An error that rejects a request. The response contains its reason.

    Args:
        status: Status of the response.
        reason: Description of the problem and of its solution.
        headers: Additional headers of the response.
    """

    def __init__(self, status: int, reason: str, *headers: tuple[str, str]) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers


class HttpRequest(NamedTuple):
    """An HTTP request.

    Args:
        method: The method.
        target: Unparsed path and query.
        headers: The headers by name, in lower case. If a name is repeated, the last header is used.
        body: The body.
        host: Address of the client; empty if it is not known.
        trusted: Whether the request contains the token. The guard of its route sets this.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""
    host: str = ""
    trusted: bool = False

    @property
    def path(self) -> str:
        """The path of the target, without a scheme, a host or a trailing slash."""
        return self.path_and_query()[0].rstrip("/")

    def path_and_query(self) -> tuple[str, str]:
        """Return the path with any trailing slash, and the query, both as they were sent."""
        path, _, query = self.target.partition("#")[0].partition("?")
        if path.lower().startswith(("http://", "https://")):
            _, slash, rest = path.partition("://")[2].partition("/")
            path = slash + rest
        return path, query

    def parameters(self) -> list[tuple[str, str]]:
        """Return the parameters of the query, in order.

        Raises:
            HttpError: The query has too many parameters.
        """
        try:
            return parse_qsl(self.path_and_query()[1], keep_blank_values=True, max_num_fields=MAX_QUERY_PARAMETERS)
        except ValueError:
            raise HttpError(400, f"the query has more than {MAX_QUERY_PARAMETERS} parameters") from None


class Stream(Protocol):
    """A body that is produced in pieces while it is sent."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return an iterator over the pieces of the body."""
        ...

    async def aclose(self) -> None:
        """Release the body, even if it was not sent. The server calls this method once for each body."""
        ...


class Response(NamedTuple):
    """An HTTP response.

    Args:
        body: The body.
        content_type: Type of the body.
        status: The status.
        headers: Additional headers.
        stream: The body as a stream, instead of ``body``.
    """

    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    stream: Stream | None = None


def json_response(value: object, status: int = 200, *headers: tuple[str, str]) -> Response:
    """Return a response with a value as JSON on one line."""
    return Response(json.dumps(value).encode() + b"\n", "application/json", status, headers)


def is_loopback(host: str | None) -> bool:
    """Return whether a server that listens on an address can only be reached from this machine."""
    return host is not None and (
        host in LOCAL_NAMES or (_is_address(host) and ip_address(host.strip("[]")).is_loopback)
    )


def check_browser(request: HttpRequest, hosts: Collection[str], *, is_local: bool = True) -> None:
    """Check that a malicious web page has not made a browser send a request.

    Args:
        request: The request.
        hosts: Names of this server that clients may use, in addition to IP addresses.
        is_local: Whether the server listens only for this machine. Otherwise names that cannot be registered publicly
            are also allowed: names without a dot, and names with a suffix in :data:`PRIVATE_SUFFIXES`.

    Raises:
        HttpError: The Origin is not this server. Or the Host is not an allowed name: the name of a malicious page may
            resolve to this server (DNS rebinding). Or Sec-Fetch-Site shows that a different site embeds or requests the
            page. Only the page at ``/`` may be the target of a link.
    """
    site, target = (request.headers.get(f"sec-fetch-{name}") for name in ("site", "dest"))
    if site not in (None, "none", "same-origin") and (request.path or target != "document"):
        raise HttpError(403, "requests from other web pages are rejected; enter the URL in the address bar")
    host = request.headers.get("host", "").lower()
    origin = request.headers.get("origin")
    if origin is not None and (not host or origin.lower() not in (f"http://{host}", f"https://{host}")):
        problem = (
            f"the Origin {origin[:80]!r} is not the Host {host[:80]!r}; a reverse proxy must pass the Host unchanged"
        )
        raise HttpError(403, f"requests from other web pages are rejected: {problem}")
    name = (host if host.endswith("]") else host.rpartition(":")[0] or host).removesuffix(".")
    if not host or name in hosts or _is_address(name):
        return
    if is_local or ("." in name and not name.endswith(PRIVATE_SUFFIXES)):
        raise HttpError(
            403,
            f"unknown Host {name[:80]!r}: use the IP address of this server, or add the name to zoolet.adminHosts",
        )


def shows_token(request: HttpRequest, token: str) -> bool | None:
    """Return whether a request contains the token, compared in constant time; None if it contains no token.

    The token is in ``X-Zoolet-Token``, which may be empty, or in ``Authorization: Bearer``. Any other credentials are
    meant for a reverse proxy that has forwarded the request.
    """
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    if TOKEN_HEADER in request.headers:
        shown = request.headers[TOKEN_HEADER].strip()
        if not shown:
            return None
    elif scheme.lower() != "bearer":
        return None
    return hmac.compare_digest(shown.strip().encode(), token.encode())


class Token:
    """The token of a server, with the guards of routes and their error messages.

    Args:
        text: The token; None if every client that can connect is trusted.
        is_open: Whether requests that only read data are allowed without the token.
        missing: Error message for requests that need the token and do not contain it.
        hint: Location of the token, for the end of the messages about a missing or wrong token.
        on_refused: A function that is called with each request that is rejected because it needs the token.
    """

    def __init__(
        self,
        text: str | None,
        is_open: bool = True,
        missing: str = "requests that change data need the token",
        hint: str = "",
        on_refused: Callable[[HttpRequest], object] = lambda request: None,
    ) -> None:
        self.text = text
        self.is_open = is_open
        self._missing = missing
        self._hint = hint
        self._on_refused = on_refused

    def shown(self, request: HttpRequest) -> bool:
        """Return whether a request contains the token. Use this guard for routes that show more to trusted clients.

        Raises:
            HttpError: The request contains a wrong token.
        """
        shown = self.text is None or shows_token(request, self.text)
        if shown is False:
            raise HttpError(401, WRONG_TOKEN, BEARER)
        return bool(shown)

    def reads(self, request: HttpRequest) -> bool:
        """Return whether a request contains the token. Use this guard for routes that show data.

        Raises:
            HttpError: The token is wrong, or it is missing and reading needs it.
        """
        trusted = self.shown(request)
        if not trusted and not self.is_open:
            raise HttpError(401, "reading from this server requires the admin token", BEARER)
        return trusted

    def required(self, request: HttpRequest) -> bool:
        """Check that a request contains the token, and return True. Use this guard for routes that need the token.

        Raises:
            HttpError: The request does not contain the token.
        """
        shown = self.text is None or shows_token(request, self.text)
        if not shown:
            self._on_refused(request)
            reason = WRONG_TOKEN if shown is False else self._missing
            raise HttpError(401, reason + self._hint, BEARER)
        return True


class Route(NamedTuple):
    """A path, the methods that it allows, and the function that answers it.

    Args:
        methods: The allowed methods, the recommended one first; empty for all.
        path: The path. With ``*`` at its end, it matches all longer paths that match no other row.
        answer: A function that answers a request, or raises :class:`HttpError` to reject it.
        guard: A function that returns whether a request is trusted, or raises :class:`HttpError` to reject it before
            its body is received.
        body: Maximum size of a body in bytes, if it is larger than the limit of the server. Receiving such a body may
            take any time, and does not count towards the total of other requests.
        hold: A function that returns a context for receiving the body and answering. It raises :class:`HttpError` to
            reject the request.
    """

    methods: tuple[str, ...]
    path: str
    answer: Callable[[HttpRequest], Awaitable[Response]]
    guard: Callable[[HttpRequest], bool] = lambda request: False
    body: int | None = None
    hold: Callable[[], AbstractContextManager[object]] = nullcontext


def no_page(hint: str) -> Callable[[HttpRequest], HttpError]:
    """Return a function that makes the 404 errors of a :class:`Router`. The hint names the pages that exist."""
    return lambda request: HttpError(404, f"no page at {request.path[:80]}; {hint}")


class Router:
    """The routes of a server. Decisions that do not depend on the body are made before it is received.

    Args:
        routes: The rows. The first of several rows with one path is used.
        not_found: A function that returns the error for a request whose path matches no row.
        hosts: Names of this server that clients may use, in addition to IP addresses.
        is_local: Whether the server listens only for this machine.
        enter: A function that returns the request with a target relative to the table, or raises :class:`HttpError` to
            reject it.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        not_found: Callable[[HttpRequest], HttpError],
        hosts: Collection[str] = LOCAL_NAMES,
        *,
        is_local: bool = True,
        enter: Callable[[HttpRequest], HttpRequest] = lambda request: request,
    ) -> None:
        rows = [*routes][::-1]
        self._exact = {route.path.rstrip("/"): route for route in rows if not route.path.endswith("*")}
        below = {route.path[:-1]: route for route in rows if route.path.endswith("*")}
        self._below = sorted(below.items(), key=lambda item: len(item[0]), reverse=True)
        self._not_found = not_found
        self._hosts = hosts
        self._is_local = is_local
        self._enter = enter

    def find_route(self, request: HttpRequest) -> tuple[Route, HttpRequest]:
        """Return the route of a request, and the request with its target relative to the table and its ``trusted`` set.

        Args:
            request: The request, whose body need not be received yet.

        Raises:
            HttpError: The request is rejected regardless of its body.
        """
        check_browser(request, self._hosts, is_local=self._is_local)
        request = self._enter(request)
        path = request.path
        route = self._exact.get(path)
        if route is None:
            route = next((route for start, route in self._below if path.startswith(start)), None)
        if route is None:
            raise self._not_found(request)
        if route.methods and request.method not in route.methods:
            allowed = ", ".join(route.methods)
            raise HttpError(405, f"{request.method[:20]} {path[:80]}: use {route.methods[0]}", ("Allow", allowed))
        return route, request._replace(trusted=route.guard(request))


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
