"""A fixture for tests where no client, whatever it does, may cause an error in the server.

A folder imports it into its ``conftest.py``; a file requests it with ``pytest.mark.usefixtures``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_error_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if an error was logged."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []
