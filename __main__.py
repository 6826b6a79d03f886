"""The entry point of the ``zoolet`` command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence

from .cli.stdout import OutputError, discard_stdout, replace_stdout

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    if arguments is not None:
        return _import(arguments)()
    _open_streams()
    replace_stdout()
    gc.set_threshold(50_000)  # imports create no garbage, but collections would take 4 % of a daemon's start
    try:
        try:
            code = _import_command(sys.argv[1:])()
        except SystemExit as exit:  # raised by --help, --version and parser errors
            code = int(exit.code or 0)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:  # Ctrl-C before the command handles it
        return 130
    except OutputError as error:
        discard_stdout()
        if not error.is_closed:
            print(f"zoolet: {error}", file=sys.stderr)
        return 1


def _import_command(words: Sequence[str]) -> Callable[[], int]:
    """Import a command, and return the function that runs it. Ctrl-C during the import prints no traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler:  # ignored by the parent process, or handled by a caller
        return _import(words)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return _import(words)
    finally:
        signal.signal(signal.SIGINT, handler)


def _import(words: Sequence[str]) -> Callable[[], int]:
    if words[:1] == ["shell"]:  # the shell starts in 0.1 s; importing the server would take longer
        from .cli.shell import program as shell

        return lambda: shell.main(words[1:])
    from .cli import program

    return lambda: program.main(words)


def _open_streams() -> None:
    """Open /dev/null for each closed standard stream, because a connection must not get its file descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
