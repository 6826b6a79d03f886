"""Files of a tree: msgpack, which is a stream of any length, or JSON, for people.

The stream is a map that says what it is, a list for each node, and a map that says how many there were::

    {"format": "zoolet dump", "version": 1, "root": "/app"}
    [path, data, ACL list as [permissions, scheme, id] or nil for everyone, creates, ttl in ms or nil, container]
    ...
    {"nodes": 3, "ephemerals": 1}

JSON is that of :mod:`zoolet.protocol.node_json`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from zoolet.client.transfer.node import TransferNode, problem_of
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList, Id
from zoolet.protocol.node_json import JsonNode, NodeJsonError, check_tree, node_json, node_of
from zoolet.protocol.node_spec import node_problem

FORMAT: Final = "zoolet dump"
VERSION: Final = 1
LARGEST: Final = 1 << 30
"""The most bytes of one node."""


class FileError(ValueError):
    """A file is not what it should be.

    Args:
        path: The file.
        reason: What is wrong.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


def is_json(path: Path) -> bool:
    """Return whether a file is JSON, by its name."""
    return path.suffix == ".json"


# --- out ---


STDOUT: Final = Path("/dev/stdout")


class Writer:
    """A file that is being written, for its owner only; it has its name once it is complete.

    Args:
        path: The file.
        root: The path of the tree on its server.
    """

    def __init__(self, path: Path, root: str) -> None:
        self._is_output = path == STDOUT
        self._path = path.resolve() if path.is_symlink() and not self._is_output else path
        self._root = root
        self.temporary = self._path.with_name(self._path.name + ".part")
        # A pipe, a terminal or the like is written to; it must not be replaced by a file.
        self._is_stream = self._is_output or (path.exists() and not path.is_file())
        self._is_json = is_json(path)
        self._stream: BinaryIO  # set by __enter__
        self._kept: dict[str, TransferNode] = {}  # of JSON, which is written at the end
        self.nodes = 0

    def __enter__(self) -> Self:
        if not self._is_stream:
            self.temporary.unlink(missing_ok=True)  # of a transfer that was killed; never written through a link
        if self._is_output:
            descriptor = os.dup(1)  # not opened again, which would lose what others have written to it, and their place
        elif self._is_stream:
            descriptor = os.open(self._path, os.O_WRONLY)
        else:
            descriptor = os.open(self.temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._stream = os.fdopen(descriptor, "wb")
        if not self._is_json:
            self._pack({"format": FORMAT, "version": VERSION, "root": self._root})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        if error is not None and not self._is_stream:
            self.temporary.unlink(missing_ok=True)

    def _pack(self, value: object) -> None:
        import msgpack  # it takes 5 ms to import

        self._stream.write(msgpack.packb(value, use_bin_type=True) or b"")

    def write(self, node: TransferNode) -> None:
        """Write a node."""
        self.nodes += 1
        if self._is_json:
            self._kept[node.path] = node
        else:
            acl = None
            if node.acl is not None and node.acl != OPEN_ACL_UNSAFE:
                acl = [[entry.perms, entry.id.scheme, entry.id.id] for entry in node.acl]
            self._pack([node.path, node.data, acl, node.creates, node.ttl, node.container])

    def finish(self, ephemerals: int, *, complete: bool = True) -> bool:
        """Write the end, and name the file; return False if it keeps its temporary name.

        Args:
            ephemerals: How many ephemeral nodes were left out.
            complete: Whether all could be read; otherwise a file that is there already is not replaced.
        """
        if self._is_json:
            self._stream.write(json.dumps(self._tree(), indent=1, ensure_ascii=False).encode() + b"\n")
        else:
            self._pack({"nodes": self.nodes, "ephemerals": ephemerals})
        self._stream.flush()
        if self._is_stream:
            return True
        os.fsync(self._stream.fileno())
        if not complete and self._path.exists():
            return False
        self.temporary.replace(self._path)
        return True

    def _tree(self) -> dict[str, Any]:
        children = Counter(path.rpartition("/")[0] for path in self._kept if path)
        tree = {}
        for path, node in sorted(self._kept.items()):
            if path or self._root != "/":  # every server has a root, and JSON of a whole tree has none
                created = max(0, node.creates - children[path])
                tree[path or "/"] = node_json(JsonNode(node.data, node.acl, children_created=created))
        return tree


# --- in ---


def read(path: Path) -> Iterator[TransferNode]:
    """Yield the nodes of a file, parents before children.

    Raises:
        FileError: It is damaged, incomplete, of a newer version, or something else.
        OSError: It cannot be read.
    """
    return _read_json(path) if is_json(path) else _read_stream(path)


def check(path: Path) -> int:
    """Read the whole file, and return how many nodes it has; errors as for :func:`read`."""
    return sum(1 for _ in read(path))


def _read_stream(path: Path) -> Iterator[TransferNode]:
    with path.open("rb") as stream:
        values = _values(path, stream)
        head = next(values, None)
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise FileError(path, "this is not a file of zoolet dump (the name of a JSON file ends with .json)")
        if head.get("version") != VERSION:
            raise FileError(path, f"this is a dump of version {head.get('version')}; known is {VERSION}")
        nodes = 0
        known: set[str] = set()
        for value in values:
            if isinstance(value, dict):
                if value.get("nodes") != nodes:
                    raise FileError(path, f"it should have {value.get('nodes')} nodes, and has {nodes}")
                if next(values, None) is not None:
                    raise FileError(path, "something follows its end")
                return
            node = _node(path, value)
            above = node.path.rpartition("/")[0]
            if node.path in known or (node.path and above not in known):
                raise FileError(path, f"{node.path}: it is there twice, or its parent is not before it")
            known.add(node.path)
            nodes += 1
            yield node
        raise FileError(path, f"it ends early, after {nodes} nodes")


def _values(path: Path, stream: BinaryIO) -> Iterator[Any]:
    import msgpack

    unpacker = msgpack.Unpacker(stream, raw=False, max_buffer_size=LARGEST)
    count = 0
    try:
        for value in unpacker:
            count += 1
            yield value
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise FileError(path, f"it is damaged behind value {count}: {reason}") from None


def _node(path: Path, value: Any) -> TransferNode:
    try:
        name, data, acl, creates, ttl, container = value
        problem = problem_of(name) if isinstance(name, str) else "it is not text"
        if problem is not None:
            raise FileError(path, f"{name!r} is not a path: {problem}")
        if not isinstance(creates, int) or creates < 0 or not (ttl is None or type(ttl) is int):
            raise TypeError
        seconds = None if ttl is None else ttl / 1000
        if node_problem(data, seconds, container, creates) is not None:
            raise TypeError
        return TransferNode(name, data, _acl(acl), creates, ttl, container)
    except (TypeError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, f"it has something that is not a node: {value!r:.80}") from None


def _acl(value: Any) -> AclList:
    if value is None:
        return OPEN_ACL_UNSAFE
    entries = []
    for perms, scheme, name in value:
        if (
            not isinstance(perms, int)
            or not 0 <= perms < 32
            or not isinstance(scheme, str)
            or not isinstance(name, str)
        ):
            raise TypeError
        entries.append(ACL(perms, Id(scheme, name)))
    return tuple(entries)


def _read_json(path: Path) -> Iterator[TransferNode]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"this is not JSON: {error}") from None
    nodes: dict[str, JsonNode] = {}
    implied: set[str] = {""}
    try:
        _flatten(check_tree(tree), "", nodes, implied)
    except NodeJsonError as error:
        raise FileError(path, str(error)) from None
    children: dict[str, int] = {}
    for name in sorted(nodes):  # parents are before their children
        problem = problem_of(name)
        if problem is not None:
            raise FileError(path, f"{name!r} is not a path: {problem}")
        above = name.rpartition("/")[0]
        children[above] = children.get(above, 0) + bool(name)
    for name in sorted(nodes.keys() | implied, key=lambda name: (name.count("/"), name)):
        node = nodes.get(name, JsonNode(b""))
        created = node.children_created + children.get(name, 0) if node.children_created else 0
        ttl = None if node.ttl is None else round(node.ttl * 1000)
        yield TransferNode(name, node.data, node.acl, created, ttl, node.container, name not in nodes)


def _flatten(tree: dict[str, Any], above: str, nodes: dict[str, JsonNode], implied: set[str]) -> None:
    for name, value in tree.items():
        path = f"{above}/{name.strip('/')}".rstrip("/")
        node, children = node_of(value, path)
        parent = path.rpartition("/")[0]
        while parent and parent not in implied:
            implied.add(parent)
            parent = parent.rpartition("/")[0]
        nodes[path] = node
        _flatten(check_tree(children, path), path, nodes, implied)
