"""The console over HTTP: its page, and what the page asks for.

======================================  ===============================================================================
``/``, ``/console/FILE``                the page; nothing in it comes from anywhere else
``GET /console/api/about``              what is shown, and whether it needs the token
``GET /console/api/overview``           how the server is; ``/samples``: the last hour
``GET /console/api/events``             the overview each second, as server-sent events
``GET /console/api/children?path=``     some children by name, from ``offset``; ``/node?path=``: all about one
``GET /console/api/search?name=&text=`` a line of JSON for each node that is found
``GET /console/api/sessions``           some sessions; ``/session?id=``: all about one
``GET /console/api/locks``              what clients share; ``/history?path=&session=``: the last transactions
``POST /console/api/change/ACTION``     changes something; the arguments are JSON
======================================  ===============================================================================

Errors are ``{"error": "..."}``. What changes something needs the token; off the loopback interface all but the page
does.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Callable, Mapping
from importlib import resources
from typing import Any, Final

from zoolet.protocol import paths
from zoolet.protocol.errors import NoNodeError, ZooKeeperError
from zoolet.protocol.node_json import NodeJsonError, acl_of
from zoolet.server.admin.http import HttpError, Request, Response, check_method, json_response, shows_token
from zoolet.server.console.source import MAX_ROWS, Answer, NotOffered, Source

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load: its own files only, and no script in its text."""
FILES: Final = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "lib.js": "text/javascript; charset=utf-8",
    "views.js": "text/javascript; charset=utf-8",
    "tests.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "vendor/htm-preact.js": "text/javascript; charset=utf-8",
    "vendor/uPlot.js": "text/javascript; charset=utf-8",
    "vendor/uPlot.css": "text/css; charset=utf-8",
}
"""The files of the page, and their types."""
SECURITY: Final = (
    ("Content-Security-Policy", CSP),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cache-Control", "no-store"),
)
EVERY: Final = 1.0
"""Seconds between two events."""
MAX_STREAMS: Final = 16
"""Pages that may listen for events at a time, and searches."""
TRUSTED_STREAMS: Final = 8
"""As many more for those who have the token."""
MAX_GLOB: Final = 200
"""The most characters of a glob."""


