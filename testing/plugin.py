"""The entry point of the pytest plugin. It loads :mod:`.pytest.fixtures`, unless pytest or pluggy is too old.

pytest loads this module in every project with zoolet installed, including projects that do not use the fixtures.
"""

from __future__ import annotations

import pytest

try:
    pytest.StashKey[None]()  # pytest 7.0
    pytest.hookimpl(wrapper=True)  # pluggy 1.2
except (AttributeError, TypeError):

    def pytest_report_header() -> str:
        """Return a line that explains why the fixtures are missing."""
        return "zoolet: its fixtures are off, because they need pytest 7.0 and pluggy 1.2 or newer"

else:
    pytest_plugins = ["zoolet.testing.pytest.fixtures"]
