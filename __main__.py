"""The ``zoolet`` command: those of the server, and those of the client."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["shell"]:  # it starts in a tenth of a second, for which the server's modules are too many
        from zoolet.client.cli import shell

        return shell.main(words[1:])
    from zoolet.client import cli as client_cli
    from zoolet.server import cli as server_cli

    return server_cli.main(arguments, client_cli.add_commands)


if __name__ == "__main__":
    sys.exit(main())
