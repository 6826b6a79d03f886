"""The writes create, delete, setData and setACL, the check of a version, and the functions that apply their records.

The order of the checks determines the error that a client receives. The order is the same as in ZooKeeper.

``make straight`` copies functions of this module into ``straight.py``, which serves clients. Run it after each change.

Source: PrepRequestProcessor.pRequest2Txn, PrepRequestProcessor.pRequest2TxnCreate, DataTree.processTxn.
"""

from __future__ import annotations

from typing import NoReturn

from ....protocol import paths
from ....protocol.acl import OPEN_ACL_UNSAFE, AclList
from ....protocol.codec import Record
from ....protocol.enums import (
    ANY_VERSION,
    CREATE_MODES,
    EPHEMERAL,
    MAX_TTL,
    PLAIN_MODES,
    SEQUENTIAL,
    TTL_MODES,
    Perm,
    is_ttl_ms,
)
from ....protocol.errors import (
    BadArgumentsError,
    BadVersionError,
    MarshallingError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    UnimplementedError,
)
from ....protocol.operations import OpCode
from ....protocol.paths import QUOTA, ROOT, is_valid_name
from ....protocol.txns import (
    CheckVersionTxn,
    CreateContainerTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    SetACLTxn,
    SetDataTxn,
)
from ..client_connection import ClientConnection
from ..node import CONTAINER_OWNER, Node, NodeOrLeaf, int32, is_session, ttl_owner, unpacked
from ..state import ServerState
from ..tree import RESERVED
from .dispatch import Outcome, applies, no_reply, path_and_stat_reply, path_reply, stat_reply, writes

AnyCreateTxn = CreateTxn | CreateContainerTxn | CreateTTLTxn


def log(state: ServerState, client: ClientConnection, op: int, txn: Record) -> None:
    """Pass the record of a transaction to ``state.record``, which must not be None."""
    assert state.record is not None
    state.record((client.session_id, client.last_xid, state.zxid, state.now, op, txn))


# --- create ---


@writes({OpCode.CREATE: path_reply, OpCode.CREATE2: path_and_stat_reply})
def create(
    state: ServerState,
    client: ClientConnection,
    op: int,
    path: str | None,
    data: bytes | None,
    acl: AclList | None,
    flags: int,
) -> Outcome:
    """Create a persistent or ephemeral node.

    Raises:
        ZooKeeperError: The flags are rejected by :func:`refuse_flags`, or a check of :func:`check_create` failed.
    """
    if flags not in PLAIN_MODES:
        refuse_flags(state, path, flags)
    path, name, acl, parent = check_create(state, client, path, data, acl, flags)
    is_ephemeral = flags & EPHEMERAL != 0
    owner = client.session.id if is_ephemeral and client.session is not None else 0  # session_id, inlined
    node = add(state, path, name, parent, data, acl, owner)
    if state.record is not None:
        log(state, client, op, CreateTxn(path, data, acl, is_ephemeral, parent.creates))
    return path, node


@writes({OpCode.CREATE_CONTAINER: path_and_stat_reply})
def create_container(
    state: ServerState,
    client: ClientConnection,
    op: int,
    path: str | None,
    data: bytes | None,
    acl: AclList | None,
    flags: int,
) -> Outcome:
    """Create a container. The only flag with an effect is the sequential bit.

    Raises:
        ZooKeeperError: The flags are rejected by :func:`refuse_flags`, or a check of :func:`check_create` failed.
    """
    if flags not in PLAIN_MODES:
        refuse_flags(state, path, flags)
    path, name, acl, parent = check_create(state, client, path, data, acl, flags)
    node = add(state, path, name, parent, data, acl, CONTAINER_OWNER)
    if state.record is not None:
        log(state, client, op, CreateContainerTxn(path, data, acl, parent.creates))
    return path, node


