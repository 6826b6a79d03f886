"""A ZooKeeper-compatible coordination server in pure Python: a daemon, a test double and an asyncio client.

The folder of this file, the repository's root, is the package (docs/decisions/0011-the-repository-is-the-package.md).

PYTEST_DONT_REWRITE: a program may use zoolet and then call pytest, which would warn that zoolet was there before it.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
