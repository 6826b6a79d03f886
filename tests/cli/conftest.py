"""The server for tests of commands."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from zoolet.testing import Server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """The embedded server, in the event loop of the test."""
    async with Server() as running:
        yield running
