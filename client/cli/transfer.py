"""``zoolet dump``, ``zoolet load`` and ``zoolet push``: trees between servers and files."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zoolet.client.cli.options import OptionError, add_connection, add_timeout, auth_of, tls_of
from zoolet.event_loop import run_loop
from zoolet.progress import Progress

if TYPE_CHECKING:  # a daemon imports this module for its parser
    from zoolet.client.aio.client import Client
    from zoolet.client.transfer.node import TransferNode
    from zoolet.client.transfer.target import Outcome, Target
    from zoolet.client.wire.hosts import Hosts

HOSTS: Final = "HOST:PORT,HOST:PORT/PATH of any ZooKeeper server; without a path the whole tree"
GOES_ON: Final = "; the same command goes on where it was"
MAX_NAMED: Final = 5
"""Nodes that are named if many could not be read or written."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    dump = commands.add_parser(
        "dump", help="write a tree of a server to a file", description="Write a tree of a server to a file."
    )
    dump.add_argument("source", metavar="HOSTS[/PATH]", help=HOSTS)
    dump.add_argument(
        "file",
        metavar="FILE",
        type=lambda name: Path("/dev/stdout" if name == "-" else name),
        help="the file: msgpack, or JSON if it ends with .json; - for the output, in msgpack",
    )
    dump.set_defaults(command=_command(_dump))
    load = commands.add_parser(
        "load",
        help="write a file's tree to a server",
        description="Write the tree of a file to a server. What is the same there already is not written again, and "
        "nothing is deleted.",
    )
    load.add_argument("target", metavar="HOSTS[/PATH]", help=HOSTS)
    load.add_argument(
        "file",
        metavar="FILE",
        type=lambda name: Path("/dev/stdin" if name == "-" else name),
        help="a file of zoolet dump, or of zoolet datadir export; - for the input, in msgpack",
    )
    load.set_defaults(command=_command(_load))
    push = commands.add_parser(
        "push",
        help="copy a tree from one server to another",
        description="Copy a tree from one server to another, or to another path. What is the same there already is not "
        "written again, and nothing is deleted.",
    )
    push.add_argument("source", metavar="FROM[/PATH]", help=HOSTS)
    push.add_argument("target", metavar="TO[/PATH]", help="the same, for where it is written")
    push.set_defaults(command=_command(_push))
    for parser in (dump, load, push):
        _add_options(parser)
        if parser is not dump:
            parser.add_argument("--dry-run", action="store_true", help="write nothing, and say what would be written")


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a connection."""
    add_connection(parser)
    add_timeout(parser, 10.0, "for connecting, and of the session")


def _command(job: Callable[[argparse.Namespace], Coroutine[Any, Any, int]]) -> Callable[..., int]:
    def command(options: argparse.Namespace, definitions: list[str]) -> int:
        from zoolet.client.transfer.files import FileError
        from zoolet.protocol.errors import ZooKeeperError

        try:
            return run_loop(job(options))
        except (FileError, ZooKeeperError, TransferError) as error:
            print(f"zoolet: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print(f"zoolet: interrupted{GOES_ON if job is not _dump else ''}", file=sys.stderr)
            return 1

    return command


class TransferError(Exception):
    """A transfer cannot be made."""


@asynccontextmanager
async def _connected(where: str, options: argparse.Namespace) -> AsyncIterator[tuple[Client, str]]:
    """Connect to the servers of a connect string; yield the client and the path.

    Raises:
        TransferError: The string is not valid, or no server answers.
    """
    from zoolet.client.aio.client import Client
    from zoolet.client.wire.hosts import Hosts

    try:
        hosts = Hosts.parse(where.rstrip("/"))
        addresses = ",".join(map(str, hosts.addresses))
        timeout = max(60.0, options.timeout)
        client = Client(
            addresses, options.timeout, operation_timeout=timeout, auth=auth_of(options), tls=tls_of(options)
        )
    except (ValueError, OptionError) as error:
        raise TransferError(str(error)) from None
    try:
        async with asyncio.timeout(options.timeout):
            await client.start()
    except (TimeoutError, OSError) as error:
        last = client.last_reason  # with the address
        await client.aclose()
        reason = str(error) or await _reason(hosts)
        if not reason and last:
            raise TransferError(f"no answer within {options.timeout:g} s; {last}") from None
        reason = reason or f"no answer within {options.timeout:g} s"
        raise TransferError(f"{addresses}: {reason}") from None
    try:
        yield client, hosts.chroot or "/"
    finally:
        await client.aclose()


async def _reason(hosts: Hosts) -> str:
    """Return why the first server cannot be connected to; empty if it can."""
    from zoolet.client.aio.dial import dial_streams

    address = hosts.addresses[0]
    try:
        async with asyncio.timeout(1):
            _, writer = await dial_streams(address, None)
        writer.close()
    except TimeoutError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


async def _dump(options: argparse.Namespace) -> int:
    from zoolet.client.transfer.files import STDOUT, Writer
    from zoolet.client.transfer.source import NO_PERMISSION, Source

    async with _connected(options.source, options) as (client, root):
        source = Source(client, root)
        await source.count()
        with Writer(options.file, root) as writer, Progress("dumping") as progress:
            async for batch in source.batches():
                for node in batch:
                    writer.write(node)
                progress.show("nodes", writer.nodes, source.total)
            named = writer.finish(source.ephemerals, complete=not source.unreadable)
    out = sys.stdout if options.file.is_file() and options.file != STDOUT else sys.stderr
    print(f"{options.file}: {_nodes(writer.nodes)} of {root}{_left_out(source.ephemerals)}", file=out)
    if not named:
        print(f"zoolet: {options.file} is kept as it was; what could be read is in {writer.temporary}", file=sys.stderr)
    return _complain("could not be read", dict.fromkeys(source.unreadable, NO_PERMISSION))


async def _load(options: argparse.Namespace) -> int:
    with _twice(options.file) as file:
        return await _load_file(options, file)


@contextmanager
def _twice(path: Path) -> Iterator[Path]:
    """Yield a file with what a path has, which can be read twice: a pipe cannot."""
    if path.is_file():
        yield path
        return
    import shutil
    import tempfile

    with path.open("rb") as stream, tempfile.NamedTemporaryFile(suffix=path.suffix) as file:
        shutil.copyfileobj(stream, file)
        file.flush()
        yield Path(file.name)


async def _load_file(options: argparse.Namespace, file: Path) -> int:
    from zoolet.client.aio.subtree import MAX_IN_FLIGHT
    from zoolet.client.transfer import files
    from zoolet.client.transfer.target import Target

    total = files.check(file)  # so that nothing is written of a file that is damaged
    async with _connected(options.target, options) as (client, root):
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
    return _report(target, options, 0)


async def _push(options: argparse.Namespace) -> int:
    from zoolet.client.transfer.source import NO_PERMISSION, Source
    from zoolet.client.transfer.target import Target, copy

    async with _connected(options.source, options) as (source_client, source_root):
        async with _connected(options.target, options) as (target_client, target_root):
            inside = f"{target_root}/".startswith(f"{source_root.rstrip('/')}/")
            if inside and set(_addresses(options.source)) & set(_addresses(options.target)):
                raise TransferError(f"{options.target} is within {options.source}: it would be copied into itself")
            source = Source(source_client, source_root)
            await source.count()
            target = Target(target_client, target_root, dry_run=options.dry_run)
            with Progress("pushing") as progress:
                await copy(source, target, progress.show)
    wrong = _complain("could not be read", dict.fromkeys(source.unreadable, NO_PERMISSION))
    return max(wrong, _report(target, options, source.ephemerals))


def _addresses(where: str) -> list[str]:
    from zoolet.client.wire.hosts import Hosts

    return [str(address).replace("localhost", "127.0.0.1") for address in Hosts.parse(where).addresses]


def _report(target: Target, options: argparse.Namespace, ephemerals: int) -> int:
    outcome: Outcome = target.outcome
    would = "would be " if options.dry_run else ""
    counters = f", counters of {_nodes(outcome.counters)} raised" if outcome.counters else ""
    print(
        f"{options.target}: {would}{outcome.created.count:,} created, {outcome.changed.count:,} changed, "
        f"{outcome.same:,} the same{counters}{_left_out(ephemerals)}"
    )
    if options.dry_run:
        for what, nodes in (("create", outcome.created), ("change", outcome.changed)):
            for path in nodes.first:
                print(f"{what} {path}")
            if nodes.count > len(nodes.first):
                print(f"{what} {nodes.count - len(nodes.first):,} more")
    return _complain("could not be written", outcome.failed)


def _nodes(count: int) -> str:
    return f"{count:,} node" + "s" * (count != 1)


def _left_out(ephemerals: int) -> str:
    return f"; {_nodes(ephemerals).replace('node', 'ephemeral node')} left out" if ephemerals else ""


def _complain(what: str, failed: dict[str, str]) -> int:
    """Name the first nodes that failed on stderr; return the exit code."""
    if not failed:
        return 0
    shown = "; ".join(f"{path}: {reason}" for path, reason in list(failed.items())[:MAX_NAMED])
    more = f"; and {len(failed) - MAX_NAMED:,} more" if len(failed) > MAX_NAMED else ""
    print(f"zoolet: {_nodes(len(failed))} {what}: {shown}{more}", file=sys.stderr)
    return 1
