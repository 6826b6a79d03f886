"""The ``zoolet`` command: those of the server, and those of the client."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    if arguments is None:
        _open_streams()
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # while modules are imported; the commands handle it themselves
        return 130


def _run(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["shell"]:  # it starts in a tenth of a second, for which the server's modules are too many
        from zoolet.client.cli import shell

        return shell.main(words[1:])
    from zoolet.client import cli as client_cli
    from zoolet.server import cli as server_cli

    return server_cli.main(arguments, client_cli.add_commands)


def _open_streams() -> None:
    """Open the streams that were closed when the program was started, or a connection would come in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
