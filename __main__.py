"""The ``zoolet`` command: those of the server, and those of the client."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    if arguments is None:
        _open_streams()
    try:
        command = _command(sys.argv[1:]) if arguments is None else _import(arguments)
        return command()
    except KeyboardInterrupt:  # before the command handles it itself
        return 130


def _command(words: Sequence[str]) -> Callable[[], int]:
    """Import a command; Ctrl-C ends the program meanwhile without a traceback out of the middle of an import."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler:  # somebody ignores it
        return _import(words)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return _import(words)
    finally:
        signal.signal(signal.SIGINT, handler)


def _import(words: Sequence[str]) -> Callable[[], int]:
    if words[:1] == ["shell"]:  # it starts in a tenth of a second, for which the server's modules are too many
        from zoolet.client.cli import shell

        return lambda: shell.main(words[1:])
    from zoolet.client import cli as client_cli
    from zoolet.server import cli as server_cli

    return lambda: server_cli.main(words, client_cli.add_commands)


def _open_streams() -> None:
    """Open the streams that were closed when the program was started, or a connection would come in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
