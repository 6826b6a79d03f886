"""``zoolet datadir``: inspection, verification, export and repair of a ZooKeeper data directory."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from ..protocol.hexadecimal import hexadecimal
from ..protocol.node_json import JsonNode, node_json
from ..protocol.paths import is_internal
from ..server.config import build, parse_definitions
from ..server.core.engine import Engine
from ..server.core.node import int32, is_session
from ..server.storage import snapshot as snapshots
from ..server.storage.backup import OPEN_ATTEMPTS
from ..server.storage.directory import DataDir, read
from ..server.storage.errors import NoDirectoryError, StorageError
from ..server.storage.lock import is_locked
from ..server.storage.recovery import RecoveryResult, recover
from ..server.storage.repair import repair
from ..server.storage.txnlog import Log
from .options import OptionError, add_data_dir
from .usage import add_example

FindDirectory = Callable[[], DataDir]
"""Function that lists the files of the directory again, because a running server may change them."""
ACTIONS_HELP: Final = """\
show: summarize the state that a server would load;
verify: check every file;
export: print the tree as JSON, for zoolet run --load;
repair: truncate the logs at the first damaged record,
and keep the rest in a separate file"""
DRY_RUN_HELP: Final = "with repair: list the repairs and the transactions that would be lost, without changing files"


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "datadir",
        help="inspect, verify, export or repair a data directory",
        description="Inspect, verify, export or repair a ZooKeeper data directory (releases 3.4 to 3.9). Only repair "
        "changes files. Exit codes: 0 no problem found, 1 problems found, 2 DIR is missing.",
    )
    add_example(parser, "zoolet datadir verify /var/lib/zoolet")
    parser.add_argument("what", metavar="ACTION", choices=("show", "verify", "export", "repair"), help=ACTIONS_HELP)
    add_data_dir(parser)
    parser.add_argument("--dry-run", action="store_true", help=DRY_RUN_HELP)
    parser.set_defaults(command=_run_datadir)


def _run_datadir(options: argparse.Namespace, definitions: list[str]) -> int:
    jobs: dict[str, Callable[[FindDirectory], int]] = {"show": _print_summary, "verify": _verify, "export": _export}
    if missing := [path for path in (options.directory, options.log_dir) if path and not Path(path).exists()]:
        raise NoDirectoryError(missing[0], "does not exist")
    if options.dry_run and options.what != "repair":
        raise OptionError(f"--dry-run is only for repair, not for {options.what}")
    trusts_empty = build(parse_definitions(definitions, "command line")).storage.trust_empty

    def find() -> DataDir:
        directory = DataDir.find(options.directory, options.log_dir)
        directory.is_live = is_locked(directory.log_folder)
        directory.trusts_empty = trusts_empty
        return directory

    directory = find()
    if not directory.snapshots and not directory.logs:
        raise StorageError("", f"no snapshots or transaction logs in {options.directory}")
    if options.what == "repair":
        return _repair(options, trusts_empty)
    return jobs[options.what](find)


def _recover(find: FindDirectory) -> tuple[Engine, DataDir, RecoveryResult]:
    """Load the state of the directory. Retry a few times if a running server purges files during the load.

    Raises:
        FileNotFoundError: Files disappeared in each attempt.
        StorageError: A server could not start with these files.
    """
    tries = OPEN_ATTEMPTS
    while True:
        engine, directory = Engine(build().settings, rng=Random(0)), find()
        try:
            return engine, directory, recover(engine, directory, lenient=True)
        except FileNotFoundError:
            if not (tries := tries - 1):
                raise


def _print_summary(find: FindDirectory) -> int:
    engine, directory, recovered = _recover(find)
    tree = engine.tree
    print(f"zxid            {hexadecimal(recovered.zxid)}")
    at = "none" if recovered.snapshot_zxid is None else hexadecimal(recovered.snapshot_zxid)
    print(f"snapshot        {at}")
    print(f"transactions    {recovered.transactions} after the snapshot")
    kinds = f"{tree.ephemeral_count} ephemeral, {len(tree.expiring)} container or TTL"
    print(f"nodes           {tree.reported_size}, of which {kinds}")
    print(f"bytes           {tree.reported_bytes}, of paths and data")
    print(f"sessions        {len(engine.sessions.alive)}")
    for problem in recovered.problems:
        print(f"problem         {problem}")
    for note in directory.notes:
        print(f"note            {note}")
    return 1 if recovered.problems else 0


def _verify(find: FindDirectory) -> int:
    wrong, directory = 0, find()
    for zxid, file in directory.snapshots.items():
        wrong += _verify_file(file, lambda file=file, zxid=zxid: _check_snapshot(file, zxid))  # type: ignore[misc]
    last = max(directory.logs, default=0) if directory.is_live else None
    for zxid, file in directory.logs.items():
        wrong += _verify_file(file, lambda file=file, zxid=zxid: _check_log(file, is_live=zxid == last))  # type: ignore[misc]
    try:
        engine, _, recovered = _recover(find)
    except StorageError as error:
        print(f"a server would not start: {error}")
        return 1
    for problem in recovered.problems:
        print(f"problem: {problem}")
    if wrong or recovered.problems:
        print(f"a server would start with {engine.tree.reported_size} nodes at zxid {hexadecimal(recovered.zxid)}")
        return 1
    return 0


def _verify_file(file: Path, look: Callable[[], str]) -> bool:
    try:
        print(f"{file}: {look()}")
    except StorageError as error:
        print(f"{file}: INVALID: {error.reason}")
        return True
    except FileNotFoundError:
        print(f"{file}: deleted while this command ran")
    return False


def _check_snapshot(file: Path, zxid: int) -> str:
    found = snapshots.parse(read(file), zxid, str(file))
    # The digest is not compared: the tree may change while ZooKeeper writes a snapshot, so the digest may differ.
    return f"{len(found.nodes) + 1} nodes, {len(found.sessions)} sessions, {len(found.acls)} ACL lists"


def _check_log(file: Path, *, is_live: bool) -> str:
    log = Log.open(file)
    zxids = [entry.header.zxid for entry in log]
    if (size := log.tail_size()) and not is_live:
        raise StorageError(str(file), f"{len(zxids)} transactions, then {size} invalid bytes from byte {log.end}")
    if log.skipped:
        raise StorageError(str(file), f"{len(zxids)} transactions, and a damaged header")
    span = f", {hexadecimal(zxids[0])} to {hexadecimal(zxids[-1])}" if zxids else ""
    return f"{len(zxids)} transactions{span}" + ("; a server is writing this log" if is_live else "")


def _repair(options: argparse.Namespace, trusts_empty: bool) -> int:
    log_dir = None if options.log_dir is None else Path(options.log_dir)
    lines = repair(Path(options.directory), log_dir, report=print, dry_run=options.dry_run, trusts_empty=trusts_empty)
    for line in lines:
        print(f"dry run: {line}" if options.dry_run else line)
    if not lines:
        print(f"{options.directory}: the logs need no repair")
    return 0


def _export(find: FindDirectory) -> int:
    engine, _, recovered = _recover(find)
    left_out = engine.tree.ephemeral_count
    nodes = {}
    for at, node in engine.tree.walk():
        is_default = at == "/" and not node.data and not node.acl
        if not is_default and not is_session(node.owner) and not is_internal(at):
            kept = [child for child in node.children.nodes() if not is_session(child.owner)] if node.children else []
            ttl = node.ttl()
            acl = engine.acls.list(node.acl)
            seconds = None if ttl is None else ttl / 1000
            created = int32(node.creates - len(kept))
            nodes[at] = node_json(JsonNode(node.data, acl, seconds, node.is_container(), created))
    json.dump(nodes, sys.stdout, indent=1)
    print()
    if left_out:
        print(f"zoolet datadir: {left_out} ephemeral node{'s' * (left_out != 1)} left out", file=sys.stderr)
    for problem in recovered.problems:
        print(f"zoolet datadir: {problem}", file=sys.stderr)
    return 1 if recovered.problems else 0
