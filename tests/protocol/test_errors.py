"""Errors: each code has its own exception."""

from __future__ import annotations

import subprocess
import sys

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
def test_every_error_code_has_its_exception(code: int, name: str) -> None:
    error = error_for(code, "/h")

    assert (type(error).__name__, error.code, error.path) == (name, code, "/h")
    assert str(error).startswith("/h: ")


def test_error_codes_match_zookeeper() -> None:
    assert {int(code) for code in ErrorCode} == {0, *CODES}


@pytest.mark.parametrize("code", [-126, -9, -999, 7])
def test_error_of_unknown_code_contains_code(code: int) -> None:
    error = error_for(code)

    assert type(error) is ZooKeeperError
    assert str(code) in str(error)


def test_error_text_without_docstrings_contains_class_name() -> None:
    command = [sys.executable, "-OO", "-c", "from zoolet.protocol.errors import NoNodeError; print(NoNodeError('/a'))"]

    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert shown == "/a: NoNodeError\n"
