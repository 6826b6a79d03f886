"""``zoolet backup``: a consistent copy of a data directory, even while its server is running."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..protocol.hexadecimal import hexadecimal
from .options import add_data_dir
from .usage import add_example, path


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "backup",
        help="copy a data directory, even while its server is running",
        description="Copy the newest snapshot and later transaction logs, even while the server is running, and "
        "verify the copy. To restore, start a server with --data-dir TARGET. A session that was open continues if its "
        "client reconnects in time.",
    )
    add_example(parser, "zoolet backup /var/lib/zoolet /backup/today")
    add_data_dir(parser)
    parser.add_argument("target", type=path, metavar="TARGET", help="target directory, which must be empty or missing")
    parser.set_defaults(command=lambda options, definitions: _backup(options))


def _backup(options: argparse.Namespace) -> int:
    from ..server.storage.backup import back_up  # most commands do not need this module

    logs = None if options.log_dir is None else Path(options.log_dir)
    made = back_up(Path(options.directory), Path(options.target), logs)
    size = f"{made.size:,} bytes in {made.files} files"
    text = f"{options.target}: {made.nodes:,} nodes up to zxid {hexadecimal(made.zxid)}, {size}"
    if made.left_out:
        text += f"; left out {made.left_out:,} bytes of an incomplete transaction"
    print(text)
    return 0
