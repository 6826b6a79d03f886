"""``zoolet check FILE``: whether a recorded history is one that a ZooKeeper may give."""

from __future__ import annotations

import argparse
import sys


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "check",
        help="check a recorded history",
        description="Check whether what clients were answered is what one ZooKeeper answers: writes in the order of "
        "their zxids, reads that never go back, events before the data that they announce, one holder for each lock, "
        "ephemeral nodes of living sessions only. Exit code 0: it is; 1: it is not, and as few requests as "
        "show it are printed; 2: a file cannot be read, or has no request.",
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a recording, of zoolet proxy --record or Recording.save; several are of the servers of one ensemble",
    )
    parser.set_defaults(command=_check)


def _check(options: argparse.Namespace, definitions: list[str]) -> int:
    from zoolet.server.testing.checking.checker import UnreadableError, check, joined
    from zoolet.server.testing.recording.recording import Recording

    try:
        recordings = [Recording.load(file) for file in options.files]
    except ValueError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}")
    for file, recording in zip(options.files, recordings, strict=True):
        if not len(recording):
            return _refuse(f"{file} has no request: a recorder writes when it is stopped by SIGTERM or Ctrl-C")
    try:
        found = check(joined(recordings))
    except UnreadableError as error:
        return _refuse(str(error))
    if found is not None:
        print(found.story)
        return 1
    sessions = len({entry.session for recording in recordings for entry in recording.entries if entry.session})
    requests = sum(map(len, recordings))
    print(f"{requests:,} requests of {sessions:,} session{'' if sessions == 1 else 's'}: in order")
    return 0


def _refuse(reason: str) -> int:
    print(f"zoolet check: {reason}", file=sys.stderr)
    return 2
