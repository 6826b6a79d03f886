"""Files that contain a tree, in msgpack or in human-readable JSON.

A msgpack file is a stream of any length: a map with the format, a list for each node, and a map with the counts::

    {"format": "zoolet dump", "version": 1, "root": "/app"}
    [path, data, ACL list as [permissions, scheme, id] or nil for everyone, creates, ttl in ms or nil, container]
    ...
    {"nodes": 3, "ephemerals": 1}

:mod:`zoolet.protocol.node_json` describes the JSON format.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from ...protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList, Id
from ...protocol.node_json import JsonNode, NodeJsonError, check_tree, node_json, parse_node, reject_duplicate_keys
from ...protocol.node_spec import node_problem
from ..stdout import OutputFile
from .node import TransferNode, invalid_path_reason

FORMAT: Final = "zoolet dump"
FORMAT_VERSION: Final = 1
NOT_A_DUMP: Final = "is not a file of zoolet dump (the name of a JSON file must end with .json)"
MAX_NODE_BYTES: Final = 1 << 30
"""Maximum size of one node in bytes."""
MAX_VALUES: Final = 1 << 20
"""Maximum number of values in a node; an ACL entry has five. The limit protects memory: a byte can become 75 bytes."""


class FileError(ValueError):
    """A file does not contain a valid tree.

    Args:
        path: The file.
        problem: Rest of a sentence about the file, which starts with its path.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.problem = problem


def is_json(path: Path) -> bool:
    """Return whether the name of a file ends with ``.json``, in any case."""
    return path.suffix.lower() == ".json"


# --- writing ---


STDOUT: Final = Path("/dev/stdout")


class Writer:
    """A writer of a file that only its owner can read. The file has a temporary name until it is complete.

    Args:
        path: Path of the file.
        root: Path of the tree on its server.
    """

    def __init__(self, path: Path, root: str) -> None:
        self._is_stdout = path == STDOUT
        self._path = path.resolve() if path.is_symlink() and not self._is_stdout else path
        self._root = root
        self.temporary = self._path.with_name(self._path.name + ".part")
        # A pipe, a terminal or another special file must not be replaced by a regular file.
        self._is_stream = self._is_stdout or (path.exists() and not path.is_file())
        self._is_json = is_json(path)
        self._stream: BinaryIO  # __enter__ sets the stream
        self._kept: dict[str, TransferNode] = {}  # nodes of a JSON file, which is written at the end
        self.nodes = 0

    def __enter__(self) -> Self:
        if not self._is_stream:
            self.temporary.unlink(missing_ok=True)  # a previous transfer may have been killed
        if self._is_stdout:  # not reopened, which could truncate stdout and lose the write position
            self._stream = io.BufferedWriter(OutputFile(os.dup(1), "w"))
        elif self._is_stream:
            self._stream = os.fdopen(os.open(self._path, os.O_WRONLY), "wb")
        else:
            flags = os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW
            self._stream = os.fdopen(os.open(self.temporary, flags, 0o600), "wb")
        if not self._is_json:
            self._pack({"format": FORMAT, "version": FORMAT_VERSION, "root": self._root})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        if error is not None and not self._is_stream:
            self.temporary.unlink(missing_ok=True)

    def _pack(self, value: object) -> None:
        import msgpack  # the import takes 5 ms

        self._stream.write(msgpack.packb(value, use_bin_type=True) or b"")

    def write(self, node: TransferNode) -> None:
        """Add a node. JSON output is kept in memory until :meth:`finish`."""
        self.nodes += 1
        if self._is_json:
            self._kept[node.path] = node
        else:
            acl = None
            if node.acl is not None and node.acl != OPEN_ACL_UNSAFE:
                acl = [[entry.perms, entry.id.scheme, entry.id.id] for entry in node.acl]
            self._pack([node.path, node.data, acl, node.creates, node.ttl, node.container])

    def finish(self, ephemerals: int, *, complete: bool = True) -> bool:
        """Complete the file and give it its final name. Return False if it keeps its temporary name.

        Args:
            ephemerals: Number of ephemeral nodes that the transfer skipped.
            complete: Whether all nodes could be read. If not, an existing file is not replaced.
        """
        if self._is_json:
            tree = self._tree()
            self.nodes = len(tree)
            self._stream.write(json.dumps(tree, indent=1, ensure_ascii=False).encode() + b"\n")
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
            # The root of a server is omitted unless it was changed, because every server has a root.
            if path or self._root != "/" or node.data or node.acl not in (None, OPEN_ACL_UNSAFE):
                created = max(0, node.creates - children[path])
                tree[path or "/"] = node_json(JsonNode(node.data, node.acl, children_created=created))
        return tree


# --- reading ---


