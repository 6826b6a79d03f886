"""What looks at the tree: each gives the encoded body of its reply and changes nothing but the watch tables.

Source: FinalRequestProcessor.processRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, AclList, Id
from zoolet.protocol.codec import pack_int, put_str, put_strs
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import BadArgumentsError, NoNodeError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.ops.dispatch import reads
from zoolet.server.core.watches import CHILD, DATA, STANDARD

if TYPE_CHECKING:
    from zoolet.server.core.client_connection import ClientConnection
    from zoolet.server.core.engine import Engine


@reads(OpCode.GET_DATA)
def get_data(engine: Engine, client: ClientConnection, request: r.GetDataRequest) -> bytes:
    """Return data and Stat; the watch is set only if that works."""
    node = engine.tree.find(request.path)
    if node.acl:
        engine.acls.check(node.acl, client, Perm.READ, request.path)
    if request.watch:
        engine.watches.add(client, DATA, request.path, STANDARD)
    data = node.data
    if data is None:
        return node.encoded_data() + node.stat()
    return pack_int(len(data)) + data + node.stat()


@reads(OpCode.EXISTS)
def exists(engine: Engine, client: ClientConnection, request: r.ExistsRequest) -> bytes:
    """Return the Stat; the watch is set also when there is no such node."""
    if "\0" in request.path:
        raise BadArgumentsError(request.path)
    node = engine.tree.get(request.path)
    if node is not None and node.acl and engine.settings.compat.exists_needs_read:
        engine.acls.check(node.acl, client, Perm.READ, request.path)
    if request.watch:
        engine.watches.add(client, DATA, request.path, STANDARD)
    if node is None:
        raise NoNodeError(request.path)
    return node.stat()


def _children(engine: Engine, client: ClientConnection, request: r.GetChildrenRequest) -> tuple[bytes, bytes]:
    node = engine.tree.find(request.path)
    if node.acl:
        engine.acls.check(node.acl, client, Perm.READ, request.path)
    if request.watch:
        engine.watches.add(client, CHILD, request.path, STANDARD)
    return node.children.encoded() if node.children else put_strs([]), node.stat()


@reads(OpCode.GET_CHILDREN)
def get_children(engine: Engine, client: ClientConnection, request: r.GetChildrenRequest) -> bytes:
    """Return the names of a node's children."""
    return _children(engine, client, request)[0]


@reads(OpCode.GET_CHILDREN2)
def get_children2(engine: Engine, client: ClientConnection, request: r.GetChildrenRequest) -> bytes:
    """Return the names of a node's children, and its own Stat."""
    names, stat = _children(engine, client, request)
    return names + stat


@reads(OpCode.GET_ALL_CHILDREN_NUMBER, costly=True)
def get_all_children_number(engine: Engine, client: ClientConnection, request: r.GetAllChildrenNumberRequest) -> bytes:
    """Count the nodes below a node; the empty path counts the root as well.

    Source: DataTree.getAllChildrenNumber.
    """
    node = engine.tree.find(request.path)
    engine.acls.check(node.acl, client, Perm.READ, request.path)
    return pack_int(engine.tree.count_below(node) + (request.path == ""))


@reads(OpCode.GET_ACL, costly=True)
def get_acl(engine: Engine, client: ClientConnection, request: r.GetACLRequest) -> bytes:
    """Return the ACL list and the Stat; digests are masked for those who may not change the list."""
    node = engine.tree.find(request.path)
    engine.acls.check(node.acl, client, Perm.READ | Perm.ADMIN, request.path)
    acl = engine.acls.list(node.acl)
    if not engine.acls.allows(node.acl, client, Perm.ADMIN):
        acl = _masked(acl)
    return r.GetACLResponse(acl, r.Stat.decode(node.stat())).encode()


def _masked(acl: AclList) -> AclList:
    return tuple(
        ACL(entry.perms, Id("digest", (entry.id.id or "").partition(":")[0] + ":x"))
        if entry.id.scheme == "digest"
        else entry
        for entry in acl
    )


@reads(OpCode.GET_EPHEMERALS, costly=True)
def get_ephemerals(engine: Engine, client: ClientConnection, request: r.GetEphemeralsRequest) -> bytes:
    """Return the session's own ephemeral nodes; the prefix is one of strings, not of path parts."""
    assert client.session is not None
    mine = engine.tree.ephemerals.get(client.session.id)
    prefix = request.prefixPath or ""
    if mine is None:
        return put_strs([])
    return put_strs(list(mine) if not prefix.strip() or prefix == "/" else mine.with_prefix(prefix))


@reads(OpCode.SYNC)
def sync(engine: Engine, client: ClientConnection, request: r.SyncRequest) -> bytes:
    """Return the path back: with one server everything sent before has happened."""
    return put_str(request.path)


@reads(OpCode.WHO_AM_I, costly=True)
def who_am_i(engine: Engine, client: ClientConnection, request: r.EmptyRequest) -> bytes:
    """Return the connection's identities; of a digest only the user.

    Source: AuthUtil.getClientInfos.
    """
    return r.WhoAmIResponse(
        [
            r.ClientInfo(one.scheme, (one.id or "").partition(":")[0] if one.scheme == "digest" else one.id)
            for one in client.ids
        ]
    ).encode()
