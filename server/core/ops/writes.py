"""Create, delete, setData, setACL and check: how they are prepared, and how they are applied.

The order of the checks decides which error a client receives; it is ZooKeeper's.

Source: PrepRequestProcessor.pRequest2Txn, pRequest2TxnCreate; DataTree.processTxn.
"""

from __future__ import annotations

from typing import NoReturn

from zoolet.protocol import paths
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import put_str
from zoolet.protocol.enums import (
    ANY_VERSION,
    EPHEMERAL_MODES,
    MAX_TTL,
    MODES,
    PLAIN_MODES,
    SEQUENTIAL_MODES,
    TTL_MODES,
    Perm,
    is_ttl_ms,
)
from zoolet.protocol.errors import (
    BadArgumentsError,
    BadVersionError,
    MarshallingError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    UnimplementedError,
)
from zoolet.protocol.operations import OpCode
from zoolet.protocol.paths import QUOTA, is_valid_name
from zoolet.protocol.txns import (
    CheckVersionTxn,
    CreateContainerTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    SetACLTxn,
    SetDataTxn,
)
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.node import CONTAINER_OWNER, Node, int32, is_session, ttl_owner
from zoolet.server.core.ops.dispatch import Prepared, applies, prepares
from zoolet.server.core.state import ServerState
from zoolet.server.core.tree import RESERVED

AnyCreateTxn = CreateTxn | CreateContainerTxn | CreateTTLTxn


# --- replies ---


def reply_path(txn: AnyCreateTxn, node: Node) -> bytes:
    """Return the path of the new node, with its sequence number."""
    return put_str(txn.path)


def reply_path_and_stat(txn: AnyCreateTxn, node: Node) -> bytes:
    """Return the path of the new node, with its sequence number, and its Stat."""
    return put_str(txn.path) + node.stat()


def reply_stat(txn: SetDataTxn | SetACLTxn, node: Node) -> bytes:
    """Return the new Stat."""
    return node.stat()


def reply_nothing(txn: object, outcome: object) -> bytes:
    """Return an empty body."""
    return b""


# --- create ---


@prepares({OpCode.CREATE: reply_path, OpCode.CREATE2: reply_path_and_stat})
def prepare_create(state: ServerState, client: ClientConnection, request: r.CreateRequest) -> Prepared[CreateTxn]:
    """Check the create of a persistent or ephemeral node."""
    flags = request.flags
    if flags not in PLAIN_MODES:
        refuse_flags(state, request, flags)
    path, acl, parent = check_create(state, client, request, flags)
    creates = parent.creates + 1
    cversion = creates if creates < 0x80000000 else int32(creates)
    return CreateTxn(path, request.data, acl, flags in EPHEMERAL_MODES, cversion), parent


@prepares({OpCode.CREATE_CONTAINER: reply_path_and_stat})
def prepare_create_container(
    state: ServerState, client: ClientConnection, request: r.CreateRequest
) -> Prepared[CreateContainerTxn]:
    """Check the create of a container; of the flags only the one for a sequence number has an effect."""
    flags = request.flags
    if flags not in PLAIN_MODES:
        refuse_flags(state, request, flags)
    path, acl, parent = check_create(state, client, request, flags)
    return CreateContainerTxn(path, request.data, acl, int32(parent.creates + 1)), parent


@prepares({OpCode.CREATE_TTL: reply_path_and_stat})
def prepare_create_ttl(
    state: ServerState, client: ClientConnection, request: r.CreateTTLRequest
) -> Prepared[CreateTTLTxn]:
    """Check the create of a TTL node.

    If the flags are not a TTL mode and the ttl is negative, Apache ZooKeeper stops serving; here the answer is
    BadArguments.
    """
    flags = request.flags
    if flags not in MODES:
        raise BadArgumentsError(request.path, f"unknown create flags {flags}")
    if flags in TTL_MODES and not state.settings.extended_types:
        raise UnimplementedError(request.path, "TTL nodes are disabled (extendedTypesEnabled)")
    if flags not in TTL_MODES or not is_ttl_ms(request.ttl):
        raise BadArgumentsError(
            request.path, f"a ttl of {request.ttl} ms with create flags {flags}; the limit is {MAX_TTL} ms"
        )
    path, acl, parent = check_create(state, client, request, flags)
    return CreateTTLTxn(path, request.data, acl, int32(parent.creates + 1), request.ttl), parent