def read(path: Path) -> Iterator[TransferNode]:
    """Yield the nodes of a file, parents before children.

    Raises:
        FileError: The file is damaged, incomplete, of an unknown version, or of a different format.
        OSError: The file cannot be read.
    """
    return _read_json(path) if is_json(path) else _read_stream(path)


def check(path: Path) -> int:
    """Read the whole file, and return the number of nodes.

    Raises:
        FileError: The file is damaged, incomplete, of an unknown version, or of a different format.
        OSError: The file cannot be read.
    """
    return sum(1 for _ in read(path))


def _read_stream(path: Path) -> Iterator[TransferNode]:
    with path.open("rb") as stream:
        values = _unpack_values(path, stream)
        head = next(values, None)
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise FileError(path, NOT_A_DUMP)
        if head.get("version") != FORMAT_VERSION:
            raise FileError(path, f"is a dump of version {head.get('version')}; expected version {FORMAT_VERSION}")
        nodes = 0
        known: set[str] = set()
        for value in values:
            if isinstance(value, dict):
                if value.get("nodes") != nodes:
                    raise FileError(path, f"is damaged: expected {value.get('nodes')} nodes, found {nodes}")
                if next(values, None) is not None:
                    raise FileError(path, "is damaged: unexpected data after the end")
                return
            node = _parse_node(path, value)
            above = node.path.rpartition("/")[0]
            if node.path in known or (node.path and above not in known):
                raise FileError(path, f"is damaged: {node.path} occurs twice or before its parent")
            known.add(node.path)
            nodes += 1
            yield node
        raise FileError(path, f"is truncated: unexpected end of file after {nodes} nodes")


def _unpack_values(path: Path, stream: BinaryIO) -> Iterator[Any]:
    import msgpack

    count, left = 0, MAX_VALUES

    def counted(values: Any) -> Any:
        nonlocal left
        left -= 1 + len(values)
        if left < 0:
            raise ValueError(f"the next value contains more than {MAX_VALUES} elements")
        return values

    limits: Any = {"max_buffer_size": MAX_NODE_BYTES, "max_array_len": MAX_VALUES, "max_map_len": 16}
    unpacker = msgpack.Unpacker(stream, raw=False, list_hook=counted, object_hook=counted, **limits)
    try:
        for value in unpacker:
            count, left = count + 1, MAX_VALUES
            yield value
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        if not count:
            raise FileError(path, NOT_A_DUMP) from None
        reason = str(error) or type(error).__name__
        raise FileError(path, f"is damaged after value {count}: {reason}") from None


def _parse_node(path: Path, value: Any) -> TransferNode:
    try:
        name, data, acl, creates, ttl, container = value
        problem = invalid_path_reason(name) if isinstance(name, str) else "a path must be text"
        if problem is not None:
            raise FileError(path, f"contains the invalid path {name!r}: {problem}")
        if not isinstance(creates, int) or creates < 0 or not (ttl is None or type(ttl) is int):
            raise TypeError
        seconds = None if ttl is None else ttl / 1000
        if node_problem(data, seconds, container, creates) is not None:
            raise TypeError
        return TransferNode(name, data, _parse_acl(acl), creates, ttl, container)
    except (TypeError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, f"contains an invalid node: {value!r:.80}") from None


def _parse_acl(value: Any) -> AclList:
    if value is None:
        return OPEN_ACL_UNSAFE
    entries = []
    for perms, scheme, name in value:
        if (
            not isinstance(perms, int)
            or not -(1 << 31) <= perms < 1 << 31
            or not isinstance(scheme, str)
            or not isinstance(name, str)
        ):
            raise TypeError
        entries.append(ACL(perms, Id(scheme, name)))
    return tuple(entries)


def _read_json(path: Path) -> Iterator[TransferNode]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(path, "is not valid UTF-8 text") from None
    if not text.strip():
        raise FileError(path, "is empty")
    try:
        tree = json.loads(text, object_pairs_hook=reject_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"is not valid JSON: {error}") from None
    nodes: dict[str, JsonNode] = {}
    implied: set[str] = {""}
    try:
        _flatten(check_tree(tree), "", nodes, implied)
    except NodeJsonError as error:
        raise FileError(path, f"is invalid: {error}") from None
    children: dict[str, int] = {}
    for name in sorted(nodes):  # parents precede their children
        problem = invalid_path_reason(name)
        if problem is not None:
            raise FileError(path, f"contains the invalid path {name!r}: {problem}")
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
        node, children = parse_node(value, path)
        if path in nodes:
            raise NodeJsonError(f"{path or '/'} occurs twice")
        parent = path.rpartition("/")[0]
        while parent and parent not in implied:
            implied.add(parent)
            parent = parent.rpartition("/")[0]
        nodes[path] = node
        _flatten(check_tree(children, path), path, nodes, implied)
