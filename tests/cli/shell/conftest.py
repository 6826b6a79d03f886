"""A shell on a server with a few nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.shells import TREE, ShellDriver, open_shell

from zoolet.testing import Server


@pytest.fixture
async def shell(server: Server) -> AsyncIterator[ShellDriver]:
    """A shell on a server with a few nodes."""
    server.populate(TREE)
    async with open_shell(server.hosts) as shell:
        yield shell