@writes({OpCode.CREATE_TTL: path_and_stat_reply})
def create_ttl(
    state: ServerState,
    client: ClientConnection,
    op: int,
    path: str | None,
    data: bytes | None,
    acl: AclList | None,
    flags: int,
    ttl: int,
) -> Outcome:
    """Create a TTL node.

    Raises:
        BadArgumentsError: The flags are unknown or not a TTL mode, or the ttl is not from 1 to MAX_TTL milliseconds.
            Apache ZooKeeper stops serving if the flags are not a TTL mode and the ttl is negative.
        UnimplementedError: The flags are a TTL mode, and TTL nodes are disabled.
        ZooKeeperError: A check of :func:`check_create` failed.
    """
    if flags not in CREATE_MODES:
        raise BadArgumentsError(path, f"unknown create flags {flags}")
    if flags in TTL_MODES and not state.settings.extended_types:
        raise UnimplementedError(path, "TTL nodes are disabled (extendedTypesEnabled)")
    if flags not in TTL_MODES or not is_ttl_ms(ttl):
        raise BadArgumentsError(path, f"invalid ttl of {ttl} ms for create flags {flags} (limit {MAX_TTL} ms)")
    path, name, acl, parent = check_create(state, client, path, data, acl, flags)
    node = add(state, path, name, parent, data, acl, ttl_owner(ttl))
    if state.record is not None:
        log(state, client, op, CreateTTLTxn(path, data, acl, parent.creates, ttl))
    return path, node


def refuse_flags(state: ServerState, path: str | None, flags: int) -> NoReturn:
    """Raise the error for create flags that are unknown, or that require a ttl, which the request does not contain.

    Raises:
        BadArgumentsError: The flags are unknown, or the ttl is missing.
        UnimplementedError: TTL nodes are disabled.
    """
    if flags in TTL_MODES and not state.settings.extended_types:
        raise UnimplementedError(path, "TTL nodes are disabled (extendedTypesEnabled)")
    raise BadArgumentsError(path, f"create flags {flags} cannot be used with this operation")


def check_create(
    state: ServerState,
    client: ClientConnection,
    path: str | None,
    data: bytes | None,
    acl: AclList | None,
    flags: int,
) -> tuple[str, str, AclList, Node]:
    """Check the conditions that all creates share, in ZooKeeper's order. The first failed check determines the error:

    - The path is not null (MarshallingError), and contains a slash and no NUL (BadArgumentsError).
    - The ACL list is valid (InvalidACLError; MarshallingError for some null ids).
    - The parent exists (NoNodeError), and the client has CREATE permission on it (NoAuthError).
    - The name, including its sequence number, is valid (BadArgumentsError; NodeExistsError for the root).
    - The node does not exist (NodeExistsError).
    - The parent is not ephemeral (NoChildrenForEphemeralsError).
    - The quota is not exceeded (QuotaExceededError), and its limits can be parsed (MarshallingError).

    Returns:
        The path and the name, each including a sequence number, the ACL list to store, and the parent.

    Raises:
        ZooKeeperError: A check failed; the error is the one named above.
    """
    if path is None:
        raise MarshallingError(None, "a path must not be null")
    above, slash, name = path.rpartition("/")
    if not slash or "\0" in path:
        raise BadArgumentsError(path)
    to_store = OPEN_ACL_UNSAFE if acl is OPEN_ACL_UNSAFE else state.acls.normalize(acl, client, path)
    parent = state.tree.path_cache.get(above) or state.tree.find(above)
    if parent.acl:
        state.acls.check(parent.acl, client, Perm.CREATE, path)
    if flags & SEQUENTIAL:
        suffix = paths.sequence_suffix(parent.creates)
        path += suffix
        name += suffix
        state.add_detail(path)
    if above == ROOT or not is_valid_name(name):  # if above is the root, the path starts with //
        if path == "/":
            raise NodeExistsError(path)
        raise BadArgumentsError(path, paths.path_error(path) or "")
    if parent.children and name in parent.children:
        raise NodeExistsError(path)
    if parent.owner and is_session(parent.owner):
        raise NoChildrenForEphemeralsError(path)
    if state.quota.enforced:
        state.quota.check(path, 1, len(data or b""))
    return path, name, to_store, parent


@applies(CreateTxn, CreateContainerTxn, CreateTTLTxn)
def apply_create(state: ServerState, txn: AnyCreateTxn, session_id: int) -> NodeOrLeaf:
    """Add the node of a transaction record to the tree, and fire the watches. Return the node or the packed leaf."""
    if isinstance(txn, CreateTxn):
        owner = session_id if txn.ephemeral else 0
    else:
        owner = CONTAINER_OWNER if isinstance(txn, CreateContainerTxn) else ttl_owner(txn.ttl)
    above, _, name = txn.path.rpartition("/")
    return add(state, txn.path, name, state.tree.find(above), txn.data, txn.acl or (), owner)


