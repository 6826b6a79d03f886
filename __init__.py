"""A ZooKeeper-compatible coordination server in pure Python: a daemon, a test double and an asyncio client.

The folder of this file, the repository's root, is the package (docs/decisions/0011-the-repository-is-the-package.md).

PYTEST_DONT_REWRITE: pytest would otherwise warn a program that imports zoolet before it calls pytest.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
