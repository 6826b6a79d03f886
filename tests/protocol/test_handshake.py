"""The records of the handshake: their bytes, and the fields that may be missing at their end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.frames import unhex
from support.record_strategies import ints, longs, quick

from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse

PASSWORD = bytes(range(16))
connect_requests = st.builds(
    ConnectRequest, longs, ints, longs, st.none() | st.binary(max_size=20), st.none() | st.booleans()
)
connect_responses = st.builds(
    ConnectResponse, ints, longs, st.none() | st.binary(max_size=20), st.none() | st.booleans()
)


# --- the bytes of ZooKeeper ---


def test_connect_request_for_new_session_has_45_bytes() -> None:
    request = ConnectRequest(timeout_ms=10_000)

    assert frame(request.encode()) == unhex(
        "0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010" + "00" * 16 + "00"
    )


def test_old_connect_request_lacks_read_only_byte() -> None:
    request = ConnectRequest(timeout_ms=10_000, read_only=None)

    assert frame(request.encode()) == unhex(
        "0000002c 00000000 0000000000000000 00002710 0000000000000000 00000010" + "00" * 16
    )


def test_connect_response_of_zookeeper_is_read() -> None:
    raw = unhex("00000025 00000000 00002710 0100002a89280000 00000010") + PASSWORD + b"\x00"

    (payload,) = Frames().feed(raw)

    assert ConnectResponse.decode(payload) == ConnectResponse(10_000, 0x0100002A89280000, PASSWORD, False)
    assert frame(ConnectResponse.decode(payload).encode()) == raw


def test_session_refusal_is_all_zero_except_password_length() -> None:
    assert ConnectResponse().encode() == unhex("00000000 00000000 0000000000000000 00000010" + "00" * 16)


@pytest.mark.parametrize(("last", "read_only"), [("", None), ("00", False), ("01", True), ("07", True)])
def test_read_only_byte_of_connect_request_is_optional_boolean(last: str, read_only: bool | None) -> None:
    raw = unhex("00000007 0000000000000001 00000002 0000000000000003 ffffffff" + last)

    assert ConnectRequest.decode(raw) == ConnectRequest(1, 2, 3, None, read_only)


# --- round trips ---


@quick
@given(connect_requests)
def test_connect_request_survives_round_trip(request: ConnectRequest) -> None:
    assert ConnectRequest.decode(request.encode()) == request


@quick
@given(connect_responses)
def test_connect_response_survives_round_trip(response: ConnectResponse) -> None:
    assert ConnectResponse.decode(response.encode()) == response


@quick
@given(connect_requests.filter(lambda request: request.read_only is not None), st.binary(max_size=9))
def test_bytes_after_connect_request_are_ignored(request: ConnectRequest, rest: bytes) -> None:
    assert ConnectRequest.decode(request.encode() + rest) == request
