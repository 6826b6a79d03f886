"""The bytes, numbers and names that stand in ZooKeeper's own sources or were seen on its wire, letter by letter."""

from __future__ import annotations

import pytest

from zoolet.protocol import multi as wire
from zoolet.protocol import paths
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, digest_id
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import ErrorCode, ZooKeeperError, error_for
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

END = "ffffffff 01 ffffffff"
PASSWORD = bytes(range(16))
STAT = r.Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
STAT_BYTES = (
    "0000000000000001 0000000000000002 0000000000000003 0000000000000004 00000005 00000006 00000007"
    "0000000000000008 00000009 0000000a 000000000000000b"
)
OPEN_BYTES = "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65"


def x(text: str) -> bytes:
    return bytes.fromhex(text)


# --- the handshake ---


def test_a_connect_request_for_a_new_session_is_forty_five_bytes_that_zookeeper_takes() -> None:
    request = ConnectRequest(timeout_ms=10_000)

    assert frame(request.encode()) == x(
        "0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010" + "00" * 16 + "00"
    )


def test_a_connect_request_of_an_old_client_ends_before_the_read_only_byte() -> None:
    request = ConnectRequest(timeout_ms=10_000, read_only=None)

    assert frame(request.encode()) == x(
        "0000002c 00000000 0000000000000000 00002710 0000000000000000 00000010" + "00" * 16
    )


def test_a_connect_response_of_zookeeper_is_read() -> None:
    raw = x("00000025 00000000 00002710 0100002a89280000 00000010") + PASSWORD + b"\x00"

    (payload,) = Frames().feed(raw)

    assert ConnectResponse.decode(payload) == ConnectResponse(10_000, 0x0100002A89280000, PASSWORD, False)
    assert frame(ConnectResponse.decode(payload).encode()) == raw


def test_a_refusal_is_all_zeroes_but_for_the_length_of_the_password() -> None:
    assert ConnectResponse().encode() == x("00000000 00000000 0000000000000000 00000010" + "00" * 16)


@pytest.mark.parametrize(("last", "read_only"), [("", None), ("00", False), ("01", True), ("07", True)])
def test_the_read_only_byte_may_be_absent_and_is_true_unless_zero(last: str, read_only: bool | None) -> None:
    raw = x("00000007 0000000000000001 00000002 0000000000000003 ffffffff" + last)

    assert ConnectRequest.decode(raw) == ConnectRequest(1, 2, 3, None, read_only)


# --- records ---


@pytest.mark.parametrize(
    ("record", "raw"),
    [
        (r.RequestHeader(1, 1), "00000001 00000001"),
        (r.ReplyHeader(1, 2, -101), "00000001 0000000000000002 ffffff9b"),
        (r.MultiHeader(-1, True, -1), END),
        (r.MultiHeader(13, False, 0), "0000000d 00 00000000"),
        (r.CreateRequest("/h", b"hi", OPEN_ACL_UNSAFE, 0), "00000002 2f68 00000002 6869" + OPEN_BYTES + "00000000"),
        (r.CreateRequest(None, None, None, 3), "ffffffff ffffffff ffffffff 00000003"),
        (r.CreateRequest("", b"", (), 0), "00000000 00000000 00000000 00000000"),
        (r.CreateResponse("/h"), "00000002 2f68"),
        (r.Create2Response("/h", STAT), "00000002 2f68" + STAT_BYTES),
        (
            r.CreateTTLRequest("/h", b"", OPEN_ACL_UNSAFE, 5, 1),
            "00000002 2f68 00000000" + OPEN_BYTES + "00000005 0000000000000001",
        ),
        (r.DeleteRequest("/h", -1), "00000002 2f68 ffffffff"),
        (r.GetDataRequest("/h", True), "00000002 2f68 01"),
        (r.GetDataResponse(None, STAT), "ffffffff" + STAT_BYTES),
        (r.SetDataRequest("/h", b"", 7), "00000002 2f68 00000000 00000007"),
        (r.GetChildrenResponse(["a", "bc"]), "00000002 00000001 61 00000002 6263"),
        (r.GetChildren2Response([], STAT), "00000000" + STAT_BYTES),
        (r.SyncRequest(None), "ffffffff"),
        (r.AddWatchRequest("/h", 1), "00000002 2f68 00000001"),
        (r.ErrorResponse(0), "00000000"),
        (r.AuthPacket(0, "digest", b"u:p"), "00000000 00000006 646967657374 00000003 753a70"),
        (r.SetWatches(-1, [], ["/h"], None), "ffffffffffffffff 00000000 00000001 00000002 2f68 ffffffff"),
        (r.WatcherEvent(3, 3, "/h"), "00000003 00000003 00000002 2f68"),
        (r.WhoAmIResponse([r.ClientInfo("ip", "::1")]), "00000001 00000002 6970 00000003 3a3a31"),
        (r.SetSASLResponse(None), "ffffffff"),
        (r.EmptyResponse(), ""),
    ],
)
def test_a_record_has_the_bytes_of_zookeeper(record: Record, raw: str) -> None:
    assert record.encode() == x(raw)
    assert type(record).decode(x(raw)) == record


