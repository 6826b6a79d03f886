"""``zoolet locks``: a list of locks, elections, semaphores and queues, with holders, waiters and deadlocks."""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING

from .event_loop import run_loop
from .options import (
    DEFAULT_HOSTS,
    TIMEOUT_HELP,
    CommandError,
    add_connection,
    add_timeout,
    connected_client,
    make_client,
    parse_servers,
    seconds,
)
from .usage import add_example

if TYPE_CHECKING:  # a daemon imports this module for its parser
    from ..client.client import Client
    from ..client.recipes import LockEntry, SharedRecipe, Wait


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "locks",
        help="list locks with their holders and waiters, and find deadlocks",
        description="List the locks, elections, semaphores and queues of kazoo, Curator and zoolet on any ZooKeeper "
        "server: the holders and the waiters in order, with the time of each request and its age. The longest wait "
        "comes first. The command reads every node below PATH, so in a large tree, pass the folder of the locks. "
        "Exit codes: 0 no deadlock, 1 deadlock (clients wait for each other in a cycle) or failure.",
    )
    add_example(parser, "zoolet locks localhost:2181/app --watch")
    text = f"servers, as HOST:PORT,HOST:PORT, and the node to search below (default {DEFAULT_HOSTS}/)"
    parser.add_argument("hosts", metavar="HOSTS[/PATH]", nargs="?", default=DEFAULT_HOSTS, help=text)
    parser.add_argument("--json", action="store_true", help="print the list as one line of JSON")
    parser.add_argument("--watch", action="store_true", help="print the list again after each change, until Ctrl-C")
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="SECONDS", help="seconds between checks of --watch (default 1)"
    )
    add_connection(parser)
    add_timeout(parser, 10.0, TIMEOUT_HELP)
    parser.set_defaults(command=lambda options, definitions: _run_locks(options))


def _run_locks(options: argparse.Namespace) -> int:
    from ..protocol.errors import ZooKeeperError

    hosts, tls = parse_servers(options.hosts.rstrip("/"), options)
    addresses = ",".join(map(str, hosts.addresses))
    client = make_client(addresses, tls, options, read_only=True)
    try:
        return run_loop(_run(client, hosts.chroot or "/", options))
    except (ZooKeeperError, OSError) as error:
        where = "" if addresses in str(error) else f"{addresses}: "
        raise CommandError(f"{where}{error}") from None


async def _run(client: Client, path: str, options: argparse.Namespace) -> int:
    import json

    from ..client.recipes._shared import longest_wait_start
    from ..client.recipes.overview import Overview, overview_json
    from ..protocol.errors import NoNodeError

    async with connected_client(client, "locks", options.hosts):
        if await client.exists(path) is None:
            raise NoNodeError(path)
        overview = Overview(client, path)
        before = None
        while True:
            lines, circles = await overview.read()
            lines.sort(key=longest_wait_start)
            content = overview_json(lines, circles)
            if content != before:  # the text is not compared, because its durations always differ
                print(json.dumps(content) if options.json else _as_text(path, lines, circles), flush=True)
            if not options.watch:
                return 1 if circles else 0
            before = content
            await asyncio.sleep(options.interval)


# --- text output ---


def _as_text(path: str, lines: list[SharedRecipe], circles: list[list[Wait]]) -> str:
    from .shell.texts import printable

    texts = [text for line in lines for text in _recipe_lines(line)]
    texts = texts or [f"no locks, elections, semaphores or queues below {path}"]
    for circle in circles:
        texts.append(f"DEADLOCK of {len(circle)} clients:")
        texts += [f"  {wait}" for wait in circle]
    return "\n".join(printable(text) for text in texts)


def _recipe_lines(line: SharedRecipe) -> list[str]:
    naming = f", {line.naming}" if line.naming != "kazoo" else ""
    size = f", {line.size:,} waiting or taken" if line.size is not None else ""
    texts = [f"{line.path}  ({line.kind}{naming}{size})"]
    texts += [f"  held by {_describe_contender(entry)}" for entry in line.holders]
    return texts + [f"  {number}. {_describe_contender(entry)}" for number, entry in enumerate(line.waiters, 1)]


def _describe_contender(entry: LockEntry) -> str:
    from ..protocol.deadlocks import contender_name

    since = datetime.fromtimestamp(entry.since).astimezone().isoformat(" ", "seconds")
    reader = " as a reader" if entry.shared else ""
    return f"{contender_name(entry)}{reader} since {since} ({_format_duration(time.time() - entry.since)})"


def _format_duration(seconds: float) -> str:
    """Return a duration in its largest unit. A negative duration, which a fast server clock causes, becomes 0 s."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