def add(
    state: ServerState, path: str, name: str, parent: Node, data: bytes | None, acl: AclList, owner: int
) -> NodeOrLeaf:
    """Add a node to the tree, fire the watches on the node and its parent, and count the node for the quotas."""
    acl_key = 0 if acl is OPEN_ACL_UNSAFE else state.acls.intern(acl)
    node = state.tree.create(path, name, parent, data, acl_key, owner, state.zxid, state.now)
    watches = state.watches
    if watches.active:
        watches.created(path, acl_key, paths.parent(path), parent.acl, state.zxid)
    if state.quota.active or (path >= QUOTA and path.startswith(QUOTA)):  # the comparison avoids most calls
        state.quota.created(path, len(data or b""))  # a stats node may count itself, with its initial data
    return node


# --- delete ---


@writes({OpCode.DELETE: no_reply})
def delete(state: ServerState, client: ClientConnection, op: int, path: str | None, version: int) -> Outcome:
    """Delete a node. The checks are in the order of the errors below.

    Raises:
        MarshallingError: The path is null.
        BadArgumentsError: The path contains a NUL or no slash, or the node exists in every tree (:data:`RESERVED`).
        NoNodeError: The parent does not exist.
        NoAuthError: The client has no DELETE permission on the parent.
        NoNodeError: The node does not exist.
        BadVersionError: The node has a different version.
        NotEmptyError: The node has children.
    """
    if path is None:
        raise MarshallingError(None, "a path must not be null")
    above, slash, name = path.rpartition("/")
    if not slash or "\0" in path or path in RESERVED:
        raise BadArgumentsError(path)
    parent = state.tree.path_cache.get(above) or state.tree.find(above)
    if parent.acl:
        state.acls.check(parent.acl, client, Perm.DELETE, path)
    node = parent.children.get(name) if parent.children else None
    if node is None or above == ROOT:  # if above is the root, the path starts with //
        raise NoNodeError(path)
    is_packed = isinstance(node, bytes)
    found = 0 if is_packed else node.version  # type: ignore[union-attr] # the node is not packed
    if version != ANY_VERSION and version != found:
        raise bad_version(path, version, found)
    if not is_packed and node.children:  # type: ignore[union-attr] # the node is not packed
        raise NotEmptyError(path)
    state.tree.delete(path, name, parent, node, state.zxid)
    if state.watches.active or state.quota.active or (not is_packed and node.acl):  # type: ignore[union-attr]
        finish_delete(state, path, unpacked(node) if isinstance(node, bytes) else node, parent)
    if state.record is not None:
        log(state, client, op, DeleteTxn(path))
    return path, node


@applies(DeleteTxn)
def apply_delete(state: ServerState, txn: DeleteTxn, session_id: int) -> Node:
    """Remove the node of a transaction record from the tree, and fire the watches. Return the node."""
    above, _, name = txn.path.rpartition("/")
    parent, node = state.tree.find(above), state.tree.find(txn.path)
    state.tree.delete(txn.path, name, parent, node, state.zxid)
    finish_delete(state, txn.path, node, parent)
    return node


def finish_delete(state: ServerState, path: str, node: Node, parent: Node) -> None:
    """Fire the watches on a deleted node and its parent, release its ACL list, and count the delete for the quotas."""
    if state.watches.active:
        state.watches.deleted(path, node.acl, paths.parent(path), parent.acl, state.zxid)
    if node.acl:
        state.acls.release(node.acl)
    if state.quota.active:
        state.quota.deleted(path, node)


# --- set data, set ACL, check ---


def node_at(state: ServerState, path: str | None) -> Node:
    """Return the node at a path.

    Raises:
        BadArgumentsError: The path is invalid or null.
        NoNodeError: The node does not exist.
    """
    node = state.tree.get(path) if path else None
    if node is None:
        if (error := paths.path_error(path)) is not None:
            raise BadArgumentsError(path, error)
        raise NoNodeError(path)
    return node


def bad_version(path: str | None, expected: int, found: int) -> BadVersionError:
    """Return the error for a node whose version is not the expected one."""
    return BadVersionError(path, f"version mismatch: expected {expected}, found {found}")