def refuse_flags(state: ServerState, request: r.CreateRequest, flags: int) -> NoReturn:
    """Refuse flags that are unknown, or that need a ttl in a request without one.

    Raises:
        BadArgumentsError: The flags are unknown, or the ttl is missing.
        UnimplementedError: TTL nodes are disabled.
    """
    if flags in TTL_MODES and not state.settings.extended_types:
        raise UnimplementedError(request.path, "TTL nodes are disabled (extendedTypesEnabled)")
    raise BadArgumentsError(request.path, f"create flags {flags} cannot be used with this operation")


def check_create(
    state: ServerState, client: ClientConnection, request: r.CreateRequest | r.CreateTTLRequest, flags: int
) -> tuple[str, AclList, Node]:
    """Make the checks that all creates have in common, in this order: the path has a slash and no NUL, the ACL list is
    valid, the parent exists, CREATE permission on it, the name with its number is valid, there is no such node, the
    parent is not ephemeral, the quota.

    Returns:
        The path with its sequence number, the ACL list to store, and the parent.
    """
    path = request.path
    if path is None:
        raise MarshallingError(None, "a path must not be null")
    slash = path.rfind("/")
    if slash < 0 or "\0" in path:
        raise BadArgumentsError(path)
    asked = request.acl
    acl = OPEN_ACL_UNSAFE if asked is OPEN_ACL_UNSAFE else state.acls.normalized(asked, client, path)
    parent = state.tree.path_cache.get(path[:slash]) or state.tree.find(path[:slash])
    if parent.acl:
        state.acls.check(parent.acl, client, Perm.CREATE, path)
    if flags in SEQUENTIAL_MODES:
        path += paths.sequence_suffix(parent.creates)
    name = path[slash + 1 :]
    if slash == 1 or not is_valid_name(name):  # there is a parent, so a slash at 1 follows another one
        if path == "/":
            raise NodeExistsError(path)
        raise BadArgumentsError(path, paths.path_error(path) or "")
    if parent.children and name in parent.children:
        raise NodeExistsError(path)
    if parent.owner and is_session(parent.owner):
        raise NoChildrenForEphemeralsError(path)
    if state.quota.enforced:
        state.quota.check(path, 1, len(request.data or b""))
    return path, acl, parent


@applies(CreateTxn, CreateContainerTxn, CreateTTLTxn)
def apply_create(state: ServerState, txn: AnyCreateTxn, session_id: int, parent: Node | None) -> Node:
    """Add the node to the tree, and fire the watches on it and on its parent."""
    if type(txn) is CreateTxn:
        owner = session_id if txn.ephemeral else 0
    else:
        owner = CONTAINER_OWNER if isinstance(txn, CreateContainerTxn) else ttl_owner(txn.ttl)  # type: ignore[union-attr]
    path, watches = txn.path, state.watches
    acl = 0 if txn.acl is OPEN_ACL_UNSAFE else state.acls.intern(txn.acl or ())
    if parent is None:
        parent = state.tree.parent_of(path)
    node = state.tree.create(path, parent, txn.data, acl, owner, state.zxid, state.now)
    if watches.active:
        watches.created(path, acl, paths.parent(path), parent.acl, state.zxid)
    if state.quota.active or path.startswith(QUOTA):
        state.quota.created(path, node)
    return node


# --- delete ---


@prepares({OpCode.DELETE: reply_nothing})
def prepare_delete(state: ServerState, client: ClientConnection, request: r.DeleteRequest) -> Prepared[DeleteTxn]:
    """Check, in this order, the path, DELETE permission on the parent, that the node exists, its version, and that it
    has no children.
    """
    path = request.path
    if path is None:
        raise MarshallingError(None, "a path must not be null")
    slash = path.rfind("/")
    if slash < 0 or "\0" in path or path in RESERVED:
        raise BadArgumentsError(path)
    parent = state.tree.path_cache.get(path[:slash]) or state.tree.find(path[:slash])
    if parent.acl:
        state.acls.check(parent.acl, client, Perm.DELETE, path)
    node = parent.children.get(path[slash + 1 :]) if parent.children else None
    if node is None or slash == 1:  # as in check_create
        raise NoNodeError(path)
    if request.version not in (ANY_VERSION, node.version):
        raise bad_version(path, request.version, node.version)
    if node.children:
        raise NotEmptyError(path)
    return DeleteTxn(path), parent


