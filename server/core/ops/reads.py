"""The reads. Each handler returns the encoded body of its reply, and changes nothing except the watches.

``make straight`` copies functions of this module into ``straight.py``, which serves clients. Run it after each change.

Source: FinalRequestProcessor.processRequest.
"""

from __future__ import annotations

from ....protocol import records as r
from ....protocol.acl import mask_digest
from ....protocol.codec import pack_int, put_str, put_strs
from ....protocol.enums import Perm
from ....protocol.errors import BadArgumentsError, NoNodeError
from ....protocol.operations import OpCode
from ..client_connection import ClientConnection
from ..node import Node
from ..state import ServerState
from ..watches import CHILD, DATA, STANDARD
from .dispatch import reads

NO_NAMES = put_strs([])
"""The encoded list of names of a node without children."""


@reads(OpCode.GET_DATA)
def get_data(state: ServerState, client: ClientConnection, request: r.GetDataRequest) -> bytes:
    """Return the data and the Stat of a node. Set the requested watch only if the node exists and may be read.

    Raises:
        NoNodeError: The node does not exist, or the path is invalid.
        NoAuthError: The client has no READ permission.
        ThrottledOpError: The watch would exceed a limit.
    """
    node = state.tree.path_cache.get(request.path) or state.tree.find(request.path)
    if node.acl:
        state.acls.check(node.acl, client, Perm.READ, request.path)
    if request.watch:
        state.watches.add(client, DATA, request.path, STANDARD)
    data, size = (node.data, len(node.data)) if node.data is not None else (b"", -1)
    return pack_int(size) + data + (node.encoding or node.stat())


@reads(OpCode.EXISTS)
def exists(state: ServerState, client: ClientConnection, request: r.ExistsRequest) -> bytes:
    """Return the Stat of a node. Set the requested watch even if the node does not exist.

    Raises:
        BadArgumentsError: The path contains a NUL.
        NoAuthError: The client has no READ permission, if the imitated release checks it.
        ThrottledOpError: The watch would exceed a limit.
        NoNodeError: The node does not exist.
    """
    if "\0" in request.path:
        raise BadArgumentsError(request.path)
    node = state.tree.path_cache.get(request.path) or state.tree.get(request.path)
    if node is not None and node.acl and state.settings.compat.exists_needs_read:
        state.acls.check(node.acl, client, Perm.READ, request.path)
    if request.watch:
        state.watches.add(client, DATA, request.path, STANDARD)
    if node is None:
        raise NoNodeError(request.path)
    return node.encoding or node.stat()


def list_children(state: ServerState, client: ClientConnection, request: r.GetChildrenRequest) -> tuple[bytes, Node]:
    """Return the encoded names of a node's children, and the node. Set the requested watch.

    Raises:
        NoNodeError: The node does not exist, or the path is invalid.
        NoAuthError: The client has no READ permission.
        ThrottledOpError: The watch would exceed a limit.
    """
    node = state.tree.path_cache.get(request.path) or state.tree.find(request.path)
    if node.acl:
        state.acls.check(node.acl, client, Perm.READ, request.path)
    if request.watch:
        state.watches.add(client, CHILD, request.path, STANDARD)
    names = node.children.encoded() if node.children else NO_NAMES
    return names, node


@reads(OpCode.GET_CHILDREN)
def get_children(state: ServerState, client: ClientConnection, request: r.GetChildrenRequest) -> bytes:
    """Return the names of a node's children, and set the requested watch.

    Raises:
        ZooKeeperError: See :func:`list_children`.
    """
    names, _ = list_children(state, client, request)
    return names


@reads(OpCode.GET_CHILDREN2)
def get_children2(state: ServerState, client: ClientConnection, request: r.GetChildrenRequest) -> bytes:
    """Return the names of a node's children and its Stat, and set the requested watch.

    Raises:
        ZooKeeperError: See :func:`list_children`.
    """
    names, node = list_children(state, client, request)
    return names + (node.encoding or node.stat())


@reads(OpCode.GET_ALL_CHILDREN_NUMBER, costly=True)
def get_all_children_number(
    state: ServerState, client: ClientConnection, request: r.GetAllChildrenNumberRequest
) -> bytes:
    """Return the number of nodes below a node, at any depth. For the empty path, the result includes the root.

    Raises:
        NoNodeError: The node does not exist, or the path is invalid.
        NoAuthError: The client has no READ permission.

    Source: DataTree.getAllChildrenNumber.
    """
    node = state.tree.find(request.path)
    state.acls.check(node.acl, client, Perm.READ, request.path)
    return pack_int(state.tree.count_below(node) + (request.path == ""))


@reads(OpCode.GET_ACL, costly=True)
def get_acl(state: ServerState, client: ClientConnection, request: r.GetACLRequest) -> bytes:
    """Return the ACL list and the Stat of a node. Password hashes are masked unless the client has ADMIN permission.

    Raises:
        NoNodeError: The node does not exist, or the path is invalid.
        NoAuthError: The client has neither READ nor ADMIN permission.
    """
    node = state.tree.find(request.path)
    state.acls.check(node.acl, client, Perm.READ | Perm.ADMIN, request.path)
    acl = state.acls.list(node.acl)
    if not state.acls.allows(node.acl, client, Perm.ADMIN):
        acl = tuple(mask_digest(entry) for entry in acl)
    return r.GetACLResponse(acl, r.Stat.decode(node.stat())).encode()


@reads(OpCode.GET_EPHEMERALS, costly=True)
def get_ephemerals(state: ServerState, client: ClientConnection, request: r.GetEphemeralsRequest) -> bytes:
    """Return the paths of the session's ephemeral nodes that start with a prefix.

    The prefix is compared as text, not by path parts. A null or blank prefix, and ``/``, match all paths.
    """
    assert client.session is not None
    owned = state.tree.ephemerals.get(client.session.id)
    prefix = request.prefixPath or ""
    if owned is None:
        return put_strs([])
    return put_strs(list(owned) if not prefix.strip() or prefix == "/" else owned.with_prefix(prefix))


@reads(OpCode.SYNC)
def sync(state: ServerState, client: ClientConnection, request: r.SyncRequest) -> bytes:
    """Return the path without waiting, because a single server has already applied all earlier requests."""
    return put_str(request.path)


@reads(OpCode.WHO_AM_I, costly=True)
def who_am_i(state: ServerState, client: ClientConnection, request: r.EmptyRequest) -> bytes:
    """Return the connection's identities. For a digest identity, return only the user name.

    Source: AuthUtil.getClientInfos.
    """
    return r.WhoAmIResponse(
        [
            r.ClientInfo(
                identity.scheme, (identity.id or "").partition(":")[0] if identity.scheme == "digest" else identity.id
            )
            for identity in client.ids
        ]
    ).encode()
