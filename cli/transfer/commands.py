"""``zoolet dump``, ``zoolet load`` and ``zoolet push``: copies of trees between servers and files."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...protocol.messages import file_error_reason, one_line
from ...protocol.paths import is_within
from ..addresses import cannot_connect_message
from ..event_loop import run_loop
from ..options import (
    TIMEOUT_HELP,
    CommandError,
    OptionError,
    add_connection,
    add_max_request,
    add_timeout,
    cannot_write_error,
    make_client,
    parse_servers,
    report_read_only,
)
from ..progress import Progress
from ..usage import add_example, path

if TYPE_CHECKING:  # a daemon imports this module for its parser
    from ...client.client import Client
    from .node import TransferNode
    from .source import SourceTree
    from .target import Target, TransferOutcome

HOSTS: Final = "servers, as HOST:PORT,HOST:PORT, and the root of the tree (default /)"
CONTINUE_HINT: Final = "; run the same command again to continue"
UNREADABLE_TEXT: Final = "and the nodes below could not be read"
MAX_NAMED: Final = 5
"""Maximum number of nodes in an error message."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    dump = commands.add_parser(
        "dump",
        help="copy a tree from a server to a file",
        description="Copy a tree from a server to a file, without ephemeral nodes.",
    )
    dump.add_argument("source", metavar="HOSTS[/PATH]", help=HOSTS)
    dump.add_argument(
        "file",
        metavar="FILE",
        type=lambda name: Path("/dev/stdout" if name == "-" else path(name)),
        help="JSON file if the name ends with .json, otherwise msgpack; - for stdout, in msgpack",
    )
    add_example(dump, "zoolet dump localhost:2181/app app.json")
    dump.set_defaults(command=_make_command(lambda options: run_loop(_dump(options))))
    load = commands.add_parser(
        "load",
        help="copy a tree from a file to a server",
        description="Copy a tree from a file to a server. Existing nodes get the data of the file, and its ACL if any. "
        "Identical nodes are skipped, and no nodes are deleted.",
    )
    load.add_argument("target", metavar="HOSTS[/PATH]", help=HOSTS)
    load.add_argument(
        "file",
        metavar="FILE",
        type=lambda name: Path("/dev/stdin" if name == "-" else path(name)),
        help="JSON file (name ends with .json), or file written by zoolet dump; - for stdin, in msgpack",
    )
    add_example(load, "zoolet load localhost:2181/app app.json")
    load.set_defaults(command=_make_command(_load, CONTINUE_HINT))
    push = commands.add_parser(
        "push",
        help="copy a tree to another server",
        description="Copy a tree from one server to another server, or to another path of the same server. "
        "Existing nodes at the target get the data and the ACL of the source. Identical nodes are skipped, and no "
        "nodes are deleted.",
    )
    push.add_argument("source", metavar="FROM[/PATH]", help=HOSTS)
    push.add_argument("target", metavar="TO[/PATH]", help="servers and root to copy to")
    add_example(push, "zoolet push old:2181/app new:2181/app --dry-run")
    push.set_defaults(command=_make_command(lambda options: run_loop(_push(options)), CONTINUE_HINT))
    for parser in (dump, load, push):
        _add_options(parser)
        if parser is not dump:
            parser.add_argument("--dry-run", action="store_true", help="list the changes without making them")


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a connection, the maximum request size and the timeout."""
    add_connection(parser)
    add_max_request(parser)
    add_timeout(parser, 10.0, TIMEOUT_HELP)


def _make_command(job: Callable[[argparse.Namespace], int], interrupted: str = "") -> Callable[..., int]:
    def command(options: argparse.Namespace, definitions: list[str]) -> int:
        from .files import FileError

        try:
            return job(options)
        except FileError as error:
            raise OptionError(str(error)) from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(interrupted) from None

    return command


@asynccontextmanager
async def _connect(where: str, options: argparse.Namespace, reads: str = "") -> AsyncIterator[tuple[Client, str]]:
    """Connect to the servers of a connect string, and wait for servers that are starting. Yield client and path.

    Args:
        where: The connect string, which may end with a path.
        options: The options of the command.
        reads: Name of the command, if the command only reads and therefore accepts a read-only server; otherwise empty.

    Raises:
        OptionError: The connect string or an option is invalid, or a file cannot be read.
        CommandError: No server was reached in time.
    """
    hosts, tls = parse_servers(where.rstrip("/"), options)
    logging.getLogger("zoolet").addHandler(logging.NullHandler())  # the command itself reports failures
    addresses = ",".join(map(str, hosts.addresses))
    client = make_client(addresses, tls, options, max(60.0, options.timeout), read_only=bool(reads))
    try:
        async with asyncio.timeout(options.timeout):
            await client.start()
    except TimeoutError:
        last = client.last_reason or f"{addresses}: no answer within {options.timeout:g} s"
        await client.aclose()
        raise CommandError(cannot_connect_message(last)) from None
    try:
        await report_read_only(client, reads, addresses)
        yield client, hosts.chroot or "/"
    finally:
        await client.aclose()


async def _dump(options: argparse.Namespace) -> int:
    from .files import STDOUT, Writer
    from .source import NO_PERMISSION, SourceTree

    async with _connect(options.source, options, "dump") as (client, root):
        source = SourceTree(client, root)
        await source.count()
        try:
            with Writer(options.file, root) as writer, Progress("dumping") as progress:
                async for batch in source.batches():
                    for node in batch:
                        writer.write(node)
                    progress.show("nodes", writer.nodes, source.total)
                named = writer.finish(source.ephemerals, complete=not source.unreadable)
        except OSError as error:
            raise cannot_write_error(options.file, error) from None
    out = sys.stdout if options.file.is_file() and options.file != STDOUT else sys.stderr
    print(f"{options.file}: {_format_node_count(writer.nodes)} of {root}{_left_out_text(source)}", file=out)
    if not named:
        text = f"{options.file} was not replaced; the nodes that could be read are in {writer.temporary}"
        print(f"zoolet dump: {text}", file=sys.stderr)
    return _report_failures("dump", UNREADABLE_TEXT, dict.fromkeys(source.unreadable, NO_PERMISSION))


def _load(options: argparse.Namespace) -> int:
    """Copy a file to a server. A pipe is read before the event loop starts, because Ctrl-C must interrupt the read.

    Raises:
        FileError: The file is damaged.
    """
    from . import files

    with _rereadable_file(options.file) as file:
        try:
            total = files.check(file)  # first, because nothing must be written if the file is damaged
            return run_loop(_load_file(options, file, total))
        except files.FileError as error:
            raise files.FileError(options.file, error.problem) from None


@contextmanager
def _rereadable_file(given: Path) -> Iterator[Path]:
    """Yield a file that can be read twice: *given*, or a copy of its content if *given* is a pipe.

    Raises:
        OptionError: *given* is a device or cannot be read.
    """
    if given.is_file():
        yield given
        return
    if given.is_char_device():
        raise OptionError(f"cannot read {given}: a device may have no end; pass a file or a pipe")
    import shutil
    import tempfile

    try:
        stream = given.open("rb")
    except OSError as error:
        raise OptionError(f"cannot read {given}: {file_error_reason(error)}") from None
    with stream, tempfile.NamedTemporaryFile(suffix=given.suffix) as file:
        shutil.copyfileobj(stream, file)
        file.flush()
        yield Path(file.name)


async def _load_file(options: argparse.Namespace, file: Path, total: int) -> int:
    from ...client.aio.subtree import MAX_IN_FLIGHT
    from . import files
    from .target import Target

    async with _connect(options.target, options) as (client, root):
        target = Target(client, root, dry_run=options.dry_run)
        await target.begin()
        with Progress("loading") as progress:
            batch: list[TransferNode] = []
            done = size = 0
            for node in files.read(file):
                batch.append(node)
                size += len(node.data or b"")
                if len(batch) == MAX_IN_FLIGHT or size > 1 << 20:
                    await target.write(batch)
                    done, size, batch = done + len(batch), 0, []
                    progress.show("nodes", done, total)
            await target.write(batch)
            await target.finish()
    return _report("load", target, options)


async def _push(options: argparse.Namespace) -> int:
    from .source import NO_PERMISSION, SourceTree
    from .target import Target, copy, nested_target_error

    async with _connect(options.source, options, "push") as (source_client, source_root):
        async with _connect(options.target, options) as (target_client, target_root):
            inside = is_within(target_root, source_root)
            if inside and set(_server_addresses(options.source)) & set(_server_addresses(options.target)):
                raise CommandError(nested_target_error(options.source, options.target))
            source = SourceTree(source_client, source_root, (target_client, target_root) if inside else None)
            await source.count()
            target = Target(target_client, target_root, dry_run=options.dry_run)
            with Progress("pushing") as progress:
                await copy(source, target, progress.show)
    wrong = _report_failures("push", UNREADABLE_TEXT, dict.fromkeys(source.unreadable, NO_PERMISSION))
    return max(wrong, _report("push", target, options, source))


def _server_addresses(where: str) -> list[str]:
    from ...client.wire.hosts import Hosts

    return [str(address).replace("localhost", "127.0.0.1") for address in Hosts.parse(where).addresses]


def _report(command: str, target: Target, options: argparse.Namespace, source: SourceTree | None = None) -> int:
    outcome: TransferOutcome = target.outcome
    would = "would be " if options.dry_run else ""
    counters = f", counters of {_format_node_count(outcome.counters)} raised" if outcome.counters else ""
    print(
        f"{options.target}: {would}{outcome.created.count:,} created, {outcome.changed.count:,} changed, "
        f"{outcome.same:,} unchanged{counters}{_left_out_text(source) if source is not None else ''}"
    )
    if options.dry_run:
        for what, nodes in (("create", outcome.created), ("change", outcome.changed)):
            for path in nodes.first:
                print(one_line(f"{what} {path}"))
            if nodes.count > len(nodes.first):
                print(f"{what} {nodes.count - len(nodes.first):,} more")
    return _report_failures(command, "could not be written", outcome.failed)


def _format_node_count(count: int) -> str:
    return f"{count:,} node" + "s" * (count != 1)


def _left_out_text(source: SourceTree) -> str:
    text = (
        f"; {_format_node_count(source.ephemerals).replace('node', 'ephemeral node')} left out"
        if source.ephemerals
        else ""
    )
    if source.deleted:
        text += (
            f"; {_format_node_count(len(source.deleted))} deleted during the transfer: {_join_first(source.deleted)}"
        )
    return f"{text}; the target itself left out" if source.has_copy else text


def _join_first(texts: list[str]) -> str:
    more = f"; and {len(texts) - MAX_NAMED:,} more" if len(texts) > MAX_NAMED else ""
    return one_line("; ".join(texts[:MAX_NAMED])) + more


def _report_failures(command: str, what: str, failed: dict[str, str]) -> int:
    """Print the number of failed nodes and the first of them on stderr. Return the exit code."""
    if not failed:
        return 0
    shown = _join_first([f"{path}: {reason}" for path, reason in failed.items()])
    print(f"zoolet {command}: {_format_node_count(len(failed))} {what}: {shown}", file=sys.stderr)
    return 1