@applies(DeleteTxn)
def apply_delete(state: ServerState, txn: DeleteTxn, session_id: int, parent: Node | None) -> None:
    """Remove the node from the tree, and fire the watches on it and on its parent."""
    path, watches = txn.path, state.watches
    if parent is None:
        parent = state.tree.parent_of(path)
    node = state.tree.delete(path, parent, state.zxid)
    if watches.active:
        watches.deleted(path, node.acl, paths.parent(path), parent.acl, state.zxid)
    if node.acl:
        state.acls.release(node.acl)
    if state.quota.active:
        state.quota.deleted(path, node)


# --- the others ---


def node_at(state: ServerState, path: str | None) -> Node:
    """Return the node at a path, which must be valid in every part.

    Raises:
        BadArgumentsError: The path is not valid.
        NoNodeError: There is no such node.
    """
    node = state.tree.get(path) if path else None
    if node is None:
        if (error := paths.path_error(path)) is not None:
            raise BadArgumentsError(path, error)
        raise NoNodeError(path)
    return node


def bad_version(path: str | None, expected: int, found: int) -> BadVersionError:
    """Return the error for a node that has another version than the expected one."""
    return BadVersionError(path, f"expected version {expected}, found {found}")


@prepares({OpCode.SET_DATA: reply_stat})
def prepare_set_data(state: ServerState, client: ClientConnection, request: r.SetDataRequest) -> Prepared[SetDataTxn]:
    """Check for WRITE permission, the quota and the version."""
    path = request.path
    node = (state.tree.path_cache.get(path) if path else None) or node_at(state, path)
    assert path is not None
    if node.acl:
        state.acls.check(node.acl, client, Perm.WRITE, path)
    if state.quota.enforced:
        state.quota.check(path, 0, len(request.data or b"") - len(node.data or b""))
    version = node.version
    if request.version not in (ANY_VERSION, version):
        raise bad_version(path, request.version, version)
    return SetDataTxn(path, request.data, version + 1 if version < 0x7FFFFFFF else int32(version + 1)), node


@applies(SetDataTxn)
def apply_set_data(state: ServerState, txn: SetDataTxn, session_id: int, node: Node | None) -> Node:
    """Replace the data, and fire the watches on the node."""
    path = txn.path
    quota = state.quota
    if node is None:
        node = state.tree.find(path)
    before = node.data
    state.tree.set_data(node, txn.data, txn.version, state.zxid, state.now)
    if state.watches.active:
        state.watches.changed(path, node.acl, state.zxid)
    if quota.active:
        quota.changed(path, before, node.data)
    return node


@prepares({OpCode.SET_ACL: reply_stat})
def prepare_set_acl(state: ServerState, client: ClientConnection, request: r.SetACLRequest) -> Prepared[SetACLTxn]:
    """Check the new list, for ADMIN permission, and the version of the old list."""
    path = request.path
    if (error := paths.path_error(path)) is not None:
        raise BadArgumentsError(path, error)
    assert path is not None
    acl = state.acls.normalized(request.acl, client, path)
    node = state.tree.find(path)
    state.acls.check(node.acl, client, Perm.ADMIN, path)
    if request.version not in (ANY_VERSION, node.aversion):
        raise bad_version(path, request.version, node.aversion)
    return SetACLTxn(path, acl, int32(node.aversion + 1)), node


@applies(SetACLTxn)
def apply_set_acl(state: ServerState, txn: SetACLTxn, session_id: int, node: Node | None) -> Node:
    """Replace the ACL list; no watch fires."""
    if node is None:
        node = state.tree.find(txn.path)
    before = node.acl
    state.tree.set_acl(node, state.acls.intern(txn.acl or ()), txn.version)
    state.acls.release(before)
    return node


@prepares({OpCode.CHECK: reply_nothing})
def prepare_check(
    state: ServerState, client: ClientConnection, request: r.CheckVersionRequest
) -> Prepared[CheckVersionTxn]:
    """Check that a node exists, may be read, and has the version."""
    path = request.path
    node = node_at(state, path)
    assert path is not None
    state.acls.check(node.acl, client, Perm.READ, path)
    if request.version not in (ANY_VERSION, node.version):
        raise bad_version(path, request.version, node.version)
    return CheckVersionTxn(path, request.version), node


@applies(CheckVersionTxn)
def apply_check(state: ServerState, txn: CheckVersionTxn, session_id: int, node: Node | None) -> None:
    """Do nothing: prepare has made the check."""
