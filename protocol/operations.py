"""The table of operations, the common source for the server, the client, faults in tests and the documentation.

A new operation needs a row here, its records, and a handler in ``server/core/ops``: ``@reads``, or for a write
``@writes``, ``@applies`` and a transaction record. Inside a multi it also needs a member of :class:`OpCode`. The row
determines the server's dispatch and read-only tables, the records that the client encodes in ``call``, the requests
that it repeats, the names in faults, views and ``cons``, the kinds of changes in the history and in the audit log, and
docs/compatibility.md. ``Client.call(name, record)`` sends the operation. A separate method belongs in
``client/aio/operations.py``, the source of the blocking client. ``tests/architecture/test_one_table.py`` adds an
operation as an example.

Source: ZooDefs.OpCode, Request.op2String, RequestHeader and the request records of zookeeper.jute.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal, NamedTuple

from . import records as r
from .codec import Record


class OpCode(IntEnum):
    """The ``type`` field of a request header."""

    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107


ChangeKind = Literal["create", "set", "delete", "acl", "several", ""]
"""The effect of an operation on the tree: it creates or deletes a node, or replaces the data (``set``) or the ACL list
of a node. ``several`` stands for any number of these changes, and the empty text for none.
"""


class Operation(NamedTuple):
    """One row of the table.

    Args:
        code: The op code.
        name: ZooKeeper's name of the operation.
        since: The first release of ZooKeeper that supports the operation.
        short: Abbreviation that ``cons`` shows for the last operation of a connection; empty if it shows ``NA``.
        request: Record of the request's body; None if the body is a list (multi), or the server does not decode it.
        response: Record of the reply's body; None if the body is a list or missing.
        changes: Kind of change in the tree.
        takes_zxid: Whether the operation changes the tree or the sessions, and therefore uses up a zxid. A read-only
            server rejects such an operation.
        in_multi: Whether a multi may contain the operation.
        in_multi_read: Whether a multiRead may contain the operation.
        idempotent: Whether a client may repeat the operation if the connection is lost before the reply arrives.
        path: Name of the request's field that contains the path of the node; None if no field does.
        aliases: Other names of the operation. Operations may share an alias: ``children`` stands for both getChildren
            and getChildren2.
        note: Note about the server's reply, for the documentation.
    """

    code: int
    name: str
    since: str
    short: str = ""
    request: type[Record] | None = None
    response: type[Record] | None = None
    changes: ChangeKind = ""
    takes_zxid: bool = False
    in_multi: bool = False
    in_multi_read: bool = False
    idempotent: bool = False
    path: str | None = "path"
    aliases: tuple[str, ...] = ()
    note: str = "exact"


def _table(*rows: Operation) -> dict[int, Operation]:
    return {int(row.code): row for row in rows}


OPERATIONS: Final[dict[int, Operation]] = _table(
    Operation(
        code=OpCode.CREATE,
        name="create",
        short="CREA",
        since="3.0",
        request=r.CreateRequest,
        response=r.CreateResponse,
        changes="create",
        takes_zxid=True,
        in_multi=True,
    ),
    Operation(
        code=OpCode.DELETE,
        name="delete",
        short="DELE",
        since="3.0",
        request=r.DeleteRequest,
        response=r.EmptyResponse,
        changes="delete",
        takes_zxid=True,
        in_multi=True,
    ),
    Operation(
        code=OpCode.EXISTS,
        name="exists",
        short="EXIS",
        since="3.0",
        request=r.ExistsRequest,
        response=r.StatResponse,
        idempotent=True,
    ),
    Operation(
        code=OpCode.GET_DATA,
        name="getData",
        short="GETD",
        since="3.0",
        request=r.GetDataRequest,
        response=r.GetDataResponse,
        in_multi_read=True,
        idempotent=True,
        aliases=("get",),
    ),
    Operation(
        code=OpCode.SET_DATA,
        name="setData",
        short="SETD",
        since="3.0",
        request=r.SetDataRequest,
        response=r.StatResponse,
        changes="set",
        takes_zxid=True,
        in_multi=True,
        aliases=("set",),
    ),
    Operation(
        code=OpCode.GET_ACL,
        name="getACL",
        short="GETA",
        since="3.0",
        request=r.GetACLRequest,
        response=r.GetACLResponse,
        idempotent=True,
    ),
    Operation(
        code=OpCode.SET_ACL,
        name="setACL",
        short="SETA",
        since="3.0",
        request=r.SetACLRequest,
        response=r.StatResponse,
        changes="acl",
        takes_zxid=True,
    ),
    Operation(
        code=OpCode.GET_CHILDREN,
        name="getChildren",
        short="GETC",
        since="3.0",
        request=r.GetChildrenRequest,
        response=r.GetChildrenResponse,
        in_multi_read=True,
        idempotent=True,
        aliases=("children",),
    ),
    Operation(
        code=OpCode.SYNC,
        name="sync",
        short="SYNC",
        since="3.0",
        request=r.SyncRequest,
        response=r.SyncResponse,
        idempotent=True,
    ),
    Operation(
        code=OpCode.PING,
        name="ping",
        short="PING",
        since="3.0",
        request=r.EmptyRequest,
        response=r.EmptyResponse,
        idempotent=True,
        path=None,
    ),
    Operation(
        code=OpCode.GET_CHILDREN2,
        name="getChildren2",
        short="GETC",
        since="3.3",
        request=r.GetChildrenRequest,
        response=r.GetChildren2Response,
        idempotent=True,
        aliases=("children", "getChildren"),
    ),
    Operation(
        code=OpCode.CHECK,
        name="check",
        short="CHEC",
        since="3.4",
        request=r.CheckVersionRequest,
        response=r.EmptyResponse,
        in_multi=True,
        note="exact inside multi. Outside, Unimplemented and the connection is closed, as in 3.8.5 and 3.9.3",
    ),
    Operation(
        code=OpCode.MULTI,
        name="multi",
        short="MULT",
        since="3.4",
        changes="several",
        takes_zxid=True,
        path=None,
        aliases=("transaction",),
    ),
    Operation(
        code=OpCode.CREATE2,
        name="create2",
        short="CREA",
        since="3.5",
        request=r.CreateRequest,
        response=r.Create2Response,
        changes="create",
        takes_zxid=True,
        in_multi=True,
        aliases=("create",),
    ),
    Operation(
        code=OpCode.RECONFIG,
        name="reconfig",
        short="RECO",
        since="3.5",
        request=r.ReconfigRequest,
        response=r.GetDataResponse,
        changes="set",
        takes_zxid=True,
        path=None,
        note="exact while disabled. With `reconfigEnabled=true`, like the only voter of an ensemble",
    ),
    Operation(
        code=OpCode.CHECK_WATCHES,
        name="checkWatches",
        short="CHKW",
        since="3.5",
        request=r.CheckWatchesRequest,
        response=r.EmptyResponse,
        idempotent=True,
    ),
    Operation(
        code=OpCode.REMOVE_WATCHES,
        name="removeWatches",
        short="REMW",
        since="3.5",
        request=r.RemoveWatchesRequest,
        response=r.EmptyResponse,
    ),
    Operation(
        code=OpCode.CREATE_CONTAINER,
        name="createContainer",
        short="CREA",
        since="3.5",
        request=r.CreateRequest,
        response=r.Create2Response,
        changes="create",
        takes_zxid=True,
        in_multi=True,
        aliases=("create",),
    ),
    Operation(
        code=OpCode.DELETE_CONTAINER,
        name="deleteContainer",
        since="3.5",
        changes="delete",
        takes_zxid=True,
        path=None,
        note="rejected: Apache ZooKeeper deletes any node without children, without a permission check",
    ),
    Operation(
        code=OpCode.CREATE_TTL,
        name="createTTL",
        short="CREA",
        since="3.5",
        request=r.CreateTTLRequest,
        response=r.Create2Response,
        changes="create",
        takes_zxid=True,
        in_multi=True,
        aliases=("create",),
        note="exact. Enabled by default (`extendedTypesEnabled=false` disables it)",
    ),
    Operation(code=OpCode.MULTI_READ, name="multiRead", short="MLTR", since="3.6", idempotent=True, path=None),
    Operation(
        code=OpCode.AUTH,
        name="auth",
        since="3.0",
        request=r.AuthPacket,
        response=r.EmptyResponse,
        path=None,
        note="schemes digest, ip, sasl, x509",
    ),
    Operation(
        code=OpCode.SET_WATCHES,
        name="setWatches",
        short="SETW",
        since="3.0",
        request=r.SetWatches,
        response=r.EmptyResponse,
        path=None,
    ),
    Operation(
        code=OpCode.SASL,
        name="sasl",
        since="3.4",
        request=r.GetSASLRequest,
        response=r.SetSASLResponse,
        path=None,
        note="DIGEST-MD5, no Kerberos",
    ),
    Operation(
        code=OpCode.GET_EPHEMERALS,
        name="getEphemerals",
        short="GETE",
        since="3.6",
        request=r.GetEphemeralsRequest,
        response=r.GetEphemeralsResponse,
        idempotent=True,
        path=None,
    ),
    Operation(
        code=OpCode.GET_ALL_CHILDREN_NUMBER,
        name="getAllChildrenNumber",
        short="GETACN",
        since="3.6",
        request=r.GetAllChildrenNumberRequest,
        response=r.GetAllChildrenNumberResponse,
        idempotent=True,
    ),
    Operation(
        code=OpCode.SET_WATCHES2,
        name="setWatches2",
        short="STW2",
        since="3.6",
        request=r.SetWatches2,
        response=r.EmptyResponse,
        path=None,
        aliases=("setWatches",),
    ),
    Operation(
        code=OpCode.ADD_WATCH,
        name="addWatch",
        short="ADDW",
        since="3.6",
        request=r.AddWatchRequest,
        response=r.ErrorResponse,
        idempotent=True,
    ),
    Operation(
        code=OpCode.WHO_AM_I,
        name="whoAmI",
        short="HOMI",
        since="3.7",
        request=r.EmptyRequest,
        response=r.WhoAmIResponse,
        idempotent=True,
        path=None,
    ),
    Operation(
        code=OpCode.CLOSE_SESSION,
        name="closeSession",
        short="CLOS",
        since="3.0",
        request=r.EmptyRequest,
        response=r.EmptyResponse,
        changes="several",
        takes_zxid=True,
        path=None,
        aliases=("close",),
    ),
    Operation(
        code=OpCode.CREATE_SESSION,
        name="connect",
        since="3.0",
        takes_zxid=True,
        path=None,
        note="the first frame of a connection, without a header. The op code occurs only in the transaction log",
    ),
)
"""All operations by op code. ``connect`` stands for the first frame of a connection, which has no op code."""


def codes_by_change(change: ChangeKind) -> frozenset[int]:
    """Return the codes of the operations that make this kind of change."""
    return frozenset(code for code, row in OPERATIONS.items() if row.changes == change)


def codes_by_name(name: str) -> frozenset[int]:
    """Return the op codes of the operations with a given name or alias, or an empty set for an unknown name.

    Case and underscores are ignored. An alias may stand for several operations, and a name such as ``create2`` for one.
    """
    plain_name = _normalize_name(name)
    by_alias = {code for code, row in OPERATIONS.items() if plain_name in map(_normalize_name, row.aliases)}
    return frozenset(by_alias | {code for code, row in OPERATIONS.items() if plain_name == _normalize_name(row.name)})


def known_names() -> list[str]:
    """Return the names and aliases of all operations, sorted, in lower case and without underscores."""
    return sorted({_normalize_name(name) for row in OPERATIONS.values() for name in (row.name, *row.aliases)})


def operation_name(code: int) -> str:
    """Return the name of an operation, or a text such as ``op 999`` for an unknown op code."""
    row = OPERATIONS.get(code)
    return row.name if row is not None else f"op {code}"


def _normalize_name(name: str) -> str:
    return name.replace("_", "").lower()
