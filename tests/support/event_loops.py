"""The event loops that tests of the network run on: asyncio's own, and the one the daemon uses.

To run the tests of a folder on both, import :func:`pytest_asyncio_loop_factories` into its ``conftest.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every asynchronous test twice."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
