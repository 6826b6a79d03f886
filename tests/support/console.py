"""The console of an engine, asked over HTTP, without a socket."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pytest
from support.calls import engine_with

from zoolet.server.admin.history import History
from zoolet.server.admin.http import HttpError, Request, Response
from zoolet.server.admin.observed import Observed
from zoolet.server.admin.samples import Samples
from zoolet.server.console.engine_source import EngineSource
from zoolet.server.console.pages import ConsolePages
from zoolet.server.core.engine import Engine

TOKEN: Final = "a-token-of-the-tests"
BEARER: Final = {"authorization": f"Bearer {TOKEN}"}


class Console:
    """The console of an engine, without a server around it."""

    def __init__(self, engine: Engine | None = None, *, is_open: bool = True, history: bool = True) -> None:
        self.engine = engine or engine_with()
        observed = Observed(self.engine)
        kept = History(self.engine, 1000) if history else None
        source = EngineSource(
            observed, lambda: None, self.engine.pending_output.clear, kept, Samples(observed), "test:1"
        )
        self.source = source
        self.pages = ConsolePages(source, TOKEN, is_open=is_open)

    async def ask(self, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> Response:
        """Request a page."""
        request = Request(method, target, {"host": "127.0.0.1:8080", **headers}, body)
        response = await self.pages.answer(request, request.path)
        assert response is not None, target
        return response

    async def facts(self, name: str, **headers: str) -> Any:
        """Request an answer of the API."""
        return json.loads((await self.ask(f"/console/api/{name}", **headers)).body)

    async def change(self, action: str, **arguments: object) -> Any:
        """Change something, with the token."""
        body = json.dumps(arguments).encode()
        return json.loads((await self.ask(f"/console/api/change/{action}", "POST", body, **BEARER)).body)

    async def refusal(self, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> HttpError:
        """Request something that is refused; return the refusal."""
        with pytest.raises(HttpError) as caught:
            await self.ask(target, method, body, **headers)
        return caught.value


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
