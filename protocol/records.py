"""The data, request and response records of ``zookeeper.jute``, in the order of their fields on the wire.

A null in a field that is declared without ``None`` cannot be decoded. The reply to such a request is MarshallingError.
"""

from .acl import Acls
from .codec import Bool, Int, Long, Record, record


@record
class Stat(Record):
    """The metadata of a node.

    Times are milliseconds since the epoch. ``cversion`` counts creates and deletes of children. ``ephemeralOwner``
    is the session id for an ephemeral node and 0 for every other kind.
    """

    czxid: Long
    mzxid: Long
    ctime: Long
    mtime: Long
    version: Int
    cversion: Int
    aversion: Int
    ephemeralOwner: Long
    dataLength: Int
    numChildren: Int
    pzxid: Long


def children_created(stat: Stat) -> int:
    """Return the number of children that were ever created below a node, modulo 2**31.

    The ``cversion`` is the number of creates plus the number of deletes, and ``numChildren`` is the number of creates
    minus the number of deletes. Half of their sum is therefore the number of creates.
    """
    return ((stat.cversion + stat.numChildren) & 0xFFFFFFFF) >> 1


@record
class ClientInfo(Record):
    """One identity of a connection, as whoAmI shows it."""

    scheme: str | None
    user: str | None


# --- headers ---


@record
class RequestHeader(Record):
    """The header before the body of every request except the connect request."""

    xid: Int
    opcode: Int


@record
class ReplyHeader(Record):
    """The header before the body of every reply except the connect response."""

    xid: Int
    zxid: Long
    err: Int


@record
class MultiHeader(Record):
    """The header before each operation and each result of a transaction.

    A header with ``done`` is the last in the list.
    """

    type: Int
    done: Bool
    err: Int


@record
class WatcherEvent(Record):
    """A watch event, which is sent as a reply with xid -1."""

    type: Int
    state: Int
    path: str


# --- requests ---


@record
class EmptyRequest(Record):
    """The empty body of a request for an operation without arguments. Bytes after the header are ignored."""


@record
class CreateRequest(Record):
    """Create a znode. ``flags`` is a CreateMode."""

    path: str | None
    data: bytes | None
    acl: Acls
    flags: Int


@record
class CreateTTLRequest(Record):
    """Create a znode that the server deletes when it has no children and has not changed for ``ttl`` milliseconds."""

    path: str | None
    data: bytes | None
    acl: Acls
    flags: Int
    ttl: Long


@record
class DeleteRequest(Record):
    """Delete a node if its version is ``version``. -1 matches any version."""

    path: str | None
    version: Int


@record
class ExistsRequest(Record):
    """Request a node's Stat. ``watch`` sets a data watch, even if the node does not exist."""

    path: str
    watch: Bool


@record
class GetDataRequest(Record):
    """Request a node's data and Stat. ``watch`` sets a data watch if the node exists."""

    path: str
    watch: Bool


@record
class SetDataRequest(Record):
    """Replace a node's data if its version is ``version``. -1 matches any version."""

    path: str | None
    data: bytes | None
    version: Int


@record
class GetACLRequest(Record):
    """Request a node's ACL list and Stat."""

    path: str


@record
class SetACLRequest(Record):
    """Replace a node's ACL list if its ``aversion`` is ``version``. -1 matches any version."""

    path: str | None
    acl: Acls
    version: Int


@record
class GetChildrenRequest(Record):
    """Request the names of a node's children (getChildren and getChildren2). ``watch`` sets a child watch."""

    path: str
    watch: Bool


@record
class SyncRequest(Record):
    """Wait until the server has applied all writes that were committed before the request.

    The reply contains ``path``.
    """

    path: str | None


@record
class CheckVersionRequest(Record):
    """Fail a transaction unless the node exists and its version is ``version``. -1 matches any version."""

    path: str | None
    version: Int


@record
class ReconfigRequest(Record):
    """Change the members of an ensemble: by joining and leaving members, or by a complete new list.

    ``curConfigId`` is the version that the configuration must have; -1 for any version.
    """

    joiningServers: str | None
    leavingServers: str | None
    newMembers: str | None
    curConfigId: Long


@record
class CheckWatchesRequest(Record):
    """Check whether a watch is set on a path. ``type`` is a WatcherType."""

    path: str | None
    type: Int


@record
class RemoveWatchesRequest(Record):
    """Remove the connection's watches on a path. ``type`` is a WatcherType."""

    path: str | None
    type: Int


@record
class AddWatchRequest(Record):
    """Set a persistent watch. ``mode`` is an AddWatchMode."""

    path: str | None
    mode: Int


@record
class SetWatches(Record):
    """Restore the watches of a lost connection.

    Watches that missed a change since ``relativeZxid`` fire immediately.
    """

    relativeZxid: Long
    dataWatches: list[str | None] | None
    existWatches: list[str | None] | None
    childWatches: list[str | None] | None


@record
class SetWatches2(Record):
    """Restore the watches of a lost connection, including persistent and recursive watches. See :class:`SetWatches`."""

    relativeZxid: Long
    dataWatches: list[str | None] | None
    existWatches: list[str | None] | None
    childWatches: list[str | None] | None
    persistentWatches: list[str | None] | None
    persistentRecursiveWatches: list[str | None] | None


@record
class GetEphemeralsRequest(Record):
    """Request the paths of the session's own ephemeral nodes that start with a prefix."""

    prefixPath: str | None


@record
class GetAllChildrenNumberRequest(Record):
    """Request the number of nodes below a node, at any depth."""

    path: str


@record
class AuthPacket(Record):
    """Add an identity to the connection. ``type`` is always 0."""

    type: Int
    scheme: str | None
    auth: bytes | None


@record
class GetSASLRequest(Record):
    """One step of a SASL exchange, from the client."""

    token: bytes


# --- responses ---


@record
class CreateResponse(Record):
    """The path of the new node, including its sequence number."""

    path: str


@record
class Create2Response(Record):
    """The path and the Stat of the new node."""

    path: str
    stat: Stat


@record
class StatResponse(Record):
    """The body of a reply to exists, setData and setACL."""

    stat: Stat


@record
class GetDataResponse(Record):
    """A node's data, which may be null, and its Stat."""

    data: bytes | None
    stat: Stat


@record
class GetACLResponse(Record):
    """A node's ACL list and Stat."""

    acl: Acls
    stat: Stat


@record
class GetChildrenResponse(Record):
    """The names of a node's children, in unspecified order."""

    children: list[str]


@record
class GetChildren2Response(Record):
    """The names of a node's children and its own Stat."""

    children: list[str]
    stat: Stat


@record
class SyncResponse(Record):
    """The path of the sync request, returned unchanged."""

    path: str | None


@record
class GetEphemeralsResponse(Record):
    """The full paths of the session's ephemeral nodes that start with the requested prefix."""

    ephemerals: list[str]


@record
class GetAllChildrenNumberResponse(Record):
    """The number of nodes below a node, at any depth."""

    totalNumber: Int


@record
class ErrorResponse(Record):
    """An error code: a result of a failed transaction, or the body of the reply to addWatch, where it is always 0."""

    err: Int


@record
class WhoAmIResponse(Record):
    """The identities of the connection."""

    clientInfo: list[ClientInfo]


@record
class SetSASLResponse(Record):
    """One step of a SASL exchange, from the server."""

    token: bytes | None


@record
class EmptyResponse(Record):
    """The body of a reply that consists of its header alone."""
