"""The creation of nodes from a dict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ...protocol import paths
from ...protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList, acl_entries
from ...protocol.codec import Record
from ...protocol.node_spec import node_problem
from ...protocol.txns import CreateContainerTxn, CreateTTLTxn, CreateTxn, SetDataTxn
from ...server.core.engine import Engine
from ...server.core.node import int32


@dataclass(frozen=True)
class Znode:
    """A node for :meth:`~zoolet.testing.Server.populate` that needs more than data, such as an ACL list.

    Args:
        data: Data of the node. Text is encoded as UTF-8.
        children: The nodes below this one, as for :func:`populate`.
        acl: A list or tuple of ACLs from zoolet.client.acl, kazoo.security or zoolet.protocol.acl. The default grants
            all permissions to everyone.
        container: Whether the node is a container.
        ttl: Time to live: seconds without change after which the node is deleted, at least 0.001. None for never. A
            container cannot have a time to live.
        children_created: Number of children that were created below the node before *children*, which is also the
            number of the next sequential child. It is from -2**31 to 2**31 - 1, and wraps around to negative numbers.
    """

    data: bytes | str | None = b""
    children: Mapping[str, Any] = field(default_factory=dict)
    acl: Sequence[Any] = OPEN_ACL_UNSAFE
    container: bool = False
    ttl: float | None = None
    children_created: int = 0


def populate(engine: Engine, nodes: Mapping[str, Any]) -> None:
    """Create nodes, and set the data of nodes that exist.

    Args:
        engine: The engine with the tree.
        nodes: The nodes by path or name. A value is bytes, text, None, a :class:`Znode`, or a dict of the nodes below.
            Missing parents are created with empty data. If a node exists, only its data is set.

    Raises:
        ValueError: A path or a value is invalid, or a path occurs twice. No node is created.
    """
    for path, node in flatten(nodes).items():
        _make_node(engine, path, node)


def flatten(nodes: Mapping[str, Any]) -> dict[str, Znode]:
    """Return nodes by path, in their order, but each parent before its children.

    Raises:
        ValueError: A path or a value is invalid, or a path occurs twice.
    """
    found: dict[str, Znode] = {}
    for path, node in _flatten("", nodes):
        if path in found:
            raise ValueError(f"{path} occurs twice")
        found[path] = node
    above = _nearest_ancestors(found)
    ordered: dict[str, Znode] = {}
    for path in found:
        missing, at = [], path
        while at and at not in ordered:
            missing.append(at)
            at = above[at]
        ordered |= {each: found[each] for each in reversed(missing)}
    return ordered


def _nearest_ancestors(found: Collection[str]) -> dict[str, str]:
    """Return the nearest ancestor of each path among all paths, or an empty string if it has none.

    Time and memory are proportional to the size of the paths. Storing all prefixes of a deep path would be quadratic.
    """
    nearest: dict[str, str] = {}
    line: list[str] = []
    for path in sorted(found, key=lambda path: path.replace("/", "\0")):  # the nodes below a path follow it
        while line and not paths.is_within(path, line[-1]):
            line.pop()
        nearest[path] = line[-1] if line else ""
        line.append(path)
    return nearest


def _flatten(above: str, nodes: Mapping[str, Any]) -> Iterator[tuple[str, Znode]]:
    if not isinstance(nodes, Mapping):
        raise ValueError(f"{above or '/'}: {nodes!r} is not a dict of nodes by path or name")
    for name, value in nodes.items():
        if not isinstance(name, str):
            raise ValueError(f"keys of nodes below {above or '/'} must be strings, not {name!r}")
        path = f"{above}/{name.strip('/')}" if name.strip("/") else above or "/"
        if (reason := paths.path_error(path)) is not None:
            raise ValueError(f"{name!r} below {above or '/'} is not a valid path or name: {reason}")
        if isinstance(value, Mapping):
            node = Znode(children=value)
        elif isinstance(value, Znode):
            node = value
        elif value is None or isinstance(value, bytes | str):
            node = Znode(value)
        else:
            raise ValueError(f"{path}: {value!r} is neither bytes, text, None, Znode nor a dict of children")
        _check_node(path, node)
        if node.acl is not OPEN_ACL_UNSAFE:
            node = replace(node, acl=acl_list(path, node.acl))
        yield path, node
        yield from _flatten("" if path == "/" else path, node.children)


def acl_list(path: str, acl: object) -> AclList:
    """Convert the ACL list of any client to the server's type.

    Raises:
        ValueError: *acl* is not a list or tuple of ACLs, or is empty.
    """
    with suppress(TypeError):
        entries = tuple(acl_entries(acl)) if isinstance(acl, list | tuple) else ()
        if entries and all(map(_has_valid_fields, entries)):
            return entries
    raise ValueError(f"{path}: acl must be a list of ACLs from zoolet.client.acl or kazoo, not {acl!r}")


def _has_valid_fields(entry: ACL) -> bool:
    return isinstance(entry.perms, int) and isinstance(entry.id.scheme, str) and isinstance(entry.id.id, str)


def _check_node(path: str, node: Znode) -> None:
    data = node.data.encode() if isinstance(node.data, str) else node.data
    if (problem := node_problem(data, node.ttl, node.container, node.children_created)) is not None:
        raise ValueError(f"{path}: {problem}")


def _make_node(engine: Engine, path: str, node: Znode) -> None:
    acl = tuple(node.acl)
    data = node.data.encode() if isinstance(node.data, str) else node.data
    existing = engine.tree.get(path)
    if existing is not None:
        if data != b"" or existing.data is None:
            engine.zxid += 1
            engine.apply(SetDataTxn(path, data, existing.version + 1), 0)
        return
    missing = []  # a list instead of recursion, because a tree may be deeper than Python's stack
    above = path[: path.rindex("/")]
    while above and engine.tree.get(above) is None:
        missing.append(above)
        above = above[: above.rindex("/")]
    for ancestor in reversed(missing):
        _make_node(engine, ancestor, Znode())
    above = path[: path.rindex("/")]
    count = int32(engine.tree.find(above).creates + 1)
    txn: Record
    if node.container:
        txn = CreateContainerTxn(path, data, acl, count)
    elif node.ttl is not None:
        txn = CreateTTLTxn(path, data, acl, count, round(node.ttl * 1000))
    else:
        txn = CreateTxn(path, data, acl, False, count)
    engine.zxid += 1
    engine.apply(txn, 0)
    if node.children_created:  # no undo record is needed, because the undo of the create removes the node
        created = engine.tree.find(path)
        created.creates = node.children_created
        created.encoding = None
