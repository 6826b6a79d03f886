"""HTTP requests to the console of an engine, without a socket."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import Any, Final

import pytest
from support.calls import engine_with_settings
from support.http import answer
from support.peer import Peer

from zoolet.console.engine_source import EngineSource
from zoolet.console.pages import ConsolePages
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import CreateRequest
from zoolet.server.admin.history import TransactionHistory
from zoolet.server.admin.http import HttpError, HttpRequest, Response, Router, Token, no_page
from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.admin.samples import Samples
from zoolet.server.core.engine import Engine

TOKEN: Final = "a-token-of-the-tests"
BEARER: Final = {"authorization": f"Bearer {TOKEN}"}
STRETCH_S: Final = 0.015
"""Limit for the CPU time between two turns of other callbacks, in seconds; 1 to 4 ms on an idle machine."""


class Console:
    """The console of an engine, queried without an HTTP server."""

    def __init__(self, engine: Engine | None = None, *, is_open: bool = True, history: bool = True) -> None:
        self.engine = engine or engine_with_settings()
        observed = MonitoredServer(self.engine)
        kept = TransactionHistory(self.engine, 1000) if history else None
        source = EngineSource(
            observed, lambda: None, self.engine.pending_output.clear, kept, Samples(observed), "test:1"
        )
        self.source = source
        pages = ConsolePages(source, Token(TOKEN, is_open))
        self.router = Router(pages.routes(), no_page("the console is at /"))

    async def ask(self, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> Response:
        """Request a page, and return the response."""
        return await answer(self.router, HttpRequest(method, target, {"host": "127.0.0.1:8080", **headers}, body))

    async def facts(self, name: str, **headers: str) -> Any:
        """Request an API endpoint. Return its decoded JSON."""
        return json.loads((await self.ask(f"/console/api/{name}", **headers)).body)

    async def change(self, action: str, **arguments: object) -> Any:
        """Send a request that changes data, with the token."""
        body = json.dumps(arguments).encode()
        return json.loads((await self.ask(f"/console/api/change/{action}", "POST", body, **BEARER)).body)

    async def refusal(self, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> HttpError:
        """Make a request that must be refused. Return the error."""
        with pytest.raises(HttpError) as caught:
            await self.ask(target, method, body, **headers)
        return caught.value


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def printed_locks(shared: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the locks of the console as ``zoolet locks --json`` prints them: by path, without counts and addresses."""
    added = ("held", "waiting", "address", "held_since")

    def without(facts: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in facts.items() if key not in added}

    kinds = ("holders", "waiters")
    lines = sorted(shared, key=lambda line: (line["path"], line["kind"]))
    return [{**without(line), **{kind: list(map(without, line[kind])) for kind in kinds}} for line in lines]


async def longest_stretch(work: Callable[[], Awaitable[Any]]) -> float:
    """Return the longest CPU time between two turns of another task while *work* runs, in the best of three runs."""

    async def once() -> float:
        task, longest = asyncio.ensure_future(work()), 0.0
        while not task.done():
            started = thread_time()
            await asyncio.sleep(0)
            longest = max(longest, thread_time() - started)
        task.result()
        return longest

    return min([await once() for _ in range(3)])


def create_together(peer: Peer, paths: list[str]) -> None:
    """Create nodes in one transaction."""
    peer.multi(*((OpCode.CREATE, CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0)) for path in paths))
