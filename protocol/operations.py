"""The table of operations: one row each, from which server, client, faults and documentation take their facts.

A new operation is a row here, its records, and a handler in ``server/core/ops``: ``@reads``, or for a write
``@prepares``, ``@applies`` and a transaction record; inside a multi it needs a member of :class:`OpCode` too. From
the row come the server's dispatch and read-only tables, what the client encodes in ``call`` and repeats, the names in
faults, views and ``cons``, and docs/compatibility.md. ``Client.call(name, record)`` sends it; a method of its own is
written in ``client/aio/surface.py``, and without ``await`` in ``client/blocking/client.py``. An example that adds one
is ``tests/architecture/test_one_table.py``.

Source: ZooDefs.OpCode; Request.op2String; RequestHeader and the request records of zookeeper.jute.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from zoolet.protocol import records as r
from zoolet.protocol.codec import Record


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One row of the table.

    Args:
        code: Its op code.
        name: ZooKeeper's name for it.
        short: Its abbreviation as ``cons`` shows the last operation of a connection; empty where that shows ``NA``.
        since: The first release that has it.
        request: The record of its body; None where the body is a list (multi) or there is no such request.
        response: The record of its reply's body; None where that is a list or there is none.
        takes_zxid: It changes the tree or the sessions and takes a zxid; a read-only server refuses it.
        in_multi: A multi may contain it.
        in_multi_read: A multiRead may contain it.
        idempotent: A client may send it again if the connection is lost before the reply arrives.
        path: The field of the request that has the node's path; None if there is none.
        aliases: Other names that mean this operation, some of them several: ``children`` is getChildren and
            getChildren2.
        note: How the server answers it, for the documentation.
    """

    code: int
    name: str
    short: str = ""
    since: str
    request: type[Record] | None = None
    response: type[Record] | None = None
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
        note="exact inside multi; outside it refused with Unimplemented and a close, as 3.8.5 and 3.9.3 do",
    ),
    Operation(
        code=OpCode.MULTI,
        name="multi",
        short="MULT",
        since="3.4",
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
        takes_zxid=True,
        path=None,
        note="exact while disabled; with `reconfigEnabled=true` as the only voter of an ensemble",
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
        takes_zxid=True,
        in_multi=True,
        aliases=("create",),
    ),
    Operation(
        code=OpCode.DELETE_CONTAINER,
        name="deleteContainer",
        since="3.5",
        takes_zxid=True,
        path=None,
        note="refused: Apache ZooKeeper deletes any node without children, without a permission check",
    ),
    Operation(
        code=OpCode.CREATE_TTL,
        name="createTTL",
        short="CREA",
        since="3.5",
        request=r.CreateTTLRequest,
        response=r.Create2Response,
        takes_zxid=True,
        in_multi=True,
        aliases=("create",),
        note="exact; enabled by default (`extendedTypesEnabled=false` disables it)",
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
        note="DIGEST-MD5; no Kerberos",
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
        note="the first frame of a connection, which has no header; the op code stands in the transaction log only",
    ),
)
"""All operations by op code; ``connect`` stands for the first frame of a connection, which has no op code."""


def codes_named(name: str) -> frozenset[int]:
    """Return the op codes that a name stands for, ignoring case and underscores; empty for an unknown name.

    A name that clients use for several op codes stands for all of them; ``create2`` and the like stand for one.
    """
    plain_name = _plain(name)
    by_alias = {code for code, row in OPERATIONS.items() if plain_name in map(_plain, row.aliases)}
    return frozenset(by_alias | {code for code, row in OPERATIONS.items() if plain_name == _plain(row.name)})


def names() -> list[str]:
    """Return every name that :func:`codes_named` knows, sorted, in lower case without underscores."""
    return sorted({_plain(name) for row in OPERATIONS.values() for name in (row.name, *row.aliases)})


def name_of(code: int) -> str:
    """Return the name of an operation, ``op 999`` for one that is unknown."""
    row = OPERATIONS.get(code)
    return row.name if row is not None else f"op {code}"


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
