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
        "show it are printed; 2: a file cannot be read.",
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a recording, of zoolet proxy --record or Recording.save; several are of the servers of one ensemble",
    )
    parser.set_defaults(command=_check)


def _check(options: argparse.Namespace, definitions: list[str]) -> int:
    from zoolet.server.testing.checking.checker import check, joined
    from zoolet.server.testing.recording.recording import Recording

    try:
        recordings = [Recording.load(file) for file in options.files]
        found = check(joined(recordings))
    except ValueError as error:
        print(f"zoolet check: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"zoolet check: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    if found is not None:
        print(found.story)
        return 1
    sessions = len({entry.session for recording in recordings for entry in recording.entries if entry.session})
    requests = sum(map(len, recordings))
    print(f"{requests:,} requests of {sessions:,} sessions: in order")
    return 0
