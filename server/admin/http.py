"""Requests and responses of HTTP, without I/O, and the checks that protect from web pages."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Collection
from ipaddress import ip_address
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
"""The names of this machine for itself."""
PRIVATE: Final = (".svc", ".cluster.local", ".local", ".localdomain", ".internal", ".lan", ".home.arpa", ".test")
"""Suffixes of names within a cluster or a network, of which nobody can make a web page elsewhere."""
MAX_FIELDS: Final = 100
"""The most parameters of a query."""


class HttpError(Exception):
    """A request that is refused.

    Args:
        status: The status of the response.
        reason: What is wrong, and what to do.
        headers: Further headers of the response.
    """

    def __init__(self, status: int, reason: str, *headers: tuple[str, str]) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers


class Request(NamedTuple):
    """A request.

    Args:
        method: Its method.
        target: Path and query, as they were sent.
        headers: The headers by name, in lower case; of several with one name the last.
        body: Its body.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path, without a slash at its end; that of a target with a scheme is behind its host."""
        return self._path_and_query()[0].rstrip("/")

    def _path_and_query(self) -> tuple[str, str]:
        path, _, query = self.target.partition("#")[0].partition("?")
        if path.lower().startswith(("http://", "https://")):
            _, slash, rest = path.partition("://")[2].partition("/")
            path = slash + rest
        return path, query

    def parameters(self) -> list[tuple[str, str]]:
        """Return the parameters of the query, in order.

        Raises:
            HttpError: There are too many.
        """
        try:
            return parse_qsl(self._path_and_query()[1], keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise HttpError(400, f"the query has more than {MAX_FIELDS} parameters") from None


class Stream(Protocol):
    """A body that comes piece by piece."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces."""
        ...

    async def aclose(self) -> None:
        """End it, sent or not: it is called once for each body."""
        ...


class Response(NamedTuple):
    """A response.

    Args:
        body: Its body.
        content_type: The type of the body.
        status: Its status.
        headers: Further headers.
        stream: The body, in place of ``body``.
    """

    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    stream: Stream | None = None


def json_response(value: object, status: int = 200, *headers: tuple[str, str]) -> Response:
    """Return a response with a value as JSON, in one line."""
    return Response(json.dumps(value).encode() + b"\n", "application/json", status, headers)


def check_browser(request: Request, hosts: Collection[str], *, is_local: bool = True) -> None:
    """Refuse what a web page of somebody else makes a browser send.

    Args:
        request: The request.
        hosts: The names that clients may call this server by, beside addresses.
        is_local: It listens for this machine only. Otherwise names that nobody can register are allowed as well: those
            without a dot, and those in :data:`PRIVATE`.

    Raises:
        HttpError: It has an Origin that is not this server, or a Host that is none of the names: a page whose name
            leads here (DNS rebinding) sends its own.
    """
    host = request.headers.get("host", "").lower()
    origin = request.headers.get("origin")
    if origin is not None and (not host or origin.lower() not in (f"http://{host}", f"https://{host}")):
        raise HttpError(403, "requests of web pages are refused: the Origin is not this server")
    name = (host if host.endswith("]") else host.rpartition(":")[0] or host).removesuffix(".")
    if not host or name in hosts or _is_address(name):
        return
    if is_local or ("." in name and not name.endswith(PRIVATE)):
        raise HttpError(
            403,
            f"the Host {name[:80]!r} is not a name of this server: call it by its address, or name it in "
            "zoolet.adminHosts",
        )


def check_method(request: Request, *allowed: str) -> None:
    """Refuse a method that a page does not have.

    Raises:
        HttpError: It does not have it.
    """
    if request.method not in allowed:
        listed = ", ".join(allowed)
        raise HttpError(405, f"{request.method[:20]} {request.path[:80]}: use {allowed[0]}", ("Allow", listed))


def shows_token(request: Request, token: str) -> bool | None:
    """Return whether a request shows a token, compared in constant time; None if it shows none at all."""
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    is_right = hmac.compare_digest(shown.strip().encode(), token.encode())
    return (scheme.lower() == "bearer" and is_right) if scheme else None


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
