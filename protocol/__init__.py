"""ZooKeeper's wire protocol without I/O, shared by server and client: records, op codes, errors, paths and frames."""

if __name__ != "zoolet.protocol":
    raise ImportError("import zoolet.protocol, not protocol")

from .acl import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, digest_id
from .enums import AddWatchMode, CreateMode, EventType, KeeperState, Perm
from .errors import ErrorCode, ZooKeeperError
from .operations import OpCode
from .records import Stat

__all__ = [
    "ACL",
    "CREATOR_ALL_ACL",
    "OPEN_ACL_UNSAFE",
    "READ_ACL_UNSAFE",
    "AddWatchMode",
    "CreateMode",
    "ErrorCode",
    "EventType",
    "Id",
    "KeeperState",
    "OpCode",
    "Perm",
    "Stat",
    "ZooKeeperError",
    "digest_id",
]
