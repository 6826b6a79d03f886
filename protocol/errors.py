"""Error codes, and one exception class for each.

::

    ZooKeeperError                    has ``code`` and ``path``
    +-- ServerError                   -1
    +-- RuntimeInconsistencyError     -2
    +-- DataInconsistencyError        -3
    +-- ConnectionLossError           -4
    +-- MarshallingError              -5
    +-- UnimplementedError            -6
    +-- OperationTimeoutError         -7
    +-- BadArgumentsError             -8
    +-- UnknownSessionError           -12
    +-- NewConfigNoQuorumError        -13
    +-- ReconfigInProgressError       -14
    +-- APIError                      -100
    +-- NoNodeError                   -101
    +-- NoAuthError                   -102
    +-- BadVersionError               -103
    +-- NoChildrenForEphemeralsError  -108
    +-- NodeExistsError               -110
    +-- NotEmptyError                 -111
    +-- SessionExpiredError           -112
    +-- InvalidCallbackError          -113
    +-- InvalidACLError               -114
    +-- AuthFailedError               -115
    +-- SessionMovedError             -118
    +-- NotReadOnlyError              -119
    +-- EphemeralOnLocalSessionError  -120
    +-- NoWatcherError                -121
    +-- RequestTimeoutError           -122
    +-- ReconfigDisabledError         -123
    +-- SessionClosedRequireAuthError -124
    +-- QuotaExceededError            -125
    +-- ThrottledOpError              -127
    +-- ClosedError                   the application closed the client; never on the wire

The server raises them to answer with a code; the client raises them when it receives one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """The ``err`` field of a reply header.

    Source: KeeperException.Code.
    """

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


class ZooKeeperError(Exception):
    """An operation failed.

    Args:
        path: The path of the node, if the operation has one.
        detail: What was expected and what was found; by default the meaning of the code.
    """

    code: ClassVar[ErrorCode] = ErrorCode.SYSTEM_ERROR
    meaning: ClassVar[str] = "the operation failed"

    def __init__(self, path: str | None = None, detail: str = "") -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        message = self.detail or self.meaning
        return f"{self.path}: {message}" if self.path is not None else message


class ServerError(ZooKeeperError):
    """The server met an error of its own."""

    code = ErrorCode.SYSTEM_ERROR
    meaning = "the server met an error of its own"


class RuntimeInconsistencyError(ZooKeeperError):
    """An operation of a transaction was not tried because an earlier one failed."""

    code = ErrorCode.RUNTIME_INCONSISTENCY
    meaning = "an operation of a transaction was not tried because an earlier one failed"


class DataInconsistencyError(ZooKeeperError):
    """The server found its data inconsistent."""

    code = ErrorCode.DATA_INCONSISTENCY
    meaning = "the server found its data inconsistent"


class ConnectionLossError(ZooKeeperError):
    """The connection broke before the answer came: the operation may have happened.

    Attributes:
        maybe_applied: False if the request was certainly not sent.
    """

    maybe_applied: bool = True

    code = ErrorCode.CONNECTION_LOSS
    meaning = "the connection broke before the answer came: the operation may have happened"


class MarshallingError(ZooKeeperError):
    """The bytes do not make sense."""

    code = ErrorCode.MARSHALLING_ERROR
    meaning = "the bytes do not make sense"


class UnimplementedError(ZooKeeperError):
    """The server does not offer this operation."""

    code = ErrorCode.UNIMPLEMENTED
    meaning = "the server does not offer this operation"


class OperationTimeoutError(ZooKeeperError):
    """The operation took longer than its limit."""

    code = ErrorCode.OPERATION_TIMEOUT
    meaning = "the operation took longer than its limit"


class BadArgumentsError(ZooKeeperError):
    """The path, the flags or another argument is not allowed."""

    code = ErrorCode.BAD_ARGUMENTS
    meaning = "the path, the flags or another argument is not allowed"


class UnknownSessionError(ZooKeeperError):
    """The server does not know the session."""

    code = ErrorCode.UNKNOWN_SESSION
    meaning = "the server does not know the session"


class NewConfigNoQuorumError(ZooKeeperError):
    """No quorum of the new configuration is connected."""

    code = ErrorCode.NEW_CONFIG_NO_QUORUM
    meaning = "no quorum of the new configuration is connected"


class ReconfigInProgressError(ZooKeeperError):
    """Another reconfiguration is in progress."""

    code = ErrorCode.RECONFIG_IN_PROGRESS
    meaning = "another reconfiguration is in progress"


class APIError(ZooKeeperError):
    """An error of the API."""

    code = ErrorCode.API_ERROR
    meaning = "an error of the API"


class NoNodeError(ZooKeeperError):
    """The node does not exist."""

    code = ErrorCode.NO_NODE
    meaning = "the node does not exist"


class NoAuthError(ZooKeeperError):
    """The ACL does not allow it."""

    code = ErrorCode.NO_AUTH
    meaning = "the ACL does not allow it"


class BadVersionError(ZooKeeperError):
    """The version is not the expected one."""

    code = ErrorCode.BAD_VERSION
    meaning = "the version is not the expected one"


class NoChildrenForEphemeralsError(ZooKeeperError):
    """An ephemeral node may not have children."""

    code = ErrorCode.NO_CHILDREN_FOR_EPHEMERALS
    meaning = "an ephemeral node may not have children"


class NodeExistsError(ZooKeeperError):
    """The node exists already."""

    code = ErrorCode.NODE_EXISTS
    meaning = "the node exists already"


class NotEmptyError(ZooKeeperError):
    """The node has children."""

    code = ErrorCode.NOT_EMPTY
    meaning = "the node has children"


class SessionExpiredError(ZooKeeperError):
    """The session is over: its ephemeral nodes are gone."""

    code = ErrorCode.SESSION_EXPIRED
    meaning = "the session is over: its ephemeral nodes are gone"


class InvalidCallbackError(ZooKeeperError):
    """The callback is not valid."""

    code = ErrorCode.INVALID_CALLBACK
    meaning = "the callback is not valid"


class InvalidACLError(ZooKeeperError):
    """The ACL list is not valid."""

    code = ErrorCode.INVALID_ACL
    meaning = "the ACL list is not valid"


class AuthFailedError(ZooKeeperError):
    """The server refused the credentials."""

    code = ErrorCode.AUTH_FAILED
    meaning = "the server refused the credentials"


class SessionMovedError(ZooKeeperError):
    """The session is served by another server."""

    code = ErrorCode.SESSION_MOVED
    meaning = "the session is served by another server"


class NotReadOnlyError(ZooKeeperError):
    """The server is in read-only mode and the operation writes."""

    code = ErrorCode.NOT_READ_ONLY
    meaning = "the server is in read-only mode and the operation writes"


class EphemeralOnLocalSessionError(ZooKeeperError):
    """A local session may not have ephemeral nodes."""

    code = ErrorCode.EPHEMERAL_ON_LOCAL_SESSION
    meaning = "a local session may not have ephemeral nodes"


class NoWatcherError(ZooKeeperError):
    """No such watch is set."""

    code = ErrorCode.NO_WATCHER
    meaning = "no such watch is set"


class RequestTimeoutError(ZooKeeperError):
    """The request took longer than its limit."""

    code = ErrorCode.REQUEST_TIMEOUT
    meaning = "the request took longer than its limit"


class ReconfigDisabledError(ZooKeeperError):
    """Reconfiguration is switched off."""

    code = ErrorCode.RECONFIG_DISABLED
    meaning = "reconfiguration is switched off"


class SessionClosedRequireAuthError(ZooKeeperError):
    """The server demands authentication."""

    code = ErrorCode.SESSION_CLOSED_REQUIRE_AUTH
    meaning = "the server demands authentication"


class QuotaExceededError(ZooKeeperError):
    """The quota of a node above is used up."""

    code = ErrorCode.QUOTA_EXCEEDED
    meaning = "the quota of a node above is used up"


class ThrottledOpError(ZooKeeperError):
    """The server is overloaded and did not try the operation."""

    code = ErrorCode.THROTTLED_OP
    meaning = "the server is overloaded and did not try the operation"


class ClosedError(ZooKeeperError):
    """The client was closed by its owner."""

    code = ErrorCode.CONNECTION_LOSS
    meaning = "the client is closed"


_BY_CODE: dict[int, type[ZooKeeperError]] = {
    cls.code: cls for cls in ZooKeeperError.__subclasses__() if cls is not ClosedError
}


def error_for(code: int, path: str | None = None) -> ZooKeeperError:
    """Return the exception for the ``err`` field of a reply.

    A number that no release of ZooKeeper has sent becomes a plain :class:`ZooKeeperError` that names it.
    """
    cls = _BY_CODE.get(code)
    return cls(path) if cls is not None else ZooKeeperError(path, f"the server answered with unknown error code {code}")
