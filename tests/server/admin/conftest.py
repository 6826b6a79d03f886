"""Servers that answer four-letter commands; every asynchronous test here runs on both event loops."""

from __future__ import annotations

import pytest
from support.event_loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
from support.live_server import LiveServer, Serve
from support.live_server import serve as serve
from support.logged_errors import no_error_is_logged as no_error_is_logged


@pytest.fixture
async def server(serve: Serve) -> LiveServer:
    """A server that answers every four-letter command."""
    return await serve(whitelist=("*",))