@writes({OpCode.SET_DATA: stat_reply})
def set_data(
    state: ServerState, client: ClientConnection, op: int, path: str | None, data: bytes | None, version: int
) -> Outcome:
    """Replace the data of a node. The checks are in the order of the errors below.

    Raises:
        BadArgumentsError: The path is invalid or null.
        NoNodeError: The node does not exist.
        NoAuthError: The client has no WRITE permission.
        QuotaExceededError: The change would exceed a hard limit.
        MarshallingError: The limits of the quota cannot be parsed.
        BadVersionError: The node has a different version.
    """
    node = (state.tree.path_cache.get(path) if path else None) or node_at(state, path)
    assert path is not None
    if node.acl:
        state.acls.check(node.acl, client, Perm.WRITE, path)
    if state.quota.enforced:
        state.quota.check(path, 0, len(data or b"") - len(node.data or b""))
    old = node.version
    if version != ANY_VERSION and version != old:
        raise bad_version(path, version, old)
    new = old + 1 if old < 0x7FFFFFFF else int32(old + 1)
    replace_data(state, path, node, data, new)
    if state.record is not None:
        log(state, client, op, SetDataTxn(path, data, new))
    return path, node


@applies(SetDataTxn)
def apply_set_data(state: ServerState, txn: SetDataTxn, session_id: int) -> Node:
    """Replace the data of the node of a transaction record, and fire the watches. Return the node."""
    node = state.tree.find(txn.path)
    replace_data(state, txn.path, node, txn.data, txn.version)
    return node


def replace_data(state: ServerState, path: str, node: Node, data: bytes | None, version: int) -> None:
    """Replace the data of a node, fire the watches on it, and count the change for the quotas."""
    before, quota = node.data, state.quota
    state.tree.set_data(node, data, version, state.zxid, state.now)
    if state.watches.active:
        state.watches.changed(path, node.acl, state.zxid)
    if quota.active:
        quota.changed(path, before, data)


@writes({OpCode.SET_ACL: stat_reply})
def set_acl(
    state: ServerState, client: ClientConnection, op: int, path: str | None, acl: AclList | None, version: int
) -> Outcome:
    """Replace the ACL list of a node. The checks are in the order of the errors below.

    Raises:
        BadArgumentsError: The path is invalid or null.
        InvalidACLError: The new list is invalid.
        MarshallingError: An entry of the new list contains a null that ZooKeeper would have to read.
        NoNodeError: The node does not exist.
        NoAuthError: The client has no ADMIN permission.
        BadVersionError: The node has a different ACL version.
    """
    if (error := paths.path_error(path)) is not None:
        raise BadArgumentsError(path, error)
    assert path is not None
    acl = state.acls.normalize(acl, client, path)
    node = state.tree.find(path)
    state.acls.check(node.acl, client, Perm.ADMIN, path)
    if version not in (ANY_VERSION, node.aversion):
        raise bad_version(path, version, node.aversion)
    txn = SetACLTxn(path, acl, int32(node.aversion + 1))
    apply_set_acl(state, txn, 0)
    if state.record is not None:
        log(state, client, op, txn)
    return path, node


@applies(SetACLTxn)
def apply_set_acl(state: ServerState, txn: SetACLTxn, session_id: int) -> Node:
    """Replace the ACL list of the node of a transaction record, and return the node. No watch fires."""
    node = state.tree.find(txn.path)
    before = node.acl
    state.tree.set_acl(node, state.acls.intern(txn.acl or ()), txn.version)
    state.acls.release(before)
    return node


@writes({OpCode.CHECK: no_reply})
def check(state: ServerState, client: ClientConnection, op: int, path: str | None, version: int) -> Outcome:
    """Check the version of a node, for a transaction. The checks are in the order of the errors below.

    Raises:
        BadArgumentsError: The path is invalid or null.
        NoNodeError: The node does not exist.
        NoAuthError: The client has no READ permission.
        BadVersionError: The node has a different version.
    """
    node = node_at(state, path)
    assert path is not None
    state.acls.check(node.acl, client, Perm.READ, path)
    if version not in (ANY_VERSION, node.version):
        raise bad_version(path, version, node.version)
    if state.record is not None:
        log(state, client, op, CheckVersionTxn(path, version))
    return path, node


@applies(CheckVersionTxn)
def apply_check(state: ServerState, txn: CheckVersionTxn, session_id: int) -> None:
    """Do nothing, because the check was made before the transaction was logged."""
