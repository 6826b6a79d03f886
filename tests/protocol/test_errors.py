"""Errors: each code has an exception of its own."""

from __future__ import annotations

import pytest

from zoolet.protocol.errors import ErrorCode, ZooKeeperError, error_for

CODES = {
    -1: "ServerError",
    -2: "RuntimeInconsistencyError",
    -3: "DataInconsistencyError",
    -4: "ConnectionLossError",
    -5: "MarshallingError",
    -6: "UnimplementedError",
    -7: "OperationTimeoutError",
    -8: "BadArgumentsError",
    -12: "UnknownSessionError",
    -13: "NewConfigNoQuorumError",
    -14: "ReconfigInProgressError",
    -100: "APIError",
    -101: "NoNodeError",
    -102: "NoAuthError",
    -103: "BadVersionError",
    -108: "NoChildrenForEphemeralsError",
    -110: "NodeExistsError",
    -111: "NotEmptyError",
    -112: "SessionExpiredError",
    -113: "InvalidCallbackError",
    -114: "InvalidACLError",
    -115: "AuthFailedError",
    -118: "SessionMovedError",
    -119: "NotReadOnlyError",
    -120: "EphemeralOnLocalSessionError",
    -121: "NoWatcherError",
    -122: "RequestTimeoutError",
    -123: "ReconfigDisabledError",
    -124: "SessionClosedRequireAuthError",
    -125: "QuotaExceededError",
    -127: "ThrottledOpError",
}


@pytest.mark.parametrize(("code", "name"), CODES.items())
def test_every_code_has_an_exception_of_its_own(code: int, name: str) -> None:
    error = error_for(code, "/h")

    assert (type(error).__name__, error.code, error.path) == (name, code, "/h")
    assert str(error).startswith("/h: ")


def test_there_are_no_codes_but_those_of_zookeeper() -> None:
    assert {int(code) for code in ErrorCode} == {0, *CODES}


@pytest.mark.parametrize("code", [-126, -9, -999, 7])
def test_a_code_that_nobody_knows_is_named_in_the_error(code: int) -> None:
    error = error_for(code)

    assert type(error) is ZooKeeperError
    assert str(code) in str(error)
