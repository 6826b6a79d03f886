"""``zoolet check FILE``: a search for consistency violations in recordings."""

from __future__ import annotations

import argparse
import sys

from ..protocol.messages import file_error_reason
from .usage import add_example, path, shorten_message


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "check",
        help="check a recording for consistency violations",
        description="Check recordings made by zoolet proxy --record or Recording.save() for consistency violations. "
        "The rules: writes are ordered by zxid, reads never go back in time, a watch event arrives before a read "
        "returns the new data, each lock has at most one holder, ephemeral nodes belong to live sessions. Exit codes: "
        "0 no violation, 1 violation (a minimal example is printed), 2 unreadable or empty recording.",
    )
    add_example(parser, "zoolet check requests.rec")
    parser.add_argument(
        "files",
        metavar="FILE",
        type=path,
        nargs="+",
        help="recording; for an ensemble, one for each server",
    )
    parser.set_defaults(command=_check)


def _check(options: argparse.Namespace, definitions: list[str]) -> int:
    from ..testing.checking.checker import UnreadableError, check, join_recordings
    from ..testing.recording.recording import Recording

    try:
        recordings = [Recording.load(file) for file in options.files]
    except ValueError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"cannot read {error.filename}: {file_error_reason(error)}")
    for file, recording in zip(options.files, recordings, strict=True):
        if not len(recording):
            return _refuse(f"{file} contains no requests; stop the recorder by SIGTERM or Ctrl-C to save them")
    try:
        found = check(join_recordings(recordings))
    except UnreadableError as error:
        return _refuse(str(error))
    if found is not None:
        print(found.story)
        return 1
    sessions = len({entry.session for recording in recordings for entry in recording.entries if entry.session})
    requests = sum(map(len, recordings))
    print(f"no violation in {requests:,} requests of {sessions:,} session{'' if sessions == 1 else 's'}")
    return 0


def _refuse(reason: str) -> int:
    print(f"zoolet check: {shorten_message(reason)}", file=sys.stderr)
    return 2
