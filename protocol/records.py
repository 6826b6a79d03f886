"""Every data, request and response record of ``zookeeper.jute``, declared once.

A field that is declared without ``None`` does not decode from null: the request is answered with MarshallingError.
"""

from zoolet.protocol.acl import Acls
from zoolet.protocol.codec import Bool, Int, Long, Record, cached_decode, record


@record
class Stat(Record):
    """What a client may know of a node besides its data.

    Times are milliseconds since the epoch. ``cversion`` counts creations and deletions of children; ``ephemeralOwner``
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


@record
class ClientInfo(Record):
    """One identity of a connection, as whoAmI shows it."""

    scheme: str | None
    user: str | None


# --- headers ---


@record
class RequestHeader(Record):
    """Stands before the body of every request but the first."""

    xid: Int
    opcode: Int


@record
class ReplyHeader(Record):
    """Stands before the body of every reply but the first."""

    xid: Int
    zxid: Long
    err: Int


@record
class MultiHeader(Record):
    """Stands before each operation, and each result, of a transaction; ``done`` ends the list."""

    type: Int
    done: Bool
    err: Int


@record
class WatcherEvent(Record):
    """A watch has fired; travels in a reply with xid -1."""

    type: Int
    state: Int
    path: str


# --- requests ---


@record
class EmptyRequest(Record):
    """The body of an operation that takes no arguments; whatever follows the header is ignored."""


@record
class CreateRequest(Record):
    """Make a node; ``flags`` is a CreateMode."""

    path: str | None
    data: bytes | None
    acl: Acls
    flags: Int


@record
class CreateTTLRequest(Record):
    """Make a node that goes away when it has no children and was not changed for ``ttl`` milliseconds."""

    path: str | None
    data: bytes | None
    acl: Acls
    flags: Int
    ttl: Long


@record
class DeleteRequest(Record):
    """Remove a node if its version is still ``version``; -1 means whatever it is."""

    path: str | None
    version: Int


@cached_decode
@record
class ExistsRequest(Record):
    """Ask for a node's Stat; a watch is set whether it exists or not."""

    path: str
    watch: Bool


@cached_decode
@record
class GetDataRequest(Record):
    """Ask for a node's data and Stat."""

    path: str
    watch: Bool


@record
class SetDataRequest(Record):
    """Replace a node's data if its version is still ``version``; -1 means whatever it is."""

    path: str | None
    data: bytes | None
    version: Int


@record
class GetACLRequest(Record):
    """Ask for a node's ACL list and Stat."""

    path: str


@record
class SetACLRequest(Record):
    """Replace a node's ACL list if its ``aversion`` is still ``version``; -1 means whatever it is."""

    path: str | None
    acl: Acls
    version: Int


@cached_decode
@record
class GetChildrenRequest(Record):
    """Ask for the names of a node's children (getChildren and getChildren2)."""

    path: str
    watch: Bool


@record
class SyncRequest(Record):
    """Ask for nothing, in order: the reply comes after all that was sent before."""

    path: str | None


@record
class CheckVersionRequest(Record):
    """Inside a transaction: go on only if the node's version is ``version``; -1 means if it exists."""

    path: str | None
    version: Int


@record
class ReconfigRequest(Record):
    """Change the members of an ensemble."""

    joiningServers: str | None
    leavingServers: str | None
    newMembers: str | None
    curConfigId: Long


@record
class CheckWatchesRequest(Record):
    """Ask whether a watch is set; ``type`` is a WatcherType."""

    path: str | None
    type: Int


@record
class RemoveWatchesRequest(Record):
    """Remove watches; ``type`` is a WatcherType."""

    path: str | None
    type: Int


@record
class AddWatchRequest(Record):
    """Set a watch that stays; ``mode`` is an AddWatchMode."""

    path: str | None
    mode: Int


@record
class SetWatches(Record):
    """Set the watches of a lost connection again; what changed after ``relativeZxid`` fires at once."""

    relativeZxid: Long
    dataWatches: list[str | None] | None
    existWatches: list[str | None] | None
    childWatches: list[str | None] | None


@record
class SetWatches2(Record):
    """SetWatches with the watches that stay."""

    relativeZxid: Long
    dataWatches: list[str | None] | None
    existWatches: list[str | None] | None
    childWatches: list[str | None] | None
    persistentWatches: list[str | None] | None
    persistentRecursiveWatches: list[str | None] | None


@record
class GetEphemeralsRequest(Record):
    """Ask for the paths of the session's own ephemeral nodes that start with a prefix."""

    prefixPath: str | None


@record
class GetAllChildrenNumberRequest(Record):
    """Ask how many nodes lie below a node, at any depth."""

    path: str


@record
class AuthPacket(Record):
    """Add an identity to the connection; ``type`` is always 0."""

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
    """The path of the node that was made, sequence number included."""

    path: str


@record
class Create2Response(Record):
    """The path and the Stat of the node that was made."""

    path: str
    stat: Stat


@record
class StatResponse(Record):
    """The body of a reply to exists, setData and setACL."""

    stat: Stat


@record
class GetDataResponse(Record):
    """A node's data, null included, and Stat."""

    data: bytes | None
    stat: Stat


@record
class GetACLResponse(Record):
    """A node's ACL list and Stat."""

    acl: Acls
    stat: Stat


@record
class GetChildrenResponse(Record):
    """The names of a node's children, in no promised order."""

    children: list[str]


@record
class GetChildren2Response(Record):
    """The names of a node's children and its own Stat."""

    children: list[str]
    stat: Stat


@record
class SyncResponse(Record):
    """The path of the request."""

    path: str | None


@record
class GetEphemeralsResponse(Record):
    """Full paths of ephemeral nodes."""

    ephemerals: list[str]


@record
class GetAllChildrenNumberResponse(Record):
    """How many nodes lie below the node."""

    totalNumber: Int


@record
class ErrorResponse(Record):
    """An error code as a body: in the results of a failed transaction, and 0 in the reply to addWatch."""

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
    """The body of a reply that says no more than its header."""
