"""Error codes, and the exception class for each code.

::

    ZooKeeperError                    base class, with ``code`` and ``path``
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
    +-- ClosedError                   the application closed the client (never on the wire)

The server raises an error to reply with its code. The client raises the error for each code that it receives.
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


_ERRORS_BY_CODE: dict[int, type[ZooKeeperError]] = {}


class ZooKeeperError(Exception):
    """The base class of errors: an operation failed.

    Each subclass declares its code. The first line of its docstring is the default message. With ``python -OO``, which
    discards docstrings, the default message is the name of the class.

    Args:
        path: The path of the node, if the operation has one.
        detail: The expected and the found value, or another explanation; by default the meaning of the code.
    """

    code: ClassVar[ErrorCode] = ErrorCode.SYSTEM_ERROR
    meaning: ClassVar[str] = "the operation failed"

    def __init_subclass__(cls, code: ErrorCode | None = None) -> None:
        if code is not None:
            sentence = (cls.__doc__ or "").partition("\n")[0].removesuffix(".")
            cls.code, cls.meaning = code, sentence[:1].lower() + sentence[1:] or cls.__name__
            _ERRORS_BY_CODE[code] = cls

    def __init__(self, path: str | None = None, detail: str = "") -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        message = self.detail or self.meaning
        return f"{self.path}: {message}" if self.path is not None else message


class ServerError(ZooKeeperError, code=ErrorCode.SYSTEM_ERROR):
    """Internal error of the server."""


class RuntimeInconsistencyError(ZooKeeperError, code=ErrorCode.RUNTIME_INCONSISTENCY):
    """An operation of a transaction was not tried because an earlier operation failed."""


class DataInconsistencyError(ZooKeeperError, code=ErrorCode.DATA_INCONSISTENCY):
    """Parts of the server's data contradict each other."""


class ConnectionLossError(ZooKeeperError, code=ErrorCode.CONNECTION_LOSS):
    """The connection was lost before the reply arrived; the operation may have been applied.

    Attributes:
        maybe_applied: False if the request was certainly not sent.
        refusals: Number of times that the server closed the connection, probably because of this large request.
    """

    maybe_applied: bool = True
    refusals: int = 0


class MarshallingError(ZooKeeperError, code=ErrorCode.MARSHALLING_ERROR):
    """The data cannot be decoded."""


class UnimplementedError(ZooKeeperError, code=ErrorCode.UNIMPLEMENTED):
    """The server does not support this operation."""


class OperationTimeoutError(ZooKeeperError, code=ErrorCode.OPERATION_TIMEOUT):
    """The operation took longer than its limit."""


class BadArgumentsError(ZooKeeperError, code=ErrorCode.BAD_ARGUMENTS):
    """The path, the flags or another argument is not allowed."""


class UnknownSessionError(ZooKeeperError, code=ErrorCode.UNKNOWN_SESSION):
    """The server does not know the session."""


class NewConfigNoQuorumError(ZooKeeperError, code=ErrorCode.NEW_CONFIG_NO_QUORUM):
    """No quorum of the new configuration is connected."""


class ReconfigInProgressError(ZooKeeperError, code=ErrorCode.RECONFIG_IN_PROGRESS):
    """Another reconfiguration is in progress."""


class APIError(ZooKeeperError, code=ErrorCode.API_ERROR):
    """The request failed without a more specific code.

    ZooKeeper's servers do not send this code. It is the first of the codes of API errors.
    """


class NoNodeError(ZooKeeperError, code=ErrorCode.NO_NODE):
    """The node does not exist."""


class NoAuthError(ZooKeeperError, code=ErrorCode.NO_AUTH):
    """The ACL does not allow this operation."""


class BadVersionError(ZooKeeperError, code=ErrorCode.BAD_VERSION):
    """The given version is not the current version of the node or its ACL."""


class NoChildrenForEphemeralsError(ZooKeeperError, code=ErrorCode.NO_CHILDREN_FOR_EPHEMERALS):
    """An ephemeral node may not have children."""


class NodeExistsError(ZooKeeperError, code=ErrorCode.NODE_EXISTS):
    """The node already exists."""


class NotEmptyError(ZooKeeperError, code=ErrorCode.NOT_EMPTY):
    """The node has children."""


class SessionExpiredError(ZooKeeperError, code=ErrorCode.SESSION_EXPIRED):
    """The session expired, and its ephemeral nodes were deleted."""


class InvalidCallbackError(ZooKeeperError, code=ErrorCode.INVALID_CALLBACK):
    """The callback is invalid.

    Servers do not send this code. Clients in other languages use it.
    """


class InvalidACLError(ZooKeeperError, code=ErrorCode.INVALID_ACL):
    """The ACL list is too long, empty, or contains an invalid entry.

    The entry ``auth`` is invalid for a client that has not authenticated.
    """


class AuthFailedError(ZooKeeperError, code=ErrorCode.AUTH_FAILED):
    """The server rejected the credentials."""


class SessionMovedError(ZooKeeperError, code=ErrorCode.SESSION_MOVED):
    """The session is served by another server."""


class NotReadOnlyError(ZooKeeperError, code=ErrorCode.NOT_READ_ONLY):
    """The operation writes, but the server is in read-only mode."""


class EphemeralOnLocalSessionError(ZooKeeperError, code=ErrorCode.EPHEMERAL_ON_LOCAL_SESSION):
    """A local session may not have ephemeral nodes."""


class NoWatcherError(ZooKeeperError, code=ErrorCode.NO_WATCHER):
    """No such watch is set."""


class RequestTimeoutError(ZooKeeperError, code=ErrorCode.REQUEST_TIMEOUT):
    """The request took longer than its limit."""


class ReconfigDisabledError(ZooKeeperError, code=ErrorCode.RECONFIG_DISABLED):
    """Reconfiguration is disabled."""


class SessionClosedRequireAuthError(ZooKeeperError, code=ErrorCode.SESSION_CLOSED_REQUIRE_AUTH):
    """The server requires authentication."""


class QuotaExceededError(ZooKeeperError, code=ErrorCode.QUOTA_EXCEEDED):
    """The quota of a parent node is exceeded."""


class ThrottledOpError(ZooKeeperError, code=ErrorCode.THROTTLED_OP):
    """The server is overloaded and did not try the operation."""


class ClosedError(ZooKeeperError):
    """The application closed the client."""

    code = ErrorCode.CONNECTION_LOSS
    meaning = "the client is closed"


def error_for(code: int, path: str | None = None) -> ZooKeeperError:
    """Return the exception for the ``err`` field of a reply.

    For an unknown code, it is a plain :class:`ZooKeeperError` whose message contains the code.
    """
    cls = _ERRORS_BY_CODE.get(code)
    return cls(path) if cls is not None else ZooKeeperError(path, f"the server answered with unknown error code {code}")
