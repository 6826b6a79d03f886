"""``zoolet datadir``: what is in a data directory of ZooKeeper's. Only ``repair`` changes anything."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from zoolet.protocol.node_json import JsonNode, node_json
from zoolet.protocol.paths import ZOOKEEPER
from zoolet.server.config import build
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import is_session
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.directory import DataDir, read
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.recovery import recover
from zoolet.server.storage.repair import repair
from zoolet.server.storage.txnlog import Log


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "datadir",
        help="look into a data directory",
        description="Look into a data directory of ZooKeeper's, of any release from 3.5 to 3.9. Only repair changes "
        "anything.",
    )
    parser.add_argument(
        "what",
        choices=("show", "verify", "export", "repair"),
        help="show: what a server would begin with; verify: check every byte of every file; export: the tree as JSON, "
        "for zoolet run --load; repair: give up the transactions from a damage of the logs on, which are set aside",
    )
    parser.add_argument("directory", metavar="DIR", help="the directory, with or without version-2")
    parser.add_argument("--log-dir", metavar="DIR", help="the directory of the logs, if it is another one")
    parser.set_defaults(command=_datadir)


def _datadir(options: argparse.Namespace, definitions: list[str]) -> int:
    jobs: dict[str, Callable[[DataDir], int]] = {"show": _show, "verify": _verify, "export": _export}
    if options.what == "repair":
        return _repair(options.directory, options.log_dir)
    directory = DataDir.find(options.directory, options.log_dir)
    if not directory.snapshots and not directory.logs:
        raise StorageError(options.directory, "there are neither snapshots nor logs")
    return jobs[options.what](directory)


def _engine() -> Engine:
    return Engine(build().settings, rng=Random(0))


def _show(directory: DataDir) -> int:
    engine = _engine()
    recovered = recover(engine, directory, lenient=True)
    tree = engine.tree
    ephemerals = sum(map(len, tree.ephemerals.values()))
    print(f"zxid            0x{recovered.zxid:x}")
    at = "none" if recovered.snapshot_zxid is None else f"0x{recovered.snapshot_zxid:x}"
    print(f"snapshot        {at}")
    print(f"transactions    {recovered.transactions} after the snapshot")
    print(f"nodes           {tree.size}, of which {ephemerals} ephemeral, {len(tree.expiring)} container or TTL")
    print(f"bytes           {tree.data_size}, of paths and data")
    print(f"sessions        {len(engine.sessions.alive)}")
    for problem in recovered.problems:
        print(f"problem         {problem}")
    return 1 if recovered.problems else 0


def _verify(directory: DataDir) -> int:
    wrong = 0
    for zxid, file in directory.snapshots.items():
        wrong += _check(file, lambda file=file, zxid=zxid: _snapshot(file, zxid))  # type: ignore[misc]
    for file in directory.logs.values():
        wrong += _check(file, lambda file=file: _log(file))  # type: ignore[misc]
    try:
        recover(_engine(), directory, lenient=True)
    except StorageError as error:
        print(f"a server would not start: {error}")
        return 1
    for problem in directory.problems:
        print(f"a server would not use: {problem}")
    return 1 if wrong or directory.problems else 0


def _check(file: Path, look: Callable[[], str]) -> bool:
    try:
        print(f"{file}: {look()}")
    except StorageError as error:
        print(f"{file}: WRONG: {error.reason}")
        return True
    return False


def _snapshot(file: Path, zxid: int) -> str:
    found = snapshots.parse(read(file), zxid, str(file))
    if found.digest is not None and found.digest != found.computed_digest():
        raise StorageError(str(file), "the digest of the tree is another one, though the checksums are right")
    return f"{len(found.nodes)} nodes, {len(found.sessions)} sessions, {len(found.acls)} ACL lists"


def _log(file: Path) -> str:
    log = Log.open(file)
    zxids = [entry.header.zxid for entry in log]
    if tail := log.tail():
        raise StorageError(
            str(file), f"{len(zxids)} transactions, then {len(tail)} bytes that are not, from byte {log.end}"
        )
    return f"{len(zxids)} transactions" + (f", 0x{zxids[0]:x} to 0x{zxids[-1]:x}" if zxids else "")


def _repair(path: str, log_path: str | None) -> int:
    lines = repair(Path(path), None if log_path is None else Path(log_path))
    for line in lines:
        print(line)
    if not lines:
        print(f"{path}: the logs need no repair")
    return 0


def _export(directory: DataDir) -> int:
    engine = _engine()
    recovered = recover(engine, directory, lenient=True)
    left_out = sum(map(len, engine.tree.ephemerals.values()))
    nodes = {}
    for at, node in engine.tree.walk():
        if at != "/" and not is_session(node.owner) and not f"{at}/".startswith(f"{ZOOKEEPER}/"):
            kept = [child for child in (node.children or {}).values() if not is_session(child.owner)]
            ttl = node.ttl()
            acl = engine.acls.list(node.acl)
            seconds = None if ttl is None else ttl / 1000
            nodes[at] = node_json(JsonNode(node.data, acl, seconds, node.is_container(), node.creates - len(kept)))
    json.dump(nodes, sys.stdout, indent=1)
    print()
    if left_out:
        print(f"zoolet: {left_out} ephemeral nodes are left out", file=sys.stderr)
    for problem in recovered.problems:
        print(f"zoolet: {problem}", file=sys.stderr)
    return 1 if recovered.problems else 0
