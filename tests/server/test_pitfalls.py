"""Forty things that re-implementers of ZooKeeper get wrong, and the real server's defects not to imitate, a test or
more each.

The numbers are those of the list of pitfalls in the specification. The default is the behaviour of 3.9; what an older
release does differently is at the end, with the defects. ``z + 1`` stands for "this request took a zxid", ``z`` for "it
took none".
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.peer import Peer, Reply
from support.records import replace

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, AclList, Id, digest_id
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import Perm
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import NO_PASSWORD, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server.core.compat import V3_8
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import Settings

NOW = 1_700_000_000_000
REFUSED = ConnectResponse(0, 0, NO_PASSWORD, False)
END = "ffffffff 01 ffffffff"

OK = 0
MARSHALLING_ERROR = -5
UNIMPLEMENTED = -6
BAD_ARGUMENTS = -8
NO_NODE = -101
NO_AUTH = -102
BAD_VERSION = -103
NO_CHILDREN_FOR_EPHEMERALS = -108
NODE_EXISTS = -110
NOT_EMPTY = -111
INVALID_ACL = -114
NO_WATCHER = -121
RECONFIG_DISABLED = -123
QUOTA_EXCEEDED = -125

CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4
EPHEMERAL, SEQUENTIAL, CONTAINER, TTL = 1, 2, 4, 5
PERSISTENT_WATCH, RECURSIVE_WATCH = 0, 1


# --- what the tests say it with ---


@pytest.fixture
def engine() -> Engine:
    """A fresh server; its clock says something, so that "time 0" means something."""
    return Engine(now=NOW)


@pytest.fixture
def peer(engine: Engine) -> Peer:
    return connected(engine)


@pytest.fixture
def other(engine: Engine, peer: Peer) -> Peer:
    return connected(engine)


def connected(engine: Engine, timeout: int = 40_000) -> Peer:
    peer = Peer(engine)
    assert peer.connect(timeout=timeout) is not None
    return peer


def renew(peer: Peer, timeout: int = 40_000, password: bytes | None = None) -> Peer:
    """Resume the session of *peer* from another connection."""
    assert peer.welcome is not None
    second = Peer(peer.engine)
    second.connect(timeout, peer.welcome.session_id, password or peer.welcome.password or b"")
    return second


def session_of(peer: Peer) -> int:
    assert peer.welcome is not None
    return peer.welcome.session_id


def x(text: str) -> bytes:
    return bytes.fromhex(text)


def long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def string(text: str) -> bytes:
    return len(text.encode()).to_bytes(4, "big") + text.encode()


def request(xid: int, op: int, body: Record | bytes = b"") -> bytes:
    """The frame of one request."""
    return frame(r.RequestHeader(xid, op).encode() + (body if isinstance(body, bytes) else body.encode()))


def ask(peer: Peer, op: int, body: Record | bytes = b"") -> Reply:
    """Send a request and give its reply, without the notifications that came before it."""
    raw = body if isinstance(body, bytes) else body.encode()
    (reply,) = [reply for reply in peer.send(op, raw) if reply.xid != -1]
    return reply


def error(peer: Peer, op: int, body: Record | bytes = b"") -> int:
    return ask(peer, op, body).err


def create(
    peer: Peer,
    path: str | None,
    flags: int = 0,
    acl: AclList | None = OPEN_ACL_UNSAFE,
    op: int = OpCode.CREATE,
    data: bytes = b"",
) -> Reply:
    return ask(peer, op, r.CreateRequest(path, data, acl, flags))


def create_ttl(peer: Peer, path: str, ttl: int, flags: int = TTL) -> Reply:
    return ask(peer, OpCode.CREATE_TTL, r.CreateTTLRequest(path, b"", OPEN_ACL_UNSAFE, flags, ttl))


def delete(peer: Peer, path: str | None, version: int = -1) -> Reply:
    return ask(peer, OpCode.DELETE, r.DeleteRequest(path, version))


def set_data(peer: Peer, path: str | None, version: int = -1) -> Reply:
    return ask(peer, OpCode.SET_DATA, r.SetDataRequest(path, b"new", version))


def set_acl(peer: Peer, path: str, acl: AclList | None, version: int = -1) -> Reply:
    return ask(peer, OpCode.SET_ACL, r.SetACLRequest(path, acl, version))


def add_watch(peer: Peer, path: str | None, mode: int) -> Reply:
    return ask(peer, OpCode.ADD_WATCH, r.AddWatchRequest(path, mode))


def check_watches(peer: Peer, path: str, kind: int) -> int:
    return error(peer, OpCode.CHECK_WATCHES, r.CheckWatchesRequest(path, kind))


def remove_watches(peer: Peer, path: str, kind: int) -> int:
    return error(peer, OpCode.REMOVE_WATCHES, r.RemoveWatchesRequest(path, kind))


def multi(peer: Peer, *operations: tuple[OpCode, Record]) -> Reply:
    return ask(peer, OpCode.MULTI, wire.encode_operations(list(operations)))


def creating(path: str, flags: int = 0, acl: AclList | None = OPEN_ACL_UNSAFE) -> tuple[OpCode, Record]:
    return OpCode.CREATE, r.CreateRequest(path, b"", acl, flags)


def deleting(path: str, version: int = -1) -> tuple[OpCode, Record]:
    return OpCode.DELETE, r.DeleteRequest(path, version)


def checking(path: str, version: int = -1) -> tuple[OpCode, Record]:
    return OpCode.CHECK, r.CheckVersionRequest(path, version)


def setting(path: str, version: int = -1) -> tuple[OpCode, Record]:
    return OpCode.SET_DATA, r.SetDataRequest(path, b"new", version)


def ping(peer: Peer) -> Reply:
    (reply,) = peer.send(OpCode.PING, xid=-2)
    return reply


def last_zxid(peer: Peer) -> int:
    return ping(peer).zxid


def acl_of(peer: Peer, path: str) -> AclList:
    acl = r.GetACLResponse.decode(ask(peer, OpCode.GET_ACL, r.GetACLRequest(path)).body).acl
    assert acl is not None
    return acl


def who_am_i(peer: Peer) -> set[tuple[str | None, str | None]]:
    infos = r.WhoAmIResponse.decode(ask(peer, OpCode.WHO_AM_I).body).clientInfo
    return {(info.scheme, info.user) for info in infos}


def only(perms: int, scheme: str = "world", name: str | None = "anyone") -> AclList:
    return (ACL(perms, Id(scheme, name)),)


def pass_time(engine: Engine, start: int, stop: int, step: int, meanwhile: Callable[[], object]) -> None:
    """Let time go by in steps; after each the server does what is due, then *meanwhile* happens."""
    for monotonic_ms in range(start + step, stop + 1, step):
        at(engine, monotonic_ms)
        meanwhile()


def at(engine: Engine, monotonic_ms: int) -> None:
    """Set the time and let the server do what is due."""
    engine.set_time(NOW + monotonic_ms, monotonic_ms)
    engine.tick()


# --- 1 to 17: wire and sessions ---


def test_01_failed_writes_consume_a_zxid(peer):
    first = create(peer, "/x")

    second = create(peer, "/x")

    assert (second.err, second.body, second.zxid) == (NODE_EXISTS, b"", first.zxid + 1)
    assert last_zxid(peer) == first.zxid + 1


@pytest.mark.parametrize(
    ("op", "body", "err"),
    [
        (OpCode.CREATE, r.CreateRequest("/x", b"", OPEN_ACL_UNSAFE, 99), BAD_ARGUMENTS),
        (OpCode.CREATE, r.CreateRequest(None, b"", OPEN_ACL_UNSAFE, 0), MARSHALLING_ERROR),
        (OpCode.CREATE, r.CreateRequest("x", b"", OPEN_ACL_UNSAFE, 0), BAD_ARGUMENTS),
        (OpCode.CREATE, r.CreateRequest("/x", b"", (), 0), INVALID_ACL),
        (OpCode.CREATE, r.CreateRequest("/no/x", b"", OPEN_ACL_UNSAFE, 0), NO_NODE),
        (OpCode.CREATE, r.CreateRequest("/zookeeper/config/x", b"", OPEN_ACL_UNSAFE, 0), NO_AUTH),
        (OpCode.CREATE2, r.CreateRequest("/no/x", b"", OPEN_ACL_UNSAFE, 0), NO_NODE),
        (OpCode.CREATE_CONTAINER, r.CreateRequest("/no/x", b"", OPEN_ACL_UNSAFE, 4), NO_NODE),
        (OpCode.CREATE_TTL, r.CreateTTLRequest("/x", b"", OPEN_ACL_UNSAFE, 5, 0), BAD_ARGUMENTS),
        (OpCode.DELETE, r.DeleteRequest("/no", -1), NO_NODE),
        (OpCode.DELETE, r.DeleteRequest("/zookeeper", -1), BAD_ARGUMENTS),
        (OpCode.SET_DATA, r.SetDataRequest("/no", b"", -1), NO_NODE),
        (OpCode.SET_DATA, r.SetDataRequest("/", b"", 7), BAD_VERSION),
        (OpCode.SET_DATA, r.SetDataRequest(None, b"", -1), BAD_ARGUMENTS),
        (OpCode.SET_ACL, r.SetACLRequest("/", OPEN_ACL_UNSAFE, 7), BAD_VERSION),
        (OpCode.RECONFIG, r.ReconfigRequest(None, None, None, -1), RECONFIG_DISABLED),
    ],
)
def test_01b_every_kind_of_failed_write_consumes_a_zxid(peer, op, body, err):
    before = last_zxid(peer)

    reply = ask(peer, op, body)

    assert (reply.err, reply.zxid, reply.body) == (err, before + 1, b"")
    assert last_zxid(peer) == before + 1


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (OpCode.GET_DATA, r.GetDataRequest("/no", False)),
        (OpCode.EXISTS, r.ExistsRequest("/no", False)),
        (OpCode.SYNC, r.SyncRequest("/no")),
        (OpCode.CHECK_WATCHES, r.CheckWatchesRequest("/no", 3)),
        (OpCode.WHO_AM_I, b""),
        (OpCode.MULTI_READ, wire.END),
    ],
)
def test_01c_reads_consume_no_zxid_even_when_they_fail(peer, op, body):
    before = last_zxid(peer)

    reply = ask(peer, op, body)

    assert reply.zxid == before
    assert last_zxid(peer) == before


def test_02_error_replies_have_no_body(peer):
    raw = peer.feed(request(7, OpCode.GET_DATA, r.GetDataRequest("/none", False)))

    assert raw == x("00000010 00000007 0000000000000001 ffffff9b")


def test_02b_a_failed_write_is_sixteen_bytes_as_well(peer):
    raw = peer.feed(request(8, OpCode.CREATE2, r.CreateRequest("/", b"", OPEN_ACL_UNSAFE, 0)))

    assert raw == x("00000010 00000008 0000000000000002 ffffff92")


def test_03_a_failed_multi_has_error_zero_in_its_header(peer):
    before = last_zxid(peer)

    reply = multi(peer, creating("/a"), deleting("/none"), creating("/b"))

    assert (reply.err, reply.zxid) == (OK, before + 1)
    assert reply.body == x(
        "ffffffff 00 00000000 00000000"  # it would have worked
        "ffffffff 00 ffffff9b ffffff9b"  # it failed
        "ffffffff 00 fffffffe fffffffe" + END  # it was not tried
    )


def test_03b_a_failed_multi_applies_nothing(peer, other):
    root = peer.exists("/")
    add_watch(other, "/", RECURSIVE_WATCH)

    multi(peer, creating("/a"), setting("/zookeeper"), creating("/s", SEQUENTIAL), deleting("/none"))

    assert peer.exists("/") == root
    assert peer.exists("/zookeeper").version == 0
    assert peer.create("/s", flags=SEQUENTIAL) == "/s0000000000"
    assert other.receive() == [(CREATED, "/s0000000000")]


def test_04_a_successful_result_has_its_type_done_zero_and_error_zero(peer):
    reply = multi(peer, checking("/"))

    assert reply.body == x("0000000d 00 00000000" + END)


def test_04b_an_error_result_carries_its_code_twice(peer):
    reply = multi(peer, checking("/none"))

    assert reply.body == x("ffffffff 00 ffffff9b ffffff9b" + END)


def test_04c_an_empty_multi_answers_the_end_header_and_consumes_a_zxid(peer):
    before = last_zxid(peer)

    reply = multi(peer)

    assert (reply.err, reply.zxid, reply.body) == (OK, before + 1, x(END))


def test_04d_a_multi_without_its_end_is_a_marshalling_error_without_body(peer):
    reply = ask(peer, OpCode.MULTI, x("00000002 00 ffffffff") + r.DeleteRequest("/none", -1).encode())

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")


@pytest.mark.parametrize("op", [OpCode.SET_ACL, OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.SYNC])
def test_04e_an_operation_that_does_not_belong_into_a_multi_is_a_marshalling_error(peer, op):
    body = wire.encode_operations([(op, r.GetDataRequest("/", False))])

    reply = ask(peer, OpCode.MULTI, body)

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")


def test_04f_a_multi_read_fails_operation_by_operation(peer):
    peer.create("/d", b"data")
    body = wire.encode_operations(
        [
            (OpCode.GET_DATA, r.GetDataRequest("/none", False)),
            (OpCode.GET_CHILDREN, r.GetChildrenRequest("/d", False)),
        ]
    )

    reply = ask(peer, OpCode.MULTI_READ, body)

    assert reply.err == OK
    assert reply.body == x("ffffffff 00 ffffff9b ffffff9b 00000008 00 00000000 00000000" + END)


def test_05_a_connect_request_without_read_only_gets_a_response_without_it(engine):
    raw = Peer(engine).feed(x("0000002c 00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(16))

    assert len(raw) == 4 + 36
    assert raw[:12] == x("00000024 00000000 00002710")


def test_05b_a_connect_request_with_read_only_gets_a_response_with_it(engine):
    raw = Peer(engine).feed(x("0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(17))

    assert len(raw) == 4 + 37
    assert raw[:12] == x("00000025 00000000 00002710")
    assert raw[-1:] == x("00")


def test_05c_a_client_that_would_be_content_with_read_only_is_told_that_the_server_is_not(engine):
    raw = Peer(engine).feed(
        x("0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(16) + b"\x01"
    )

    assert raw[-1:] == x("00")


@pytest.mark.parametrize(
    ("wanted", "granted"), [(0, 4000), (-1, 4000), (4001, 4001), (10_000, 10_000), (2**31 - 1, 40_000)]
)
def test_05d_the_timeout_is_clamped_to_two_and_twenty_ticks(engine, wanted, granted):
    welcome = Peer(engine).connect(timeout=wanted)

    assert welcome is not None
    assert welcome.timeout_ms == granted


@pytest.mark.parametrize("size", [0, 4, 43])
def test_05e_a_connect_request_that_is_too_short_is_hung_up_on_without_a_word(engine, size):
    peer = Peer(engine)
    whole = x("00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(16)

    raw = peer.feed(frame(whole[:size]))

    assert raw == b""
    assert peer.closed


def test_06_a_client_ahead_of_the_server_is_hung_up_on_without_a_word(engine, peer):
    late = Peer(engine)

    welcome = late.connect(zxid=2)

    assert welcome is None
    assert late.closed
    assert last_zxid(peer) == 1


@pytest.mark.parametrize("seen", [1, 0, -1])
def test_06b_a_client_that_has_seen_the_last_zxid_or_less_is_accepted(engine, peer, seen):
    welcome = Peer(engine).connect(zxid=seen)

    assert welcome is not None
    assert welcome.timeout_ms == 10_000


def test_06c_a_renewing_client_ahead_of_the_server_is_hung_up_on_too_where_zookeeper_is_followed_to_the_letter():
    engine = Engine(Settings(expire_clients_ahead=False), now=NOW)
    peer = connected(engine)
    second = Peer(engine)

    welcome = second.connect(10_000, session_of(peer), peer.welcome.password, zxid=2)

    assert welcome is None
    assert second.closed


def test_06d_a_renewing_client_ahead_of_a_restarted_empty_server_is_told_that_its_session_expired(engine):
    late = Peer(engine)

    welcome = late.connect(10_000, session=0x1234, zxid=5)

    assert welcome == REFUSED
    assert late.closed


def test_07_an_unknown_session_gets_a_response_of_zeroes_and_the_end(engine):
    peer = Peer(engine)

    raw = peer.feed(x("0000002d 00000000 0000000000000000 00002710 0000000000001234 00000010") + bytes(17))

    assert raw == x("00000025 00000000 00000000 0000000000000000 00000010") + bytes(16) + x("00")
    assert peer.closed


def test_07b_the_response_of_zeroes_has_no_read_only_byte_either_when_none_was_sent(engine):
    peer = Peer(engine)

    raw = peer.feed(x("0000002c 00000000 0000000000000000 00002710 0000000000001234 00000010") + bytes(16))

    assert raw == x("00000024 00000000 00000000 0000000000000000 00000010") + bytes(16)
    assert peer.closed


def test_07c_an_expired_session_gets_the_response_of_zeroes(engine, peer):
    at(engine, 60_000)

    second = renew(peer)

    assert second.welcome == REFUSED
    assert second.closed


def test_07d_a_closed_session_gets_the_response_of_zeroes(peer):
    peer.close()

    second = renew(peer)

    assert second.welcome == REFUSED
    assert second.closed


def test_08_a_take_over_with_a_wrong_password_is_refused_and_closes_the_old_connection_all_the_same(peer):
    thief = renew(peer, password=b"not the password")

    assert thief.welcome == REFUSED
    assert thief.closed
    assert peer.closed
    assert peer.take() == b""


def test_08b_the_session_survives_a_take_over_with_a_wrong_password(peer):
    peer.create("/e", flags=EPHEMERAL)
    renew(peer, password=b"not the password")

    owner = renew(peer)

    assert owner.welcome == peer.welcome
    assert owner.exists("/e").ephemeralOwner == session_of(peer)


def test_08c_a_take_over_closes_the_old_connection_without_a_word(peer):
    second = renew(peer)

    assert peer.closed
    assert peer.take() == b""
    assert second.welcome == peer.welcome
    assert not second.closed


def test_09_a_take_over_drops_watches(peer, other):
    peer.create("/d")
    peer.get("/d", watch=True)
    peer.children("/", watch=True)
    add_watch(peer, "/d", PERSISTENT_WATCH)

    second = renew(peer)
    other.set("/d", b"new")
    other.create("/c")

    assert second.receive() == []
    assert peer.take() == b""


def test_09b_a_take_over_drops_identities(peer):
    peer.auth("digest", b"u:p")
    peer.create("/mine", acl=only(Perm.ALL, "digest", digest_id(b"u:p")))

    second = renew(peer)

    assert ask(second, OpCode.WHO_AM_I).body == x("00000001 00000002 6970 00000009") + b"127.0.0.1"
    assert error(second, OpCode.GET_DATA, r.GetDataRequest("/mine", False)) == NO_AUTH


def test_09c_a_take_over_keeps_ephemeral_nodes(peer, other):
    peer.create("/e", flags=EPHEMERAL)

    renew(peer)

    assert other.exists("/e").ephemeralOwner == session_of(peer)


def test_10_renewal_negotiates_the_timeout_again(engine):
    first = connected(engine, timeout=10_000)

    second = renew(first, timeout=20_000)

    assert second.welcome == replace(first.welcome, timeout_ms=20_000)


@pytest.mark.parametrize(("first", "second", "alive"), [(4_000, 20_000, True), (20_000, 4_000, False)])
def test_10b_the_renewed_timeout_is_the_one_that_counts(engine, peer, first, second, alive):
    renew(connected(engine, timeout=first), timeout=second).create("/e", flags=EPHEMERAL)

    at(engine, 10_000)

    assert (peer.children("/") == ["e", "zookeeper"]) is alive


def test_11_the_reply_to_a_ping_has_xid_minus_two_whatever_was_sent(peer):
    raw = peer.feed(request(77, OpCode.PING))

    assert raw == x("00000010 fffffffe 0000000000000001 00000000")


@pytest.mark.parametrize("xid", [-1, -2, -4, -8, 0, 2**31 - 1, -(2**31)])
def test_11b_other_operations_echo_any_xid(peer, xid):
    raw = peer.feed(request(xid, OpCode.GET_DATA, r.GetDataRequest("/none", False)))

    assert raw == x("00000010") + xid.to_bytes(4, "big", signed=True) + x("0000000000000001 ffffff9b")


@pytest.mark.parametrize("xid", [-4, 5])
def test_12_the_reply_to_auth_has_zxid_zero_and_echoes_the_xid(peer, xid):
    peer.create("/x")

    raw = peer.feed(request(xid, OpCode.AUTH, r.AuthPacket(0, "digest", b"u:p")))

    assert raw == x("00000010") + xid.to_bytes(4, "big", signed=True) + x("0000000000000000 00000000")


@pytest.mark.parametrize(
    ("scheme", "data"),
    [("none", b""), ("world", b""), ("auth", b""), ("super", b""), (None, b""), ("x509", b""), ("digest", None)],
)
def test_12b_failed_auth_is_answered_and_ends_the_connection_but_not_the_session(peer, scheme, data):
    raw = peer.feed(request(-4, OpCode.AUTH, r.AuthPacket(0, scheme, data)))

    assert raw == x("00000010 fffffffc 0000000000000000 ffffff8d")
    assert peer.closed
    assert renew(peer).welcome == peer.welcome


def test_12c_auth_consumes_no_zxid(peer):
    before = last_zxid(peer)

    peer.auth("digest", b"u:p")

    assert last_zxid(peer) == before


def test_12d_auth_is_no_heartbeat(engine):
    peer = connected(engine, timeout=4_000)

    pass_time(engine, 0, 5_500, 500, lambda: peer.auth("digest", b"u:p"))
    alive = not peer.closed
    at(engine, 6_000)

    assert alive
    assert peer.closed
    assert renew(peer).welcome == REFUSED


def test_12e_ping_is_a_heartbeat(engine):
    peer = connected(engine, timeout=4_000)

    pass_time(engine, 0, 20_000, 500, lambda: ping(peer))

    assert not peer.closed


def test_12f_sasl_without_a_login_set_up_succeeds_with_a_null_token_and_zxid_zero(peer):
    raw = peer.feed(request(5, OpCode.SASL, r.GetSASLRequest(b"")))

    assert raw == x("00000014 00000005 0000000000000000 00000000 ffffffff")
    assert not peer.closed


def test_12g_sasl_is_no_heartbeat_and_consumes_no_zxid(engine, peer):
    silent = connected(engine, timeout=4_000)
    before = last_zxid(peer)

    pass_time(engine, 0, 5_500, 500, lambda: silent.feed(request(5, OpCode.SASL, r.GetSASLRequest(b""))))
    alive = not silent.closed
    after = last_zxid(peer)
    at(engine, 6_000)

    assert alive
    assert after == before
    assert silent.closed


def test_12h_an_auth_packet_that_does_not_decode_is_hung_up_on_without_a_word(peer):
    raw = peer.feed(request(-4, OpCode.AUTH, x("00000000 00000006 6469")))

    assert raw == b""
    assert peer.closed
    assert renew(peer).welcome == peer.welcome


@pytest.mark.parametrize("op", [50, 0, 10, 13, 20, 23, 99, 108, -1, -10, 2**31 - 1])
def test_13_an_unknown_operation_is_unimplemented_with_zxid_minus_one_and_ends_the_connection(peer, op):
    raw = peer.feed(request(9, op, r.CheckVersionRequest("/", -1)))

    assert raw == x("00000010 00000009 ffffffffffffffff fffffffa")
    assert peer.closed


def test_13b_the_session_survives_an_unknown_operation(peer):
    peer.create("/e", flags=EPHEMERAL)
    peer.send(50)

    second = renew(peer)

    assert second.welcome == peer.welcome
    assert second.exists("/e").ephemeralOwner == session_of(peer)


def test_13c_an_unknown_operation_consumes_no_zxid(peer, other):
    before = last_zxid(other)

    peer.send(50)

    assert last_zxid(other) == before


def test_13d_a_second_connect_request_is_an_unknown_operation(peer):
    raw = peer.feed(x("0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(17))

    assert raw == x("00000010 00000000 ffffffffffffffff fffffffa")
    assert peer.closed


def test_14_a_body_that_does_not_decode_is_a_marshalling_error_and_the_connection_goes_on(peer):
    raw = peer.feed(request(3, OpCode.SET_DATA, string("/zookeeper")))

    assert raw == x("00000010 00000003 0000000000000001 fffffffb")
    assert not peer.closed
    assert peer.exists("/zookeeper").version == 0


def test_14b_a_write_whose_body_does_not_decode_consumes_no_zxid(peer):
    before = last_zxid(peer)

    reply = ask(peer, OpCode.SET_DATA, string("/"))

    assert reply.zxid == before
    assert last_zxid(peer) == before


@pytest.mark.parametrize("payload", [b"", b"\0", b"\0\0", bytes(4), bytes(7)])
def test_14c_a_frame_too_short_for_a_header_is_hung_up_on_without_a_word(peer, payload):
    raw = peer.feed(frame(payload))

    assert raw == b""
    assert peer.closed
    assert renew(peer).welcome == peer.welcome


@pytest.mark.parametrize("length", ["ffffffff", "80000000", "00100000", "7fffffff"])
def test_14d_a_length_below_zero_or_above_the_limit_is_hung_up_on_before_the_payload_comes(peer, length):
    raw = peer.feed(x(length))

    assert raw == b""
    assert peer.closed


def test_14e_a_frame_of_exactly_the_limit_is_accepted(peer):
    header = r.RequestHeader(4, OpCode.PING).encode()

    raw = peer.feed(x("000fffff") + header + bytes(0xFFFFF - len(header)))

    assert raw == x("00000010 fffffffe 0000000000000001 00000000")


@pytest.mark.parametrize("path_length", ["fffffffe", "80000000", "7fffffff", "00000003"])
def test_14f_a_length_inside_the_body_that_cannot_be_is_a_marshalling_error(peer, path_length):
    reply = ask(peer, OpCode.EXISTS, x(path_length) + b"/\0")

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")
    assert not peer.closed


def test_14g_bytes_behind_the_body_are_ignored(peer):
    assert error(peer, OpCode.EXISTS, string("/") + b"\0" + b"more") == OK


@pytest.mark.parametrize(("connect_at", "gone_at"), [(0, 6_000), (1_500, 6_000), (1_999, 6_000), (2_000, 8_000)])
def test_15_expiry_is_rounded_up_to_the_tick(engine, peer, connect_at, gone_at):
    at(engine, connect_at)
    connected(engine, timeout=4_000).create("/e", flags=EPHEMERAL)

    at(engine, gone_at - 1)
    before = peer.children("/")
    at(engine, gone_at)
    after = peer.children("/")

    assert before == ["e", "zookeeper"]
    assert after == ["zookeeper"]


def test_15b_a_session_never_expires_before_its_timeout(engine):
    peer = connected(engine, timeout=4_000)

    pass_time(engine, 0, 4_000, 1, lambda: None)

    assert not peer.closed
    assert renew(peer).welcome == replace(peer.welcome, timeout_ms=40_000)


def test_15c_expiry_closes_the_connection_without_a_word_and_takes_one_zxid(engine, peer):
    silent = connected(engine, timeout=4_000)
    silent.create("/e1", flags=EPHEMERAL)
    silent.create("/e2", flags=EPHEMERAL)
    before = last_zxid(peer)

    at(engine, 6_000)

    assert silent.closed
    assert silent.take() == b""
    assert last_zxid(peer) == before + 1
    assert peer.exists("/").pzxid == before + 1


def test_16_closing_a_session_tells_of_its_ephemerals_then_answers_then_hangs_up(peer):
    peer.create("/e", flags=EPHEMERAL)
    peer.get("/e", watch=True)
    peer.children("/", watch=True)
    before = last_zxid(peer)

    raw = peer.feed(request(9, OpCode.CLOSE_SESSION))

    zxid = long(before + 1)
    assert raw == (
        frame(x("ffffffff") + zxid + x("00000000 00000002 00000003") + string("/e"))
        + frame(x("ffffffff") + zxid + x("00000000 00000004 00000003") + string("/"))
        + frame(x("00000009") + zxid + x("00000000"))
    )
    assert peer.closed


def test_16b_what_is_pipelined_behind_the_close_is_not_answered_and_not_done(peer, other):
    late = request(10, OpCode.CREATE, r.CreateRequest("/late", b"", OPEN_ACL_UNSAFE, 0))

    raw = peer.feed(request(9, OpCode.CLOSE_SESSION) + late + request(-2, OpCode.PING))

    assert raw == x("00000010 00000009 0000000000000003 00000000")
    assert other.children("/") == ["zookeeper"]
    assert last_zxid(other) == 3


def test_16c_closing_a_session_removes_its_ephemerals_in_one_transaction(peer, other):
    peer.create("/p")
    peer.create("/p/a", flags=EPHEMERAL)
    peer.create("/p/b", flags=EPHEMERAL)
    peer.create("/p/c", flags=EPHEMERAL)
    before = other.exists("/p")

    (closed,) = peer.close()

    assert other.exists("/p") == replace(before, cversion=before.cversion + 3, numChildren=0, pzxid=closed.zxid)


def test_17_creating_a_session_takes_one_zxid(engine):
    peer = connected(engine)

    assert ask(peer, OpCode.EXISTS, r.ExistsRequest("/", False)).zxid == 1


def test_17b_every_session_created_or_closed_takes_one_zxid(peer, other):
    before = last_zxid(peer)

    (closed,) = other.close()

    assert before == 2
    assert (closed.zxid, closed.err, closed.body) == (3, OK, b"")
    assert last_zxid(peer) == 3


def test_17c_renewal_takes_no_zxid(peer):
    before = last_zxid(peer)

    second = renew(peer)

    assert last_zxid(second) == before


def test_17d_the_bytes_of_a_first_create_are_those_of_zookeeper(peer):
    raw = peer.feed(
        x("00000033 00000001 00000001 00000002 2f68 00000002 6869 00000001 0000001f 00000005")
        + b"world"
        + x("00000006")
        + b"anyone"
        + x("00000000")
    )

    assert raw == x("00000016 00000001 0000000000000002 00000000 00000002 2f68")


# --- 18 to 32: tree and stats ---


def test_18_cversion_counts_creations_and_deletions(peer):
    peer.create("/p")
    peer.create("/p/c")

    deleted = delete(peer, "/p/c")

    stat = peer.exists("/p")
    assert (stat.cversion, stat.numChildren, stat.pzxid) == (2, 0, deleted.zxid)


def test_18b_pzxid_is_the_creation_of_the_node_until_it_gets_a_child(peer):
    made = create(peer, "/p")
    before = peer.exists("/p")
    child = create(peer, "/p/c")

    after = peer.exists("/p")

    assert (before.cversion, before.pzxid) == (0, made.zxid)
    assert (after.cversion, after.pzxid) == (1, child.zxid)


def test_18c_a_change_below_a_child_does_not_touch_the_grandparent(peer):
    peer.create("/p")
    peer.create("/p/c")
    before = peer.exists("/p")

    peer.create("/p/c/d")
    peer.set("/p/c", b"new")
    peer.delete("/p/c/d")

    assert peer.exists("/p") == before


@pytest.mark.parametrize(
    ("path", "cversion", "aversion", "children"),
    [("/", -1, 0, 1), ("/zookeeper", -2, 0, 2), ("/zookeeper/quota", 0, 0, 0), ("/zookeeper/config", 0, -1, 0)],
)
def test_19_the_first_nodes_have_the_versions_of_zookeeper_and_times_of_zero(peer, path, cversion, aversion, children):
    data, stat = peer.get(path)

    assert data == b""
    assert stat == r.Stat(0, 0, 0, 0, 0, cversion, aversion, 0, 0, children, 0)


@pytest.mark.parametrize(
    ("path", "acl"),
    [
        ("/", OPEN_ACL_UNSAFE),
        ("/zookeeper", OPEN_ACL_UNSAFE),
        ("/zookeeper/quota", OPEN_ACL_UNSAFE),
        ("/zookeeper/config", READ_ACL_UNSAFE),
    ],
)
def test_19b_the_first_nodes_have_the_acls_of_zookeeper(peer, path, acl):
    assert acl_of(peer, path) == acl


def test_19c_the_first_child_of_the_root_lifts_its_cversion_to_zero(peer):
    peer.create("/x")

    assert peer.exists("/").cversion == 0


def test_20_the_sequence_number_is_the_number_of_children_ever_created(peer):
    peer.create("/p")

    first = peer.create("/p/a-", flags=SEQUENTIAL)
    second = peer.create("/p/", flags=SEQUENTIAL)
    peer.create("/p/plain")
    fourth = peer.create("/p/a-", flags=SEQUENTIAL)

    assert (first, second, fourth) == ("/p/a-0000000000", "/p/0000000001", "/p/a-0000000003")


def test_20b_deletions_do_not_move_the_sequence_number(peer):
    peer.create("/p")
    peer.create("/p/plain")
    peer.delete("/p/plain")

    assert peer.create("/p/a-", flags=SEQUENTIAL) == "/p/a-0000000001"


def test_20c_failed_creates_and_failed_multis_do_not_move_the_sequence_number(peer):
    peer.create("/p")
    peer.create("/p/plain")
    create(peer, "/p/plain")
    create(peer, "/p/a-", SEQUENTIAL, acl=())
    multi(peer, creating("/p/a-", SEQUENTIAL), deleting("/none"))

    assert peer.create("/p/a-", flags=SEQUENTIAL) == "/p/a-0000000001"


def test_20d_containers_ephemerals_and_ttl_nodes_move_the_sequence_number(peer):
    peer.create("/p")
    peer.create("/p/e", flags=EPHEMERAL)
    create(peer, "/p/c", CONTAINER, op=OpCode.CREATE_CONTAINER)
    create_ttl(peer, "/p/t", 1000)

    assert peer.create("/p/e-", flags=EPHEMERAL | SEQUENTIAL) == "/p/e-0000000003"


def test_20e_the_sequence_number_of_the_root_starts_at_zero(peer):
    assert peer.create("/", flags=SEQUENTIAL) == "/0000000000"


def test_20f_the_sequence_number_moves_on_inside_a_multi(peer):
    reply = multi(peer, creating("/a-", SEQUENTIAL), creating("/b-", SEQUENTIAL))

    assert reply.body == (
        x("00000001 00 00000000")
        + string("/a-0000000000")
        + x("00000001 00 00000000")
        + string("/b-0000000001")
        + x(END)
    )


@pytest.mark.parametrize("path", ["/p/", "/p/.", "/p/.."])
def test_21_a_sequential_path_may_end_with_a_slash_or_dots(peer, path):
    peer.create("/p")

    assert peer.create(path, flags=SEQUENTIAL) == f"{path}0000000000"


@pytest.mark.parametrize(("path", "err"), [("/p/", BAD_ARGUMENTS), ("/missing/", NO_NODE)])
def test_21b_a_path_that_is_not_sequential_may_not_end_with_a_slash(peer, path, err):
    peer.create("/p")

    assert create(peer, path).err == err


def test_22_null_data_stays_null(peer):
    peer.create("/n", None)

    body = ask(peer, OpCode.GET_DATA, r.GetDataRequest("/n", False)).body

    assert body[:4] == x("ffffffff")
    assert len(body) == 4 + 68
    assert r.Stat.decode(body, 4).dataLength == 0


def test_22b_empty_data_stays_empty(peer):
    peer.create("/n", b"")

    body = ask(peer, OpCode.GET_DATA, r.GetDataRequest("/n", False)).body

    assert body[:4] == x("00000000")
    assert r.Stat.decode(body, 4).dataLength == 0


def test_22c_data_can_be_set_to_null(peer):
    peer.create("/n", b"data")

    stat = peer.set("/n", None)

    assert stat.dataLength == 0
    assert peer.get("/n")[0] is None


def test_23_setting_the_acl_touches_aversion_only(engine, peer):
    peer.create("/n", b"data")
    peer.create("/n/c")
    before = peer.exists("/n")
    parent = peer.exists("/")
    at(engine, 100)

    stat = r.StatResponse.decode(set_acl(peer, "/n", READ_ACL_UNSAFE).body).stat

    assert stat == replace(before, aversion=1)
    assert peer.exists("/n") == stat
    assert peer.exists("/") == parent


def test_23b_setting_the_acl_fires_no_watch(peer, other):
    peer.create("/n")
    other.get("/n", watch=True)
    other.children("/n", watch=True)
    other.children("/", watch=True)
    add_watch(other, "/n", PERSISTENT_WATCH)
    add_watch(other, "/", RECURSIVE_WATCH)

    set_acl(peer, "/n", OPEN_ACL_UNSAFE)

    assert other.receive() == []


def test_23c_setting_the_acl_compares_with_aversion(peer):
    peer.create("/n")
    peer.set("/n", b"new")

    assert set_acl(peer, "/n", OPEN_ACL_UNSAFE, version=1).err == BAD_VERSION
    assert set_acl(peer, "/n", OPEN_ACL_UNSAFE, version=0).err == OK


def test_24_a_new_child_changes_only_cversion_children_and_pzxid_of_its_parent(engine, peer):
    peer.create("/p", b"data")
    before = peer.exists("/p")
    at(engine, 100)

    made = create(peer, "/p/c")

    assert peer.exists("/p") == replace(before, cversion=1, numChildren=1, pzxid=made.zxid)


def test_24b_a_lost_child_changes_only_cversion_children_and_pzxid_of_its_parent(engine, peer):
    peer.create("/p", b"data")
    peer.create("/p/c")
    before = peer.exists("/p")
    at(engine, 100)

    deleted = delete(peer, "/p/c")

    assert peer.exists("/p") == replace(before, cversion=2, numChildren=0, pzxid=deleted.zxid)


def test_24c_setting_data_changes_version_mzxid_and_mtime_even_if_the_data_are_the_same(engine, peer):
    peer.create("/p", b"data")
    before = peer.exists("/p")
    at(engine, 100)

    reply = ask(peer, OpCode.SET_DATA, r.SetDataRequest("/p", b"data", 0))

    stat = r.StatResponse.decode(reply.body).stat
    assert stat == replace(before, version=1, mzxid=reply.zxid, mtime=NOW + 100)


def test_24d_a_new_node_has_its_creation_in_all_zxids_and_times(engine, peer):
    at(engine, 100)

    reply = create(peer, "/n", op=OpCode.CREATE2, data=b"abc")

    z, now = reply.zxid, NOW + 100
    assert reply.body == string("/n") + r.Stat(z, z, now, now, 0, 0, 0, 0, 3, 0, z).encode()


def test_25_a_container_has_owner_zero_and_its_create_answers_path_and_stat(peer):
    reply = create(peer, "/c", CONTAINER, op=OpCode.CREATE_CONTAINER)

    z = reply.zxid
    assert reply.body == string("/c") + r.Stat(z, z, NOW, NOW, 0, 0, 0, 0, 0, 0, z).encode()
    assert peer.exists("/c").ephemeralOwner == 0


def test_25b_a_ttl_node_has_owner_zero_and_its_create_answers_path_and_stat(peer):
    reply = create_ttl(peer, "/t", 5_000)

    z = reply.zxid
    assert reply.body == string("/t") + r.Stat(z, z, NOW, NOW, 0, 0, 0, 0, 0, 0, z).encode()
    assert peer.exists("/t").ephemeralOwner == 0


def test_25c_an_ephemeral_has_its_session_as_owner(peer, other):
    peer.create("/e", flags=EPHEMERAL)

    assert other.exists("/e").ephemeralOwner == session_of(peer)


@pytest.mark.parametrize(("ttl", "err"), [(0, -8), (-1, -8), (1, 0), (2**40 - 1, 0), (2**40, -8)])
def test_25d_a_ttl_is_from_one_to_two_to_the_forty_less_one(peer, ttl, err):
    assert create_ttl(peer, "/t", ttl).err == err


def test_25e_a_sequential_ttl_node_and_a_sequential_container_get_their_number(peer):
    ttl = create_ttl(peer, "/t-", 1000, flags=6)
    container = create(peer, "/c-", SEQUENTIAL, op=OpCode.CREATE_CONTAINER)

    assert ttl.body[: 4 + 13] == string("/t-0000000000")
    assert container.body[: 4 + 13] == string("/c-0000000001")


def test_26_the_container_flag_in_a_plain_create_makes_a_plain_node_and_answers_the_path_only(engine, peer):
    reply = create(peer, "/c", CONTAINER)

    node = engine.tree.get("/c")
    assert reply.body == string("/c")
    assert node is not None
    assert not node.is_container()


@pytest.mark.parametrize("flags", [0, 1, 2, 4])
def test_26b_the_container_operation_makes_a_container_whatever_the_flags(engine, peer, flags):
    reply = create(peer, "/c", flags, op=OpCode.CREATE_CONTAINER)

    node = engine.tree.get(r.Create2Response.decode(reply.body).path)
    assert node is not None
    assert node.is_container()
    assert r.Create2Response.decode(reply.body).stat.ephemeralOwner == 0


def test_26c_an_ephemeral_flag_in_the_container_operation_ties_nothing_to_the_session(peer, other):
    create(peer, "/c", EPHEMERAL, op=OpCode.CREATE_CONTAINER)

    peer.close()

    assert other.children("/") == ["c", "zookeeper"]


def test_26d_the_container_flag_inside_a_multi_does_make_a_container(engine, peer):
    reply = multi(peer, creating("/c", CONTAINER))

    z = reply.zxid
    node = engine.tree.get("/c")
    stat = r.Stat(z, z, NOW, NOW, 0, 0, 0, 0, 0, 0, z)
    assert reply.body == x("0000000f 00 00000000") + string("/c") + stat.encode() + x(END)
    assert node is not None
    assert node.is_container()


def test_27_an_invalid_acl_comes_before_a_missing_parent(peer):
    assert create(peer, "/missing/x", acl=()).err == INVALID_ACL


def test_27b_a_missing_right_comes_before_an_existing_node(peer):
    peer.create("/p")
    peer.create("/p/x")
    set_acl(peer, "/p", only(Perm.ALL & ~Perm.CREATE))

    assert create(peer, "/p/x").err == NO_AUTH


@pytest.mark.parametrize(
    ("path", "err"), [("/", NODE_EXISTS), ("a/b", NO_NODE), ("ab", BAD_ARGUMENTS), ("", BAD_ARGUMENTS)]
)
def test_27c_create_looks_for_the_parent_before_it_looks_at_the_whole_path(peer, path, err):
    assert create(peer, path).err == err


def test_27d_unknown_flags_come_before_everything_in_the_path(peer):
    assert create(peer, None, flags=7, acl=()).err == BAD_ARGUMENTS


def test_27e_a_null_path_comes_before_an_invalid_acl(peer):
    assert create(peer, None, acl=()).err == MARSHALLING_ERROR


@pytest.mark.parametrize("path", ["abc", "", "/missing/\0"])
def test_27f_a_path_without_slash_or_with_nul_comes_before_an_invalid_acl(peer, path):
    assert create(peer, path, acl=()).err == BAD_ARGUMENTS


def test_27g_a_missing_right_comes_before_an_illegal_name(peer):
    peer.create("/p", acl=only(Perm.READ))

    assert create(peer, "/p/").err == NO_AUTH
    assert create(peer, "/p/\x01").err == NO_AUTH


def test_27h_an_illegal_name_comes_before_an_ephemeral_parent(peer):
    peer.create("/eph", flags=EPHEMERAL)

    assert create(peer, "/eph/").err == BAD_ARGUMENTS
    assert create(peer, "/eph/x").err == NO_CHILDREN_FOR_EPHEMERALS


@pytest.mark.parametrize(
    ("path", "err"),
    [
        ("//x", BAD_ARGUMENTS),
        ("/t//x", NO_NODE),
        ("/missing/", NO_NODE),
        ("/t/", BAD_ARGUMENTS),
        ("/t/.", BAD_ARGUMENTS),
        ("/t/..", BAD_ARGUMENTS),
        ("/./x", NO_NODE),
        ("/t/...", OK),
        ("/t/.x", OK),
        ("/t/..x", OK),
        ("/t/a..b", OK),
        ("/t", NODE_EXISTS),
        ("/t/x/y", NO_NODE),
    ],
)
def test_27i_the_path_of_a_create_is_judged_in_the_order_of_zookeeper(peer, path, err):
    peer.create("/t")

    assert create(peer, path).err == err


def test_27j_setting_an_empty_acl_on_a_missing_node_is_an_invalid_acl(peer):
    assert set_acl(peer, "/missing", ()).err == INVALID_ACL
    assert set_acl(peer, "/missing", None).err == INVALID_ACL


@pytest.mark.parametrize("op", [OpCode.CREATE, OpCode.CREATE2])
@pytest.mark.parametrize(("extended", "err"), [(True, BAD_ARGUMENTS), (False, UNIMPLEMENTED)])
def test_27k_a_plain_create_with_ttl_flags_is_refused(op, extended, err):
    peer = connected(Engine(Settings(extended_types=extended)))

    assert create(peer, "/t", flags=5, op=op).err == err
    assert create(peer, "/t", flags=6, op=op).err == err


def test_27l_a_ttl_create_where_they_are_switched_off_is_unimplemented_even_if_the_ttl_is_bad():
    peer = connected(Engine(Settings(extended_types=False)))

    assert create_ttl(peer, "/t", 1000).err == UNIMPLEMENTED
    assert create_ttl(peer, "/t", -5).err == UNIMPLEMENTED
    assert create(peer, "/c", CONTAINER, op=OpCode.CREATE_CONTAINER).err == OK


def test_27m_an_exceeded_quota_comes_after_an_existing_node_and_an_ephemeral_parent():
    peer = connected(Engine(Settings(enforce_quota=True)))
    limit(peer, "/q", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2")
    peer.create("/q/e", flags=EPHEMERAL)

    assert create(peer, "/q/e").err == NODE_EXISTS
    assert create(peer, "/q/e/x").err == NO_CHILDREN_FOR_EPHEMERALS
    assert create(peer, "/q/x").err == QUOTA_EXCEEDED


def limit(peer: Peer, path: str, limits: str) -> None:
    """Make a node with a quota."""
    peer.create(path)
    peer.create(f"/zookeeper/quota{path}")
    peer.create(f"/zookeeper/quota{path}/zookeeper_limits", limits.encode())
    peer.create(f"/zookeeper/quota{path}/zookeeper_stats", b"count=0,bytes=0")


def test_27n_an_exceeded_quota_comes_before_a_wrong_version_in_set_data():
    peer = connected(Engine(Settings(enforce_quota=True)))
    limit(peer, "/q", "count=-1,bytes=-1=;byteHardLimit=2;countHardLimit=-1")

    assert set_data(peer, "/q", version=7).err == QUOTA_EXCEEDED


@pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"])
def test_28_the_first_nodes_cannot_be_deleted(peer, path):
    assert delete(peer, path).err == BAD_ARGUMENTS
    assert delete(peer, path, version=7).err == BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("path", "err"),
    [
        ("/a/", NO_NODE),
        ("/no\x01", NO_NODE),
        ("/a\0", BAD_ARGUMENTS),
        ("x", BAD_ARGUMENTS),
        ("", BAD_ARGUMENTS),
        (None, MARSHALLING_ERROR),
        ("/missing/x", NO_NODE),
        ("//", NO_NODE),
    ],
)
def test_28b_delete_looks_up_more_than_it_validates(peer, path, err):
    peer.create("/a")

    assert delete(peer, path).err == err
    assert peer.children("/") == ["a", "zookeeper"]


def test_28c_a_wrong_version_comes_before_children(peer):
    peer.create("/a")
    peer.create("/a/b")

    assert delete(peer, "/a", version=7).err == BAD_VERSION
    assert delete(peer, "/a", version=0).err == NOT_EMPTY


def test_28d_a_missing_right_comes_before_a_missing_child(peer):
    peer.create("/p", acl=only(Perm.ALL & ~Perm.DELETE))

    assert delete(peer, "/p/none").err == NO_AUTH


@pytest.mark.parametrize("version", [-2, 1, 2**31 - 1, -(2**31)])
def test_28e_any_version_but_minus_one_must_match_exactly(peer, version):
    peer.create("/a")

    assert delete(peer, "/a", version).err == BAD_VERSION
    assert set_data(peer, "/a", version).err == BAD_VERSION
    assert set_acl(peer, "/a", OPEN_ACL_UNSAFE, version).err == BAD_VERSION


@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2, OpCode.EXISTS])
@pytest.mark.parametrize("path", ["nox/", "/a/", "//", "/zookeeper/", "a", "/."])
def test_29_reads_do_not_validate_paths(peer, op, path):
    assert error(peer, op, r.GetDataRequest(path, False)) == NO_NODE


@pytest.mark.parametrize("op", [OpCode.GET_ACL, OpCode.GET_ALL_CHILDREN_NUMBER])
def test_29b_reads_without_watch_do_not_validate_paths_either(peer, op):
    assert error(peer, op, r.GetACLRequest("nox/")) == NO_NODE


def test_29c_the_empty_path_is_the_root_for_reads(peer):
    peer.set("/", b"root")

    assert peer.get("") == peer.get("/")
    assert peer.exists("") == peer.exists("/")
    assert peer.children("") == ["zookeeper"]
    assert acl_of(peer, "") == OPEN_ACL_UNSAFE


def test_29d_exists_refuses_nul(peer):
    assert error(peer, OpCode.EXISTS, r.ExistsRequest("/a\0", True)) == BAD_ARGUMENTS


def test_29e_other_reads_do_not_refuse_nul(peer):
    assert error(peer, OpCode.GET_DATA, r.GetDataRequest("/a\0", False)) == NO_NODE


def test_29f_sync_echoes_whatever_it_got(peer):
    reply = ask(peer, OpCode.SYNC, r.SyncRequest("x//y"))

    assert (reply.err, reply.body) == (OK, x("00000004 782f2f79"))


def test_29g_sync_echoes_null(peer):
    reply = ask(peer, OpCode.SYNC, r.SyncRequest(None))

    assert (reply.err, reply.body) == (OK, x("ffffffff"))


@pytest.mark.parametrize(
    "op",
    [
        OpCode.EXISTS,
        OpCode.GET_DATA,
        OpCode.GET_CHILDREN,
        OpCode.GET_CHILDREN2,
        OpCode.GET_ACL,
        OpCode.GET_ALL_CHILDREN_NUMBER,
    ],
)
def test_29h_a_null_path_in_a_read_is_a_marshalling_error(peer, op):
    assert error(peer, op, x("ffffffff 00")) == MARSHALLING_ERROR


@pytest.mark.parametrize("path", ["a", "", "/a/", "//a", "/a/../b", "/a\x01", None])
def test_29i_set_data_and_set_acl_validate_the_whole_path(peer, path):
    assert set_data(peer, path).err == BAD_ARGUMENTS
    assert set_acl(peer, path, OPEN_ACL_UNSAFE).err == BAD_ARGUMENTS


@pytest.mark.parametrize(
    "character",
    [
        "\0",
        "\x01",
        "\x1f",
        "\x7f",
        "\x85",
        "\x9f",
        "\ue000",
        "\uf8ff",
        "\ufff0",
        "\ufffd",
        "\uffff",
        "\U00010000",
        "😀",
    ],
)
def test_30_characters_in_the_forbidden_ranges_of_utf_16_are_refused(peer, character):
    assert create(peer, f"/a{character}b").err == BAD_ARGUMENTS


@pytest.mark.parametrize("character", [" ", "~", "\xa0", "\u2028", "\ud7ff", "\uf900", "\uffef"])
def test_30b_characters_beside_the_forbidden_ranges_are_accepted(peer, character):
    assert peer.create(f"/a{character}b") == f"/a{character}b"
    assert peer.children("/") == sorted([f"a{character}b", "zookeeper"])


@pytest.mark.parametrize("raw", ["eda080", "ff", "c0af", "eda0"])
def test_30c_malformed_utf_8_is_read_as_the_replacement_character_which_is_forbidden(peer, raw):
    path = b"/" + x(raw)
    body = len(path).to_bytes(4, "big") + path + x("00000000") + r.SetACLRequest("", OPEN_ACL_UNSAFE, 0).encode()[4:]

    assert error(peer, OpCode.CREATE, body) == BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("raw", "read"), [("eda080", "\ufffd"), ("eda0", "\ufffd"), ("ff", "\ufffd"), ("ffff", "\ufffd\ufffd")]
)
def test_30d_sync_echoes_malformed_utf_8_as_java_replaces_it(peer, raw, read):
    sent = x(raw)

    reply = ask(peer, OpCode.SYNC, len(sent).to_bytes(4, "big") + sent)

    assert reply.body == string(read)


def test_31_the_operations_of_a_multi_see_each_other(peer):
    reply = multi(
        peer,
        creating("/p"),
        creating("/p/c"),
        setting("/p/c", version=0),
        checking("/p/c", version=1),
        deleting("/p/c", version=1),
    )

    z = reply.zxid
    stat = r.Stat(z, z, NOW, NOW, 1, 0, 0, 0, 3, 0, z)
    assert reply.err == OK
    assert reply.body == (
        x("00000001 00 00000000")
        + string("/p")
        + x("00000001 00 00000000")
        + string("/p/c")
        + x("00000005 00 00000000")
        + stat.encode()
        + x("0000000d 00 00000000")
        + x("00000002 00 00000000")
        + x(END)
    )


def test_31b_a_multi_leaves_one_zxid_everywhere(peer):
    before = last_zxid(peer)

    reply = multi(peer, creating("/p"), creating("/p/c"), creating("/p/d"), deleting("/p/c"))

    assert reply.zxid == before + 1 == last_zxid(peer)
    assert peer.exists("/p") == r.Stat(reply.zxid, reply.zxid, NOW, NOW, 0, 3, 0, 0, 0, 1, reply.zxid)


def test_31c_create2_inside_a_multi_answers_path_and_stat(peer):
    reply = multi(peer, (OpCode.CREATE2, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, 0)))

    z = reply.zxid
    stat = r.Stat(z, z, NOW, NOW, 0, 0, 0, 0, 0, 0, z)
    assert reply.body == x("0000000f 00 00000000") + string("/c") + stat.encode() + x(END)


def test_32_all_children_of_a_fresh_root_are_three(peer):
    body = ask(peer, OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest("/")).body

    assert body == x("00000003")


@pytest.mark.parametrize(("path", "number"), [("/", 6), ("", 7), ("/zookeeper", 2), ("/a", 2), ("/a/b/c", 0)])
def test_32b_all_children_are_the_descendants_at_every_depth(peer, path, number):
    peer.create("/a")
    peer.create("/a/b")
    peer.create("/a/b/c")

    body = ask(peer, OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest(path)).body

    assert body == number.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("/a/e", ["/a/e", "/a/ex"]),
        ("/a/ex", ["/a/ex"]),
        ("/a", ["/a/e", "/a/ex"]),
        ("/", ["/a/e", "/a/ex", "/b"]),
        (None, ["/a/e", "/a/ex", "/b"]),
        ("", ["/a/e", "/a/ex", "/b"]),
        (" ", ["/a/e", "/a/ex", "/b"]),
        ("/c", []),
    ],
)
def test_32c_ephemerals_are_found_by_the_prefix_of_a_string(peer, other, prefix, found):
    peer.create("/a")
    peer.create("/a/e", flags=EPHEMERAL)
    peer.create("/a/ex", flags=EPHEMERAL)
    peer.create("/b", flags=EPHEMERAL)
    other.create("/a/eother", flags=EPHEMERAL)

    body = ask(peer, OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest(prefix)).body

    assert sorted(r.GetEphemeralsResponse.decode(body).ephemerals) == found


# --- 33 to 38: watches ---


def test_33_get_data_of_a_missing_node_leaves_no_watch(peer, other):
    missing = error(peer, OpCode.GET_DATA, r.GetDataRequest("/m", True))

    other.create("/m")

    assert missing == NO_NODE
    assert peer.receive() == []


def test_33b_exists_of_a_missing_node_leaves_a_watch(peer, other):
    missing = error(peer, OpCode.EXISTS, r.ExistsRequest("/m", True))

    other.create("/m")

    assert missing == NO_NODE
    assert peer.receive() == [(CREATED, "/m")]


def test_33c_both_together_leave_one_watch_that_fires_once(peer, other):
    error(peer, OpCode.GET_DATA, r.GetDataRequest("/m", True))
    error(peer, OpCode.EXISTS, r.ExistsRequest("/m", True))

    other.create("/m")
    other.set("/m", b"new")

    assert peer.receive() == [(CREATED, "/m")]


def test_33d_get_children_of_a_missing_node_leaves_no_watch(peer, other):
    error(peer, OpCode.GET_CHILDREN, r.GetChildrenRequest("/m", True))
    error(peer, OpCode.GET_CHILDREN2, r.GetChildrenRequest("/m", True))

    other.create("/m")
    other.create("/m/c")
    other.delete("/m/c")
    other.delete("/m")

    assert peer.receive() == []


def test_33e_the_bytes_of_a_notification_are_those_of_zookeeper(peer, other):
    peer.create("/h")
    peer.get("/h", watch=True)

    changed = set_data(other, "/h")

    assert peer.take() == x("0000001e ffffffff") + long(changed.zxid) + x("00000000 00000003 00000003 00000002 2f68")


def test_33f_exists_and_get_data_on_one_path_are_one_watch(peer, other):
    peer.create("/m")
    peer.get("/m", watch=True)
    peer.exists("/m", watch=True)

    other.set("/m", b"1")
    other.set("/m", b"2")

    assert peer.receive() == [(CHANGED, "/m")]


def test_34_a_deletion_is_told_once_per_connection(peer, other):
    peer.create("/m")
    peer.get("/m", watch=True)
    peer.children("/m", watch=True)
    peer.children("/", watch=True)

    other.delete("/m")

    assert peer.receive() == [(DELETED, "/m"), (CHILDREN, "/")]


def test_34b_both_watches_of_a_deleted_node_are_used_up(peer, other):
    peer.create("/m")
    peer.get("/m", watch=True)
    peer.children("/m", watch=True)
    other.delete("/m")
    peer.receive()

    other.create("/m")
    other.create("/m/c")
    other.set("/m", b"new")

    assert peer.receive() == []


def test_34c_a_child_watch_alone_tells_of_the_deletion(peer, other):
    peer.create("/m")
    peer.children("/m", watch=True)

    other.delete("/m")

    assert peer.receive() == [(DELETED, "/m")]


def test_34d_each_connection_is_told(engine, peer, other):
    third = connected(engine)
    peer.create("/m")
    peer.get("/m", watch=True)
    third.children("/m", watch=True)

    other.delete("/m")

    assert peer.receive() == [(DELETED, "/m")]
    assert third.receive() == [(DELETED, "/m")]


def test_34e_a_recursive_watch_above_and_a_child_watch_tell_of_a_deletion_once(peer, other):
    peer.create("/m")
    peer.children("/m", watch=True)
    add_watch(peer, "/", RECURSIVE_WATCH)

    other.delete("/m")

    assert peer.receive() == [(DELETED, "/m")]


def test_35_an_event_comes_before_the_reply_of_the_write_that_caused_it(peer):
    peer.create("/p")
    peer.children("/p", watch=True)

    replies = peer.send(OpCode.CREATE, r.CreateRequest("/p/x", b"", OPEN_ACL_UNSAFE, 0).encode(), xid=9)

    assert [(reply.xid, reply.body) for reply in replies] == [
        (-1, x("00000004 00000003") + string("/p")),
        (9, string("/p/x")),
    ]


def test_35b_all_events_of_a_multi_come_in_its_order_before_its_reply(peer):
    peer.create("/own")
    error(peer, OpCode.EXISTS, r.ExistsRequest("/n1", True))
    peer.get("/own", watch=True)
    peer.children("/", watch=True)

    operations = wire.encode_operations([creating("/n1"), setting("/own"), deleting("/n1")])
    replies = peer.send(OpCode.MULTI, operations, xid=9)

    assert [reply.xid for reply in replies] == [-1, -1, -1, 9]
    assert peer.receive() == [(CREATED, "/n1"), (CHILDREN, "/"), (CHANGED, "/own")]


def test_35c_an_event_comes_before_a_read_that_shows_the_change(peer, other):
    peer.create("/p")
    peer.get("/p", watch=True)
    other.set("/p", b"new")

    replies = peer.send(OpCode.GET_DATA, r.GetDataRequest("/p", False).encode(), xid=9)

    assert [reply.xid for reply in replies] == [-1, 9]


@pytest.mark.parametrize("mode", [PERSISTENT_WATCH, RECURSIVE_WATCH])
def test_36_the_reply_to_add_watch_has_a_body_of_four_zeroes(peer, mode):
    reply = add_watch(peer, "/missing", mode)

    assert (reply.err, reply.body) == (OK, x("00000000"))


@pytest.mark.parametrize("mode", [2, -1, 7])
def test_36b_another_mode_is_a_marshalling_error(peer, mode):
    reply = add_watch(peer, "/", mode)

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")


def test_36c_a_recursive_watch_tells_of_descendants_and_never_of_children_changed(peer, other):
    add_watch(peer, "/r", RECURSIVE_WATCH)

    other.create("/r")
    other.create("/r/c")
    other.create("/r/c/d")
    other.set("/r/c/d", b"new")
    other.delete("/r/c/d")
    other.set("/r", b"new")

    assert peer.receive() == [
        (CREATED, "/r"),
        (CREATED, "/r/c"),
        (CREATED, "/r/c/d"),
        (CHANGED, "/r/c/d"),
        (DELETED, "/r/c/d"),
        (CHANGED, "/r"),
    ]


def test_36d_a_recursive_watch_does_not_tell_of_a_path_that_only_starts_alike(peer, other):
    add_watch(peer, "/r", RECURSIVE_WATCH)

    other.create("/rx")
    other.create("/rx/c")

    assert peer.receive() == []


def test_36e_a_recursive_watch_on_the_root_tells_of_everything(peer, other):
    add_watch(peer, "/", RECURSIVE_WATCH)

    other.create("/a")
    other.set("/", b"new")
    other.delete("/a")

    assert peer.receive() == [(CREATED, "/a"), (CHANGED, "/"), (DELETED, "/a")]


def test_36f_a_persistent_watch_tells_of_the_node_and_its_children_again_and_again(peer, other):
    add_watch(peer, "/p", PERSISTENT_WATCH)

    other.create("/p")
    other.create("/p/c")
    other.set("/p/c", b"new")
    other.create("/p/c/d")
    other.delete("/p/c/d")
    other.delete("/p/c")
    other.set("/p", b"new")
    other.delete("/p")
    other.create("/p")

    assert peer.receive() == [
        (CREATED, "/p"),
        (CHILDREN, "/p"),
        (CHILDREN, "/p"),
        (CHANGED, "/p"),
        (DELETED, "/p"),
        (CREATED, "/p"),
    ]


def test_36g_a_persistent_and_a_one_shot_watch_on_one_path_give_one_event(peer, other):
    peer.create("/p")
    add_watch(peer, "/p", PERSISTENT_WATCH)
    peer.get("/p", watch=True)

    other.set("/p", b"1")
    other.set("/p", b"2")

    assert peer.receive() == [(CHANGED, "/p"), (CHANGED, "/p")]


def test_36h_a_persistent_watch_tells_of_every_ephemeral_that_goes_with_its_session(peer, other):
    peer.create("/p")
    other.create("/p/a", flags=EPHEMERAL)
    other.create("/p/b", flags=EPHEMERAL)
    other.create("/p/c", flags=EPHEMERAL)
    add_watch(peer, "/p", PERSISTENT_WATCH)

    other.close()

    assert peer.receive() == [(CHILDREN, "/p"), (CHILDREN, "/p"), (CHILDREN, "/p")]


def set_watches(
    peer: Peer, zxid: int, data: list[str] | None = None, exist: list[str] | None = None, child: list[str] | None = None
) -> bytes:
    """Set watches again, as a client does that has lost its connection; give all bytes that come back."""
    return peer.feed(request(-8, OpCode.SET_WATCHES, r.SetWatches(zxid, data or [], exist or [], child or [])))


def silence(zxid: int) -> bytes:
    """The reply to set_watches when nothing is to be told."""
    return frame(x("fffffff8") + long(zxid) + x("00000000"))


def missed(kind: int, path: str) -> bytes:
    """The notification of something that happened while the client was away."""
    return frame(x("ffffffff ffffffffffffffff 00000000") + r.WatcherEvent(kind, 3, path).encode())


def test_37_a_data_watch_set_again_at_the_zxid_of_the_last_change_is_silent_and_set(peer, other):
    made = create(peer, "/d")

    raw = set_watches(peer, made.zxid, data=["/d"])
    other.set("/d", b"new")

    assert raw == silence(made.zxid)
    assert peer.receive() == [(CHANGED, "/d")]


def test_37b_a_data_watch_set_again_before_the_last_change_fires_at_once_before_the_reply_and_is_not_set(peer, other):
    made = create(peer, "/d")

    raw = set_watches(peer, made.zxid - 1, data=["/d"])
    other.set("/d", b"new")

    assert raw == missed(CHANGED, "/d") + silence(made.zxid)
    assert peer.receive() == []


def test_37c_an_exist_watch_set_again_on_a_present_node_fires_whatever_the_zxids(peer, other):
    made = create(peer, "/d")

    raw = set_watches(peer, made.zxid + 100, exist=["/d"])
    other.set("/d", b"new")

    assert raw == missed(CREATED, "/d") + silence(made.zxid)
    assert peer.receive() == []


def test_37d_an_exist_watch_set_again_on_a_missing_node_is_silent_and_set(peer, other):
    raw = set_watches(peer, 0, exist=["/d"])
    other.create("/d")

    assert raw == silence(2)
    assert peer.receive() == [(CREATED, "/d")]


def test_37e_a_child_or_data_watch_set_again_on_a_missing_node_tells_of_a_deletion_and_is_not_set(peer, other):
    raw = set_watches(peer, 0, data=["/d"], child=["/c"])
    other.create("/d")
    other.create("/c")

    assert raw == missed(DELETED, "/d") + missed(DELETED, "/c") + silence(2)
    assert peer.receive() == []


def test_37f_a_child_watch_set_again_at_the_zxid_of_the_last_child_is_silent_and_set(peer, other):
    peer.create("/p")
    child = create(peer, "/p/c")

    raw = set_watches(peer, child.zxid, child=["/p"])
    other.delete("/p/c")

    assert raw == silence(child.zxid)
    assert peer.receive() == [(CHILDREN, "/p")]


def test_37g_a_child_watch_set_again_before_the_last_child_fires_at_once_and_is_not_set(peer, other):
    peer.create("/p")
    child = create(peer, "/p/c")

    raw = set_watches(peer, child.zxid - 1, child=["/p"])
    other.delete("/p/c")

    assert raw == missed(CHILDREN, "/p") + silence(child.zxid)
    assert peer.receive() == []


def test_37h_a_child_watch_set_again_sees_a_deleted_child(peer):
    peer.create("/p")
    child = create(peer, "/p/c")
    deleted = delete(peer, "/p/c")

    raw = set_watches(peer, child.zxid, child=["/p"])

    assert raw == missed(CHILDREN, "/p") + silence(deleted.zxid)


def test_37i_the_lists_are_taken_in_order_and_a_path_may_be_in_several(peer):
    peer.create("/p")
    peer.create("/q")
    last = create(peer, "/p/c").zxid

    raw = set_watches(peer, 0, data=["/q", "/p"], exist=["/p"], child=["/p"])

    assert raw == (
        missed(CHANGED, "/q") + missed(CHANGED, "/p") + missed(CREATED, "/p") + missed(CHILDREN, "/p") + silence(last)
    )


def test_37j_watches_that_stay_are_set_again_without_a_word(peer, other):
    peer.create("/p")
    body = r.SetWatches2(0, [], [], [], ["/p"], ["/r"])

    raw = peer.feed(request(-8, OpCode.SET_WATCHES2, body))
    other.create("/p/c")
    other.create("/p/d")
    other.create("/r")
    other.create("/r/c")

    assert raw == silence(3)
    assert peer.receive() == [(CHILDREN, "/p"), (CHILDREN, "/p"), (CREATED, "/r"), (CREATED, "/r/c")]


def test_37k_set_watches_needs_no_right(peer):
    made = create(peer, "/d", acl=only(Perm.WRITE))

    raw = set_watches(peer, 0, data=["/d"])

    assert raw == missed(CHANGED, "/d") + silence(made.zxid)


def test_37l_a_null_list_is_a_marshalling_error_after_the_lists_before_it(peer):
    body = r.SetWatches(0, ["/missing"], None, [])

    replies = peer.send(OpCode.SET_WATCHES, body.encode(), xid=-8)

    assert [(reply.xid, reply.err) for reply in replies] == [(-1, OK), (-8, MARSHALLING_ERROR)]
    assert peer.receive() == [(DELETED, "/missing")]


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5])
def test_38_checking_or_removing_a_watch_that_is_not_there_finds_none(peer, kind):
    assert check_watches(peer, "/", kind) == NO_WATCHER
    assert remove_watches(peer, "/", kind) == NO_WATCHER


@pytest.mark.parametrize("kind", [0, 6, 7, -1])
def test_38b_an_unknown_type_of_watch_is_a_marshalling_error(peer, kind):
    peer.get("/", watch=True)

    assert check_watches(peer, "/", kind) == MARSHALLING_ERROR
    assert remove_watches(peer, "/", kind) == MARSHALLING_ERROR


def test_38c_a_watch_can_be_removed_once(peer, other):
    peer.get("/", watch=True)

    assert remove_watches(peer, "/", 2) == OK
    assert remove_watches(peer, "/", 2) == NO_WATCHER
    other.set("/", b"new")
    assert peer.receive() == []


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5])
def test_38d_the_watches_of_other_connections_do_not_count(peer, other, kind):
    other.get("/", watch=True)
    other.children("/", watch=True)
    add_watch(other, "/", PERSISTENT_WATCH)
    add_watch(other, "/", RECURSIVE_WATCH)

    assert check_watches(peer, "/", kind) == NO_WATCHER
    assert remove_watches(peer, "/", kind) == NO_WATCHER
    assert check_watches(other, "/", kind) == OK


def test_38e_a_data_watch_is_data_or_any_and_nothing_else(peer):
    peer.get("/", watch=True)

    assert [check_watches(peer, "/", kind) for kind in (1, 2, 3, 4, 5)] == [NO_WATCHER, OK, OK, NO_WATCHER, NO_WATCHER]


def test_38f_a_child_watch_is_children_or_any_and_nothing_else(peer):
    peer.children("/", watch=True)

    assert [check_watches(peer, "/", kind) for kind in (1, 2, 3, 4, 5)] == [OK, NO_WATCHER, OK, NO_WATCHER, NO_WATCHER]


def test_38g_a_persistent_watch_is_persistent_or_any_and_nothing_else(peer):
    add_watch(peer, "/", PERSISTENT_WATCH)

    assert [check_watches(peer, "/", kind) for kind in (1, 2, 3, 4, 5)] == [NO_WATCHER, NO_WATCHER, OK, OK, NO_WATCHER]


def test_38h_a_recursive_watch_is_recursive_or_any_and_nothing_else_and_only_on_its_own_path(peer):
    add_watch(peer, "/", RECURSIVE_WATCH)

    assert [check_watches(peer, "/", kind) for kind in (1, 2, 3, 4, 5)] == [NO_WATCHER, NO_WATCHER, OK, NO_WATCHER, OK]
    assert check_watches(peer, "/zookeeper", 3) == NO_WATCHER


def test_38i_a_watch_on_a_missing_node_is_a_data_watch(peer):
    error(peer, OpCode.EXISTS, r.ExistsRequest("/missing", True))

    assert check_watches(peer, "/missing", 2) == OK


def test_38j_removing_any_removes_all(peer, other):
    peer.get("/", watch=True)
    peer.children("/", watch=True)
    add_watch(peer, "/", PERSISTENT_WATCH)
    add_watch(peer, "/", RECURSIVE_WATCH)

    removed = remove_watches(peer, "/", 3)
    other.create("/x")
    other.set("/", b"new")

    assert removed == OK
    assert peer.receive() == []
    assert check_watches(peer, "/", 3) == NO_WATCHER


def test_38k_removing_a_persistent_watch_leaves_the_others(peer, other):
    peer.create("/p")
    peer.get("/p", watch=True)
    add_watch(peer, "/p", PERSISTENT_WATCH)

    removed = remove_watches(peer, "/p", 4)
    other.create("/p/c")
    other.set("/p", b"1")
    other.set("/p", b"2")

    assert removed == OK
    assert peer.receive() == [(CHANGED, "/p")]


def test_38l_a_watch_that_has_fired_is_no_longer_found(peer, other):
    peer.get("/", watch=True)

    other.set("/", b"new")

    assert check_watches(peer, "/", 2) == NO_WATCHER


def test_38m_the_watch_flag_inside_a_multi_read_is_ignored(peer):
    body = wire.encode_operations(
        [
            (OpCode.GET_DATA, r.GetDataRequest("/", True)),
            (OpCode.GET_CHILDREN, r.GetChildrenRequest("/", True)),
        ]
    )

    reply = ask(peer, OpCode.MULTI_READ, body)

    assert reply.err == OK
    assert check_watches(peer, "/", 3) == NO_WATCHER


# --- 39 and 40: authentication and access control ---


def test_39_scheme_auth_without_identity_is_an_invalid_acl(peer):
    assert create(peer, "/a", acl=only(Perm.ALL, "auth", "anything")).err == INVALID_ACL


@pytest.mark.parametrize("name", ["anything", "", None])
def test_39b_scheme_auth_stands_for_all_identities_of_the_connection(peer, name):
    peer.auth("digest", b"u:p")
    peer.auth("digest", b"u2:p")

    peer.create("/a", acl=only(Perm.ALL, "auth", name))

    assert {(entry.perms, entry.id.scheme, entry.id.id) for entry in acl_of(peer, "/a")} == {
        (31, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="),
        (31, "digest", digest_id(b"u2:p")),
    }
    assert len(acl_of(peer, "/a")) == 2


def test_39c_a_null_id_of_the_world_is_a_marshalling_error_that_takes_a_zxid(peer):
    before = last_zxid(peer)

    reply = create(peer, "/a", acl=only(Perm.ALL, "world", None))

    assert (reply.err, reply.zxid) == (MARSHALLING_ERROR, before + 1)
    assert last_zxid(peer) == before + 1


@pytest.mark.parametrize(
    ("scheme", "name", "err"),
    [
        ("world", "x", INVALID_ACL),
        ("world", "", INVALID_ACL),
        (None, "anyone", INVALID_ACL),
        ("none", "anyone", INVALID_ACL),
        ("super", "", INVALID_ACL),
        ("digest", None, MARSHALLING_ERROR),
        ("digest", "a:b", OK),
        ("digest", ":b", OK),
        ("digest", "a:b:", OK),
        ("digest", "a b:c", OK),
        ("digest", "x", INVALID_ACL),
        ("digest", "a:", INVALID_ACL),
        ("digest", "a::", INVALID_ACL),
        ("digest", "a:b:c", INVALID_ACL),
        ("digest", "::b", INVALID_ACL),
        ("digest", ":", INVALID_ACL),
        ("digest", "", INVALID_ACL),
        ("ip", "127.0.0.1", OK),
        ("ip", "+127.0.0.1", OK),
        ("ip", "127.0.0.01", OK),
        ("ip", "10.0.0.0/8", OK),
        ("ip", "10.0.0.0/0", OK),
        ("ip", "10.0.0.0/32", OK),
        ("ip", "10.0.0.0/33", INVALID_ACL),
        ("ip", "10.0.0.0/-1", INVALID_ACL),
        ("ip", "10.0.0.0/x", INVALID_ACL),
        ("ip", "127.0.0.1/", INVALID_ACL),
        ("ip", "1.2.3", INVALID_ACL),
        ("ip", "1.2.3.", INVALID_ACL),
        ("ip", "1.2.3.256", INVALID_ACL),
        ("ip", None, MARSHALLING_ERROR),
    ],
)
def test_39d_the_id_of_an_acl_entry_must_suit_its_scheme(peer, scheme, name, err):
    assert create(peer, "/a", acl=only(Perm.ALL, scheme, name)).err == err


def test_39e_an_acl_read_without_the_right_to_change_it_hides_the_digest(peer, other):
    peer.create("/a", acl=only(Perm.READ) + only(Perm.ALL, "digest", "u:secret"))

    assert acl_of(other, "/a") == only(Perm.READ) + only(Perm.ALL, "digest", "u:x")


def test_39f_an_acl_read_with_the_right_to_change_it_shows_the_digest(peer, other):
    peer.create("/a", acl=only(Perm.READ) + only(Perm.ALL, "digest", digest_id(b"u:p")))
    other.auth("digest", b"u:p")

    assert acl_of(other, "/a") == only(Perm.READ) + only(Perm.ALL, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=")


def test_39g_exact_duplicates_are_dropped_and_the_order_is_kept(peer):
    ip = only(Perm.READ, "ip", "10.0.0.1")

    peer.create("/a", acl=OPEN_ACL_UNSAFE + ip + OPEN_ACL_UNSAFE + only(Perm.WRITE, "ip", "10.0.0.1") + ip)

    assert acl_of(peer, "/a") == OPEN_ACL_UNSAFE + ip + only(Perm.WRITE, "ip", "10.0.0.1")


def test_39h_perms_are_kept_as_they_came(peer):
    peer.create("/a", acl=only(-1))

    assert acl_of(peer, "/a") == only(-1)


def test_39i_who_am_i_shows_of_a_digest_only_the_user(peer):
    peer.auth("digest", b"u:p")
    peer.auth("digest", b"justuser")

    assert who_am_i(peer) == {("ip", "127.0.0.1"), ("digest", "u"), ("digest", "justuser")}


def test_39j_super_passes_every_acl():
    engine = Engine(Settings(super_digest="super:xQJmxLMiHGwaqBvst5y6rkB6HQs="))
    peer = connected(engine)
    peer.create("/a", b"secret", acl=only(0))
    denied = error(peer, OpCode.GET_DATA, r.GetDataRequest("/a", False))

    peer.auth("digest", b"super:admin")

    assert denied == NO_AUTH
    assert peer.get("/a")[0] == b"secret"
    assert set_data(peer, "/zookeeper/config").err == OK
    assert who_am_i(peer) == {("ip", "127.0.0.1"), ("digest", "super"), ("super", "")}


def test_39k_skipping_acls_still_validates_them():
    peer = connected(Engine(Settings(skip_acl=True)))
    peer.create("/a", b"secret", acl=only(0))

    assert peer.get("/a")[0] == b"secret"
    assert create(peer, "/b", acl=()).err == INVALID_ACL


def test_40_delete_needs_only_the_right_to_delete_in_the_parent(peer):
    peer.create("/p")
    peer.create("/p/child", acl=only(0))
    set_acl(peer, "/p", only(Perm.DELETE))

    assert delete(peer, "/p/child").err == OK


@pytest.mark.parametrize("perm", [Perm.READ, Perm.WRITE, Perm.CREATE, Perm.DELETE, Perm.ADMIN])
@pytest.mark.parametrize(
    ("op", "body", "enough"),
    [
        (OpCode.CREATE, r.CreateRequest("/p/new", b"", OPEN_ACL_UNSAFE, 0), Perm.CREATE),
        (OpCode.CREATE2, r.CreateRequest("/p/new", b"", OPEN_ACL_UNSAFE, 0), Perm.CREATE),
        (OpCode.CREATE_CONTAINER, r.CreateRequest("/p/new", b"", OPEN_ACL_UNSAFE, 4), Perm.CREATE),
        (OpCode.CREATE_TTL, r.CreateTTLRequest("/p/new", b"", OPEN_ACL_UNSAFE, 5, 1000), Perm.CREATE),
        (OpCode.DELETE, r.DeleteRequest("/p/child", -1), Perm.DELETE),
        (OpCode.EXISTS, r.ExistsRequest("/p", False), Perm.READ),
        (OpCode.GET_DATA, r.GetDataRequest("/p", False), Perm.READ),
        (OpCode.GET_CHILDREN, r.GetChildrenRequest("/p", False), Perm.READ),
        (OpCode.GET_CHILDREN2, r.GetChildrenRequest("/p", False), Perm.READ),
        (OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest("/p"), Perm.READ),
        (OpCode.GET_ACL, r.GetACLRequest("/p"), Perm.READ | Perm.ADMIN),
        (OpCode.SET_DATA, r.SetDataRequest("/p", b"", -1), Perm.WRITE),
        (OpCode.SET_ACL, r.SetACLRequest("/p", OPEN_ACL_UNSAFE, -1), Perm.ADMIN),
        (OpCode.SYNC, r.SyncRequest("/p"), Perm.ALL),
        (OpCode.ADD_WATCH, r.AddWatchRequest("/p", 0), Perm.ALL),
    ],
)
def test_40b_each_operation_needs_its_own_right(peer, op, body, enough, perm):
    peer.create("/p")
    peer.create("/p/child")
    set_acl(peer, "/p", only(perm))

    assert error(peer, op, body) == (OK if perm & enough else NO_AUTH)


@pytest.mark.parametrize(
    ("op", "body"), [(OpCode.SYNC, r.SyncRequest("/p")), (OpCode.ADD_WATCH, r.AddWatchRequest("/p", RECURSIVE_WATCH))]
)
def test_40c_sync_and_add_watch_need_no_right_at_all(peer, op, body):
    peer.create("/p", acl=only(0))

    assert error(peer, op, body) == OK


@pytest.mark.parametrize(("perms", "code"), [(Perm.READ, OK), (Perm.ALL & ~Perm.READ, NO_AUTH)])
def test_40d_check_inside_a_multi_needs_the_right_to_read(peer, perms, code):
    peer.create("/p", acl=only(perms))

    ((_, result),) = wire.decode_results(multi(peer, checking("/p")).body)

    assert getattr(result, "err", OK) == code


def test_40e_rights_are_not_inherited(peer):
    peer.create("/p")
    peer.create("/p/child", b"open")
    set_acl(peer, "/p", only(0))

    assert peer.get("/p/child")[0] == b"open"
    assert peer.create("/p/child/below") == "/p/child/below"


def test_40f_a_refused_read_leaves_no_watch(peer, other):
    peer.create("/p", acl=only(Perm.ALL & ~Perm.READ))

    refused = [
        error(other, OpCode.EXISTS, r.ExistsRequest("/p", True)),
        error(other, OpCode.GET_DATA, r.GetDataRequest("/p", True)),
        error(other, OpCode.GET_CHILDREN, r.GetChildrenRequest("/p", True)),
    ]

    assert refused == [NO_AUTH, NO_AUTH, NO_AUTH]
    assert check_watches(other, "/p", 3) == NO_WATCHER


def test_40g_an_ip_entry_is_for_that_network_only(engine, peer):
    peer.create("/p", acl=only(Perm.READ, "ip", "10.1.0.0/16"))
    near, far = Peer(engine, host="10.1.2.3"), Peer(engine, host="10.2.2.3")
    near.connect()
    far.connect()

    assert error(near, OpCode.GET_DATA, r.GetDataRequest("/p", False)) == OK
    assert error(far, OpCode.GET_DATA, r.GetDataRequest("/p", False)) == NO_AUTH


def test_40h_the_configuration_is_for_everybody_to_read_and_nobody_to_change(peer):
    assert peer.get("/zookeeper/config")[0] == b""
    assert set_data(peer, "/zookeeper/config").err == NO_AUTH
    assert set_acl(peer, "/zookeeper/config", OPEN_ACL_UNSAFE).err == NO_AUTH
    assert create(peer, "/zookeeper/config/x").err == NO_AUTH


# --- appendix A: what differs between releases ---


@pytest.fixture
def old() -> Peer:
    """A connection to a server that answers as 3.8.0 does."""
    return connected(Engine(Settings(compat=V3_8), now=NOW))


def test_a1_in_3_8_the_zxid_of_a_notification_is_minus_one(old):
    old.create("/h")
    old.get("/h", watch=True)

    raw = old.feed(request(9, OpCode.SET_DATA, r.SetDataRequest("/h", b"", -1)))

    assert raw[:34] == x("0000001e ffffffff ffffffffffffffff 00000000 00000003 00000003 00000002 2f68")


@pytest.mark.parametrize("perm", [Perm.WRITE, 0])
def test_a2_in_3_8_exists_needs_no_right(old, perm):
    old.create("/p", acl=only(perm))

    assert error(old, OpCode.EXISTS, r.ExistsRequest("/p", False)) == OK


def test_a3_an_event_of_a_node_that_the_connection_may_not_read_is_dropped_and_uses_up_the_watch(peer, other):
    peer.create("/p")
    other.get("/p", watch=True)
    set_acl(peer, "/p", only(Perm.ALL & ~Perm.READ))

    peer.set("/p", b"1")
    set_acl(peer, "/p", OPEN_ACL_UNSAFE)
    peer.set("/p", b"2")

    assert other.receive() == []


def test_a3b_a_recursive_watch_hears_of_the_readable_children_of_an_unreadable_node(peer, other):
    peer.create("/p", acl=only(Perm.ALL & ~Perm.READ))
    add_watch(other, "/p", RECURSIVE_WATCH)

    peer.set("/p", b"1")
    peer.create("/p/open")
    peer.create("/p/shut", acl=only(Perm.WRITE))
    peer.delete("/p/shut")

    assert other.receive() == [(CREATED, "/p/open")]


def test_a3c_children_changed_is_filtered_by_the_right_to_read_the_parent(peer, other):
    peer.create("/p")
    other.children("/p", watch=True)
    set_acl(peer, "/p", only(Perm.ALL & ~Perm.READ))

    peer.create("/p/c")

    assert other.receive() == []


def test_a4_in_3_8_create2_inside_a_multi_answers_the_path_only(old):
    reply = multi(old, (OpCode.CREATE2, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, 0)))

    assert reply.body == x("00000001 00 00000000") + string("/c") + x(END)


def test_a5_an_unknown_flag_inside_a_multi_fails_the_whole_request(peer):
    reply = multi(peer, creating("/a"), creating("/b", flags=99))

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")
    assert peer.children("/") == ["zookeeper"]


def test_a5b_in_3_8_an_unknown_flag_inside_a_multi_fails_its_operation(old):
    reply = multi(old, creating("/a"), creating("/b", flags=99))

    assert reply.err == OK
    assert reply.body == x("ffffffff 00 00000000 00000000 ffffffff 00 fffffff8 fffffff8" + END)


def test_a6_in_3_8_a_write_whose_body_does_not_decode_consumes_a_zxid(old):
    reply = ask(old, OpCode.SET_DATA, string("/"))

    assert (reply.err, reply.zxid) == (MARSHALLING_ERROR, 2)
    assert last_zxid(old) == 2


def test_a7_in_3_8_a_one_shot_watch_replaces_the_persistent_one(old):
    old.create("/p")
    add_watch(old, "/p", PERSISTENT_WATCH)
    old.get("/p", watch=True)

    old.set("/p", b"1")
    old.set("/p", b"2")

    assert old.receive() == [(CHANGED, "/p")]


@pytest.mark.parametrize("kind", [4, 5])
def test_a8_in_3_8_the_types_of_watches_that_stay_are_unknown(old, kind):
    assert check_watches(old, "/", kind) == MARSHALLING_ERROR
    assert remove_watches(old, "/", kind) == MARSHALLING_ERROR


def test_a9_in_3_8_the_watches_of_other_connections_are_found_but_not_removed(old):
    second = connected(old.engine)
    second.get("/", watch=True)

    assert check_watches(old, "/", 2) == OK
    assert remove_watches(old, "/", 2) == NO_WATCHER


# --- appendix B: defects of the real server ---


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("ttl", [-1, -(2**63)])
def test_b1_a_ttl_create_with_other_flags_and_a_negative_ttl_is_refused_and_the_server_goes_on(peer, flags, ttl):
    reply = create_ttl(peer, "/t", ttl, flags)

    assert (reply.err, reply.body) == (BAD_ARGUMENTS, b"")
    assert peer.create("/t") == "/t"


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4])
def test_b1b_a_ttl_create_with_other_flags_and_a_ttl_is_refused(peer, flags):
    assert create_ttl(peer, "/t", 1000, flags).err == BAD_ARGUMENTS


@pytest.mark.parametrize("enforced", [False, True])
def test_b2_limits_directly_below_the_quotas_are_a_plain_node(enforced):
    peer = connected(Engine(Settings(enforce_quota=enforced)))

    peer.create("/zookeeper/quota/zookeeper_limits", b"count=1,bytes=1=;byteHardLimit=1;countHardLimit=1")
    peer.create("/zookeeper/quota/zookeeper_stats", b"mine")
    peer.create("/a", b"more than a byte")

    assert peer.get("/zookeeper/quota/zookeeper_stats")[0] == b"mine"
    assert delete(peer, "/zookeeper/quota/zookeeper_limits").err == OK


@pytest.mark.parametrize("parent", ["/zookeeper", "/zookeeperx", "/zookeeper/other", "/zookeeper/quotas", "/x"])
def test_b3_limits_outside_the_quotas_are_a_plain_node_and_can_be_deleted(peer, parent):
    create(peer, parent)
    peer.create(f"{parent}/zookeeper_limits", b"count=1")

    assert delete(peer, f"{parent}/zookeeper_limits").err == OK
    assert "zookeeper_limits" not in peer.children(parent)


def test_b4_deleting_a_container_the_internal_way_is_refused_and_ends_the_connection(peer, other):
    create(peer, "/c", CONTAINER, op=OpCode.CREATE_CONTAINER)

    raw = peer.feed(request(9, OpCode.DELETE_CONTAINER, string("/c")))

    assert raw == x("00000010 00000009 ffffffffffffffff fffffffa")
    assert peer.closed
    assert other.children("/") == ["c", "zookeeper"]


@pytest.mark.parametrize("compat", [{}, {"compat": V3_8}])
@pytest.mark.parametrize("path", ["/", "/none"])
def test_b5_a_check_outside_a_multi_is_refused_and_ends_the_connection(compat, path):
    peer = connected(Engine(Settings(**compat)))

    raw = peer.feed(request(9, OpCode.CHECK, r.CheckVersionRequest(path, -1)))

    assert raw == x("00000010 00000009 ffffffffffffffff fffffffa")
    assert peer.closed


def test_b6_creating_a_session_by_request_is_refused_and_takes_no_zxid(peer, other):
    raw = peer.feed(request(9, OpCode.CREATE_SESSION, x("00002710")))

    assert raw == x("00000010 00000009 ffffffffffffffff fffffffa")
    assert peer.closed
    assert last_zxid(other) == 2


# --- appendix D: more that the real server does, and more that stops it ---


@pytest.mark.parametrize("flags", [5, 6])
def test_d1_a_ttl_flag_in_a_plain_create_fails_the_whole_multi(peer, flags):
    reply = multi(peer, creating("/a"), creating("/b", flags))

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")
    assert peer.children("/") == ["zookeeper"]


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (OpCode.CREATE, r.CreateRequest(None, b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.DELETE, r.DeleteRequest(None, -1)),
        (OpCode.SET_DATA, r.SetDataRequest(None, b"", -1)),
        (OpCode.CHECK, r.CheckVersionRequest(None, -1)),
    ],
)
def test_d2_a_null_path_fails_the_whole_multi(peer, op, body):
    reply = multi(peer, creating("/a"), (op, body))

    assert reply.err == MARSHALLING_ERROR
    assert peer.children("/") == ["zookeeper"]


@pytest.mark.parametrize(
    "stats", [None, b"", b"count=", b",", b",count=1", b"count=\n1,bytes=1", b"count=99999999999999999999"]
)
def test_d3_statistics_that_do_not_parse_do_not_stop_the_server(peer, stats):
    limit(peer, "/q", "count=5,bytes=100")
    peer.set("/zookeeper/quota/q/zookeeper_stats", stats)

    made = create(peer, "/q/a")

    assert made.err == OK
    assert peer.children("/q") == ["a"]
    assert delete(peer, "/q/a").err == OK


def test_d4_a_watch_on_a_null_path_is_accepted_and_the_connection_goes_on(peer):
    reply = add_watch(peer, None, PERSISTENT_WATCH)

    assert (reply.err, reply.body) == (OK, x("00000000"))
    assert peer.create("/a") == "/a"
    assert peer.receive() == []


def test_d5_quota_statistics_count_the_node_and_all_below_without_touching_their_own_stat(engine, peer, other):
    limit(peer, "/q", "count=5,bytes=100")
    add_watch(other, "/zookeeper", RECURSIVE_WATCH)
    before = peer.exists("/zookeeper/quota/q/zookeeper_stats")
    at(engine, 100)

    peer.create("/q/a", b"12345678")
    peer.create("/q/a/b", None)
    data, after = peer.get("/zookeeper/quota/q/zookeeper_stats")

    assert data == b"count=3,bytes=8"
    assert (after.version, after.mzxid, after.mtime) == (before.version, before.mzxid, before.mtime)
    assert other.receive() == []
