"""A shell on a server with a few nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.shells import TREE, ShellAtHand, shell_on

from zoolet.testing import Server


@pytest.fixture
async def shell(server: Server) -> AsyncIterator[ShellAtHand]:
    """A shell on a server with a few nodes."""
    server.populate(TREE)
    async with shell_on(server.hosts) as shell:
        yield shell
