"""Nodes that are there from the start, written as a dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zoolet.protocol import paths
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import Record
from zoolet.protocol.txns import CreateContainerTxn, CreateTTLTxn, CreateTxn
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import MAX_TTL


@dataclass(frozen=True)
class Znode:
    """A node of a population that is more than its data.

    Args:
        data: Text is encoded as UTF-8.
        children: More nodes below it, as :func:`populate` takes them.
        acl: Who may do what; by default everybody everything.
        container: Make it a container.
        ttl: Seconds without change after which it goes away, above 0.
    """

    data: bytes | str | None = b""
    children: Mapping[str, Any] = field(default_factory=dict)
    acl: AclList = OPEN_ACL_UNSAFE
    container: bool = False
    ttl: float | None = None


def populate(engine: Engine, nodes: Mapping[str, Any]) -> None:
    """Make nodes.

    Args:
        engine: Whose tree it is.
        nodes: By path or name. A value is bytes, text, None, a :class:`Znode`, or a dict of the nodes below;
            what is missing on the way is made with empty data. A node that is there already gets the data.

    Raises:
        ValueError: A path is not legal or a value is none of these; nothing is made then.
    """
    for path, node in list(_flat("", nodes)):
        _make(engine, path, node)


def _flat(above: str, nodes: Mapping[str, Any]) -> Iterator[tuple[str, Znode]]:
    if not isinstance(nodes, Mapping):
        raise ValueError(f"{above or '/'}: {nodes!r} is not a dict of nodes by path or name")
    for name, value in nodes.items():
        if not isinstance(name, str):
            raise ValueError(f"{name!r} below {above or '/'} is no path or name")
        path = f"{above}/{name.strip('/')}" if name.strip("/") else above or "/"
        if (why := paths.path_error(path)) is not None:
            raise ValueError(f"{name!r} below {above or '/'} makes no path: {why}")
        if isinstance(value, Mapping):
            node = Znode(children=value)
        elif isinstance(value, Znode):
            node = value
        elif value is None or isinstance(value, bytes | str):
            node = Znode(value)
        else:
            raise ValueError(f"{path}: {value!r} is neither bytes, text, None, Znode nor a dict of children")
        if node.data is not None and not isinstance(node.data, bytes | str):
            raise ValueError(f"{path}: the data is {node.data!r}; it must be bytes, text or None")
        if not isinstance(node.acl, tuple) or not all(isinstance(entry, ACL) for entry in node.acl):
            raise ValueError(f"{path}: the acl is {node.acl!r}; it must be a tuple of ACL")
        if node.ttl is not None and not (isinstance(node.ttl, int | float) and _fits(node)):
            raise ValueError(f"{path}: a ttl of {node.ttl!r} s; it must be above 0, and not for a container")
        yield path, node
        yield from _flat("" if path == "/" else path, node.children)


def _fits(node: Znode) -> bool:
    assert node.ttl is not None
    return not node.container and 1 <= round(node.ttl * 1000) <= MAX_TTL


def _make(engine: Engine, path: str, node: Znode) -> None:
    data = node.data.encode() if isinstance(node.data, str) else node.data
    found = engine.tree.get(path)
    if found is not None:
        if data != b"" or found.data is None:
            engine.zxid += 1
            engine.tree.set_data(path, data, found.version + 1, engine.zxid, engine.now)
        return
    missing = []  # a list, not calls: a tree may be deeper than Python's stack
    above = path[: path.rindex("/")]
    while above and engine.tree.get(above) is None:
        missing.append(above)
        above = above[: above.rindex("/")]
    for ancestor in reversed(missing):
        _make(engine, ancestor, Znode())
    above = path[: path.rindex("/")]
    count = engine.tree.find(above).creates + 1
    txn: Record
    if node.container:
        txn = CreateContainerTxn(path, data, node.acl, count)
    elif node.ttl is not None:
        txn = CreateTTLTxn(path, data, node.acl, count, round(node.ttl * 1000))
    else:
        txn = CreateTxn(path, data, node.acl, False, count)
    engine.zxid += 1
    engine.apply(txn, 0)
