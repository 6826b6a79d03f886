"""The ``zoolet`` command: those of the server, and those of the client."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from zoolet.client import cli as client_cli
from zoolet.server import cli as server_cli

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return server_cli.main(arguments, client_cli.add_commands)


if __name__ == "__main__":
    sys.exit(main())