def test_a_stat_is_sixty_eight_bytes_in_the_order_of_zookeeper() -> None:
    assert STAT.encode() == x(STAT_BYTES)
    assert len(STAT.encode()) == 68


def test_the_first_create_of_a_client_has_the_bytes_of_zookeeper() -> None:
    payload = r.RequestHeader(1, OpCode.CREATE).encode() + r.CreateRequest("/h", b"hi", OPEN_ACL_UNSAFE, 0).encode()

    assert frame(payload) == x("00000033 00000001 00000001 00000002 2f68 00000002 6869" + OPEN_BYTES + "00000000")


def test_a_notification_of_zookeeper_is_read() -> None:
    (payload,) = Frames().feed(x("0000001e ffffffff ffffffffffffffff 00000000 00000003 00000003 00000002 2f68"))

    assert r.ReplyHeader.decode(payload) == r.ReplyHeader(-1, -1, 0)
    assert r.WatcherEvent.decode(payload, 16) == r.WatcherEvent(3, 3, "/h")


@pytest.mark.parametrize(("byte", "read"), [("00", False), ("01", True), ("02", True), ("ff", True)])
def test_every_boolean_but_zero_reads_as_true(byte: str, read: bool) -> None:
    assert r.ExistsRequest.decode(x("00000000" + byte)).watch is read


@pytest.mark.parametrize("op", [-11, *range(1, 10), *range(11, 23), *range(100, 108)])
def test_every_operation_of_zookeeper_has_its_number(op: int) -> None:
    assert OpCode(op) == op


# --- transactions ---


def test_the_operations_of_a_transaction_end_with_a_header_that_says_done() -> None:
    raw = wire.encode_operations(
        [(OpCode.DELETE, r.DeleteRequest("/h", -1)), (OpCode.CHECK, r.CheckVersionRequest("/", 0))]
    )

    assert raw == x(
        "00000002 00 ffffffff 00000002 2f68 ffffffff"  # delete
        "0000000d 00 ffffffff 00000001 2f 00000000" + END  # check
    )


def test_an_empty_transaction_is_the_end_alone() -> None:
    assert wire.encode_operations([]) == x(END)
    assert wire.decode_results(x(END)) == []


def test_only_done_is_looked_at_in_the_last_header() -> None:
    raw = x("00000005 01 00000000")

    assert list(wire.iter_operations(raw, 0, len(raw), wire.WRITES)) == []
    assert wire.decode_results(raw) == []


def test_the_results_of_a_failed_transaction_carry_each_code_twice() -> None:
    raw = x("ffffffff 00 00000000 00000000 ffffffff 00 ffffff9b ffffff9b ffffffff 00 fffffffe fffffffe" + END)

    assert b"".join(map(wire.error_result, [0, -101, -2])) + wire.END == raw
    assert wire.decode_results(raw) == [(-1, r.ErrorResponse(code)) for code in (0, -101, -2)]


def test_the_results_of_a_transaction_stand_behind_the_type_of_their_operation() -> None:
    raw = x(
        "00000001 00 00000000 00000002 2f68"  # create
        "00000002 00 00000000"  # delete
        "00000005 00 00000000" + STAT_BYTES +  # setData
        "0000000d 00 00000000"  # check
        "0000000f 00 00000000 00000002 2f68" + STAT_BYTES +  # create2
        "00000004 00 00000000 ffffffff" + STAT_BYTES +  # getData
        "00000008 00 00000000 00000001 00000001 61" + END  # getChildren
    )  # fmt: skip

    assert wire.decode_results(raw) == [
        (1, r.CreateResponse("/h")),
        (2, r.EmptyResponse()),
        (5, r.StatResponse(STAT)),
        (13, r.EmptyResponse()),
        (15, r.Create2Response("/h", STAT)),
        (4, r.GetDataResponse(None, STAT)),
        (8, r.GetChildrenResponse(["a"])),
    ]


# --- frames ---


def test_a_frame_is_a_length_and_that_many_bytes() -> None:
    assert frame(b"") == x("00000000")
    assert frame(b"abc") == x("00000003") + b"abc"


def test_a_frame_comes_out_once_its_last_byte_is_there() -> None:
    frames = Frames()

    assert [frames.feed(bytes([byte])) for byte in frame(b"ab")] == [[], [], [], [], [], [b"ab"]]


def test_several_frames_come_out_of_one_piece_and_the_rest_is_kept() -> None:
    frames = Frames()

    first = frames.feed(frame(b"a") + frame(b"") + frame(b"bc")[:5])

    assert first == [b"a", b""]
    assert frames.feed(b"c") == [b"bc"]


# --- paths ---


