"""The operations: their codes, and for each what it takes, what it gives, whether it writes, and since when it exists.

Source: ZooDefs.OpCode.
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


@dataclass(frozen=True, slots=True)
class Operation:
    """What is known of one operation.

    Args:
        name: ZooKeeper's name for it.
        request: The record of its body; None where the body is a list (multi) or there is no such request.
        response: The record of its reply's body.
        writes: Whether it takes a zxid.
        since: The first release that has it.
    """

    name: str
    request: type[Record] | None
    response: type[Record] | None
    writes: bool
    since: str


OPERATIONS: Final[dict[OpCode, Operation]] = {
    OpCode.CREATE: Operation("create", r.CreateRequest, r.CreateResponse, True, "3.0"),
    OpCode.DELETE: Operation("delete", r.DeleteRequest, r.EmptyResponse, True, "3.0"),
    OpCode.EXISTS: Operation("exists", r.ExistsRequest, r.StatResponse, False, "3.0"),
    OpCode.GET_DATA: Operation("getData", r.GetDataRequest, r.GetDataResponse, False, "3.0"),
    OpCode.SET_DATA: Operation("setData", r.SetDataRequest, r.StatResponse, True, "3.0"),
    OpCode.GET_ACL: Operation("getACL", r.GetACLRequest, r.GetACLResponse, False, "3.0"),
    OpCode.SET_ACL: Operation("setACL", r.SetACLRequest, r.StatResponse, True, "3.0"),
    OpCode.GET_CHILDREN: Operation("getChildren", r.GetChildrenRequest, r.GetChildrenResponse, False, "3.0"),
    OpCode.SYNC: Operation("sync", r.SyncRequest, r.SyncResponse, False, "3.0"),
    OpCode.PING: Operation("ping", r.EmptyRequest, r.EmptyResponse, False, "3.0"),
    OpCode.GET_CHILDREN2: Operation("getChildren2", r.GetChildrenRequest, r.GetChildren2Response, False, "3.3"),
    OpCode.CHECK: Operation("check", r.CheckVersionRequest, r.EmptyResponse, False, "3.4"),
    OpCode.MULTI: Operation("multi", None, None, True, "3.4"),
    OpCode.CREATE2: Operation("create2", r.CreateRequest, r.Create2Response, True, "3.5"),
    OpCode.RECONFIG: Operation("reconfig", r.ReconfigRequest, r.GetDataResponse, True, "3.5"),
    OpCode.CHECK_WATCHES: Operation("checkWatches", r.CheckWatchesRequest, r.EmptyResponse, False, "3.5"),
    OpCode.REMOVE_WATCHES: Operation("removeWatches", r.RemoveWatchesRequest, r.EmptyResponse, False, "3.5"),
    OpCode.CREATE_CONTAINER: Operation("createContainer", r.CreateRequest, r.Create2Response, True, "3.5"),
    OpCode.DELETE_CONTAINER: Operation("deleteContainer", None, None, True, "3.5"),
    OpCode.CREATE_TTL: Operation("createTTL", r.CreateTTLRequest, r.Create2Response, True, "3.5"),
    OpCode.MULTI_READ: Operation("multiRead", None, None, False, "3.6"),
    OpCode.AUTH: Operation("auth", r.AuthPacket, r.EmptyResponse, False, "3.0"),
    OpCode.SET_WATCHES: Operation("setWatches", r.SetWatches, r.EmptyResponse, False, "3.0"),
    OpCode.SASL: Operation("sasl", r.GetSASLRequest, r.SetSASLResponse, False, "3.4"),
    OpCode.GET_EPHEMERALS: Operation("getEphemerals", r.GetEphemeralsRequest, r.GetEphemeralsResponse, False, "3.6"),
    OpCode.GET_ALL_CHILDREN_NUMBER: Operation(
        "getAllChildrenNumber", r.GetAllChildrenNumberRequest, r.GetAllChildrenNumberResponse, False, "3.6"
    ),
    OpCode.SET_WATCHES2: Operation("setWatches2", r.SetWatches2, r.EmptyResponse, False, "3.6"),
    OpCode.ADD_WATCH: Operation("addWatch", r.AddWatchRequest, r.ErrorResponse, False, "3.6"),
    OpCode.WHO_AM_I: Operation("whoAmI", r.EmptyRequest, r.WhoAmIResponse, False, "3.7"),
    OpCode.CLOSE_SESSION: Operation("closeSession", r.EmptyRequest, r.EmptyResponse, True, "3.0"),
}
"""All operations that a client may send, in the order of their codes; :data:`OpCode` has two more, which it may not."""
