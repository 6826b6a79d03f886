"""``zoolet backup``: a consistent copy of a data directory, while its server runs or not."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "backup",
        help="copy a data directory, while its server runs or not",
        description="Copy the newest snapshot and the logs that follow it, of a server that runs or not, and read the "
        "copy as a server does. To restore, start a server with --data-dir on the copy, or on a copy of the copy: "
        "clients that have seen later changes open new sessions.",
    )
    parser.add_argument("directory", metavar="DIR", help="the directory, with or without version-2")
    parser.add_argument("target", metavar="TARGET", help="where the copy goes: a directory that is empty or not there")
    parser.add_argument("--log-dir", metavar="DIR", help="the directory of the logs, if it is another one")
    parser.set_defaults(command=lambda options, definitions: _backup(options))


def _backup(options: argparse.Namespace) -> int:
    from zoolet.server.storage.backup import back_up  # most commands need none of that

    logs = None if options.log_dir is None else Path(options.log_dir)
    made = back_up(Path(options.directory), Path(options.target), logs)
    print(
        f"{options.target}: {made.nodes:,} nodes up to zxid 0x{made.zxid:x}, {made.size:,} bytes in {made.files} files"
    )
    return 0
