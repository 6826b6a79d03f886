"""Transaction records: what a write becomes once it has been checked, and what a ZooKeeper log holds.

Source: zookeeper.jute, module org.apache.zookeeper.txn.
"""

from zoolet.protocol.acl import Acls
from zoolet.protocol.codec import Bool, Int, Long, Record, record


@record
class TxnHeader(Record):
    """Who did it, where it stands in the order, when (milliseconds since the epoch), and which kind it is."""

    clientId: Long
    cxid: Int
    zxid: Long
    time: Long
    type: Int


@record
class CreateTxn(Record):
    """Make a persistent or ephemeral node; ``parentCVersion`` counts the children ever made, this one included."""

    path: str
    data: bytes | None
    acl: Acls
    ephemeral: Bool
    parentCVersion: Int


@record
class CreateContainerTxn(Record):
    """Make a container node."""

    path: str
    data: bytes | None
    acl: Acls
    parentCVersion: Int


@record
class CreateTTLTxn(Record):
    """Make a node that expires after ``ttl`` milliseconds."""

    path: str
    data: bytes | None
    acl: Acls
    parentCVersion: Int
    ttl: Long


@record
class DeleteTxn(Record):
    """Remove a node."""

    path: str


@record
class SetDataTxn(Record):
    """Replace a node's data; ``version`` is the new one."""

    path: str
    data: bytes | None
    version: Int


@record
class CheckVersionTxn(Record):
    """A check that held; changes nothing."""

    path: str
    version: Int


@record
class SetACLTxn(Record):
    """Replace a node's ACL list; ``version`` is the new ``aversion``."""

    path: str
    acl: Acls
    version: Int


@record
class CreateSessionTxn(Record):
    """Open a session; ``timeOut`` is in milliseconds."""

    timeOut: Int


@record
class CloseSessionTxn(Record):
    """End a session and remove its ephemeral nodes."""

    paths2Delete: list[str]


@record
class ErrorTxn(Record):
    """A write that failed its checks: it took a zxid and changed nothing."""

    err: Int


@record
class Txn(Record):
    """One part of a MultiTxn: an op code and the bytes of its record."""

    type: Int
    data: bytes


@record
class MultiTxn(Record):
    """All parts of a transaction."""

    txns: list[Txn]