@pytest.mark.parametrize(
    "path",
    [
        "/", "/a", "/a/b", "/...", "/.x", "/..x", "/a..b", "/a.", "/a b", "/ ", "/~", "/!",
        "/\xa0", "/é", "/\u2028", "/\ud7ff", "/\uf900", "/\uffef", "/a/\xa0/b",
    ],
)  # fmt: skip
def test_a_path_that_zookeeper_accepts_is_legal(path: str) -> None:
    assert paths.path_error(path) is None
    assert paths.check(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "", "a", "a/b", "//", "//a", "/a/", "/a//b", "/a/b/", "/.", "/..", "/./a", "/../a", "/a/./b", "/a/../b", "/a/.",
        "/a/..", "/\x00", "/a\x00b", "/\x01", "/\t", "/\n", "/\x1f", "/\x7f", "/\x80", "/\x85", "/\x9f", "/\ue000",
        "/\uf8ff", "/\ufff0", "/\ufffd", "/\uffff", "/\U00010000", "/😀", "/\U0010ffff", "/é/\x01",
    ],
)  # fmt: skip
def test_a_path_that_zookeeper_refuses_is_illegal(path: str) -> None:
    assert paths.path_error(path)
    with pytest.raises(ValueError, match="bad path"):
        paths.check(path)


@pytest.mark.parametrize("unit", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_half_a_surrogate_pair_is_illegal_in_a_path(unit: int) -> None:
    assert paths.path_error("/" + chr(unit))


def test_null_is_no_path() -> None:
    assert paths.path_error(None)


@pytest.mark.parametrize(("path", "parent"), [("/", "/"), ("/a", "/"), ("/a/b", "/a"), ("/a/b/c", "/a/b")])
def test_the_parent_of_a_path_is_what_stands_before_its_last_part(path: str, parent: str) -> None:
    assert paths.parent(path) == parent


@pytest.mark.parametrize(("parent", "path"), [("/", "/x"), ("", "/x"), ("/a", "/a/x"), ("/a/b", "/a/b/x")])
def test_a_child_is_joined_with_one_slash(parent: str, path: str) -> None:
    assert paths.join(parent, "x") == path


@pytest.mark.parametrize(
    ("number", "suffix"),
    [(0, "0000000000"), (71, "0000000071"), (2**31 - 1, "2147483647"), (-1, "-000000001"), (-(2**31), "-2147483648")],
)
def test_a_sequence_number_is_padded_to_ten_characters_its_sign_among_them(number: int, suffix: str) -> None:
    assert paths.sequence_suffix(number) == suffix


# --- identities and ACL lists ---


@pytest.mark.parametrize(
    ("credentials", "name"),
    [
        (b"u:p", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="),
        (b"super:admin", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="),
        (b"", ":2jmj7l5rSw0yVb/vlWAYkK/YBwk="),
    ],
)
def test_the_id_of_a_digest_is_the_user_and_the_hash_of_all(credentials: bytes, name: str) -> None:
    assert digest_id(credentials) == name


def test_credentials_without_a_colon_are_the_user_and_are_hashed_all_the_same() -> None:
    user, _, digest = digest_id(b"justuser").partition(":")

    assert (user, len(digest), digest[-1:]) == ("justuser", 28, "=")


def test_the_user_ends_at_the_first_colon_but_the_rest_is_hashed_too() -> None:
    assert digest_id(b"a:b:c").startswith("a:")
    assert digest_id(b"a:b:c") != digest_id(b"a:b")


def test_the_list_that_nearly_everybody_sends_is_always_the_same_object() -> None:
    request = r.CreateRequest.decode(x("00000002 2f68 00000002 6869" + OPEN_BYTES + "00000000"))

    assert request.acl is OPEN_ACL_UNSAFE


@pytest.mark.parametrize(
    "acl",
    [
        READ_ACL_UNSAFE,
        CREATOR_ALL_ACL,
        OPEN_ACL_UNSAFE + READ_ACL_UNSAFE,
        (ACL(31, Id("world", "anyon")),),
        (ACL(31, Id("world", "anyone2")),),
        (ACL(30, Id("world", "anyone")),),
        (ACL(-1, Id(None, None)),),
        (),
        None,
    ],
)
def test_a_list_that_only_resembles_the_common_one_is_read_as_it_is(acl: tuple[ACL, ...] | None) -> None:
    request = r.SetACLRequest("/h", acl, 3)

    assert r.SetACLRequest.decode(request.encode()) == request


def test_the_common_list_is_not_recognised_beyond_the_end_of_its_frame() -> None:
    raw = r.SetACLRequest("/h", OPEN_ACL_UNSAFE, 3).encode()

    with pytest.raises(ZooKeeperError):
        r.SetACLRequest.decode(raw, 0, len(raw) - 5)


def test_the_permissions_have_the_bits_of_zookeeper() -> None:
    assert (Perm.READ, Perm.WRITE, Perm.CREATE, Perm.DELETE, Perm.ADMIN, Perm.ALL) == (1, 2, 4, 8, 16, 31)


# --- errors ---

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
