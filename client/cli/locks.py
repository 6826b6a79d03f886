"""``zoolet locks``: what clients share on a server, who holds it, who waits, and who waits for each other."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from typing import TYPE_CHECKING

from zoolet.client.cli.options import DEFAULT_HOSTS, OptionError, add_connection, add_timeout, auth_of, seconds, tls_of
from zoolet.event_loop import run_loop

if TYPE_CHECKING:  # a daemon imports this module for its parser
    from zoolet.client.aio.client import Client
    from zoolet.client.recipes.lock_table import LockEntry, Wait
    from zoolet.client.recipes.overview import SharedLine


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "locks",
        help="show locks, elections, semaphores and queues, and who waits for whom",
        description="Show the locks, elections, semaphores and queues of kazoo, Curator and zoolet below a node of any "
        "ZooKeeper server: who holds them, since when, and who waits, in order. The exit code is 1 if clients wait for "
        "each other in a circle, so that none of them goes on.",
    )
    text = f"HOST:PORT,HOST:PORT/PATH; without a path the whole tree (default {DEFAULT_HOSTS})"
    parser.add_argument("hosts", metavar="HOSTS[/PATH]", nargs="?", default=DEFAULT_HOSTS, help=text)
    parser.add_argument("--json", action="store_true", help="print JSON, one line each time")
    parser.add_argument("--watch", action="store_true", help="print again what has changed, until Ctrl-C")
    parser.add_argument("--interval", type=seconds, default=1.0, metavar="SECONDS", help="how often --watch looks (1)")
    add_connection(parser)
    add_timeout(parser, 10.0, "for connecting, and of the session")
    parser.set_defaults(command=lambda options, definitions: _locks(options))


def _locks(options: argparse.Namespace) -> int:
    from zoolet.client.aio.client import Client
    from zoolet.client.wire.hosts import Hosts
    from zoolet.protocol.errors import ZooKeeperError

    try:
        hosts = Hosts.parse(options.hosts.rstrip("/"))
        addresses = ",".join(map(str, hosts.addresses))
        client = Client(addresses, options.timeout, auth=auth_of(options), tls=tls_of(options))
    except (ValueError, OptionError) as error:
        print(f"zoolet: {error}", file=sys.stderr)
        return 2
    logging.getLogger("zoolet").addHandler(logging.NullHandler())
    try:
        return run_loop(_run(client, hosts.chroot or "/", options))
    except (ZooKeeperError, OSError) as error:
        where = "" if addresses in str(error) else f"{addresses}: "
        print(f"zoolet: {where}{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


async def _run(client: Client, path: str, options: argparse.Namespace) -> int:
    import json

    from zoolet.client.recipes.overview import Overview, described
    from zoolet.protocol.errors import ConnectionLossError, NoNodeError

    client.begin()
    try:
        if reason := await client.first_round():
            raise ConnectionLossError(None, reason)
        if await client.exists(path) is None:
            raise NoNodeError(path)
        overview = Overview(client, path)
        before = ""
        while True:
            lines, circles = await overview.look()
            text = json.dumps(described(lines, circles)) if options.json else _as_text(path, lines, circles)
            if text != before:
                print(text, flush=True)
            if not options.watch:
                return 1 if circles else 0
            before = text
            await asyncio.sleep(options.interval)
    finally:
        await client.aclose()


# --- text ---


def _as_text(path: str, lines: list[SharedLine], circles: list[list[Wait]]) -> str:
    from zoolet.client.shell.texts import printable

    texts = [text for line in lines for text in _line(line)] or [f"nothing is shared below {path}"]
    for circle in circles:
        texts.append(f"DEADLOCK of {len(circle)} clients:")
        texts += [f"  {wait}" for wait in circle]
    return "\n".join(printable(text) for text in texts)


def _line(line: SharedLine) -> list[str]:
    naming = f", {line.naming}" if line.naming != "kazoo" else ""
    size = f", {line.size:,} waiting or taken" if line.size is not None else ""
    texts = [f"{line.path}  ({line.kind}{naming}{size})"]
    texts += [f"  held by {_who(entry)}" for entry in line.holders]
    return texts + [f"  {number}. {_who(entry)}" for number, entry in enumerate(line.waiters, 1)]


def _who(entry: LockEntry) -> str:
    from zoolet.client.recipes.lock_table import name_of

    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.since))
    return f"{name_of(entry)}{' as a reader' if entry.shared else ''} since {since}"
