"""Transaction records: the result of preparing a write, and the content of a ZooKeeper transaction log.

Source: zookeeper.jute, module org.apache.zookeeper.txn.
"""

from typing import Final

from .acl import Acls
from .codec import Bool, Int, Long, Record, record

DIGEST_VERSION: Final = 2
"""The version of the algorithm that ZooKeeper uses for the digests of trees."""


@record
class TxnHeader(Record):
    """The header of a transaction: session, xid, zxid, time in milliseconds since the epoch, and type."""

    clientId: Long
    cxid: Int
    zxid: Long
    time: Long
    type: Int


@record
class CreateTxn(Record):
    """Create a persistent or ephemeral node.

    ``parentCVersion`` is the number of children ever created below the parent, including this node. It is only used in
    files, because zoolet counts the children itself.
    """

    path: str
    data: bytes | None
    acl: Acls
    ephemeral: Bool
    parentCVersion: Int


@record
class CreateContainerTxn(Record):
    """Create a container node."""

    path: str
    data: bytes | None
    acl: Acls
    parentCVersion: Int


@record
class CreateTTLTxn(Record):
    """Create a node that is deleted when it has no children and has not changed for ``ttl`` milliseconds."""

    path: str
    data: bytes | None
    acl: Acls
    parentCVersion: Int
    ttl: Long


@record
class DeleteTxn(Record):
    """Delete a node."""

    path: str


@record
class SetDataTxn(Record):
    """Replace a node's data. ``version`` is the new version."""

    path: str
    data: bytes | None
    version: Int


@record
class CheckVersionTxn(Record):
    """A successful version check, which changes nothing."""

    path: str
    version: Int


@record
class SetACLTxn(Record):
    """Replace a node's ACL list. ``version`` is the new ``aversion``."""

    path: str
    acl: Acls
    version: Int


@record
class CreateSessionTxn(Record):
    """Open a session. ``timeOut`` is in milliseconds."""

    timeOut: Int


@record
class CloseSessionTxn(Record):
    """Close a session and delete its ephemeral nodes."""

    paths2Delete: list[str]


@record
class ErrorTxn(Record):
    """A failed write, which used up a zxid and changed nothing. ``err`` is the error code."""

    err: Int


@record
class Txn(Record):
    """One operation of a MultiTxn: the op code and the encoded record."""

    type: Int
    data: bytes


@record
class MultiTxn(Record):
    """The operations of a multi, which were applied together."""

    txns: list[Txn]


@record
class TxnDigest(Record):
    """The digest of the whole tree after a transaction, as a signed number. In a log it follows the transaction."""

    version: Int
    digest: Long