class ConsolePages:
    """Answers the requests of the console.

    Args:
        source: The server that is shown.
        token: What a request has to show that changes something; None if everybody who can ask may.
        is_open: Reading needs no token.
    """

    def __init__(self, source: Source, token: str | None, *, is_open: bool = True) -> None:
        self._source = source
        self._token = token
        self._is_open = is_open
        self._streams = 0
        self._files: dict[str, bytes] = {}
        self._gets: Final[dict[str, Callable[[Mapping[str, str], bool], Any]]] = {
            "about": self._about,
            "overview": lambda query, trusted: source.overview(),
            "samples": self._samples,
            "children": self._children,
            "node": self._node,
            "sessions": self._sessions,
            "session": lambda query, trusted: source.session(_session(query.get("id", ""))),
            "locks": lambda query, trusted: source.locks(trusted=trusted),
            "history": self._history,
        }

    async def answer(self, request: Request, path: str) -> Response | None:
        """Answer a request; None if there is nothing of the console at this path.

        Args:
            request: The request, whose Origin and Host were checked.
            path: Its path below the root of the console, without a slash at the end.

        Raises:
            HttpError: It is refused.
        """
        if path == "":
            return self._file("index.html", request)
        if path.startswith("/console/api/"):
            return await self._api(path.removeprefix("/console/api/"), request)
        if path.startswith("/console/"):
            return self._file(path.removeprefix("/console/"), request)
        return None

    def _file(self, name: str, request: Request) -> Response:
        check_method(request, "GET", "HEAD")
        if name not in FILES:
            raise HttpError(404, f"the console has no file {name[:80]}")
        if name not in self._files:
            self._files[name] = (resources.files("zoolet.server.console") / "static" / name).read_bytes()
        return Response(self._files[name], FILES[name], headers=SECURITY)

    async def _api(self, name: str, request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise HttpError(403, "requests of other web pages are refused")
        trusted = self._is_trusted(request)
        if not trusted and not self._is_open and name != "about":
            raise HttpError(401, "this server shows nothing without the token", ("WWW-Authenticate", "Bearer"))
        query = dict(reversed(request.parameters()))
        try:
            if name.startswith("change/"):
                check_method(request, "POST")
                return json_response(await self._change(name.removeprefix("change/"), request, trusted=trusted))
            check_method(request, "GET")
            if name == "events":
                return self._stream(self._events(), "text/event-stream", trusted=trusted)
            if name == "search":
                if len(query.get("name", "")) > MAX_GLOB:
                    raise HttpError(400, f"the name has more than {MAX_GLOB} characters")
                return self._stream(self._search(query, trusted), "application/x-ndjson", trusted=trusted)
            if name not in self._gets:
                raise HttpError(404, f"the console cannot be asked for {name[:80]}")
            return json_response(await self._gets[name](query, trusted), 200, ("Cache-Control", "no-store"))
        except NotOffered as error:
            raise HttpError(409, str(error)) from None
        except ZooKeeperError as error:
            raise HttpError(404 if isinstance(error, NoNodeError) else 409, _reason(error)) from None

    def _is_trusted(self, request: Request) -> bool:
        """Return whether a request has the token.

        Raises:
            HttpError: It has a wrong one.
        """
        if self._token is None:
            return True
        shown = shows_token(request, self._token)
        if shown is False:
            raise HttpError(401, "the token is wrong", ("WWW-Authenticate", "Bearer"))
        return bool(shown)

    # --- reading ---

    async def _about(self, query: Mapping[str, str], trusted: bool) -> Answer:
        answer: Answer = {"trusted": trusted, "needs_token": self._token is not None, "open": self._is_open}
        return {**answer, **(await self._source.about())} if trusted or self._is_open else answer

    async def _samples(self, query: Mapping[str, str], trusted: bool) -> Answer:
        columns, rows = self._source.samples()
        return {"columns": columns, "rows": rows}

    async def _children(self, query: Mapping[str, str], trusted: bool) -> Answer:
        return await self._source.children(_path(query), _number(query, "offset"), _number(query, "limit", 200))

    async def _node(self, query: Mapping[str, str], trusted: bool) -> Answer:
        return await self._source.node(_path(query), trusted=trusted, whole=query.get("whole") == "1")

    async def _sessions(self, query: Mapping[str, str], trusted: bool) -> Answer:
        offset, limit = _number(query, "offset"), _number(query, "limit", 200)
        return await self._source.sessions(query.get("text", ""), offset, limit)

    async def _history(self, query: Mapping[str, str], trusted: bool) -> Answer:
        path = _path(query) if query.get("path") else None
        session = _session(query["session"]) if query.get("session") else None
        before = _session(query["before"]) if query.get("before") else 0
        files = query.get("files") == "1"
        return await self._source.history(path, session, before, _number(query, "limit", 200), files=files)

    def _stream(self, items: AsyncIterator[bytes], content_type: str, *, trusted: bool) -> Response:
        if self._streams >= MAX_STREAMS + (TRUSTED_STREAMS if trusted else 0):
            raise HttpError(503, f"{MAX_STREAMS} pages and searches are open already", ("Retry-After", "5"))
        self._streams += 1
        return Response(content_type=content_type, headers=SECURITY, stream=_Stream(items, self._stream_ended))

    def _stream_ended(self) -> None:
        self._streams -= 1

    async def _events(self) -> AsyncIterator[bytes]:
        while True:
            yield b"data: %s\n\n" % json.dumps(await self._source.overview()).encode()
            await asyncio.sleep(EVERY)

    async def _search(self, query: Mapping[str, str], trusted: bool) -> AsyncIterator[bytes]:
        below = _path(query) if query.get("path") else "/"
        try:
            async for found in self._source.search(
                query.get("name", ""), query.get("text", "").encode(), below, trusted=trusted
            ):
                yield json.dumps(found).encode() + b"\n"
        except (ZooKeeperError, NotOffered) as error:
            yield json.dumps({"error": str(error), "done": True}).encode() + b"\n"

    # --- changing ---

    async def _change(self, action: str, request: Request, *, trusted: bool) -> Answer:
        if not trusted:
            raise HttpError(401, "what changes something needs the token", ("WWW-Authenticate", "Bearer"))
        about = await self._source.about()
        if action not in about["changes"]:
            raise HttpError(404, f"this server cannot be asked to {action[:40]}")
        try:
            given = json.loads(request.body)
            return await self._source.change(action, _arguments(action, given))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise HttpError(400, f"the arguments are wrong: {error}") from None


class _Stream:
    """A body that comes piece by piece."""

    def __init__(self, items: AsyncIterator[bytes], ended: Callable[[], None]) -> None:
        self._items = items
        self._ended = ended

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._items

    async def aclose(self) -> None:
        self._ended()
        await self._items.aclose()  # type: ignore[attr-defined] # it is a generator


def _arguments(action: str, given: Any) -> dict[str, Any]:
    """Check the arguments of a change."""
    if not isinstance(given, dict):
        raise ValueError("they are not an object")
    if action in ("expire", "drop"):
        return {"session": _session(given["session"])}
    arguments: dict[str, Any] = {"path": given["path"], "version": given.get("version", -1)}
    if type(arguments["version"]) is not int or not -1 <= arguments["version"] < 1 << 31:
        raise ValueError("the version is none")
    if not isinstance(given["path"], str):
        raise ValueError("the path is not text")
    if (reason := paths.path_error(given["path"])) is not None:
        raise ValueError(f"the path: {reason}")
    if action in ("create", "set"):
        try:
            arguments["data"] = base64.b64decode(given.get("base64", ""), validate=True)
        except binascii.Error:
            raise ValueError("base64 is not base64") from None
    if action == "create":
        arguments["mode"] = given.get("mode", "PERSISTENT")
        if arguments["mode"] not in ("PERSISTENT", "PERSISTENT_SEQUENTIAL"):
            raise ValueError("mode is PERSISTENT or PERSISTENT_SEQUENTIAL")
    if action == "set_acl":
        try:
            arguments["acl"] = acl_of(given["acl"], given["path"])
        except NodeJsonError as error:
            raise ValueError(str(error)) from None
    return arguments


def _path(query: Mapping[str, str]) -> str:
    path = query.get("path", "/")
    if (reason := paths.path_error(path)) is not None:
        raise HttpError(400, f"{path[:80]!r} is not a path: {reason}")
    return path


def _number(query: Mapping[str, str], name: str, default: int = 0) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise HttpError(400, f"{name} is {text[:20]!r}; it must be a number")
    return min(int(text), MAX_ROWS) if name == "limit" else int(text)


def _session(text: str) -> int:
    try:
        number = int(text, 16)
    except (ValueError, TypeError):
        number = -1
    if not 0 <= number < 1 << 64:
        raise HttpError(400, f"{str(text)[:30]!r} is not a number such as 0x1a2b")
    return number - (1 << 64) if number >= 1 << 63 else number  # as they are counted


def _reason(error: ZooKeeperError) -> str:
    path = error.path or ""
    return f"{path}: {error}" if path not in str(error) else str(error)
