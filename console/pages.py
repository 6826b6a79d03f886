"""The routes of the console: its page, and the requests that the page sends.

======================================  ===============================================================================
``/``, ``/console/FILE``                the page, which loads nothing from other hosts
``GET /console/api/about``              description of the server, and whether the token is required
``GET /console/api/overview``           state of the server; ``/samples``: the last hour, or with ``day=1`` the last day
``GET /console/api/events``             the overview each second, as server-sent events
``GET /console/api/children?path=``     children from ``offset``, by ``sort``; ``/node?path=``: details of a node
``GET /console/api/subtree?path=``      counts and held locks of a subtree
``GET /console/api/export?path=``       the nodes of a subtree for ``zoolet load``; requires the token
``GET /console/api/search?name=&text=`` a line of JSON for each node that is found
``GET /console/api/sessions?order=``    list of sessions; ``/session?id=``: details of a session
``GET /console/api/locks?session=``     locks and similar recipes, with ``brief=1`` only their counts
``GET /console/api/history``            the last transactions, by ``path`` (``below=1``: and below), ``session``,
                                        ``kind``, ``since`` and ``until``; ``fold=1``: repeated sets are one row
``POST /console/api/change/ACTION``     executes a change; the arguments are JSON
======================================  ===============================================================================

An answer is a JSON object of at most 8 MB. Its ``cut`` names the lists that were truncated to this size. Errors are
``{"error": "..."}``. Changes require the token. Outside the loopback interface, everything except the page itself
requires the token.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from importlib import resources
from typing import Any, Final

from ..protocol import paths
from ..protocol.acl import OPEN_ACL_UNSAFE
from ..protocol.errors import NoNodeError, ZooKeeperError
from ..protocol.hexadecimal import to_signed_64
from ..protocol.node_json import NodeJsonError, node_json, parse_acl
from ..server.admin.http import GET, POST, READS, SECURITY_HEADERS, HttpError, HttpRequest, Response, Route, Token
from .source import (
    CHILD_ORDERS,
    MAX_ANSWER,
    MAX_ROWS,
    MAX_SUBTREE,
    Answer,
    ConsoleSource,
    Pace,
    RequestRefusedError,
    encode_answer,
)
from .wanted import KINDS, HistoryFilter

STATIC_FILES: Final = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "lib.js": "text/javascript; charset=utf-8",
    "data.js": "text/javascript; charset=utf-8",
    "overview.js": "text/javascript; charset=utf-8",
    "tree.js": "text/javascript; charset=utf-8",
    "sessions.js": "text/javascript; charset=utf-8",
    "locks.js": "text/javascript; charset=utf-8",
    "history.js": "text/javascript; charset=utf-8",
    "tests.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "vendor/htm-preact.js": "text/javascript; charset=utf-8",
    "vendor/uPlot.js": "text/javascript; charset=utf-8",
    "vendor/uPlot.css": "text/css; charset=utf-8",
}
"""The files of the page, and their types."""
EVENT_SECONDS: Final = 1.0
"""Seconds between two events."""
MAX_STREAMS: Final = 16
"""Maximum number of open event streams and searches."""
TRUSTED_STREAMS: Final = 8
"""Number of additional streams for users with the token."""
STREAM_HEADERS: Final = (*SECURITY_HEADERS, ("X-Accel-Buffering", "no"))
"""The headers of a stream. Without ``X-Accel-Buffering``, nginx would buffer the stream."""
MAX_GLOB: Final = 200
"""Maximum number of characters of a glob."""
MAX_TIME_MS: Final = 1 << 48
"""Maximum time in milliseconds since the epoch; the year 10889."""
MAX_CHANGE_BYTES: Final = 4 << 20
"""Maximum number of bytes of a change, including the data of a node in base64."""

API: Final = "/console/api/"

Query = Mapping[str, str]
"""The parameters of a request."""
ReadFunction = Callable[[ConsoleSource, Query, HttpRequest], Awaitable[Answer | bytes]]
"""Function that returns the answer to a request for JSON, as an object or already encoded."""


class ConsolePages:
    """The pages of the console.

    Args:
        source: The server to show.
        token: The token that changes require.
    """

    def __init__(self, source: ConsoleSource, token: Token) -> None:
        self._source = source
        self._token = token
        self._streams = 0
        self._files: dict[str, bytes] = {}
        self._turn = asyncio.Lock()  # held during each pause, so the slices of concurrent answers do not add up

    def routes(self) -> Iterator[Route]:
        """Yield the routes. They are safe only in a router that checks the headers Origin and Host."""
        yield Route(READS, "/", partial(self._file, "index.html"))
        for name in STATIC_FILES:
            yield Route(READS, f"/console/{name}", partial(self._file, name))
        yield Route(READS, "/console/*", _file_not_found)
        yield Route(GET, f"{API}about", partial(self._read, self._about), self._token.shown)
        for name, read in READ_ROUTES.items():
            yield Route(GET, f"{API}{name}", partial(self._read, read), self._token.reads)
        yield Route(GET, f"{API}events", self._events, self._token.reads)
        yield Route(GET, f"{API}search", self._search, self._token.reads)
        yield Route(GET, f"{API}export", partial(self._read, self._export), self._token.required)
        yield Route(GET, f"{API}*", _unknown_request, self._token.reads)
        yield Route(POST, f"{API}change/*", partial(self._read, _change), self._token.required, MAX_CHANGE_BYTES)

    async def _file(self, name: str, request: HttpRequest) -> Response:
        if name not in self._files:
            self._files[name] = (resources.files("zoolet.console") / "static" / name).read_bytes()
        return Response(self._files[name], STATIC_FILES[name], headers=SECURITY_HEADERS)

    async def _read(self, read: ReadFunction, request: HttpRequest) -> Response:
        query = _query(request)
        try:
            answer = await read(self._source, query, request)
            body = answer if isinstance(answer, bytes) else await encode_answer(answer, Pace(self._turn))
        except RequestRefusedError as error:
            raise HttpError(409, str(error)) from None
        except ZooKeeperError as error:
            raise HttpError(404 if isinstance(error, NoNodeError) else 409, _reason(error)) from None
        return Response(body, "application/json", headers=(("Cache-Control", "no-store"),))

    async def _about(self, source: ConsoleSource, query: Query, request: HttpRequest) -> Answer:
        trusted, is_open = request.trusted, self._token.is_open
        answer: Answer = {"trusted": trusted, "needs_token": self._token.text is not None, "open": is_open}
        return {**answer, **(await source.about())} if trusted or is_open else answer

    async def _export(self, source: ConsoleSource, query: Query, request: HttpRequest) -> bytes:
        """Return the nodes of a subtree by path, as ``zoolet dump`` writes and ``zoolet load`` reads them."""
        values: dict[str, str] = {}
        created: dict[str, int] = {}
        pace, size = Pace(self._turn), 0
        async for path, node in source.export(_parse_path(query)):
            is_default = path == "/" and not node.data and node.acl in (None, OPEN_ACL_UNSAFE)
            if is_default or paths.is_internal(path):
                continue
            values[path] = json.dumps(node_json(node._replace(children_created=0)))
            created[path] = node.children_created
            size += len(path) + len(values[path])
            if size > MAX_ANSWER:
                raise RequestRefusedError(f"the subtree has more than {MAX_ANSWER >> 20} MB: use zoolet dump")
        for path in values:
            await pace.rest()
            if path != "/" and (parent := paths.parent(path)) in created:
                created[parent] -= 1
        text = bytearray()
        for path, value in values.items():
            await pace.rest()
            if created[path] > 0:  # appended to the text, because encoding the data again is slow
                settings = value[:-1] if value.startswith("{") else f'{{"$data": {value}'
                value = f'{settings}, "$children_created": {created[path]}}}'
            text += b"%s%s: %s" % (b",\n" if text else b"{", json.dumps(path).encode(), value.encode())
        return bytes(text or b"{") + b"}\n"

    async def _events(self, request: HttpRequest) -> Response:
        return self._stream(_stream_overviews(self._source), "text/event-stream", trusted=request.trusted)

    async def _search(self, request: HttpRequest) -> Response:
        query, trusted = _query(request), request.trusted
        if len(query.get("name", "")) > MAX_GLOB:
            raise HttpError(400, f"name must have at most {MAX_GLOB} characters")
        found = _stream_found(self._source, query, trusted)
        return self._stream(found, "application/x-ndjson", trusted=trusted)

    def _stream(self, items: AsyncIterator[bytes], content_type: str, *, trusted: bool) -> Response:
        if self._streams >= MAX_STREAMS + (TRUSTED_STREAMS if trusted else 0):
            raise HttpError(503, f"{MAX_STREAMS} searches and streams are already open", ("Retry-After", "5"))
        self._streams += 1
        return Response(content_type=content_type, headers=STREAM_HEADERS, stream=_Stream(items, self._stream_ended))

    def _stream_ended(self) -> None:
        self._streams -= 1


async def _file_not_found(request: HttpRequest) -> Response:
    name = request.path.removeprefix("/console/")
    raise HttpError(404, f"no page at /console/{name[:80]}")


async def _unknown_request(request: HttpRequest) -> Response:
    name = request.path.removeprefix(API)
    raise HttpError(404, f"unknown console request: {name[:80]}")


# --- requests that read ---


async def _samples(source: ConsoleSource, query: Query, request: HttpRequest) -> Answer:
    columns, rows = source.samples(day=query.get("day") == "1")
    return {"columns": columns, "rows": iter(rows)}


async def _children(source: ConsoleSource, query: Query, request: HttpRequest) -> Answer:
    sort = query.get("sort", "name")
    if sort not in CHILD_ORDERS:
        raise HttpError(400, f"sort must be one of {', '.join(CHILD_ORDERS)}, not {sort[:20]!r}")
    offset, limit = _parse_number(query, "offset"), _parse_number(query, "limit", 200)
    return await source.children(_parse_path(query), offset, limit, sort, query.get("name", ""))


async def _node(source: ConsoleSource, query: Query, request: HttpRequest) -> Answer:
    return await source.node(_parse_path(query), trusted=request.trusted, whole=query.get("whole") == "1")


async def _sessions(source: ConsoleSource, query: Query, request: HttpRequest) -> Answer:
    offset, limit = _parse_number(query, "offset"), _parse_number(query, "limit", 200)
    orders = (await source.about())["orders"]
    if (order := query.get("order", orders[0])) not in orders:
        raise HttpError(400, f"order must be one of {', '.join(orders)}, not {order[:20]!r}")
    return await source.sessions(query.get("text", ""), order, offset, limit, trusted=request.trusted)


async def _locks(source: ConsoleSource, query: Query, request: HttpRequest) -> Answer:
    session = _parse_hexadecimal(query["session"]) if query.get("session") else None
    answer = await source.locks(session, trusted=request.trusted)
    if query.get("brief") == "1":
        await answer.pop("shared").release()
        del answer["deadlocks"]
    return answer


async def _history(source: ConsoleSource, query: Query, request: HttpRequest) -> Answer:
    path, kind = _parse_path(query) if query.get("path") else "", query.get("kind", "")
    if kind and kind not in KINDS:
        raise HttpError(400, f"kind must be one of {', '.join(KINDS)}, not {kind[:20]!r}")
    session = _parse_hexadecimal(query["session"]) if query.get("session") else None
    since, until = (_parse_number(query, name, most=MAX_TIME_MS) for name in ("since", "until"))
    wanted = HistoryFilter(path, query.get("below") == "1", session, kind, since, until)
    before = _parse_hexadecimal(query["before"]) if query.get("before") else 0
    files, fold = (query.get(name) == "1" for name in ("files", "fold"))
    return await source.history(wanted, before, _parse_number(query, "limit", 200), files=files, fold=fold)


READ_ROUTES: Final[dict[str, ReadFunction]] = {
    "overview": lambda source, query, request: source.overview(),
    "samples": _samples,
    "children": _children,
    "node": _node,
    "subtree": lambda source, query, request: source.subtree(_parse_path(query), trusted=request.trusted),
    "sessions": _sessions,
    "session": lambda source, query, request: source.session(_parse_hexadecimal(query.get("id", ""))),
    "locks": _locks,
    "history": _history,
}
"""Functions that return JSON answers, by the last part of their path."""


async def _stream_overviews(source: ConsoleSource) -> AsyncIterator[bytes]:
    while True:
        yield b"data: %s\n\n" % json.dumps(await source.overview()).encode()
        await asyncio.sleep(EVENT_SECONDS)


async def _stream_found(source: ConsoleSource, query: Query, trusted: bool) -> AsyncIterator[bytes]:
    below = _parse_path(query) if query.get("path") else "/"
    try:
        async for found in source.search(query.get("name", ""), query.get("text", "").encode(), below, trusted=trusted):
            yield json.dumps(found).encode() + b"\n"
    except (ZooKeeperError, RequestRefusedError) as error:
        yield json.dumps({"error": str(error), "done": True}).encode() + b"\n"


# --- requests that change ---


async def _change(source: ConsoleSource, query: Query, request: HttpRequest) -> Answer:
    action = request.path.removeprefix(f"{API}change/")
    about = await source.about()
    if action not in about["changes"]:
        raise HttpError(404, f"unsupported action: {action[:40]}")
    try:
        given = json.loads(request.body)
        return await source.change(action, _arguments(action, given))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"missing {error}" if isinstance(error, KeyError) else error
        raise HttpError(400, f"invalid arguments: {reason}") from None


class _Stream:
    """The body of a streamed response. It calls *ended* when it is closed."""

    def __init__(self, items: AsyncIterator[bytes], ended: Callable[[], None]) -> None:
        self._items = items
        self._ended = ended

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._items

    async def aclose(self) -> None:
        self._ended()
        await self._items.aclose()  # type: ignore[attr-defined] # the iterator is a generator


def _arguments(action: str, given: Any) -> dict[str, Any]:
    """Return the arguments of a change.

    Raises:
        ValueError: An argument is invalid.
        KeyError: An argument is missing.
        HttpError: The session id is invalid.
    """
    if not isinstance(given, dict):
        raise ValueError("the request body must be a JSON object")
    if action in ("expire", "drop"):
        return {"session": _parse_hexadecimal(given["session"])}
    arguments: dict[str, Any] = {"path": given["path"], "version": given.get("version", -1)}
    arguments["czxid"] = _parse_hexadecimal(given["czxid"]) if given.get("czxid") is not None else None
    if type(arguments["version"]) is not int or not -1 <= arguments["version"] < 1 << 31:
        raise ValueError("version must be an integer from -1 to 2147483647")
    if not isinstance(given["path"], str):
        raise ValueError("path must be a string")
    if (reason := paths.path_error(given["path"])) is not None:
        raise ValueError(f"path: {reason}")
    if action == "delete_all":
        arguments["nodes"] = _check_node_count(given["path"], given["nodes"])
    if action in ("create", "set"):
        try:
            arguments["data"] = base64.b64decode(given.get("base64", ""), validate=True)
        except binascii.Error:
            raise ValueError("data is not valid base64") from None
    if action == "create":
        arguments["mode"] = given.get("mode", "PERSISTENT")
        if arguments["mode"] not in ("PERSISTENT", "PERSISTENT_SEQUENTIAL"):
            raise ValueError("mode must be PERSISTENT or PERSISTENT_SEQUENTIAL")
    if action == "set_acl":
        try:
            arguments["acl"] = parse_acl(given["acl"], given["path"])
        except NodeJsonError as error:
            raise ValueError(str(error)) from None
    return arguments


def _check_node_count(path: str, nodes: object) -> int:
    """Check and return the maximum number of nodes that the deletion of a subtree may delete.

    Raises:
        ValueError: The number is invalid, or the node is the root.
    """
    if type(nodes) is not int or not 0 < nodes <= MAX_SUBTREE:
        raise ValueError(f"nodes must be an integer from 1 to {MAX_SUBTREE}; delete more with zoolet shell")
    if path == "/":
        raise ValueError("path: the root cannot be deleted")
    return nodes


def _query(request: HttpRequest) -> Query:
    return dict(reversed(request.parameters()))


def _parse_path(query: Query) -> str:
    path = query.get("path", "/")
    if (reason := paths.path_error(path)) is not None:
        raise HttpError(400, f"invalid path {path[:80]!r}: {reason}")
    return path


def _parse_number(query: Query, name: str, default: int = 0, most: int = 999_999_999) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 16 and int(text) <= most):
        raise HttpError(400, f"{name} must be a whole number from 0 to {most}, not {text[:20]!r}")
    return min(int(text), MAX_ROWS) if name == "limit" else int(text)


def _parse_hexadecimal(text: str) -> int:
    try:
        number = int(text, 16)
    except (ValueError, TypeError):
        number = -1
    if not 0 <= number < 1 << 64:
        raise HttpError(400, f"the number must be hexadecimal, such as 0x1a2b, not {str(text)[:30]!r}")
    return to_signed_64(number)


def _reason(error: ZooKeeperError) -> str:
    path = error.path or ""
    return f"{path}: {error}" if path not in str(error) else str(error)
