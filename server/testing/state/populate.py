"""Create nodes from a dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zoolet.protocol import paths
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList, Id
from zoolet.protocol.codec import Record
from zoolet.protocol.node_spec import node_problem
from zoolet.protocol.txns import CreateContainerTxn, CreateTTLTxn, CreateTxn, SetDataTxn
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import int32


@dataclass(frozen=True)
class Znode:
    """A node for :func:`populate` with more than data.

    Args:
        data: The data; text is encoded as UTF-8.
        children: The nodes below it, as for :func:`populate`.
        acl: The ACL list: a list or tuple of the ACLs of zoolet.client.acl, of kazoo.security, or of
            zoolet.protocol.acl; by default everyone has all permissions.
        container: Whether it is a container.
        ttl: Seconds without change after which it is deleted, from 0.001; None for never. A container has none.
        children_created: How many children were created below it before *children*. It is the number of the next
            sequential child, from -2**31 to 2**31 - 1, after which numbers are negative.
    """

    data: bytes | str | None = b""
    children: Mapping[str, Any] = field(default_factory=dict)
    acl: Sequence[Any] = OPEN_ACL_UNSAFE
    container: bool = False
    ttl: float | None = None
    children_created: int = 0


def populate(engine: Engine, nodes: Mapping[str, Any]) -> None:
    """Create nodes.

    Args:
        engine: The engine with the tree.
        nodes: The nodes by path or name. A value is bytes, text, None, a :class:`Znode`, or a dict of the nodes below.
            Missing parents are created with empty data. Of a node that exists only the data is set.

    Raises:
        ValueError: A path or a value is invalid; no node is created then.
    """
    for path, node in list(flatten("", nodes)):
        _make(engine, path, node)


def flatten(above: str, nodes: Mapping[str, Any]) -> Iterator[tuple[str, Znode]]:
    """Yield nodes by path, parents first; arguments and errors as for :func:`populate`."""
    if not isinstance(nodes, Mapping):
        raise ValueError(f"{above or '/'}: {nodes!r} is not a dict of nodes by path or name")
    for name, value in nodes.items():
        if not isinstance(name, str):
            raise ValueError(f"{name!r} below {above or '/'} is not a path or name")
        path = f"{above}/{name.strip('/')}" if name.strip("/") else above or "/"
        if (reason := paths.path_error(path)) is not None:
            raise ValueError(f"{name!r} below {above or '/'} does not make a path: {reason}")
        if isinstance(value, Mapping):
            node = Znode(children=value)
        elif isinstance(value, Znode):
            node = value
        elif value is None or isinstance(value, bytes | str):
            node = Znode(value)
        else:
            raise ValueError(f"{path}: {value!r} is neither bytes, text, None, Znode nor a dict of children")
        _check(path, node)
        acl_list(path, node.acl)  # raise now, before any node is created
        yield path, node
        yield from flatten("" if path == "/" else path, node.children)


def acl_list(path: str, acl: object) -> AclList:
    """Return an ACL list of any client's kind as one of this server's.

    Raises:
        ValueError: It is not a list or tuple of ACLs.
    """
    entries = []
    for entry in acl if isinstance(acl, Sequence) and not isinstance(acl, ACL | str | bytes) else [None]:
        perms, who = getattr(entry, "perms", None), getattr(entry, "id", None)  # kazoo's have the same names
        scheme, name = getattr(who, "scheme", None), getattr(who, "id", None)
        if not isinstance(perms, int) or not isinstance(scheme, str) or not isinstance(name, str):
            raise ValueError(f"{path}: the acl is {acl!r}; it must be a list of ACLs, of zoolet.client.acl or of kazoo")
        entries.append(ACL(int(perms), Id(scheme, name)))
    return tuple(entries)


def _check(path: str, node: Znode) -> None:
    data = node.data.encode() if isinstance(node.data, str) else node.data
    if (problem := node_problem(data, node.ttl, node.container, node.children_created)) is not None:
        raise ValueError(f"{path}: {problem}")


def _make(engine: Engine, path: str, node: Znode) -> None:
    acl = acl_list(path, node.acl)
    data = node.data.encode() if isinstance(node.data, str) else node.data
    existing = engine.tree.get(path)
    if existing is not None:
        if data != b"" or existing.data is None:
            engine.zxid += 1
            engine.apply(SetDataTxn(path, data, existing.version + 1), 0)
        return
    missing = []  # not recursive over the depth: a tree may be deeper than Python's stack
    above = path[: path.rindex("/")]
    while above and engine.tree.get(above) is None:
        missing.append(above)
        above = above[: above.rindex("/")]
    for ancestor in reversed(missing):
        _make(engine, ancestor, Znode())
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
    if node.children_created:  # not recorded for undo: the undo of the create removes the node
        created = engine.tree.find(path)
        created.creates = node.children_created
        created.encoding = None
